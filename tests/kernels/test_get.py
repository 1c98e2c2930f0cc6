"""Reading a queue through the kernels: both versions agree, on good queues and on hostile ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mqstore.kernels import pure
from mqstore.kernels.api import Kernels
from mqstore.layout.queue_unit import decode_unit, encode_unit
from mqstore.layout.record import Record, decode_record
from mqstore.layout.tags import TagExpression

native: Kernels = pytest.importorskip("mqstore.kernels._native", reason="the compiled kernels were not built")
BOTH = [native, pure]
GAP, SPAN = 16384, 1 << 20


def both(name: str, *arguments: Any) -> Any:
    """The one result of both, or the one error."""
    results = []
    for kernels in BOTH:
        messages: list[Record] = []
        given = [messages if one is list else one for one in arguments]
        results.append((getattr(kernels, name)(*given), messages))
    assert results[0] == results[1]
    assert list(map(type, results[0][1])) == list(map(type, results[1][1]))
    return results[0]


def queue_of(golden: Path, topic: str, queue_id: int) -> tuple[bytes, bytes]:
    """Units and log of one queue of the golden store."""
    store = golden / "basic" / "store"
    folder = store / "consumequeue" / topic / str(queue_id)
    units = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    log = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
    return units, log


def queues(golden: Path) -> list[tuple[str, int]]:
    return sorted(
        (folder.parent.name, int(folder.name)) for folder in (golden / "basic/store/consumequeue").glob("*/*")
    )


def test_golden_queues_read_whole(golden: Path) -> None:
    found = 0
    for topic, queue_id in queues(golden):
        units, log = queue_of(golden, topic, queue_id)
        (taken, used), messages = both(
            "take_messages", units, 0, 0, log, 0, topic.encode(), queue_id, None, (), 10_000, 1 << 40, list, Record
        )
        assert taken == len(messages)
        assert used == sum(message.total_size for message in messages)
        for number, message in enumerate(messages):
            unit = decode_unit(units, number * 20)
            assert message == decode_record(log, unit.physical_offset)
        found += taken
    assert found > 2000


def test_tags_and_limits(golden: Path) -> None:
    rng = random.Random(7)
    tags_seen = 0
    for topic, queue_id in queues(golden):
        units, log = queue_of(golden, topic, queue_id)
        for _ in range(30):
            where = TagExpression.parse(rng.choice(["TagA", "TagB || TagC", "*", "nothing", "TagA || 标签"]))
            tags = frozenset(tag.encode() for tag in where.tags) or None
            first = rng.randrange(50)
            most, most_bytes = rng.choice([0, 1, 5, 32]), rng.choice([0, 500, 10_000])
            arguments = (units, first, first, log, 0, topic.encode(), queue_id, tags, where.codes, most, most_bytes)
            (taken, used), messages = both("take_messages", *arguments, list, Record)
            assert len(messages) <= most
            assert used <= most_bytes or len(messages) == 1
            assert tags is None or all(message.tags in where.tags for message in messages)
            tags_seen += len(messages)
            both("unit_span", units, first, most, where.codes or None, GAP, rng.choice([0, 300, SPAN]))
            assert taken <= len(units) // 20 - first
    assert tags_seen > 100


@pytest.mark.parametrize("seed", range(6))
def test_hostile_units_and_logs(golden: Path, seed: int) -> None:
    rng = random.Random(seed)
    topic, queue_id = rng.choice(queues(golden))
    good_units, good_log = queue_of(golden, topic, queue_id)
    for _ in range(150):
        units, log = bytearray(good_units[: 20 * 40]), bytearray(good_log[: 1 << 16])
        for _ in range(rng.randrange(1, 4)):
            units[rng.randrange(len(units))] = rng.randrange(256)
            log[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
        data_offset = rng.choice([0, 100, rng.randrange(1 << 40)])
        first = rng.randrange(len(units) // 20 + 1)
        offset = rng.choice([first, 0, -1, 2**62])
        both(
            "take_messages",
            bytes(units),
            first,
            offset,
            bytes(log),
            data_offset,
            topic.encode(),
            queue_id,
            None,
            (),
            40,
            1 << 40,
            list,
            Record,
        )
        both("unit_span", bytes(units), first, rng.randrange(40), None, GAP, SPAN)


def test_units_at_the_ends_of_the_number_range() -> None:
    for offset in (-1, 0, 2**62, 2**63 - 1):
        for size in (-1, 0, 1, 2**31 - 1):
            units = encode_unit(decode_unit(b"\0" * 20)._replace(physical_offset=offset, size_bytes=size)) * 2
            both("unit_span", units, 0, 5, None, GAP, SPAN)
            both("take_messages", units, 0, 0, b"x" * 50, 0, b"t", 0, None, (), 9, 99, list, Record)
            both("take_messages", units, 0, 0, b"x" * 50, 2**62, b"t", 0, None, (), 9, 99, list, Record)


@pytest.mark.parametrize("kernels", BOTH)
def test_rows_outside_are_refused(kernels: Kernels) -> None:
    from mqstore import UsageError

    for first in (-1, 3):
        with pytest.raises(UsageError):
            kernels.unit_span(bytes(40), first, 1, None, 0, 0)
        with pytest.raises(UsageError):
            kernels.take_messages(bytes(40), first, 0, b"", 0, b"t", 0, None, (), 1, 1, [], Record)


def test_golden_queues_as_columns(golden: Path) -> None:
    rows = 0
    for topic, queue_id in queues(golden):
        units, log = queue_of(golden, topic, queue_id)
        place = (topic.encode(), queue_id)
        (taken, _), messages = both(
            "take_messages", units, 0, 0, log, 0, *place, None, (), 10_000, 1 << 40, list, Record
        )
        columns = columns_of(units, 0, 0, log, 0, *place)
        assert columns["position"] == [message.physical_offset for message in messages]
        assert columns["queue_offset"] == list(range(taken))
        assert columns["body_size"] == [len(message.body) for message in messages]
        half = taken // 2
        first = columns["position"][half]
        assert columns_of(units, half, half, log[first:], first, *place)["queue_offset"] == list(range(half, taken))
        # What the units or the records say otherwise ends it.
        for odd in (
            (units, 0, 1, log, 0, *place),
            (units, 0, 0, log, 0, b"other", queue_id),
            (units, 0, 0, log, 0, topic.encode(), queue_id + 1),
            (units, 0, 0, log[1:], 1, *place) if columns["position"][0] == 0 else (units[:0], 0, 0, log, 0, *place),
        ):
            assert columns_of(*odd)["position"] == []
        assert columns_of(units, 0, 0, log[: first + 9], 0, *place)["position"] == columns["position"][:half]
        rows += taken
    assert rows > 2000


def test_hostile_units_as_columns(golden: Path) -> None:
    rng = random.Random(11)
    topic, queue_id = queues(golden)[0]
    units, log = queue_of(golden, topic, queue_id)
    lengths = set()
    for _ in range(300):
        spoiled_units, spoiled_log = bytearray(units[:1000]), bytearray(log)
        spoiled = rng.choice([spoiled_units, spoiled_log])
        unit = decode_unit(units, rng.randrange(50) * 20)
        place = (
            rng.randrange(1000) if spoiled is spoiled_units else unit.physical_offset + rng.randrange(unit.size_bytes)
        )
        spoiled[place] ^= 1 << rng.randrange(8)
        found = columns_of(bytes(spoiled_units), 0, 0, bytes(spoiled_log), 0, topic.encode(), queue_id)
        lengths.add(len(found["position"]))
    assert len(lengths) > 20
    assert max(lengths) == 50


def columns_of(*arguments: Any) -> dict[str, list[int]]:
    """The columns that both versions give."""
    tables = [kernels.scan_units(*arguments) for kernels in BOTH]
    found = [{name: getattr(table, name).tolist() for name in table.COLUMN_NAMES} for table in tables]
    assert found[0] == found[1]
    assert tables[0].next_position == tables[1].next_position
    return found[0]
