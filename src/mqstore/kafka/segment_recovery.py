"""One segment walked from its start, checked whole: where it ends, and everything that can be derived from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.index_builder import IndexBuilder
from mqstore.kafka.markers import marker_in_log
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.segment import Chunk, Segment
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.kafka.checkpoints import EpochEntry
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.txn_index import AbortedTransaction, encode_txn_index

Progress = Callable[[int], None]
"""Called with the bytes of log walked since the last call."""


@dataclass
class SegmentWalk:
    """What a walk over one segment found.

    Attributes:
        segment: the segment.
        valid_bytes: where its sound batches end.
        end_offset: one past their last offset; the base offset when there are none.
        damage: what follows them; None at the end of the file, and at zeros of space that was reserved.
        builder: the indexes that belong to them.
        first_time_ms: largest timestamp of the first batch; None without batches.
        aborted: the transactions whose abort marker is among them.
        epochs: leader epochs in them, each with its first offset.
        batches: how many there are.
    """

    segment: Segment
    builder: IndexBuilder
    valid_bytes: int = 0
    end_offset: int = 0
    damage: BatchDamage | None = None
    first_time_ms: int | None = None
    aborted: list[AbortedTransaction] = field(default_factory=list)
    epochs: list[EpochEntry] = field(default_factory=list)
    batches: int = 0


def walk_segment(
    segment: Segment, states: ProducerStates, interval_bytes: int, progress: Progress = lambda walked: None
) -> SegmentWalk:
    """Walk ``segment`` up to its first damage and bring ``states`` to where its sound batches end.

    Besides what a batch shows by itself, its offsets must lie behind those before it, and within 2**31 of the base
    offset.
    """
    walk = SegmentWalk(segment, IndexBuilder(segment.base_offset, interval_bytes), end_offset=segment.base_offset)
    scan = segment.scan(check_crc=True)
    for chunk in scan:
        sound = _sound_rows(chunk, walk.end_offset, segment.base_offset)
        _add_chunk(walk, chunk, sound, states)
        progress(walk.valid_bytes)
        if sound < chunk.columns.count:
            position = chunk.position + int(chunk.columns.position[sound])
            walk.damage = BatchDamage(segment.path(), position, "OFFSET_OUT_OF_ORDER", int(chunk.columns.size[sound]))
            return walk
    walk.damage = scan.damage
    return walk


def _sound_rows(chunk: Chunk, end_offset: int, base_offset: int) -> int:
    """How many of the chunk's batches have offsets that go on where the last ended, or behind."""
    columns = chunk.columns
    for row in range(columns.count):
        last = int(columns.last_offset[row])
        if columns.base_offset[row] < end_offset or last < columns.base_offset[row] or last - base_offset > INT_MAX:
            return row
        if last == LONG_MAX:  # a log without an offset for its next record
            return row
        end_offset = last + 1
    return int(columns.count)


def _add_chunk(walk: SegmentWalk, chunk: Chunk, rows: int, states: ProducerStates) -> None:
    columns = chunk.columns
    if not rows:
        return
    if walk.first_time_ms is None:
        walk.first_time_ms = columns.max_timestamp_ms[0]
    for row in range(rows):
        walk.builder.add(
            chunk.position + columns.position[row],
            columns.size[row],
            columns.last_offset[row],
            columns.max_timestamp_ms[row],
        )
        epoch = columns.leader_epoch[row]
        if columns.magic[row] >= 2 and epoch >= 0 and (not walk.epochs or epoch > walk.epochs[-1].epoch):
            walk.epochs.append(EpochEntry(epoch, columns.base_offset[row]))
    if max(columns.producer_id[:rows]) >= 0:
        for row, header in enumerate(chunk.headers()):
            if row >= rows:
                break
            aborted = states.apply(header, marker_in_log(chunk.buffer, header))
            if aborted is not None:
                walk.aborted.append(aborted)
    walk.batches += rows
    walk.valid_bytes = chunk.position + columns.position[rows - 1] + columns.size[rows - 1]
    walk.end_offset = states.end_offset = columns.last_offset[rows - 1] + 1


def derived_differences(walk: SegmentWalk) -> dict[FileKind, bytes]:
    """The index files of a walked segment that are not as they should be, and what they should hold.

    A missing transaction index is as good as an empty one.
    """
    different = {}
    for kind, data in wanted_files(walk).items():
        try:
            found = walk.segment.read_file(kind)
        except errors.DamageError:
            found = None
        if found != data:
            different[kind] = data
    return different


def wanted_files(walk: SegmentWalk) -> dict[FileKind, bytes]:
    """What the index files of a walked segment should hold; no transaction index without aborts."""
    walk.builder.finish()
    wanted = {FileKind.OFFSET_INDEX: walk.builder.offsets.encode(), FileKind.TIME_INDEX: walk.builder.times.encode()}
    aborted = encode_txn_index(walk.aborted)
    if aborted or walk.segment.read_file(FileKind.TXN_INDEX):
        wanted[FileKind.TXN_INDEX] = aborted
    return wanted


def write_derived(walk: SegmentWalk, target: Path | None = None) -> list[Path]:
    """Make the index files of a walked segment anew where they are not as they should be; those that were not.

    A file that is right is left alone. With ``target`` all are written there, right or not.
    """
    written = []
    for kind, data in (derived_differences(walk) if target is None else wanted_files(walk)).items():
        path = walk.segment.path(kind) if target is None else target / walk.segment.path(kind).name
        durable.replace_file(path, data)
        written.append(path)
    if written:
        walk.segment.forget()
    return written
