"""By queues, by the index or through the log: the same rows, whatever is wrong with the derived files."""

from __future__ import annotations

import datetime
import json
import logging
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import numpy as np
import pyarrow as pa

import mqstore
from mqstore import Message
from mqstore.files.pool import FilePool
from mqstore.spark import planning, queue_guide
from mqstore.spark.key_places import Places
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.pieces import from_plain, to_plain
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import Split
from mqstore.spark.stores import StoreRef, find_stores
from mqstore.store.log_reader import LogReader
from spark.planned import COLUMNS, SIZES, plan_of, rows_of
from spark.support import ANSWERED, read_here

CHOICES: list[dict[str, object]] = [
    {"subscribe": "rare"},
    {"assign": '{"rare": [1], "orders": [0]}', "where": "t0 || t2"},
    {"subscribePattern": "r.*|none", "minPartitions": 5},
    {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 900, "1": 950}}', "splitBytes": 50_000},
    {"subscribe": "orders,rare", "endingOffsets": '{"orders": {"2": 5}, "rare": {"0": 3}}', "maxPartitions": 2},
]


@pytest.mark.parametrize("options", CHOICES)
def test_the_same_rows_either_way(made: Path, options: dict[str, object]) -> None:
    scanned = rows_of(made, plan="scan", **options)
    assert scanned
    for plan in ("queues", "auto"):
        assert rows_of(made, plan=plan, **options) == scanned
    assert any(isinstance(piece, QueueSplit) for piece in plan_of(made, plan="queues", **options))


def test_golden_stores(golden: Path) -> None:
    guided = set()
    for name in [*ANSWERED, "crashed", "cq-lost", "torn-flip-abort", "v5-crashed"]:
        store = golden / name / "store"
        topics = {row["topic"] for row in rows_of(store, plan="scan")}
        for topic in sorted(topics):
            scanned = rows_of(store, plan="scan", subscribe=topic)
            assert rows_of(store, plan="queues", subscribe=topic, minPartitions=2) == scanned, (name, topic)
            if any(isinstance(piece, QueueSplit) for piece in plan_of(store, plan="queues", subscribe=topic)):
                guided.add(name)
    assert {"broker"} <= guided, guided


def test_few_bytes_for_few_messages(
    made: Path, read_bytes: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mqstore")
    rare = rows_of(made, plan="auto", subscribe="rare")
    guided = read_bytes()
    assert len(rare) == 50
    assert "by the queues, 50 messages" in caplog.text
    assert rows_of(made, plan="scan", subscribe="rare") == rare
    assert guided * 5 < read_bytes()
    caplog.clear()
    assert {type(piece) for piece in plan_of(made, subscribe="orders")} == {Split}
    assert "going through the log" in caplog.text
    assert {type(piece) for piece in plan_of(made)} == {Split}


def test_no_task_gets_too_many_messages(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MESSAGES_PER_SPLIT", 30)
    options: dict[str, object] = {"subscribe": "orders", "plan": "queues", "minPartitions": 3}
    counts = [sum(one.end - one.begin for one in piece.ranges) for piece in plan_of(made, **options)]
    assert max(counts) == 30
    assert len(counts) < 130
    assert rows_of(made, **options) == rows_of(made, plan="scan", subscribe="orders")


def test_filters_that_leave_all_rows_copy_none(made: Path) -> None:
    parsed = ReadOptions.parse({"path": str(made), "subscribe": "rare,orders"})
    view = MessagesView(find_stores(parsed), parsed, COLUMNS)
    part = view.plan()[0]
    selection = view.selection(view.stores[0])
    batch = next(iter(MessagesView(view.stores, parsed, COLUMNS).read(part)))
    assert selection.apply(batch) is batch
    unknown = batch.set_column(0, "topic", pa.array([None, *batch["topic"].to_pylist()[1:]], pa.string()))
    assert selection.apply(unknown).num_rows == batch.num_rows - 1


@pytest.mark.parametrize("seed", range(20))
def test_what_the_units_claim_of_each_file(made: Path, seed: int) -> None:
    numbers = random.Random(seed)
    log = LogReader([made / "commitlog"])
    units = []
    with mqstore.inspect(made) as view:
        units = [(record.physical_offset, record.total_size) for record in view.scan()]
    ends: dict[int, int] = {}
    for begin, size in units:
        ends[begin // SIZES["mapped_file_size_commit_log"]] = begin + size
    wrong = numbers.sample(range(len(units)), numbers.choice([0, 0, 1, 3]))
    for row in wrong:
        begin, size = units[row]
        units[row] = numbers.choice([(begin + 1, size), (begin, size - 1), (-1, size), (begin, 0), (1 << 60, size)])
    if seed % 2:
        numbers.shuffle(units)
    tally = queue_guide._Tally(log)
    while units:
        part, units = units[:700], units[700:]
        tally._add(*(np.array(column, np.int64) for column in zip(*part, strict=True)))
    described = {begin // SIZES["mapped_file_size_commit_log"] for begin, _ in tally._described()}
    last = max(ends)
    assert described >= set(ends) - {last} - wrong_files(made, wrong)
    assert not (described & (wrong_files(made, wrong) - {last}))
    log.close()


@pytest.mark.parametrize("places", [range(10), [0, 1, 3, 3, 4, 4, 6, 7, 8, 9], [0, 1, 2, 2, 5, 5, 5, 7, 8, 9]])
def test_what_is_missing_does_not_make_up_for_what_is_there_twice(made: Path, places: Sequence[int]) -> None:
    log = LogReader([made / "commitlog"])
    tally = queue_guide._Tally(log)
    begins = np.array(places, np.int64) * 100
    tally._add(begins, np.full(10, 100, np.int64))
    assert list(tally._described()) == ([(0, 1000)] if list(places) == list(range(10)) else [])
    log.close()


def test_too_many_queues_are_not_even_looked_at(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_guide, "QUEUE_COST_BYTES", 1 << 20)
    monkeypatch.setattr(queue_guide, "QueueReader", None)
    assert {type(piece) for piece in plan_of(made, subscribe="rare")} == {Split}


def wrong_files(made: Path, rows: list[int]) -> set[int]:
    with mqstore.inspect(made) as view:
        records = list(view.scan())
    return {records[row].physical_offset // SIZES["mapped_file_size_commit_log"] for row in rows}


def flip(copy: Path, kind: str, seed: int) -> None:
    """Change one bit of a used unit, of whatever queue."""
    numbers = random.Random(seed)
    with mqstore.inspect(copy) as view:
        queue = numbers.choice(view.queues())
    offset = numbers.randrange(queue.min_offset, queue.max_offset)
    file = copy / "consumequeue" / queue.topic / str(queue.queue_id) / f"{offset // 300 * 6000:020d}"
    raw = bytearray(file.read_bytes())
    place = offset % 300 * 20 + numbers.randrange(*{"place": (4, 8), "size": (8, 12)}[kind])
    raw[place] ^= 1 << numbers.randrange(8)
    file.write_bytes(raw)


@pytest.mark.parametrize("kind", ["place", "size"])
def test_a_wrong_unit_misleads_nobody(made: Path, tmp_path: Path, kind: str) -> None:
    expected = {topic: rows_of(made, plan="scan", subscribe=topic) for topic in ("rare", "orders")}
    for seed in range(8):
        path = Path(shutil.copytree(made, tmp_path / str(seed) / "broker-a"))
        flip(path, kind, seed)
        for topic, rows in expected.items():
            assert rows_of(path, plan="queues", subscribe=topic) == rows, (seed, topic)


def remove_queue(copy: Path) -> None:
    shutil.rmtree(copy / "consumequeue" / "rare" / "1")


def remove_first_file(copy: Path) -> None:
    min((copy / "consumequeue" / "orders" / "1").iterdir()).unlink()


def remove_middle_file(copy: Path) -> None:
    sorted((copy / "consumequeue" / "orders" / "0").iterdir())[1].unlink()


def swap_queues(copy: Path) -> None:
    queues = copy / "consumequeue"
    (queues / "rare" / "0").rename(queues / "aside")
    (queues / "rare" / "1").rename(queues / "rare" / "0")
    (queues / "aside").rename(queues / "rare" / "1")


def expire(copy: Path) -> None:
    for file in sorted((copy / "commitlog").iterdir())[:7]:
        file.unlink()


def forget_the_end(copy: Path) -> None:
    for file in (copy / "consumequeue").rglob("0" * 10 + "*"):
        raw = bytearray(file.read_bytes())
        raw[-100 * 20 :] = bytes(100 * 20)
        file.write_bytes(raw)


CHANGES = [remove_queue, remove_first_file, remove_middle_file, expire, forget_the_end]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_queues_that_lack_something(copy: Path, change: Callable[[Path], None]) -> None:
    change(copy)
    for options in CHOICES[1:3]:
        options = {**options, "failOnDataLoss": "false"}
        assert rows_of(copy, plan="queues", **options) == rows_of(copy, plan="scan", **options)


def rename_topic(copy: Path) -> None:
    (copy / "consumequeue" / "rare").rename(copy / "consumequeue" / "zzz")


def swap_topics(copy: Path) -> None:
    queues = copy / "consumequeue"
    (queues / "rare").rename(queues / "aside")
    (queues / "orders").rename(queues / "rare")
    (queues / "aside").rename(queues / "orders")


def swap_files(copy: Path) -> None:
    """Of two queues of one topic, whose messages have the same offsets."""
    files = [copy / "consumequeue" / "orders" / str(queue_id) / f"{6000:020d}" for queue_id in (0, 2)]
    (files[0]).rename(copy / "aside")
    files[1].rename(files[0])
    (copy / "aside").rename(files[1])


def shift_queue(copy: Path) -> None:
    """The units are right, but each one place too early."""
    for file in (copy / "consumequeue" / "rare" / "0").iterdir():
        file.write_bytes(file.read_bytes()[20:] + bytes(20))


@pytest.mark.parametrize("change", [swap_queues, rename_topic, swap_topics, swap_files, shift_queue])
def test_queues_in_the_wrong_place(copy: Path, change: Callable[[Path], None]) -> None:
    expected = {topic: rows_of(copy, plan="scan", subscribe=topic) for topic in ("rare", "orders", "zzz")}
    change(copy)
    for plan in ("queues", "auto"):
        for topic, rows in expected.items():
            assert rows_of(copy, plan=plan, subscribe=topic) == rows, (plan, topic)
    assert rows_of(copy, plan="queues", assign='{"orders": [0]}', onCorruptRecord="skip") == [
        row for row in expected["orders"] if row["queueId"] == 0
    ]


def test_topics_that_are_no_utf8(tmp_path: Path) -> None:
    """They are mended, as they must be to name a directory: here two of them to the same name."""
    path = tmp_path / "broker-a"
    with mqstore.open(path, **SIZES) as store:
        for number in range(600):
            topic = "orders" if number % 9 else f"caf{number % 2}"
            store.put(Message(topic, b"%d" % number, queue_id=number % 2))
    for file in (path / "commitlog").iterdir():
        file.write_bytes(file.read_bytes().replace(b"caf0", b"caf\xe8").replace(b"caf1", b"caf\xe9"))
    mqstore.rebuild(path, None, in_place=True)
    rows = rows_of(path, plan="scan", subscribe="caf\ufffd")
    assert len(rows) == 67
    assert rows_of(path, plan="queues", subscribe="caf\ufffd") == rows
    assert any(isinstance(piece, QueueSplit) for piece in plan_of(path, plan="queues", subscribe="caf\ufffd"))


def test_a_store_that_is_being_written_to(copy: Path) -> None:
    """Its last records have no units yet: the log is read from where the queues end."""
    with mqstore.open(copy, **SIZES) as store:
        store.put(Message("orders", b"before", queue_id=0))
    ends = {path: path.read_bytes() for path in (copy / "consumequeue").rglob("0" * 10 + "*")}
    with mqstore.open(copy, **SIZES) as store:
        for number in range(40):
            store.put(Message("rare", b"%d" % number * 500, queue_id=number % 2))
    shutil.rmtree(copy / "consumequeue")
    for path, raw in ends.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    rows = rows_of(copy, plan="queues", subscribe="rare")
    assert len(rows) == 90
    assert rows == rows_of(copy, plan="scan", subscribe="rare")
    assert {type(piece) for piece in plan_of(copy, plan="queues", subscribe="rare")} == {QueueSplit, Split}


# -- times


def test_files_of_other_times_are_not_read(
    made: Path, read_bytes: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_here(made, ["physicalOffset", "storeTimestamp"], plan="scan")
    first_ms = int(rows[2900]["storeTimestamp"].timestamp() * 1000)
    late = [row for row in rows if row["storeTimestamp"].timestamp() * 1000 >= first_ms]
    read_bytes()
    assert read_here(made, ["physicalOffset", "storeTimestamp"], startingTimestamp=first_ms) == late
    everything = read_bytes()
    monkeypatch.setattr(planning, "CLOCK_SLACK_MS", 0)
    assert read_here(made, ["physicalOffset", "storeTimestamp"], startingTimestamp=first_ms) == late
    # Planning goes through the last three files as well, to find the end of the log.
    assert read_bytes() < everything * 0.7


@pytest.mark.parametrize(
    ("heads", "window", "expected"),
    [
        ([0, 10, 20, 30], (12, 18), [False, True, False, False]),
        ([0, 10, 20, 30], (10, 20), [True, True, True, False]),
        ([0, None, 20, 30], (12, 18), [True, True, False, False]),
        ([0, 10, 20, 30], (31, 99), [False, False, False, True]),
        ([planning.CLOCK_SLACK_MS + 30, 10, 20, 30], (12, 18), [True] * 4),
    ],
)
def test_which_files_may_hold_a_time(heads: list[int | None], window: tuple[int, int], expected: list[bool]) -> None:
    assert planning._within_times(heads, *window) == expected


# -- filters of Spark


def test_what_filters_leave(made: Path) -> None:
    from pyspark.sql.datasource import (
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
    )

    rows = read_here(made, [*COLUMNS, "storeTimestamp"], plan="scan")
    moment = rows[1500]["storeTimestamp"]
    places = (rows[100]["physicalOffset"], rows[2500]["physicalOffset"])
    taken: list[tuple[Any, Callable[[dict[str, Any]], bool]]] = [
        (EqualTo(("topic",), "orders"), lambda row: row["topic"] == "orders"),
        (In(("queueId",), (0, 2)), lambda row: row["queueId"] in (0, 2)),
        (In(("tags",), ("t1", "t2")), lambda row: row["tags"] in ("t1", "t2")),
        (GreaterThan(("physicalOffset",), places[0]), lambda row: row["physicalOffset"] > places[0]),
        (LessThan(("physicalOffset",), places[1]), lambda row: row["physicalOffset"] < places[1]),
        (GreaterThanOrEqual(("queueOffset",), 50), lambda row: row["queueOffset"] >= 50),
        (LessThanOrEqual(("queueOffset",), 700), lambda row: row["queueOffset"] <= 700),
        (LessThanOrEqual(("storeTimestamp",), moment), lambda row: row["storeTimestamp"] <= moment),
    ]
    for plan in ("scan", "queues"):
        options = ReadOptions.parse({"path": str(made), "plan": plan})
        view = MessagesView(find_stores(options), options, [*COLUMNS, "storeTimestamp"])
        left = rows
        for one, holds in taken:
            pushed = view.pushed.taking(one, view.pushable)
            assert pushed is not None
            view.pushed = pushed
            left = [row for row in left if holds(row)]
            found = [row for part in view.plan() for batch in view.read(part) for row in batch.to_pylist()]
            assert sorted(found, key=lambda row: row["physicalOffset"]) == left, (plan, one)
        assert left
        for other in (
            IsNotNull(("topic",)),
            EqualTo(("body",), b""),
            GreaterThan(("topic",), "a"),
            EqualTo(("queueOffset",), "5"),
            LessThan(("storeTimestamp",), datetime.datetime(2020, 1, 1)),
        ):
            assert view.pushed.taking(other, view.pushable) is None


def test_pieces_as_json() -> None:
    store = StoreRef("/s", "b")
    for piece in (Split(store, 1, 2), Places(store, [3, 4]), QueueSplit(store, [planning.UnitRange("t", 0, 1, 5)])):
        assert from_plain(json.loads(json.dumps(to_plain(piece)))) == piece


# -- queues that are not asked for


def test_starting_offsets_of_other_queues_do_not_matter(copy: Path) -> None:
    """That their messages have expired is no data loss of this read."""
    min((copy / "commitlog").iterdir()).unlink()
    starting = {"orders": {"0": 0}}
    expected = rows_of(copy, subscribe="rare")
    assert len(expected) > 20
    assert rows_of(copy, subscribe="rare", startingOffsets=json.dumps(starting)) == expected
    with pytest.raises(mqstore.CorruptFileError, match="begins behind its starting offset"):
        rows_of(copy, subscribe="orders", startingOffsets=json.dumps(starting))


@pytest.mark.parametrize("topic", ["orders", "rare"])
def test_a_queue_file_that_cannot_be_read(copy: Path, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """The log has what the queues cannot tell."""
    expected = rows_of(copy, plan="scan", subscribe="rare")
    real = FilePool.read

    def read(pool: FilePool, path: Path, position: int, size_bytes: int) -> bytes:
        if path.parent.parent.name == topic:
            raise mqstore.StoreIOError("could not read: Input/output error", path=path)
        return real(pool, path, position, size_bytes)

    monkeypatch.setattr(FilePool, "read", read)
    assert rows_of(copy, plan="queues", subscribe="rare") == expected
