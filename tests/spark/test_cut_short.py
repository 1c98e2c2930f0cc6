"""Log files that are shorter than they should be, or become so while they are read: every reader comes to an end."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from pyspark.sql.streaming.datasource import ReadAllAvailable

import mqstore
from mqstore import Message
from mqstore.spark.jobs import lag, lagging
from mqstore.spark.jobs.log_shares import plan_splits
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.queue_reading import read_queue_split
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import SplitPolicy, open_log, read_split
from mqstore.spark.stores import StoreRef, find_stores
from mqstore.spark.stream import StreamReader
from spark.support import run_here

FILE_SIZE = 64 << 10
SKIPPING = {"onCorruptRecord": "skip"}

pytestmark = pytest.mark.timeout(60)  # what is tested here is that it ends


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 messages in two queues and four log files; a group has consumed none of them."""
    path = tmp_path_factory.mktemp("made") / "broker-a"
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "max_hash_slot_num": 100, "max_index_num": 400}
    with mqstore.open(path, **sizes) as store:
        for number in range(600):
            store.put(Message("orders", b"%03d" % number * 80, queue_id=number % 2))
        for queue_id in (0, 1):
            store.commit_offset("slow", "orders", queue_id, 0)
    return path


def log_file(path: Path, number: int = 1) -> Path:
    return sorted((path / "commitlog").iterdir())[number]


def records(path: Path) -> list[tuple[int, int]]:
    """Where each record of the second file begins and ends."""
    with mqstore.inspect(path) as view:
        found = [(one.physical_offset, one.end_offset) for one in view.scan()]
    return [one for one in found if FILE_SIZE <= one[0] < 2 * FILE_SIZE]


def planned(path: Path, **options: str) -> tuple[list[QueueSplit], SplitPolicy]:
    parsed = ReadOptions.parse({"path": str(path), "startingOffsets": "earliest", **options}, streaming=True)
    reader = StreamReader(parsed, MessagesView.schema_for(parsed).names)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    reader.stop()
    return [pickle.loads(pickle.dumps(one.value)) for one in parts], SplitPolicy.of(parsed)


def offsets(splits: list[QueueSplit], policy: SplitPolicy) -> list[int]:
    return [
        int(one) for split in splits for chunk in read_queue_split(split, policy) for one in chunk.columns.own_offset
    ]


@pytest.mark.parametrize("when", ["before the plan", "after it"])
def test_a_file_in_the_middle_by_queues(copy: Path, when: str) -> None:
    whole = offsets(*planned(copy))
    cut_at = FILE_SIZE + FILE_SIZE // 2
    if when == "before the plan":
        os.truncate(log_file(copy), cut_at - FILE_SIZE)
    splits, policy = planned(copy)
    lax = planned(copy, **SKIPPING)
    os.truncate(log_file(copy), cut_at - FILE_SIZE)
    with pytest.raises(mqstore.MqstoreError):
        offsets(splits, policy)
    ends = dict(records(copy))
    left = [one for one in whole if not FILE_SIZE <= one < 2 * FILE_SIZE or ends.get(one, 2 * FILE_SIZE) <= cut_at]
    assert offsets(*lax) == left
    assert len(left) < len(whole)


def test_lag(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lagging, "run_tasks", run_here)
    none: Any = None
    before = lag(none, copy)
    os.truncate(log_file(copy), FILE_SIZE // 2)
    after = lag(none, copy)
    assert before.lag == {"slow": 600}
    assert after.lag["slow"] > 0
    assert [row.oldest_ms for row in after.rows] == [row.oldest_ms for row in before.rows]


@pytest.mark.parametrize("inside", [0, 100], ids=["between two records", "inside of one"])
def test_a_split_whose_file_is_cut_after_it_was_listed(copy: Path, inside: int) -> None:
    store = StoreRef(str(copy), "b")
    splits = plan_splits(store, 20_000)
    cut_at = records(copy)[50][0]
    expected = [one for one in offsets(*planned(copy)) if not cut_at <= one < 2 * FILE_SIZE]
    log = open_log(store)
    os.truncate(log_file(copy), cut_at + inside - FILE_SIZE)
    with pytest.raises(mqstore.CorruptRecordError, match=r"(?s)damaged record.*SHORT"):
        [chunk for split in splits for chunk in read_split(log, split, SplitPolicy())]
    lax = SplitPolicy.of(ReadOptions.parse({"path": str(copy), **SKIPPING}))
    found = [int(one) for split in splits for chunk in read_split(log, split, lax) for one in chunk.columns.own_offset]
    assert sorted(found) == sorted(expected)
    entry = log.inventory.entries[1]
    assert log.resync(entry, cut_at + inside) is None
    log.close()


def scanned(path: Path, when: str, cut: tuple[int, int], **options: str) -> int:
    """How many rows a scan gives of a store of which one log file is cut to a length, each part read as in a task."""
    number, length = cut
    parsed = ReadOptions.parse({"path": str(path), "plan": "scan", "splitBytes": "20000", **options})
    view = MessagesView(find_stores(parsed), parsed, ["physicalOffset"])
    if when == "before the plan":
        os.truncate(log_file(path, number), length)
    parts = view.plan()
    os.truncate(log_file(path, number), length)
    return sum(batch.num_rows for part in parts for batch in view.read(part))


@pytest.mark.parametrize("when", ["before the plan", "after it"])
@pytest.mark.parametrize("place", ["nothing", "the first record", "half"])
def test_a_file_cut_between_two_records_by_a_scan(copy: Path, tmp_path: Path, when: str, place: str) -> None:
    found = records(copy)
    left = {"nothing": 0, "the first record": 1, "half": len(found) // 2}[place]
    cut = 1, found[left - 1][1] - FILE_SIZE if left else 0
    with pytest.raises(mqstore.CorruptFileError if cut[1] == 0 or when == "after it" else mqstore.CorruptRecordError):
        scanned(Path(shutil.copytree(copy, tmp_path / "a")), when, cut)
    going_on = {"failOnDataLoss": "false", **SKIPPING}
    assert scanned(copy, when, cut, **going_on) == 600 - len(found) + left


def test_a_last_file_cut_after_the_plan(copy: Path) -> None:
    with pytest.raises(mqstore.CorruptFileError, match="cut off before it was read"):
        scanned(copy, "after it", (-1, 0))


def test_keys_in_a_file_that_was_cut(copy: Path) -> None:
    with mqstore.open(copy) as store:
        store.put(Message("orders", b"wanted", keys=["k"], queue_id=0))
        store.put(Message("orders", b"other", keys=["l"], queue_id=0))
    parsed = ReadOptions.parse({"path": str(copy), "plan": "queues", "subscribe": "orders", "keys": "k"})
    view = MessagesView(find_stores(parsed), parsed, ["body"])
    parts = view.plan()
    os.truncate(log_file(copy, -1), 10)
    with pytest.raises(mqstore.CorruptFileError, match="cut off before it was read"):
        [batch for part in parts for batch in view.read(part)]
