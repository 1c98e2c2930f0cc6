"""Queue units of scanned records, and filters over units."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqstore.errors import UsageError
from mqstore.kernels.api import LogColumns, QueueRun
from mqstore.kernels.pure.checks import check_rows, part, properties_text, text_of
from mqstore.layout import constants as c
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import SysFlag
from mqstore.layout.delay import delay_level, deliver_timestamp
from mqstore.layout.properties import parse
from mqstore.layout.queue_unit import QUEUE_UNIT, QueueUnit
from mqstore.layout.tags import low_32_bits, tags_code

_SCHEDULE_TOPIC: Final = c.SCHEDULE_TOPIC.encode()
_WITHOUT_UNIT: Final = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


@dataclass(slots=True)
class _Run:
    topic: bytes
    queue_id: int
    first_queue_offset: int
    last_queue_offset: int = 0
    size_bytes: int = 0
    units: list[bytes] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)

    def finish(self) -> QueueRun:
        times = self.timestamps_ms
        return QueueRun(
            self.topic,
            self.queue_id,
            self.first_queue_offset,
            b"".join(self.units),
            min(times),
            max(times),
            self.size_bytes,
        )


def queue_runs(buffer: Buffer, columns: LogColumns, start: int, stop: int, delay_ms: Sequence[int]) -> list[QueueRun]:
    """See :meth:`mqstore.kernels.api.Kernels.queue_runs`."""
    check_rows(columns.count, start, stop)
    delays = {level: delay for level, delay in enumerate(delay_ms) if level > 0}
    runs: list[_Run] = []
    latest: dict[tuple[bytes, int], _Run] = {}
    with memoryview(buffer) as view:
        for row in range(start, stop):
            if columns.sys_flag[row] & SysFlag.TRANSACTION_MASK in _WITHOUT_UNIT:
                continue
            topic = part(view, columns.topic_position[row], columns.topic_size[row])
            queue_offset = columns.queue_offset[row]
            run = latest.get((topic, columns.queue_id[row]))
            if run is None or run.last_queue_offset + 1 != queue_offset:
                run = _Run(topic, columns.queue_id[row], queue_offset)
                runs.append(run)
                latest[topic, run.queue_id] = run
            run.last_queue_offset = queue_offset
            run.size_bytes += columns.size[row]
            run.timestamps_ms.append(columns.store_timestamp_ms[row])
            run.units.append(
                QUEUE_UNIT.pack(
                    columns.own_offset[row],
                    columns.size[row],
                    _unit_code(view, columns, row, topic, delays),
                )
            )
    return [run.finish() for run in runs]


def _unit_code(view: memoryview, columns: LogColumns, row: int, topic: bytes, delays: dict[int, int]) -> int:
    if topic == _SCHEDULE_TOPIC:
        properties = parse(properties_text(view, columns, row))
        level = delay_level(properties.get(c.PROPERTY_DELAY), delays)
        if level > 0:
            return _wrapped(deliver_timestamp(level, columns.store_timestamp_ms[row], delays))
    return tags_code(text_of(view, columns.tags_position[row], columns.tags_size[row]))


def _wrapped(value: int) -> int:
    """``value`` as a signed 64-bit integer, for store times at the end of the range."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def select_units(units: Buffer, tag_codes: Collection[int] | None = None, min_physical_offset: int = 0) -> memoryview:
    """See :meth:`mqstore.kernels.api.Kernels.select_units`."""
    if tag_codes is not None and any(low_32_bits(code) != code for code in tag_codes):
        raise UsageError("tag codes are signed 32-bit numbers", found=sorted(tag_codes))
    numbers = array("i")
    with memoryview(units) as view:
        count = len(view) // c.QUEUE_UNIT_SIZE
        for number, fields in enumerate(QUEUE_UNIT.iter_unpack(view[: count * c.QUEUE_UNIT_SIZE])):
            unit = QueueUnit._make(fields)
            if not unit.is_written or unit.physical_offset < min_physical_offset:
                continue
            if tag_codes is None or low_32_bits(unit.tags_code) in tag_codes:
                numbers.append(number)
    return memoryview(numbers)
