"""Reading from outside while segments are swapped, or after a crash in the middle of it: nothing is ever missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    SMALL,
    TOPIC,
    bad,
    copy_of,
    fill,
    mark_crashed,
    message,
    open_small,
    partition_of,
    read_all,
)
from kafka_log.test_compaction import COMPACT, NOW_MS, Crash, count_steps, fill_with_keys, table
from mqstore.findings import Severity
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.stock import take_partition_stock

KINDS = (".log", ".index", ".timeindex", ".txnindex")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log before and after it is compacted, with the files as they lie then."""
    before = tmp_path_factory.mktemp("logs") / "before"
    with open_small(before, **COMPACT) as store:
        fill_with_keys(store, 60, 5, seed=2, transactions=True)
        producer = store.producer()  # whose last batch stays, without records, so that its abort is to be known
        producer.begin()
        producer.put(message(0, key=b"k1"))
        producer.abort()
        store.roll(TOPIC)
        for number in range(3):
            store.put(message(number, key=b"k9"))
    after = copy_of(before, before.with_name("after"))
    with open_small(after, **COMPACT) as store:
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
    return before, after


def shown(path: Path) -> dict[bytes | None, bytes | None]:
    with kafka.inspect(path) as view:
        assert view.stats()[0].damaged == 0
        in_pieces = table(read_all(view, isolation="read_committed"))
        assert in_pieces == table(list(view.partition(TOPIC).records(isolation="read_committed")))
        return in_pieces


def errors_of(path: Path) -> list[str]:
    """What is wrong beyond indexes that are on their way."""
    return [one.message for one in kafka.check(path) if one.severity is Severity.ERROR]


def test_after_a_crash_at_any_step(logs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a writer that finishes it: the view tells what was there, and ``check`` that no record is missing.

    Some thirty of the steps; `make crash` takes them all.
    """
    before, _ = logs
    wanted = shown(before)
    steps = stop_at = 0
    stride = 1
    while steps == 0 or stop_at + stride <= steps:
        stop_at += stride
        path = copy_of(before, tmp_path / "run")
        with monkeypatch.context() as patch:
            store = open_small(path, **COMPACT)
            store._maintenance.stop()
            if steps == 0:
                seen = count_steps(patch, None)
                store.compact(TOPIC, now_ms=NOW_MS, force=True)
                steps, stop_at = seen[0], 0
                stride = 1 if "MQSTORE_CRASH_STATES" in os.environ else max(1, steps // 30)
            else:
                count_steps(patch, stop_at)
                with pytest.raises(Crash):
                    store.compact(TOPIC, now_ms=NOW_MS, force=True)
        store._lock.release()
        assert shown(path) == wanted, f"step {stop_at}"
        assert errors_of(path) == [], f"step {stop_at}"
        shutil.rmtree(path)
    assert steps > 20


def renames_of_a_broker(before: Path, after: Path, which: int = 0) -> Iterator[tuple[Path, Path]]:
    """What a broker renames in a swap, in its order: from ``.cleaned`` on, the old ones log first, ``.swap`` live."""
    old, new = take_partition_stock(partition_of(before)), take_partition_stock(partition_of(after))
    directory = partition_of(before)
    cleaned = [base for base in new.logs[:-1] if (partition_of(after) / f"{base:020}.log").stat().st_size][which]
    following = new.logs[new.logs.index(cleaned) + 1]
    replaced = [base for base in old.logs if cleaned <= base < following]
    of_new = [f"{cleaned:020}{kind}" for kind in KINDS if (partition_of(after) / f"{cleaned:020}{kind}").exists()]
    for name in of_new:
        yield directory / f"{name}.cleaned", directory / f"{name}.swap"
    for base in replaced:
        for kind in KINDS:
            path = directory / f"{base:020}{kind}"
            if path.exists():
                yield path, path.with_name(f"{path.name}.deleted")
    for name in of_new:
        yield directory / f"{name}.swap", directory / name


def test_what_a_broker_leaves_in_the_middle(logs: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = copy_of(logs[0], tmp_path / "before"), logs[1]
    wanted = shown(before)
    moves = list(renames_of_a_broker(before, after))
    assert len(moves) > 10
    for source, _ in moves:
        if source.name.endswith(".cleaned"):
            shutil.copy(partition_of(after) / source.name.removesuffix(".cleaned"), source)
    for number, (source, target) in enumerate(moves):
        source.rename(target)
        assert shown(before) == wanted, number
        assert errors_of(before) == [], number
        recovered = copy_of(before, tmp_path / "recovered")
        mark_crashed(recovered)
        with open_small(recovered, **COMPACT) as store:
            assert table(read_all(store, isolation="read_committed")) == wanted, number
        assert bad(kafka.check(recovered)) == [], number
        shutil.rmtree(recovered)


WRITER = """
import sys, time
import mqstore.kafka as kafka
from mqstore.files import durable
from mqstore.kafka import KafkaMessage
rename = durable.rename
def slow(*args):
    rename(*args)
    time.sleep(0.0003)
durable.rename = slow
durable.sync_directory = durable.sync_file = lambda *args: None
settings = dict(cleanup_policy="compact", segment_bytes=3000, file_delete_delay_ms=0, min_cleanable_dirty_ratio=0)
with kafka.open(sys.argv[1], **settings) as store:
    print("open", flush=True)
    for number in range(1_000_000):
        store.put(KafkaMessage("t", b"%d" % number * 10, key=b"hot%d" % (number % 3)))
        if number % 30 == 0:
            store.roll("t")
            store.compact("t", force=True)
"""
KEPT = 40
RACE_S = float(os.environ.get("MQSTORE_RACE_S", "3"))


def kept(partition: PartitionView) -> int:
    return len({record.key for record in partition.records() if record.key and record.key.startswith(b"keep")})


def looks(view: kafka.KafkaView) -> dict[str, Callable[[], bool]]:
    """What holds at every moment."""
    partition = view.partition("t")
    return {
        "records": lambda: kept(partition) == KEPT,
        "committed": lambda: len({one.key for one in read_all(view, "t", isolation="read_committed")}) >= KEPT,
        "batches": lambda: len({place.header.base_offset for place in partition.batches(0, KEPT)}) == KEPT,
        "chunks": lambda: next(iter(partition.chunks()))[1].columns.base_offset[0] == 0,
        "get": lambda: [one.offset for one in view.get("t", 0, 0, KEPT).messages] == list(range(KEPT)),
        "start": lambda: partition.log_start_offset == 0,
        "end": lambda: partition.log_end_offset >= KEPT,
        "offset_at": lambda: (found := view.offset_at("t", 0, 0)) is not None and found.offset == 0,
        "find_batch": lambda: (place := partition.find_batch(KEPT - 1)) is not None and place.header.base_offset < KEPT,
        "producers": lambda: partition.producers() == [],
        "aborted": lambda: partition.aborted_transactions() == [],
        "stable": lambda: partition.last_stable_offset >= KEPT,
        "stats": lambda: view.stats()[0].records >= KEPT,
    }


def test_beside_another_process_that_cleans(tmp_path: Path) -> None:
    """A few seconds of both at full speed; MQSTORE_RACE_S=60 for longer."""
    with kafka.open(tmp_path, cleanup_policy="compact", segment_bytes=3000) as store:
        for number in range(KEPT):
            store.put(kafka.KafkaMessage("t", b"x", key=b"keep%d" % number, timestamp_ms=number))
        store.roll("t")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        with kafka.inspect(tmp_path) as view:
            begin = end = view.max_offset("t")
        until = time.monotonic() + RACE_S
        while time.monotonic() < until or end < begin + 90:  # it cleans after every thirtieth record
            with kafka.inspect(tmp_path) as view:
                for _ in range(5):
                    for name, look in looks(view).items():
                        assert look(), name
                end = view.max_offset("t")
            assert writer.poll() is None, writer.communicate()[1].decode()
    finally:
        writer.kill()
        writer.communicate()


def test_a_reader_that_polls_passes_over_no_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that comes up while the view looks is not taken for read."""
    with open_small(tmp_path) as store, kafka.inspect(tmp_path) as view:
        number = 0
        original = PartitionView._list_segments

        def list_segments(self: PartitionView) -> object:
            nonlocal number
            found = original(self)
            for _ in range(7):
                store.put(kafka.KafkaMessage(TOPIC, b"%d" % number))
                number += 1
            store.roll(TOPIC)
            return found

        store.put(kafka.KafkaMessage(TOPIC, b"first"))
        monkeypatch.setattr(PartitionView, "_list_segments", list_segments)
        offset, got = 0, []
        for _ in range(20):
            result = view.get(TOPIC, 0, offset, 100)
            got += [record.offset for record in result.messages]
            offset = result.next_offset
        assert got == list(range(len(got)))
        assert len(got) > 50


def test_chunks_go_on_where_they_were(tmp_path: Path) -> None:
    """A segment that is replaced between two chunks: each offset that is left comes once."""
    fill(tmp_path, 100, cleanup_policy="compact")
    with open_small(tmp_path, **COMPACT) as store, kafka.inspect(tmp_path) as view:
        chunks = view.partition(TOPIC).chunks(10)
        offsets = list(next(chunks)[1].columns.base_offset)
        assert offsets[0] == 10
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
        for _, chunk in chunks:
            offsets += chunk.columns.base_offset
        assert offsets == sorted(set(offsets))
        assert set(range(93, 100)) <= set(offsets)


def test_names_that_a_power_cut_let_through_in_any_order(logs: tuple[Path, Path], tmp_path: Path) -> None:
    """Of the last renamings any may have reached the device: an index may have its name before its log has."""
    start = copy_of(logs[0], tmp_path / "start")
    wanted = shown(start)
    moves = list(renames_of_a_broker(start, logs[1], -1))
    last = [(source, target) for source, target in moves if source.name.endswith(".swap")]
    assert len(last) == 4
    for source, target in moves:
        if source.name.endswith(".cleaned"):
            shutil.copy(partition_of(logs[1]) / source.name.removesuffix(".cleaned"), target)
        elif (source, target) not in last:
            source.rename(target)
    for chosen in range(1 << len(last)):
        path = copy_of(start, tmp_path / "run")
        for number, (source, target) in enumerate(last):
            if chosen >> number & 1:
                (partition_of(path) / source.name).rename(partition_of(path) / target.name)
        assert shown(path) == wanted, chosen
        told = kafka.recover(path, index_interval_bytes=SMALL["index_interval_bytes"]).partitions[0]
        mark_crashed(path, forget_recovery_points=False)
        with open_small(path, **COMPACT) as store:
            assert table(read_all(store, isolation="read_committed")) == wanted, chosen
            assert set(store.reports[0].rebuilt) <= set(told.rebuilt)
        assert bad(kafka.check(path)) == [], chosen
        shutil.rmtree(path)
