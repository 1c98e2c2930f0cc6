"""Compaction: of each key the newest stays, at its offset, whatever happens in the middle."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import SMALL, TOPIC, bad, mark_crashed, message, open_small, partition_of, read_all, tree
from mqstore.errors import DiskFullError, MessageIllegalError, StoreIOError
from mqstore.files import durable
from mqstore.kafka import KafkaMessage, KafkaStore
from mqstore.layout.kafka.record import Record

NOW_MS = 2_000_000
COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "delete_retention_ms": 1000,
    "producer_id_expiration_ms": 1 << 60,
}


def table(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def fill_with_keys(store: KafkaStore, count: int, keys: int, seed: int, transactions: bool = False) -> None:
    choose = random.Random(seed)
    producer = store.producer()
    for number in range(count):
        value = None if choose.random() < 0.1 else f"{number}".encode()
        sent = KafkaMessage(TOPIC, value, f"k{choose.randrange(keys)}".encode(), timestamp_ms=1000 + number)
        if transactions and choose.random() < 0.4:
            producer.begin()
            producer.put_batch([sent, sent])
            producer.commit() if choose.random() < 0.5 else producer.abort()
        else:
            store.put(sent)


@pytest.mark.parametrize("transactions", [False, True])
def test_the_newest_of_each_key_stays(tmp_path: Path, transactions: bool) -> None:
    with open_small(tmp_path, **COMPACT) as store:
        fill_with_keys(store, 400, 25, seed=3, transactions=transactions)
        before = read_all(store, isolation="read_committed")
        done = store.compact(TOPIC, now_ms=NOW_MS)
        assert done is not None
        assert done.bytes_after < done.bytes_before / 2
        after = read_all(store, isolation="read_committed")
        assert table(after) == table(before)
        assert set(after) <= set(before)  # same offsets, times, headers
        cleaned = [record for record in after if record.offset < done.clean_up_to]
        assert len({record.key for record in cleaned}) == len(cleaned)
        assert store.max_offset(TOPIC) == done.clean_up_to + len(
            [1 for place in store.view().partition(TOPIC).batches(done.clean_up_to)
             for _ in range(place.header.last_offset - place.header.base_offset + 1)]
        )  # fmt: skip
    assert bad(kafka.check(tmp_path)) == []
    mark_crashed(tmp_path)
    with open_small(tmp_path, **COMPACT) as store:
        assert read_all(store, isolation="read_committed") == after
        assert [report.damage for report in store.reports] == [None]


def test_tombstones_stay_for_a_while(tmp_path: Path) -> None:
    with open_small(tmp_path, **COMPACT) as store:
        store.put(message(0, key=b"a"))
        store.put(KafkaMessage(TOPIC, None, b"a"))
        store.put(message(1, key=b"b"))
        store.roll(TOPIC)
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
        assert [(one.offset, one.key) for one in read_all(store)] == [(1, b"a"), (2, b"b")]
        (place, _) = store.view().partition(TOPIC).batches()
        assert place.header.delete_horizon_ms == NOW_MS + 1000
        store.compact(TOPIC, now_ms=NOW_MS + 999, force=True)
        assert len(read_all(store)) == 2
        store.compact(TOPIC, now_ms=NOW_MS + 1000, force=True)
        assert [one.key for one in read_all(store)] == [b"b"]
        assert read_all(store)[0].timestamp_ms == 1_000_001


def test_idle_markers_go_and_the_last_batch_of_a_producer_stays(tmp_path: Path) -> None:
    with open_small(tmp_path, **COMPACT) as store:
        producer = store.producer()
        for number in range(3):
            with producer.transaction():
                producer.put(message(number, key=b"a"))
        store.put(message(9, key=b"a"))
        store.roll(TOPIC)
        for now in (NOW_MS, NOW_MS + 1, NOW_MS + 5000, NOW_MS + 9000):
            store.compact(TOPIC, now_ms=now, force=True)
        left = [
            (place.header.base_offset, place.header.record_count) for place in store.view().partition(TOPIC).batches()
        ]
        # The emptied last batch keeps the producer's sequence numbers, and so its marker may not go before it.
        assert (4, 0) in left
        assert (0, 1) not in left
        assert (6, 1) in left
        assert store.producers(TOPIC)[0].last_sequence == 2
        wanted = store.producers(TOPIC)
    mark_crashed(tmp_path)
    for path in partition_of(tmp_path).glob("*.snapshot"):
        path.unlink()
    with open_small(tmp_path, **COMPACT) as store:
        found = store.producers(TOPIC)[0]
        assert (found.last_sequence, found.last_offset) == (wanted[0].last_sequence, wanted[0].last_offset)


def test_what_must_not_be_cleaned(tmp_path: Path) -> None:
    with open_small(tmp_path, min_compaction_lag_ms=500, **COMPACT) as store:
        for number in range(100):
            store.put(message(number, key=b"a"))
        assert store.compact(TOPIC, now_ms=1_000_000 + 400, force=True) is None
        done = store.compact(TOPIC, now_ms=1_000_000 + 560, force=True)
        assert done is not None
        assert 0 < done.clean_up_to < 65
        producer = store.producer()
        producer.begin()
        producer.put(message(100, key=b"a"))
        open_since = store.max_offset(TOPIC) - 1
        for number in range(101, 200):
            store.put(message(number, key=b"a"))
        done = store.compact(TOPIC, now_ms=NOW_MS, force=True)
        assert done is not None
        assert done.clean_up_to <= open_since


def test_only_when_dirty_enough(tmp_path: Path) -> None:
    with open_small(tmp_path, **COMPACT) as store:
        assert store.compact(store.put(message(0, key=b"a")).topic) is None
        for number in range(200):
            store.put(message(number, key=f"k{number}".encode()))
        assert store.compact(TOPIC, now_ms=NOW_MS) is not None
        store.put(message(0, key=b"a"))
        store.roll(TOPIC)
        assert store.compact(TOPIC, now_ms=NOW_MS) is None
        assert store.compact(TOPIC, now_ms=NOW_MS, force=True) is not None


def test_groups_fit_a_segment(tmp_path: Path) -> None:
    with open_small(tmp_path, **COMPACT) as store:
        fill_with_keys(store, 400, 10, seed=1)
        store.roll(TOPIC)
        for _ in range(3):
            store.compact(TOPIC, now_ms=NOW_MS, force=True)
        segments = store.partition(TOPIC).segments()
        assert len(segments) < 4
        assert all(segment.size_bytes <= SMALL["segment_bytes"] for segment in segments)


def test_keys_are_asked_for(tmp_path: Path) -> None:
    with open_small(tmp_path, **COMPACT) as store, pytest.raises(MessageIllegalError):
        store.put(message(0))


@pytest.mark.parametrize("codec", ["gzip", "zstd", "none"])
def test_compressed_batches_are_written_anew(tmp_path: Path, codec: str) -> None:
    with open_small(tmp_path, compression_type=codec, batch_size=400, **COMPACT) as store:
        store.put_batch([message(number, key=f"k{number % 5}".encode()) for number in range(200)])
        before = table(read_all(store))
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
        assert table(read_all(store)) == before
        assert store.stats()[0].batches_by_codec.keys() == {codec}


def test_golden_logs_can_be_compacted(golden_kafka: Path, tmp_path: Path) -> None:
    """Batches of real brokers: all formats, wrappers, transactions, holes."""
    for topic in ("mixed", "legacyv1", "legacyv0", "compacted", "txn"):
        for path in (golden_kafka / f"{topic}-0").iterdir():
            target = tmp_path / f"{topic}-0" / path.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    (tmp_path / ".kafka_cleanshutdown").touch()
    with kafka.open(tmp_path, file_delete_delay_ms=0, **COMPACT) as store:
        for topic in store.topics():
            store.roll(topic)
            before = {
                key: value
                for key, value in table(read_all(store, topic, isolation="read_committed")).items()
                if key is not None
            }
            store.compact(topic, now_ms=NOW_MS, force=True)
            after = read_all(store, topic, isolation="read_committed")
            stable = store.partition(topic).last_stable_offset
            if stable == store.max_offset(topic):
                assert {key: value for key, value in table(after).items() if key is not None} == before
    assert bad(kafka.check(tmp_path)) == []


def test_readers_do_not_notice(tmp_path: Path) -> None:
    """Beside the cleaner, in this process and from outside: the newest of each key, and never an error."""
    with open_small(tmp_path, **COMPACT) as store, kafka.inspect(tmp_path) as view:
        for number in range(30):
            store.put(message(number, key=f"k{number}".encode()))
        stop = threading.Event()
        failures: list[BaseException] = []

        def write() -> None:
            number = 0
            while not stop.is_set() and number < 3000:
                store.put(message(number, key=f"k{number % 30}".encode()))
                number += 1
                if number % 60 == 0:
                    store.compact(TOPIC, now_ms=NOW_MS, force=True)

        def read(rounds: int, look: Callable[[], list[Record]]) -> None:
            try:
                for _ in range(rounds):
                    assert len(table(look())) == 30
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        readers = [
            threading.Thread(target=read, args=(25, lambda: list(view.partition(TOPIC).records()))),
            threading.Thread(target=read, args=(25, lambda: read_all(view))),
            threading.Thread(target=read, args=(25, lambda: read_all(store))),
        ]
        for thread in (writer, *readers):
            thread.start()
        for thread in readers:
            thread.join()
        stop.set()
        writer.join()
        assert failures == []
    assert bad(kafka.check(tmp_path)) == []


class Crash(Exception):
    """Stands for the end of the process."""


STEPS = ("create_file", "write_at", "sync_file", "sync_directory", "rename", "replace_file", "remove_file")


def count_steps(monkeypatch: pytest.MonkeyPatch, stop_at: int | None) -> list[int]:
    """Count the changes to the disk, and end the process, as it were, in front of number ``stop_at``."""
    seen = [0]
    for name in STEPS:
        original = getattr(durable, name)

        def step(*args: Any, _original: Any = original, **options: Any) -> Any:
            seen[0] += 1
            if stop_at is not None and seen[0] >= stop_at:
                raise Crash
            return _original(*args, **options)

        monkeypatch.setattr(durable, name, step)
    return seen


@pytest.mark.parametrize("stale", [False, True], ids=["", "behind one that failed"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: bool
) -> None:
    """Some forty of the steps; `make crash` takes them all."""
    with open_small(tmp_path / "start", **COMPACT) as store:
        fill_with_keys(store, 40, 5, seed=2, transactions=True)
        store.roll(TOPIC)
        if stale:
            store.delete_records(TOPIC, 0, store.partition(TOPIC).segments()[1].base_offset)
        wanted = table(read_all(store, isolation="read_committed"))
        end = store.max_offset(TOPIC)
    files = tree(tmp_path / "start")
    stop_at = steps = 0
    stride = 1
    while steps == 0 or stop_at + stride <= steps:
        stop_at += stride
        path = tmp_path / f"run{stop_at}"
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        with monkeypatch.context() as patch:
            store = open_small(path, **COMPACT)
            store._maintenance.stop()
            if stale:
                (partition_of(path) / f"{0:020d}.log.cleaned").write_bytes(b"half of one")
            if steps == 0:
                seen = count_steps(patch, None)
                store.compact(TOPIC, now_ms=NOW_MS, force=True)
                steps = seen[0]
                assert steps > 20
                stride = 1 if "MQSTORE_CRASH_STATES" in os.environ else max(1, steps // 40)
                stop_at = 0
            else:
                count_steps(patch, stop_at)
                with pytest.raises(Crash):
                    store.compact(TOPIC, now_ms=NOW_MS, force=True)
        store._lock.release()
        mark_crashed(path)
        with open_small(path, **COMPACT) as again:
            assert table(read_all(again, isolation="read_committed")) == wanted, f"step {stop_at}"
            assert again.max_offset(TOPIC) == end
            assert not [one for one in partition_of(path).iterdir() if one.suffix in (".swap", ".cleaned", ".deleted")]
        assert bad(kafka.check(path)) == []


@pytest.mark.parametrize("fails_at", ["log", "index", "timeindex"])
def test_a_full_disk_is_as_full_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str) -> None:
    original = durable.write_at

    def write_at(fd: int, data: bytes, position: int, path: Path) -> None:
        if Path(path).name.endswith(f".{fails_at}.cleaned"):
            original(fd, data[: len(data) // 2], position, path)
            raise DiskFullError("no space left", path=path)
        original(fd, data, position, path)

    with open_small(tmp_path, **COMPACT) as store:
        fill_with_keys(store, 40, 5, seed=2, transactions=True)
        store.roll(TOPIC)
        wanted = table(read_all(store, isolation="read_committed"))
        before = tree(partition_of(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(durable, "write_at", write_at)
            with pytest.raises(DiskFullError):
                store.compact(TOPIC, now_ms=NOW_MS, force=True)
        assert tree(partition_of(tmp_path)) == before
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
        assert table(read_all(store, isolation="read_committed")) == wanted
    assert bad(kafka.check(tmp_path)) == []


def test_none_begins_before_one_that_broke_off_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device failed when the first names of a cleaned segment were given: only a start can finish that."""
    store = open_small(tmp_path, **COMPACT)
    fill_with_keys(store, 40, 5, seed=2)
    store.roll(TOPIC)
    wanted = table(read_all(store))
    original = durable.rename

    def rename(path: Path, target: Path) -> None:
        if target.name.endswith(".deleted"):
            raise StoreIOError("the device failed", path=path)
        original(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "rename", rename)
        with pytest.raises(StoreIOError, match="device failed"):
            store.compact(TOPIC, now_ms=NOW_MS, force=True)
    with pytest.raises(StoreIOError, match="broke off"):
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
    store.close()
    with open_small(tmp_path, **COMPACT) as store:
        assert table(read_all(store)) == wanted
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
        assert table(read_all(store)) == wanted
    assert bad(kafka.check(tmp_path)) == []
