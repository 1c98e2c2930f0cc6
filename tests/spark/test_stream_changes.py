"""What becomes of a store under a stream: rebuilt in place, away for a while, made anew, asked for otherwise."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from pyspark.sql.streaming.datasource import ReadAllAvailable

import mqstore
from mqstore import Message
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.spark import kafka_offsets
from mqstore.spark.stream import StreamReader
from mqstore.store import queue_states, rebuild
from spark.test_queue_reading import SIZES, reader_of, rows_of_part

Places = Counter[tuple[str, str, int, int]]


def put(path: Path, count: int, topics: tuple[str, ...] = ("orders", "returns")) -> None:
    with mqstore.open(path, **SIZES) as store:
        for number in range(count):
            store.put(Message(topics[number % len(topics)], b"x" * 300, queue_id=number // 2 % 2))


def held(*paths: Path) -> Places:
    found: Places = Counter()
    for path in paths:
        with mqstore.inspect(path) as view:
            found.update((path.name, one.topic, one.queue_id, one.queue_offset) for one in view.scan())
    return found


class Query:
    """A query in this process: what it is at, and what it has got."""

    def __init__(self, source: object, **options: object) -> None:
        self.start: Any = None
        self.got: Places = Counter()
        self.begin_anew(source, **options)

    def begin_anew(self, source: object, **options: object) -> None:
        """Go on from the checkpoint, with these options."""
        self.reader: StreamReader = reader_of(source, **options)  # type: ignore[arg-type]
        self.start = self.start or self.reader.initialOffset()

    def batch(self) -> int:
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        self.read(self.reader.partitions(self.start, end))
        count = self.got.total()
        self.start = end
        return count

    def read(self, parts: Any) -> None:
        for part in parts:
            for row in rows_of_part(self.reader, part):
                self.got[row["brokerName"], row["topic"], row["queueId"], row["queueOffset"]] += 1


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    put(path, 400)
    return path


@pytest.mark.parametrize("change", ["rebuilt", "copied", "moved away"])
def test_goes_on_with_other_files_of_the_same_names(store: Path, tmp_path: Path, change: str) -> None:
    query = Query(store)
    assert query.batch() == 400
    if change == "rebuilt":
        mqstore.rebuild(store, None, in_place=True)
    else:
        shutil.copytree(store, tmp_path / "copy")
        if change == "copied":
            shutil.rmtree(store)
        else:
            store.rename(tmp_path / "old")
        (tmp_path / "copy").rename(store)
    for total in (500, 600):
        put(store, 100)
        assert query.batch() == total
    assert query.got == held(store)


def test_goes_on_while_a_rebuild_is_at_work(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(store)
    query.batch()
    put(store, 100)
    end = query.reader.latestOffset(query.start, ReadAllAvailable())
    early = query.reader.partitions(query.start, end)
    seen = []
    real = rebuild.put_in_order

    def put_in_order(root: Path, *arguments: Any) -> int:
        seen.append(sorted(path.name for path in root.glob("consumequeue*")))
        assert query.reader.latestOffset(query.start, ReadAllAvailable()) == end
        query.read(early)
        again = Query(store)  # one that begins now
        assert again.batch() == 500
        assert again.got == query.got
        return real(root, *arguments)

    monkeypatch.setattr(rebuild, "put_in_order", put_in_order)
    mqstore.rebuild(store, None, in_place=True)
    assert seen == [["consumequeue.before-rebuild"]]
    query.start = end
    put(store, 100)
    assert query.batch() == 600
    assert query.got == held(store)


def test_what_a_killed_rebuild_left_aside_does_not_hold_a_stream_up(store: Path) -> None:
    """Another program has built the queues and goes on with them."""
    shutil.copytree(store / "consumequeue", store.parent / "old")
    put(store, 100)
    (store.parent / "old").rename(store / "consumequeue.before-rebuild")
    query = Query(store)
    assert query.batch() == 500
    assert query.got == held(store)


def test_queues_that_are_moved_while_they_are_looked_at(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(store)
    real = queue_states.state_of
    queues, away = store / "consumequeue", store.parent / "away"
    calls: list[int] = []

    def directories(paths: Any) -> Any:
        found = real(paths)
        calls.append(len(calls))
        if len(calls) == 1:
            queues.rename(away)
        elif len(calls) == 2:
            shutil.copytree(away, queues)
        return found

    monkeypatch.setattr(queue_states, "state_of", directories)
    assert query.batch() == 400
    assert len(calls) > 4


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 1000}, {"maxBytesPerTrigger": 1 << 30}])
@pytest.mark.parametrize("moment", ["running", "stopped"])
def test_what_comes_back_is_not_read_again(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: dict[str, int], moment: str
) -> None:
    other = tmp_path / "b"
    put(other, 200)
    source = tmp_path / "[ab]"
    query = Query(source, failOnDataLoss="false", **limit)
    assert query.batch() == 600
    other.rename(tmp_path / "x")
    if moment == "stopped":
        query.begin_anew(source, failOnDataLoss="false", **limit)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert query.batch() == 600
    assert caplog.text.count("queue orders/0 of b is gone") == 1
    put(store, 50)
    assert query.batch() == 650
    (tmp_path / "x").rename(other)
    put(other, 30)
    if moment == "stopped":
        query.begin_anew(source, failOnDataLoss="false", **limit)
    assert query.batch() == 680
    assert query.got == held(store, other)
    with caplog.at_level(logging.WARNING):
        other.rename(tmp_path / "x")
        query.batch()
    assert caplog.text.count("queue orders/0 of b is gone") == 2


def test_what_is_back_while_the_end_is_fixed_is_not_read_again(store: Path, tmp_path: Path) -> None:
    """Away when the end of a run was fixed, and there again at its batches."""
    query = Query(store, failOnDataLoss="false")
    query.batch()
    store.rename(tmp_path / "x")
    query.reader.prepareForTriggerAvailableNow()
    (tmp_path / "x").rename(store)
    query.batch()
    query.begin_anew(store)
    assert query.batch() == 400


def test_a_store_made_anew_goes_on_at_the_old_offsets(store: Path) -> None:
    query = Query(store, failOnDataLoss="false")
    strict = Query(store)
    for one in (query, strict):
        assert one.batch() == 400
    shutil.rmtree(store)
    put(store, 100)
    assert query.batch() == 400
    with pytest.raises(mqstore.CorruptFileError, match=r"data may have been lost: queue .* ends at 25"):
        strict.batch()
    put(store, 900)
    assert query.batch() == 1000
    query.begin_anew(store)
    assert query.batch() == 1000
    rest = Counter({place: 1 for place in held(store) if place[3] >= 100})
    assert query.got == Counter({place: 1 for place in held(store) if place[3] < 100}) + rest


@pytest.mark.parametrize("size", [10, 4000])
def test_a_store_made_anew_between_plan_and_task_is_lost(store: Path, size: int) -> None:
    query, strict = Query(store, failOnDataLoss="false"), Query(store)
    parts = query.reader.partitions(query.start, query.reader.reportLatestOffset())
    shutil.rmtree(store)
    put(store, size)
    if size == 10:
        with pytest.raises(mqstore.CorruptFileError, match=r"data may have been lost: messages \d+ to 99 of queue"):
            strict.read(parts)
    query.read(parts)
    assert query.got == Counter({place: 1 for place in held(store) if place[3] < 100})


def test_a_store_made_anew_while_a_task_reads_is_lost(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqstore.spark import queue_reading

    strict = Query(store)
    parts = strict.reader.partitions(strict.start, strict.reader.reportLatestOffset())
    real = queue_reading.while_queues_stay

    def then_replaced(*arguments: Any) -> Any:
        found = real(*arguments)
        shutil.rmtree(store)
        put(store, 400, ("returns", "orders", "more"))
        return found

    monkeypatch.setattr(queue_reading, "while_queues_stay", then_replaced)
    with pytest.raises(mqstore.CorruptFileError, match=r"data may have been lost: messages .* were removed before"):
        strict.read(parts)


def test_units_that_nobody_wrote_inside_a_queue_are_damage(store: Path) -> None:
    path = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(3 * QUEUE_UNIT_SIZE)
        file.write(bytes(QUEUE_UNIT_SIZE))
    with pytest.raises(mqstore.CorruptFileError, match="leads to no record"):
        Query(store).batch()
    assert Query(store, onCorruptRecord="skip").batch() == 399


@pytest.mark.parametrize(
    "noted",
    [None, [1], {"orders": {"0": 75}}, {"orders": {"a": {"zero": 5}}}, {"orders": {"a": {"0": -5}}},
     {"orders": {"a": {"0": 5.5}}}, {"orders": {"a": {"0": "5"}}}, {"orders": {"a": {"0": True}}}],
)  # fmt: skip
def test_a_checkpoint_that_has_no_such_offsets(store: Path, noted: Any) -> None:
    reader = Query(store).reader
    with pytest.raises(mqstore.CorruptFileError, match="the checkpoint has no offsets of such a stream"):
        reader.latestOffset(noted, ReadAllAvailable())
    with pytest.raises(mqstore.CorruptFileError, match="the checkpoint has no offsets of such a stream"):
        kafka_offsets.from_json({"orders": noted})


def test_queues_that_are_asked_for_no_more(store: Path) -> None:
    query = Query(store)
    assert query.batch() == 400
    for topics, total in (("orders", 450), ("returns", 550), ("orders,returns", 700)):
        put(store, 100)
        query.begin_anew(store, subscribe=topics)
        assert query.batch() == total
    put(store, 100)
    query.begin_anew(store)
    assert query.batch() == 800
    assert query.got == held(store)
    query.begin_anew(store, subscribe="orders")
    shutil.rmtree(store / "consumequeue" / "orders")
    with pytest.raises(mqstore.CorruptFileError, match="queue orders/0 of a is gone"):
        query.batch()


@pytest.mark.parametrize("kept", ["all", "none", "some"])
def test_a_batch_is_done_again_when_queues_are_asked_for_no_more(store: Path, kept: str) -> None:
    """It has the same rows as before, but for those that are gone; what nobody asks for does not end the query."""
    query = Query(store)
    end = query.reader.latestOffset(query.start, query.reader.getDefaultReadLimit())
    if kept == "none":
        shutil.rmtree(store / "consumequeue" / "returns")
    elif kept == "some":
        min((store / "consumequeue" / "returns" / "0").iterdir()).unlink()
    query.begin_anew(store, subscribe="orders")
    query.read(query.reader.partitions(query.start, end))
    assert sum(count for (_, topic, *_), count in query.got.items() if topic == "orders") == 200
    # What a queue's file had that is gone, the log still has.
    assert query.got.total() == {"all": 400, "none": 200, "some": 400}[kept]
    query.start = end
    total = query.got.total()
    put(store, 100, ("orders",))
    assert query.batch() == total + 100
