"""Messages of a queue as an Arrow table: the same as ``get`` gives, and the same answers where it gives none."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore
from mqstore import GetMessageStatus, GetTableResult, Message, Record
from mqstore.errors import CorruptRecordError, UsageError
from store.support import fill, log_file, overwrite

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 2000}


def as_row(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "keys": record.keys,
        "tags": record.tags,
        "body": record.body,
        "properties": sorted(record.properties.items()),
        "storeSize": record.total_size,
    }


NAMES = list(as_row(Record(*[0] * 9, b"\0" * 8, 0, b"\0" * 8, 0, 0, b"", b"T", b"")))


def walk_tables(store: mqstore.Store | mqstore.StoreView, topic: str, queue_id: int, rows: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    offset = store.get_table(topic, queue_id, 0, rows).min_offset
    while True:
        result = store.get_table(topic, queue_id, offset, rows, NAMES)
        if result.status is not GetMessageStatus.FOUND:
            assert result.table.num_rows == 0
            return found
        assert 0 < result.table.num_rows <= rows
        assert result.next_offset == offset + result.table.num_rows
        found += [{**row, "properties": sorted(row["properties"])} for row in result.table.to_pylist()]
        offset = result.next_offset


def walk_messages(store: mqstore.Store | mqstore.StoreView, topic: str, queue_id: int) -> list[dict[str, Any]]:
    offset, found = 0, []
    while (result := store.get(topic, queue_id, offset)).messages:
        found += [as_row(record) for record in result.messages]
        offset = result.next_offset
    return found


@pytest.mark.parametrize("rows", [1, 7, 8192])
def test_the_same_messages_as_get(tmp_path: Path, rows: int) -> None:
    random.seed(rows)
    with mqstore.open(tmp_path / "s", **SIZES) as store:
        for number in range(600):
            keys = [f"k{number}"] * random.randrange(3)
            tags = random.choice([None, "Größe", "b"])
            body = random.randbytes(random.choice([0, 10, 2000]))
            topic = random.choice(["A", "B"])
            store.put(Message(topic, body, tags, keys, {"n": str(number)}, queue_id=random.randrange(2)))
        store.wait_dispatched()
        for topic in ("A", "B"):
            for queue_id in range(2):
                expected = walk_messages(store, topic, queue_id)
                assert len(expected) > 90
                assert walk_tables(store, topic, queue_id, rows) == expected
                with mqstore.inspect(store.path) as view:
                    assert walk_tables(view, topic, queue_id, rows) == expected


def test_all_columns_are_those_of_the_view_in_spark(tmp_path: Path) -> None:
    from mqstore.store.columns import SCHEMA

    fill(tmp_path / "s", 3)
    with mqstore.inspect(tmp_path / "s") as view:
        table = view.get_table("T").table
    assert table.schema.equals(pa.schema([field for field in SCHEMA if field.name != "brokerName"]))
    assert table.num_rows == 3


def told(result: Any) -> tuple[Any, ...]:
    return result.status, result.next_offset, result.min_offset, result.max_offset


@pytest.mark.parametrize("offset", [-5, 0, 2, 3, 4, 1 << 40])
def test_the_same_answers_where_nothing_is(tmp_path: Path, offset: int) -> None:
    fill(tmp_path / "s", 3)
    with mqstore.inspect(tmp_path / "s") as view:
        for topic in ("T", "none"):
            here = view.get_table(topic, 0, offset, 1, ["body"])
            assert told(here) == told(view.get(topic, 0, offset, 1))
            assert here.table.column_names == ["body"]


def test_half_way_to_a_damaged_record(tmp_path: Path) -> None:
    """What comes before it is given; the next call says what is wrong, as ``get`` does."""
    with mqstore.open(tmp_path / "s", **SIZES) as store:
        for number in range(9):
            store.put(Message("T", b"%d" % number, queue_id=0))
        store.wait_dispatched()
        places = store.get_table("T", columns=["physicalOffset"]).table["physicalOffset"].to_pylist()
        overwrite(log_file(tmp_path / "s"), places[5] + 4, b"\0\0\0\1")
        result = store.get_table("T", columns=["queueOffset"])
        assert (result.table["queueOffset"].to_pylist(), result.next_offset) == ([0, 1, 2, 3, 4], 5)
        for get in (store.get, store.get_table):
            with pytest.raises(CorruptRecordError):
                get("T", 0, 5)
        assert store.get_table("T", 0, 6, columns=["queueOffset"]).table["queueOffset"].to_pylist() == [6, 7, 8]


def test_expired_messages(tmp_path: Path) -> None:
    fill(tmp_path / "s", 2000, **SIZES)
    log_file(tmp_path / "s").unlink()
    with mqstore.inspect(tmp_path / "s") as view:
        first = view.get("T", 0, 0)
        assert first.status is GetMessageStatus.OFFSET_TOO_SMALL
        assert told(view.get_table("T", 0, 0)) == told(first)
        assert walk_tables(view, "T", 0, 500)[0]["queueOffset"] == first.next_offset


@pytest.mark.parametrize("columns", ["body", [], ["body", "body"], ["bodies"], ["brokerName"]], ids=str)
def test_columns_that_are_none(tmp_path: Path, columns: Any) -> None:
    fill(tmp_path / "s", 1)
    with mqstore.inspect(tmp_path / "s") as view, pytest.raises(UsageError):
        view.get_table("T", columns=columns)


def test_it_is_told_as_others_are(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", **SIZES) as store:
        store.put(Message("T", b"one", queue_id=0))
        store.wait_dispatched()
        result = store.get_table("T")
        assert isinstance(result, GetTableResult)
        assert result.table["body"].to_pylist() == [b"one"]
