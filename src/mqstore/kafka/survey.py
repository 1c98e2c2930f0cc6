"""What loading a partition after a crash would do: the same steps, and none of them taken."""

from __future__ import annotations

from dataclasses import replace

from mqstore.kafka.leftovers import Leftovers
from mqstore.kafka.loading import LoadReport, PartitionLoader
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.segment import Segment
from mqstore.kafka.segment_recovery import SegmentWalk, derived_differences
from mqstore.kafka.stock import PartitionStock
from mqstore.layout.kafka.names import FileKind, segment_file_name


class PartitionSurvey(PartitionLoader):
    """A loading that only tells; :meth:`survey` gives its report."""

    def survey(self) -> LoadReport:
        """What :meth:`run` would report.

        Raises:
            CorruptFileError, StoreIOError: what it would raise.
        """
        self._bring_in_order()
        damage = self.report.damage
        if damage is not None:  # by the name that the file will have
            base_offset = int(damage.path.name.partition(".")[0])
            self.report.damage = replace(damage, path=self._directory / segment_file_name(base_offset, FileKind.LOG))
        return self.report

    def _finish_leftovers(self, stock: PartitionStock, leftovers: Leftovers) -> tuple[PartitionStock, list[Segment]]:
        self.report.finished = leftovers.count
        self._mend_replacements(stock, leftovers)
        after = leftovers.live_after(stock)
        return after, [leftovers.segment(base, self._pool) for base in after.logs]

    def _remove_files(self, segment: Segment, why: str) -> None:
        segment.forget()

    def _write_snapshot(self, states: ProducerStates, offset: int) -> None:
        """Nothing: what it would hold is known to ``states``."""

    def _write_indexes(self, walk: SegmentWalk) -> list[str]:
        return [segment_file_name(walk.segment.base_offset, kind) for kind in derived_differences(walk)]

    def _create(self, base_offset: int) -> list[Segment]:
        return []
