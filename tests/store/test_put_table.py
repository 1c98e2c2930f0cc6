"""Arrow tables into a store: the same records as messages put one by one, and the same refusals."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore
from mqstore import Message, PutMessageStatus
from mqstore.errors import DiskFullError, MessageIllegalError, UsageError
from mqstore.files import durable

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "max_index_num": 4000, "max_hash_slot_num": 1000}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "s", **SIZES) as store:
        yield store


def everything(store: mqstore.Store) -> list[tuple[Any, ...]]:
    """All that records say, except for times."""
    return [
        (
            one.physical_offset, one.topic, one.queue_id, one.queue_offset, one.body, one.properties_raw, one.sys_flag,
            one.flag, one.born_host, one.store_host, one.magic, one.total_size, one.body_crc,
        )
        for one in mqstore.inspect(store.path).scan()
    ]  # fmt: skip


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    random.seed(seed)
    return [
        {
            "topic": random.choice(["A", "B", "a-long-name_%|1"]),
            "body": random.randbytes(random.choice([0, 1, 100, 3000])),
            "tags": random.choice([None, "x", "Größe", "a || b"]),
            "keys": random.choice([None, [], ["k1"], ["k1", "日本"], ["a"] * 20]),
            "queueId": random.choice([None, None, 0, 3, 11]),
        }
        for _ in range(count)
    ]


def messages(table: list[dict[str, Any]]) -> list[Message]:
    return [
        Message(one["topic"], one["body"], tags=one["tags"], keys=one["keys"] or (), queue_id=one["queueId"])
        for one in table
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_table_is_its_messages(store: mqstore.Store, tmp_path: Path, seed: int) -> None:
    """The same bytes but for the times: over many files, with blanks at their ends, in the queues whose turn it is."""
    given = rows(400, seed)
    table = pa.Table.from_pylist(given)
    first = store.put_table(table.slice(0, 150))
    second = store.put_table(table.slice(150).to_batches()[0])
    assert (first.status, first.messages, second.messages) == (PutMessageStatus.PUT_OK, 150, 250)
    assert (first.physical_offset, second.end_offset) == (0, store.log_end)
    with mqstore.open(tmp_path / "other", **SIZES) as other:
        sizes = [other.put(message).size_bytes for message in messages(given)]
        assert everything(store) == everything(other)
        assert (first.size_bytes, second.size_bytes) == (sum(sizes[:150]), sum(sizes[150:]))
        assert store.put(Message("A", b"next")).queue_id == other.put(Message("A", b"next")).queue_id
        assert store.wait_dispatched(60)
        assert other.wait_dispatched(60)
        assert store.queues() == other.queues()
    assert store.check() == []
    assert len(list(store.path.glob("commitlog/*"))) > 3


def test_every_kind_of_column(store: mqstore.Store) -> None:
    columns = {
        "topic": pa.array(["A", "B"]).dictionary_encode(),
        "body": pa.array(["text", "größer"], pa.large_string()),
        "tags": pa.array(["t", None], pa.large_string()),
        "keys": pa.array(["k1 k2", None]),
        "queueId": pa.array([2, None], pa.int64()),
    }
    assert store.put_table(pa.table(columns)).messages == 2
    chunked = pa.concat_tables([pa.table(columns).slice(1), pa.table(columns).slice(0, 1)])
    assert store.put_table(chunked.select(["body", "topic"])).messages == 2
    found = list(mqstore.inspect(store.path).scan())
    assert [(one.topic, one.body.decode(), one.tags, one.keys) for one in found] == [
        ("A", "text", "t", ["k1", "k2"]), ("B", "größer", None, []), ("B", "größer", None, []), ("A", "text", None, []),
    ]  # fmt: skip
    empty = store.put_table(pa.table(columns).slice(0, 0))
    assert (empty.messages, empty.size_bytes) == (0, 0)
    assert store.wait_dispatched(60)
    assert [one.body for one in store.query("A", "k2").messages] == [b"text"]


def test_what_is_out_of_the_ordinary_is_stored_as_put_stores_it(store: mqstore.Store, tmp_path: Path) -> None:
    """A tag with a separator in it, keys with a blank at their end: no fast way, the same record."""
    table = pa.table({"topic": ["A"] * 3, "body": [b"1", b"2", b"3"], "tags": ["a\x01b", None, "x"]})
    assert store.put_table(table).messages == 3
    assert store.put_table(table.drop(["tags"]).append_column("keys", pa.array(["k ", None, " k  l"]))).messages == 3
    with mqstore.open(tmp_path / "other", **SIZES) as other:
        for body, tags in ((b"1", "a\x01b"), (b"2", None), (b"3", "x")):
            other.put(Message("A", body, tags=tags))
        for body, keys in ((b"1", ["k"]), (b"2", []), (b"3", ["k", "l"])):
            other.put(Message("A", body, keys=keys))
        assert everything(store) == everything(other)


@pytest.mark.parametrize(
    ("bad", "row"),
    [
        ({"topic": "no space allowed"}, 2),
        ({"topic": "x" * 128}, 2),
        ({"topic": ""}, 2),
        ({"topic": None}, 2),
        ({"body": None}, 2),
        ({"body": b"x" * 5000}, 2),
        ({"tags": "a\x02b"}, 2),
        ({"tags": ""}, 2),
        ({"tags": "nul\0"}, 2),
        ({"keys": ["a b"]}, 2),
        ({"keys": ["a", ""]}, 2),
        ({"tags": "x" * 40000}, 2),
        ({"queueId": -1}, None),
        ({"queueId": 2**40}, None),
        ({"queueId": 70000}, 2),
    ],
)
def test_one_bad_row_refuses_the_table(tmp_path: Path, bad: dict[str, Any], row: int | None) -> None:
    with mqstore.open(tmp_path / "s", max_message_size=4096, **SIZES) as store:
        good = {"topic": "A", "body": b"x", "tags": "t", "keys": ["k"], "queueId": 1}
        with pytest.raises(MessageIllegalError) as refused:
            store.put_table(pa.Table.from_pylist([good, good, {**good, **bad}, good]))
        assert row is None or refused.value.offset == row
        assert (store.log_end, store.queues()) == (0, [])


@pytest.mark.parametrize(
    "table",
    [
        {"topic": ["A"]},
        {"topic": ["A"], "body": [b"x"], "colour": ["red"]},
        {"topic": [1], "body": [b"x"]},
        {"topic": ["A"], "body": [1]},
        {"topic": ["A"], "body": [b"x"], "tags": [b"t"]},
        {"topic": ["A"], "body": [b"x"], "keys": [[1]]},
        {"topic": ["A"], "body": [b"x"], "queueId": [0.5]},
        None,
    ],
)
def test_what_is_no_table_of_messages(store: mqstore.Store, table: dict[str, Any] | None) -> None:
    with pytest.raises(UsageError) as refused:
        store.put_table(None if table is None else pa.table(table))  # type: ignore[arg-type]
    assert refused.value.hint


def test_a_row_that_no_file_takes(store: mqstore.Store) -> None:
    with pytest.raises(MessageIllegalError):
        store.put_table(pa.table({"topic": ["A", "A"], "body": [b"x", b"x" * 70000]}))
    assert store.log_end == 0


def test_beside_other_producers(store: mqstore.Store) -> None:
    table = pa.table({"topic": ["A", "B"] * 500, "body": [b"from the table" * 10] * 1000})

    def put() -> None:
        for _ in range(500):
            store.put(Message("A", b"single"))

    threads = [threading.Thread(target=put), threading.Thread(target=put)]
    threads += [threading.Thread(target=lambda: store.put_table(table)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.wait_dispatched(60)
    assert store.check() == []
    assert sum(queue.max_offset for queue in store.queues()) == 3000


def test_a_full_disk_leaves_the_first_rows(store: mqstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"topic": ["A"] * 300, "body": [b"x" * 1000] * 300})
    real = durable.create_file
    made = []

    def create_file(path: Path, size_bytes: int) -> int:
        if "commitlog" in str(path):
            made.append(path)
            if len(made) > 2:
                raise DiskFullError("no space left on device", path=path, hint="make room")
        return real(path, size_bytes)

    monkeypatch.setattr(durable, "create_file", create_file)
    with pytest.raises(DiskFullError) as full:
        store.put_table(table)
    stored = full.value.offset
    assert stored
    assert len(everything(store)) == stored
    monkeypatch.undo()
    store.put_table(table.slice(stored))
    assert store.wait_dispatched(60)
    assert [one[3] for one in everything(store) if one[2] == 0] == list(range(38))
    assert store.check() == []


def test_synced_when_it_returns(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000, **SIZES) as store:
        result = store.put_table(pa.table({"topic": ["A"] * 300, "body": [b"x" * 1000] * 300}))
        assert result.status is PutMessageStatus.PUT_OK
        assert store.flushed_offset == result.end_offset == store.log_end
