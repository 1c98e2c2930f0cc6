"""Queue files that go between plan and task: what the log has of their messages is read all the same."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from pyspark.sql.streaming.datasource import ReadAllAvailable

import mqstore
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.pieces import from_plain, to_plain
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.stores import find_stores
from mqstore.spark.stream import StreamReader
from spark.planned import COLUMNS

Rows = list[dict[str, Any]]
Read = Callable[[], Rows]


def planned_batch(store: Path, **options: str) -> Read:
    """A batch that is planned, by queues, and not yet read."""
    parsed = ReadOptions.parse({"path": str(store), "plan": "queues", **options})
    view = MessagesView(find_stores(parsed), parsed, COLUMNS)
    parts = view.plan()
    assert all(isinstance(piece, QueueSplit) for part in parts for piece in part)
    return lambda: [row for part in parts for batch in view.read(part) for row in batch.to_pylist()]


def planned_stream(store: Path, **options: str) -> Read:
    parsed = ReadOptions.parse({"path": str(store), "startingOffsets": "earliest", **options}, streaming=True)
    reader = StreamReader(parsed, COLUMNS)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    return lambda: [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


PLANS = [planned_batch, planned_stream]


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["physicalOffset"])


def remove_topic(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")


def remove_all_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def remove_first_files(store: Path) -> None:
    for queue in (store / "consumequeue" / "orders").iterdir():
        min(queue.iterdir()).unlink()


def remove_middle_file(store: Path) -> None:
    sorted((store / "consumequeue" / "orders" / "1").iterdir())[1].unlink()


def remove_last_file(store: Path) -> None:
    max((store / "consumequeue" / "orders" / "2").iterdir()).unlink()


def erase_the_end(store: Path) -> None:
    for queue in (store / "consumequeue" / "orders").iterdir():
        file = max(queue.iterdir())
        file.write_bytes(file.read_bytes()[:200].ljust(file.stat().st_size, b"\0"))


CHANGES = [remove_topic, remove_all_queues, remove_first_files, remove_middle_file, remove_last_file, erase_the_end]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("fail", ["true", "false"])
def test_their_messages_are_read(
    copy: Path, plan: Callable[..., Read], change: Callable[[Path], None], fail: str, caplog: pytest.LogCaptureFixture
) -> None:
    read = plan(copy, subscribe="orders", failOnDataLoss=fail, minPartitions="3")
    before = in_order(read())
    assert len(before) == 2950
    change(copy)
    with caplog.at_level(logging.WARNING):
        assert in_order(read()) == before
    assert "units of queues have gone, going through the log" in caplog.text
    assert "were removed before" not in caplog.text


@pytest.mark.parametrize("plan", PLANS)
def test_what_the_log_has_no_more_is_lost(
    copy: Path, plan: Callable[..., Read], caplog: pytest.LogCaptureFixture
) -> None:
    strict, lax = (plan(copy, subscribe="orders", failOnDataLoss=fail) for fail in ("true", "false"))
    before = in_order(lax())
    remove_first_files(copy)
    gone = sorted((copy / "commitlog").iterdir())[1:3]
    for file in gone:
        file.unlink()
    rest = [row for row in before if not 64 << 10 <= row["physicalOffset"] < 192 << 10]
    assert len(rest) < len(before)
    with pytest.raises(
        mqstore.CorruptFileError, match=r"messages \d+ to \d+ of queue orders/\d of broker-a were removed"
    ):
        strict()
    with caplog.at_level(logging.WARNING):
        assert in_order(lax()) == rest
    assert "they were removed before they were read" in caplog.text


@pytest.mark.parametrize("plan", PLANS)
def test_a_damaged_one_among_them_is_lost(copy: Path, plan: Callable[..., Read]) -> None:
    strict, lax = (plan(copy, subscribe="orders", failOnDataLoss=fail) for fail in ("true", "false"))
    before = in_order(lax())
    victim = before[100]
    file = copy / "commitlog" / f"{victim['physicalOffset'] // (64 << 10) * (64 << 10):020d}"
    with file.open("r+b") as opened:
        opened.seek(victim["physicalOffset"] % (64 << 10) + 4)
        opened.write(b"none")
    remove_topic(copy)
    with pytest.raises(mqstore.CorruptFileError, match=r"messages \d+ to \d+ of queue orders"):
        strict()
    assert in_order(lax()) == [row for row in before if row != victim]


def test_no_more_of_the_log_than_need_be_is_gone_through(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Plan, and units in front of those that are gone and behind them, tell where they can be."""
    read = planned_batch(copy, subscribe="orders", startingOffsets='{"orders": {"0": 900, "1": 900, "2": 900}}')
    before = in_order(read())
    remove_topic(copy)
    with caplog.at_level(logging.WARNING):
        assert in_order(read()) == before
    assert f"going through the log from {before[0]['physicalOffset']} to " in caplog.text


def test_a_middle_file_is_sought_between_its_neighbours(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    read = planned_stream(copy, subscribe="orders")
    before = in_order(read())
    remove_middle_file(copy)
    of_queue = {row["queueOffset"]: row["physicalOffset"] for row in before if row["queueId"] == 1}
    with caplog.at_level(logging.WARNING), mqstore.inspect(copy) as view:
        assert in_order(read()) == before
        last = view.message_at(of_queue[299])
        assert last is not None
    assert f"going through the log from {last.end_offset} to {of_queue[600]} " in caplog.text


def test_a_plan_of_a_version_before_has_no_stretch_of_the_log(copy: Path) -> None:
    parsed = ReadOptions.parse({"path": str(copy), "plan": "queues", "subscribe": "rare"})
    view = MessagesView(find_stores(parsed), parsed, COLUMNS)
    parts = view.plan()
    before = [row for part in parts for batch in view.read(part) for row in batch.to_pylist()]
    assert [from_plain(to_plain(piece)) for part in parts for piece in part] == [one for part in parts for one in part]
    old = [[from_plain(to_plain(piece)[:3]) for piece in part] for part in parts]
    assert all(isinstance(piece, QueueSplit) and piece.high == 0 for part in old for piece in part)
    shutil.rmtree(copy / "consumequeue" / "rare")
    found = [row for part in old for batch in view.read(part) for row in batch.to_pylist()]
    assert in_order(found) == in_order(before)
