"""Checking the batches of a partition, one segment after the other: everything a log can show by itself."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from mqstore import errors
from mqstore.findings import Finding, Severity
from mqstore.kafka.damage import BatchDamage, next_batch, stop_at_damage
from mqstore.kafka.markers import read_marker
from mqstore.kafka.producer_state import ProducerStates, add_sequence
from mqstore.kafka.records import records_of
from mqstore.kafka.segment import Segment
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.checkpoints import EpochEntry
from mqstore.layout.kafka.constants import MAGIC_V2, NO_LEADER_EPOCH, TimestampType
from mqstore.layout.kafka.txn_index import AbortedTransaction

RECOVER = (
    "mqstore kafka recover DIR --output NEW cuts the log in front of it; mqstore kafka dump --skip-damage passes over "
    "it, as does a read on Spark with onCorruptBatch=skip"
)
REOPEN = "the next start of a writer cuts it off"


@dataclass
class SegmentFacts:
    """What a walk over a segment's sound batches tells, to hold derived files against.

    ``positions``, ``base_offsets``, ``last_offsets`` and ``largest_ms`` have one value per batch; the last is the
    largest timestamp so far. ``tells_all``: nothing was removed before or between that transactions would need.
    ``end_position``: where in the ``.log`` the walk ended.
    """

    segment: Segment
    positions: array[int] = field(default_factory=lambda: array("q"))
    base_offsets: array[int] = field(default_factory=lambda: array("q"))
    last_offsets: array[int] = field(default_factory=lambda: array("q"))
    largest_ms: array[int] = field(default_factory=lambda: array("q"))
    aborted: list[AbortedTransaction] = field(default_factory=list)
    abort_markers: set[tuple[int, int]] = field(default_factory=set)
    tells_all: bool = True
    holes: list[tuple[int, int, int]] = field(default_factory=list)
    is_whole: bool = True
    end_position: int = 0

    def has_grown(self) -> bool:
        """Whether batches have come since the walk: what is read only now may tell of them."""
        return next(self.segment.headers(self.end_position, on_damage=stop_at_damage), None) is not None

    @property
    def last_offset(self) -> int:
        """The last offset that was walked; one below the base offset when there is none."""
        return self.last_offsets[-1] if self.last_offsets else self.segment.base_offset - 1


class LogCheck:
    """Walks a partition's segments in order and reports what is wrong with their batches.

    Attributes:
        states: the producers up to where the walk has come.
        end_offset: one past the last offset seen.
        has_holes: whether offsets were missing so far: after compaction the log does not tell all that it told.
    """

    def __init__(
        self,
        report: Callable[[Finding], None],
        states: ProducerStates,
        epochs: list[EpochEntry] | None,
        knows_start: bool = True,
    ) -> None:
        """``states`` are the producers where the log begins; ``knows_start``: and that is all there were."""
        self._knows_start = knows_start
        self._report = report
        self.states = states
        self._epochs = epochs
        self.end_offset = states.end_offset
        self._epoch = -1
        self._hole_at = -1
        self._is_last = False
        self.has_holes = False

    def check(self, segment: Segment, is_last: bool) -> SegmentFacts:
        """Walk one segment; ``is_last``: a torn end is what a crash or a writer leaves, no more."""
        facts = SegmentFacts(segment)
        self._is_last = is_last
        position = 0
        while True:
            scan = segment.scan(position, check_crc=True)
            for chunk in scan:
                for header in chunk.headers():
                    self._batch(facts, chunk.position + header.position, header, chunk.buffer)
            damage, facts.end_position = scan.damage, scan.position
            if damage is None:
                self._padding(segment, scan.position)
                break
            following = next_batch(segment, damage.position, damage.size_bytes)
            self._damage(facts, damage, following)
            if following is None:
                break
            position = following
        self._holes(facts)
        facts.tells_all = self._knows_start and not self.has_holes
        return facts

    def _holes(self, facts: SegmentFacts) -> None:
        if facts.holes:
            position, expected, found = facts.holes[0]
            self._finding(
                Severity.NOTE, facts.segment, position, f"offsets are missing at {len(facts.holes)} places, first here",
                expected, found, "nothing needs to be done if the topic is compacted",
            )  # fmt: skip

    def _finding(
        self,
        severity: Severity,
        segment: Segment,
        position: int,
        message: str,
        expected: object = None,
        found: object = None,
        repair: str = RECOVER,
        area: str = "log",
    ) -> None:
        self._report(Finding(severity, area, str(segment.path()), position, message, expected, found, repair))

    def _damage(self, facts: SegmentFacts, damage: BatchDamage, following: int | None) -> None:
        facts.is_whole = False
        if following is None and self._is_last:
            size = facts.segment.size_bytes - damage.position
            message = f"the log ends in {size} bytes that are no whole batch"
            severity = Severity.WARNING if damage.reason in ("CUT_OFF", "SHORT") else Severity.ERROR
            repair = REOPEN if severity is Severity.WARNING else RECOVER
            self._finding(severity, facts.segment, damage.position, message, None, damage.reason, repair)
            return
        where = "to the end of the segment" if following is None else f"to byte {following}"
        self._finding(
            Severity.ERROR, facts.segment, damage.position, f"damaged batch, nothing can be read {where}",
            None, damage.reason,
        )  # fmt: skip
        self._hole_at = max(0, self.end_offset)

    def _padding(self, segment: Segment, position: int) -> None:
        if position < segment.size_bytes and not self._is_last:
            self._finding(
                Severity.NOTE, segment, position, "zeros at the end of a segment that has ended", None,
                f"{segment.size_bytes - position} bytes", "nothing needs to be done",
            )  # fmt: skip

    def _batch(self, facts: SegmentFacts, position: int, header: BatchHeader, buffer: bytes) -> None:
        segment = facts.segment
        if header.base_offset < max(self.end_offset, segment.base_offset):
            facts.is_whole = False
            self._finding(
                Severity.ERROR, segment, position, "offsets go back",
                f"from {max(self.end_offset, segment.base_offset)} on", header.base_offset,
            )  # fmt: skip
        elif header.base_offset > self.end_offset and header.magic == MAGIC_V2:
            if self._hole_at < self.end_offset:
                facts.holes.append((position, self.end_offset, header.base_offset))
            self.has_holes = True
            self._hole_at = header.base_offset
        if header.last_offset == LONG_MAX:
            self._finding(Severity.ERROR, segment, position, "no offset is left behind the batch",
                          f"< {LONG_MAX}", header.last_offset)  # fmt: skip
        self._epoch_of(segment, position, header)
        self._records(segment, position, header, buffer)
        self._producer(segment, position, header)
        largest = facts.largest_ms[-1] if facts.largest_ms else -1
        facts.positions.append(position)
        facts.base_offsets.append(header.base_offset)
        facts.last_offsets.append(header.last_offset)
        facts.largest_ms.append(max(largest, header.max_timestamp_ms))
        self.end_offset = max(self.end_offset, header.last_offset + 1)
        try:
            marker = read_marker(buffer, header)
        except errors.CorruptBatchError as error:
            repair = "readers of committed records wait at its transaction until end_transaction ends it"
            self._finding(Severity.ERROR, segment, position, f"a control batch without a marker: {error.message}",
                          error.expected, error.found, repair, "transactions")  # fmt: skip
            marker = None
        except errors.UsageError:
            marker = None  # told by _records: the library of its codec is missing
        if marker is not None and not marker.commit:
            facts.abort_markers.add((header.producer_id, header.base_offset))
        aborted = self.states.apply(header, marker)
        if aborted is not None:
            facts.aborted.append(aborted)

    def _records(self, segment: Segment, position: int, header: BatchHeader, buffer: bytes) -> None:
        try:
            records = records_of(segment, position, header, buffer)
        except errors.CorruptBatchError as error:
            self._finding(Severity.ERROR, segment, position, "records cannot be read", error.expected, error.found)
            return
        except errors.UsageError as error:
            self._finding(
                Severity.WARNING, segment, position, "records were not looked at", None, error.message,
                error.hint or errors.hint_extra("kafka", "codecs"),
            )  # fmt: skip
            return
        if not records or header.timestamp_type is not TimestampType.CREATE_TIME:
            return
        newest = max(record.timestamp_ms for record in records)
        if newest != header.max_timestamp_ms:
            self._finding(
                Severity.WARNING, segment, position, "the batch's largest timestamp is not that of its records",
                newest, header.max_timestamp_ms, "look-ups by time may miss it; the records themselves are sound",
            )  # fmt: skip

    def _epoch_of(self, segment: Segment, position: int, header: BatchHeader) -> None:
        epoch = header.leader_epoch
        if header.magic < MAGIC_V2 or epoch == NO_LEADER_EPOCH:
            return
        repair = "the records are sound; a broker's replicas may disagree about them"
        if epoch < self._epoch:
            self._finding(Severity.WARNING, segment, position, "leader epochs go back", self._epoch, epoch, repair)
        elif self._epochs is not None:
            noted = max((one.epoch for one in self._epochs if one.start_offset <= header.base_offset), default=-1)
            if noted not in (epoch, -1):  # none is noted for what was deleted
                self._finding(
                    Severity.WARNING, segment, position, "the batch's leader epoch is not the one noted for its offset",
                    noted, epoch, repair,
                )  # fmt: skip
        self._epoch = max(self._epoch, epoch)

    def _producer(self, segment: Segment, position: int, header: BatchHeader) -> None:
        known = self.states.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None or header.is_control:
            return
        repair = "nothing can: a producer's batch was lost or stored twice"
        if header.producer_epoch < known.epoch:
            self._finding(
                Severity.WARNING, segment, position, "a producer's epochs go back", known.epoch, header.producer_epoch,
                repair, "producers",
            )  # fmt: skip
            return
        if header.producer_epoch == known.epoch and known.batches:
            last = known.batches[-1]
            expected = add_sequence(last.last_sequence, 1)
            # What compaction removed, or damage took, leaves a gap that is nobody's fault.
            if header.base_sequence != expected and self._hole_at <= last.last_offset:
                message = f"sequence numbers of producer {header.producer_id} leave a gap"
                self._finding(
                    Severity.WARNING, segment, position, message, expected, header.base_sequence, repair, "producers"
                )
