"""Progress that claims more than the log holds, brought back to what the log proves.

When the end of a log is cut off, what the services did last is gone with it: copies of delayed messages that had been
delivered, entries that had closed transactions. Their notes must not go on saying that it was done.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter

from mqstore.layout import constants as c
from mqstore.layout.record import Record, decode_record
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.log_reader import LogDamage, LogReader
from mqstore.store.log_units import LogUnits
from mqstore.store.queue_table import QueueTable
from mqstore.store.schedule import real_target
from mqstore.store.settings import Settings
from mqstore.store.transactions import CHECK_GROUP, closed_offsets

_log = logging.getLogger(__name__)
_MARK = c.PROPERTY_REAL_TOPIC.encode() + b"\1"


def take_back_progress(settings: Settings, queues: QueueTable, log: LogReader, units: LogUnits) -> None:
    """Have the services go on behind the last thing done that the log still holds, so that none is passed over.

    Offsets of consumer groups stay: what a group has read, the log does not tell.

    Raises:
        StoreIOError: the log could not be read.
    """
    _take_back_deliveries(settings, queues, log, units)
    _take_back_transactions(settings, queues, units)


def _take_back_deliveries(settings: Settings, queues: QueueTable, log: LogReader, units: LogUnits) -> None:
    copies: Counter[int] | None = None
    for level, saved in settings.delay_offsets.items():
        queue = queues.find(c.SCHEDULE_TOPIC, level - 1)
        if queue is None or saved <= queue.min_offset:
            continue
        if copies is None:
            copies = _delivered_copies(log)
        proved = queue.min_offset
        for offset in range(queue.min_offset, min(saved, queue.max_offset)):
            record = units.record_of(queue, offset)
            target = None if record is None else real_target(record)
            if record is None or target is None:
                continue
            # A level is delivered in order, so that the last copy there is proves all before it.
            for key in (_key(record, *target), _key(record, *target, is_marked=False)):
                if copies[key]:
                    copies[key] -= 1
                    proved = offset + 1
                    break
        if proved < saved:
            _log.warning(
                "of delay level %d the log holds what was delivered up to %d, not %d: going on there",
                level, proved, saved,
            )  # fmt: skip
            settings.set_delay_offset(level, proved)


def _delivered_copies(log: LogReader) -> Counter[int]:
    """How many copies of each delayed message the log holds; committed messages of transactions are among them."""
    found: Counter[int] = Counter()
    for chunk in log.scan(on_damage=_pass, check_crc=False):
        positions = chunk.columns.position
        at = chunk.buffer.find(_MARK)
        while at >= 0:
            row = bisect_right(positions, at) - 1
            if row < 0 or at >= chunk.columns.next_position:
                break
            begin = positions[row]
            record = decode_record(chunk.buffer, begin, physical_offset=chunk.physical_offset + begin, check_crc=False)
            if isinstance(record, Record):
                at = begin + record.total_size - 1
                if c.PROPERTY_REAL_TOPIC in record.properties and record.topic not in (c.SCHEDULE_TOPIC, c.HALF_TOPIC):
                    found[_key(record, record.topic, record.queue_id)] += 1
            at = chunk.buffer.find(_MARK, at + 1)
    return found


def _key(record: Record, topic: str, queue_id: int, *, is_marked: bool = True) -> int:
    """What a waiting message and its copy in ``topic`` have in common; a broker takes the level's mark off the copy."""
    mark = record.properties.get(c.PROPERTY_DELAY) if is_marked else None
    born = (record.born_timestamp_ms, record.born_host_raw, record.reconsume_times)
    return hash((topic, queue_id, mark, *born, record.flag, record.body))


def _take_back_transactions(settings: Settings, queues: QueueTable, units: LogUnits) -> None:
    halves, entries = queues.find(c.HALF_TOPIC, 0), queues.find(c.OP_HALF_TOPIC, 0)
    saved = settings.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) or 0
    if halves is None or saved <= halves.min_offset:
        return
    closed_by = {} if entries is None else _closing_entries(entries, units)
    first_open = saved
    for offset in range(halves.min_offset, min(saved, halves.max_offset)):
        unit = halves.unit(offset)
        # An entry in front of the half message closed another one, which had the number before.
        if unit is not None and unit.is_written and closed_by.get(offset, (0, -1))[1] < unit.physical_offset:
            first_open = offset
            break
    if first_open < saved:
        end = 0 if entries is None else entries.max_offset
        noted = settings.committed_offset(CHECK_GROUP, c.OP_HALF_TOPIC, 0) or 0
        needed = min((one[0] for half, one in closed_by.items() if half >= first_open), default=end)
        _log.warning("half message %d is open in the log: asking about those from it on, not %d", first_open, saved)
        settings.commit_offset(CHECK_GROUP, c.HALF_TOPIC, 0, first_open)
        settings.commit_offset(CHECK_GROUP, c.OP_HALF_TOPIC, 0, min(noted, needed))


def _closing_entries(entries: ConsumeQueue, units: LogUnits) -> dict[int, tuple[int, int]]:
    """By queue offset of a half message: queue and physical offset of the last entry that closes it."""
    found: dict[int, tuple[int, int]] = {}
    for offset in range(entries.min_offset, entries.max_offset):
        entry = units.record_of(entries, offset)
        if entry is not None:
            found.update(dict.fromkeys(closed_offsets(entry), (offset, entry.physical_offset)))
    return found


def _pass(damage: LogDamage) -> bool:
    return True
