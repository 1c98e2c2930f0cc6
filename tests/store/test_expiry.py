"""Old files go, what points into them follows, and nothing that must stay is touched."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import DiskBand, DiskFullError, GetMessageStatus, Message, Store
from mqstore.files import durable
from mqstore.files.inventory import Inventory
from mqstore.files.pool import FilePool
from mqstore.layout.queue_unit import QueueUnit, encode_unit
from mqstore.store import queue_reader
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.expiry import Expiry
from store.interleaving import Beside, before_setting
from store.support import findings, open_small

HOUR_MS = 3_600_000
FAR_MS = 9_000_000_000_000


def put_many(store: Store, count: int, topic: str = "t", size: int = 100, queues: int = 1) -> None:
    store.put_batch([Message(topic, bytes(size), queue_id=number % queues) for number in range(5)])
    for number in range(5, count):
        store.put(Message(topic, bytes(size), keys=[f"k{number}"], queue_id=number % queues))
    store.wait_dispatched()


def names(store: Store) -> list[str]:
    return sorted(path.name for path in store.paths.commit_log.iterdir())


def set_age(store: Store, hours: float, now_ms: int, count: int) -> None:
    """Make the first ``count`` log files that old."""
    for name in names(store)[:count]:
        stamp = now_ms / 1000 - hours * 3600
        os.utime(store.paths.commit_log / name, (stamp, stamp))


def noon_ms() -> int:
    """Today, at an hour that delete_when does not name."""
    now = list(time.localtime())
    now[3:6] = [12, 0, 0]
    return int(time.mktime(time.struct_time(now))) * 1000


def test_files_past_their_time_go_oldest_first_and_never_the_newest(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 200)
        store.flush()
        before = names(store)
        now = noon_ms()
        set_age(store, 71.9, now, len(before))
        assert store.expire(now).removed == []
        set_age(store, 72, now, 3)
        report = store.expire(now)
        assert [path.name for path in report.removed] == before[:3]
        assert store.min_physical_offset == int(before[3]) == report.min_physical_offset
        low = store.min_offset("t", 0)
        assert report.lost_ranges == {("t", 0): (0, low)}
        assert store.get("t", 0, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
        assert store.get("t", 0, low).messages[0].queue_offset == low
        assert store.query("t", "k7").messages == []
        set_age(store, 1000, now, len(before))
        while store.expire(now).removed:
            pass
        assert names(store) == before[-1:]
        assert store.put(Message("t", b"goes on")).queue_offset == 200
    assert findings(tmp_path / "s") == []
    with open_small(tmp_path / "s") as store:
        assert (store.min_offset("t", 0), store.max_offset("t", 0)) != (0, 0)
        assert store.put(Message("t", b"and on")).queue_offset == 201


def test_a_quiet_topic_is_empty_at_once_when_all_its_records_are_gone(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=102_400, mapped_file_size_consume_queue=1000) as store:
        for topic in ("one", "two", "three"):
            put_many(store, 1000, topic, 300 - 91 - len(topic), queues=4)
        store.flush()
        set_age(store, 100, noon_ms(), 5)
        assert len(store.expire(noon_ms()).removed) == 5
        for queue_id in range(4):
            assert (store.min_offset("one", queue_id), store.max_offset("one", queue_id)) == (250, 250)
            assert 0 <= store.min_offset("two", queue_id) < store.max_offset("two", queue_id) == 250
            assert store.get("one", queue_id, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
            assert store.get("one", queue_id, 250).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
            assert store.put(Message("one", b"", queue_id=queue_id)).queue_offset == 250
    with open_small(tmp_path / "s", mapped_file_size_commit_log=102_400, mapped_file_size_consume_queue=1000) as store:
        assert (store.min_offset("one", 0), store.max_offset("one", 0)) == (250, 251)
    assert findings(tmp_path / "s") == []


def expiry_of(store: Store, ratio: list[float]) -> Expiry:
    """The store's own expiry, with a disk that is as full as ``ratio`` says."""
    expiry = store._engine.expiry
    expiry._measure = lambda path: ratio[0]
    return expiry


@pytest.mark.parametrize(
    ("ratio", "hours", "band", "count"),
    [
        (0.74, 73, DiskBand.CALM, 0),
        (0.76, 71, DiskBand.CLEANING, 0),
        (0.76, 73, DiskBand.CLEANING, 4),
        (0.86, 1, DiskBand.FORCED, 10),
        (0.91, 1, DiskBand.FULL, 10),
    ],
)
def test_the_four_bands(tmp_path: Path, ratio: float, hours: float, band: DiskBand, count: int) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 600)
        store.flush()
        now = noon_ms()
        set_age(store, hours, now, 4)
        report = expiry_of(store, [ratio]).run(now)
        assert (report.band, len(report.removed)) == (band, count)
        if band is DiskBand.FULL:
            with pytest.raises(DiskFullError, match="nearly full"):
                store.put(Message("t", b""))
            assert store.get("t", 0, store.min_offset("t", 0)).messages
        else:
            store.put(Message("t", b""))


def test_at_the_hour_old_files_go_whatever_the_disk(tmp_path: Path) -> None:
    now = noon_ms()
    with open_small(tmp_path / "s", delete_when="04;12") as store:
        put_many(store, 200)
        store.flush()
        set_age(store, 73, now, 2)
        assert len(expiry_of(store, [0.1]).run(now).removed) == 2


def test_the_store_takes_messages_again_while_files_are_still_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratio = [0.91]
    removing, go_on = threading.Event(), threading.Event()
    remove_file = durable.remove_file

    def slow(path: Path) -> None:
        removing.set()
        assert go_on.wait(30)
        remove_file(path)

    with open_small(tmp_path / "s") as store:
        put_many(store, 200)
        store.flush()
        expiry = expiry_of(store, ratio)
        monkeypatch.setattr(durable, "remove_file", slow)
        thread = threading.Thread(target=expiry.run, args=(noon_ms(),))
        thread.start()
        assert removing.wait(30)
        with pytest.raises(DiskFullError):
            store.put(Message("t", b""))
        ratio[0] = 0.5
        assert expiry.band() is DiskBand.CALM
        store.put(Message("t", b"taken again"))
        go_on.set()
        thread.join()
        assert [store.put(Message("t", b"%d" % number)).queue_offset for number in range(3)] == [201, 202, 203]


def test_expiry_beside_a_writer_and_a_reader(tmp_path: Path) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.wait(0.002):
                    work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with open_small(tmp_path / "s") as store:

        def read() -> None:
            result = store.get("t", 0, store.min_offset("t", 0))
            assert all(message.topic == "t" for message in result.messages)

        threads = [
            guarded(lambda: [store.put(Message("t", bytes(100), queue_id=0)) for _ in range(20)]),
            guarded(read),
            guarded(lambda: store.expire(FAR_MS)),
        ]
        deadline = time.monotonic() + 60
        while store.min_physical_offset < 20 * 4096 and not failures and time.monotonic() < deadline:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.min_physical_offset > 0
        store.wait_dispatched()
        low, high = store.min_offset("t", 0), store.max_offset("t", 0)
        found = []
        while low < high:
            result = store.get("t", 0, low)
            found += [message.queue_offset for message in result.messages]
            low = result.next_offset
        assert found == list(range(high - len(found), high))
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("way", ["store", "chunks", "view", "columns"])
def test_a_scan_goes_on_behind_what_expires_meanwhile(tmp_path: Path, way: str) -> None:
    """Also inside of a file, of which only the first half has been read."""
    with open_small(tmp_path / "s", mapped_file_size_commit_log=65536) as store, mqstore.inspect(store.path) as view:
        put_many(store, 1500)
        store.flush()
        reader: Any = view if way in ("view", "columns") else store
        if way == "columns":
            found = (record for chunk in view.scan_columns() for record in chunk.records())
        elif way == "chunks":
            chunks = store.log.scan(end=store.log_end, chunk_bytes=30_000, pass_expired=True)
            found = (record for chunk in chunks for record in chunk.records())
        else:
            found = reader.scan()
        seen = [next(found).queue_offset]
        assert len(store.expire(FAR_MS).removed) >= 3
        low = store.min_offset("t", 0)
        seen += [record.queue_offset for record in found]
        before = len(seen) - (1500 - low)
        assert 0 < before < low
        assert seen == [*range(before), *range(low, 1500)]
        assert [record.queue_offset for record in reader.scan(0)] == list(range(low, 1500))


def test_a_file_missing_in_the_middle_is_no_expiry(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=65536) as store:
        put_many(store, 1500)
        store.flush()
        with mqstore.inspect(store.path) as view:
            found = view.scan()
            next(found)
            (store.paths.commit_log / names(store)[1]).unlink()
            with pytest.raises(mqstore.StoreIOError):
                list(found)


def test_a_queue_that_is_put_into_while_it_expires_begins_where_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 200)
        store.flush()
        write_at, todo = durable.write_at, [lambda: store.expire(FAR_MS)]

        def expire_meanwhile(fd: int, data: Any, position: int, path: Path) -> None:
            if "consumequeue" in str(path) and todo:
                todo.pop()()
            write_at(fd, data, position, path)

        monkeypatch.setattr(durable, "write_at", expire_meanwhile)
        store.put(Message("t", b"last", queue_id=0))
        store.wait_dispatched()
        assert todo == []
        low = store.min_offset("t", 0)
        assert 0 < low < 201
        assert store.get("t", 0, low).messages[0].queue_offset == low
    assert findings(tmp_path / "s") == []


def test_what_is_not_on_the_device_or_not_dispatched_yet_stays(tmp_path: Path) -> None:
    never = 3_600_000
    with open_small(tmp_path / "s", flush_interval_commit_log=never, flush_interval_consume_queue=never) as store:
        put_many(store, 200)
        assert store.flushed_offset == 0
        assert store.expire(FAR_MS).removed == []
        store.flush()
        assert store.expire(FAR_MS).removed != []


def test_an_index_file_goes_with_the_records_it_points_to(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 300)
        store.flush()
        files = sorted(store.paths.index.iterdir())
        store.expire(FAR_MS)
        left = sorted(store.paths.index.iterdir())
        assert left == files[-len(left) :]
        assert len(left) < len(files)
        low = store.min_offset("t", 0)
        assert [one.queue_offset for one in store.query("t", f"k{low + 1}").messages] == [low + 1]
        assert store.query("t", "k6").messages == []


def test_an_index_file_that_begins_while_others_expire_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 300)
        store.flush()
        index = store._engine.index
        assert index is not None
        removed_first = index.paths[0]

        def put_more() -> None:
            for number in range(300, 350):
                store.put(Message("t", bytes(100), keys=[f"k{number}"], queue_id=0))
            store.wait_dispatched()

        beside = Beside(put_more, index, "_list_guard")

        def about_to_list(old: Any, new: Any) -> None:
            if removed_first in old and removed_first not in new:
                beside.begin()

        with monkeypatch.context() as patch:
            before_setting(patch, index, "paths", about_to_list)
            store.expire(FAR_MS)
            beside.end()
        assert index.paths == sorted(store.paths.index.iterdir())
        assert index.paths[0] > removed_first
        for number in range(store.min_offset("t", 0), 350):
            assert [one.queue_offset for one in store.query("t", f"k{number}").messages] == [number]


def test_a_queue_file_that_begins_while_a_reader_meets_an_expired_one_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FilePool(writable=True)
    queue = ConsumeQueue("T", 0, tmp_path / "T" / "0", pool, 200)

    def put(begin: int, end: int) -> None:
        for number in range(begin, end):
            assert queue.put(number, encode_unit(QueueUnit(number * 100, 100, 0)))

    put(0, 25)
    expired, read, listing = queue.inventory.entries[0], FilePool.read, queue_reader.take_inventory
    todo = [lambda: put(25, 35), lambda: queue.remove_file(expired)]

    def read_late(pool: FilePool, path: Path, position: int, size_bytes: int) -> bytes:
        if path == expired.path and len(todo) == 2:
            todo.pop()()
        return read(pool, path, position, size_bytes)

    def listed_late(directories: list[Path], size_bytes: int | None) -> Inventory:
        found = listing(directories, size_bytes)
        if len(todo) == 1:
            todo.pop()()
        return found

    monkeypatch.setattr(FilePool, "read", read_late)
    monkeypatch.setattr(queue_reader, "take_inventory", listed_late)
    assert queue.units(0, 1) == b""
    assert queue.unit(24) is not None
    while todo:
        todo.pop()()
    assert [entry.start for entry in queue.inventory.entries] == [200, 400, 600]
    assert queue.unit(34) == QueueUnit(3400, 100, 0)
    pool.close()


def test_nothing_expires_by_itself_unless_asked_for(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=48\n")
    assert mqstore.StoreConfig().expire_automatically is False
    config = mqstore.StoreConfig.from_broker_conf(conf)
    assert (config.expire_automatically, config.file_reserved_time) == (True, 48)
    with pytest.raises(mqstore.UsageError, match="delete_when"):
        mqstore.StoreConfig(delete_when="25")


def test_by_hand_neither_fresh_files_go_nor_are_puts_refused(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 200)
        store.flush()
        expiry_of(store, [0.95])
        assert store.expire().removed == []
        store.put(Message("t", b"still taken"))


def test_what_was_removed_before_a_failure_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_file = durable.remove_file
    with open_small(tmp_path / "s") as store:
        put_many(store, 200)
        store.flush()
        third = store.paths.commit_log / names(store)[2]

        def failing(path: Path) -> None:
            if path == third:
                raise mqstore.StoreIOError("no", path=path)
            remove_file(path)

        monkeypatch.setattr(durable, "remove_file", failing)
        with pytest.raises(mqstore.StoreIOError):
            store.expire(FAR_MS)
        monkeypatch.setattr(durable, "remove_file", remove_file)
        low = store.min_offset("t", 0)
        assert low > 0
        assert store.get("t", 0, low).messages[0].physical_offset >= store.min_physical_offset == int(third.name)


def expire_all(store: Store) -> None:
    while store.expire(FAR_MS).removed:
        pass


def test_one_queue_that_cannot_follow_holds_up_no_other_and_follows_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire = ConsumeQueue.expire

    def failing(self: ConsumeQueue, log_min: int) -> None:
        if self.topic == "a":
            raise mqstore.StoreIOError("no", path=self.directory)
        expire(self, log_min)

    with open_small(tmp_path / "s", delete_file_batch_max=100) as store:
        for topic in ("a", "b", "c"):
            put_many(store, 100, topic)
        store.flush()
        with monkeypatch.context() as patch:
            patch.setattr(ConsumeQueue, "expire", failing)
            for _ in range(2):
                with pytest.raises(mqstore.StoreIOError, match="no"):
                    store.expire(FAR_MS)
        assert store.expire(FAR_MS).removed == []  # a round with nothing to remove: it follows all the same
        assert [(one.topic, one.count) for one in store.queues()][:2] == [("a", 0), ("b", 0)]
        assert store.min_offset("c", 0) > 0
        assert store.query("c", f"k{store.min_offset('c', 0) + 1}").messages
        assert store.query("b", "k7").messages == []


def test_an_index_file_that_is_missing_does_not_keep_others(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 300)
        store.flush()
        files = sorted(store.paths.index.iterdir())
        for path in (files[1], files[-2]):
            path.unlink()
            store._engine.pool.forget(path)
        expire_all(store)
        left = sorted(store.paths.index.iterdir())
        assert 0 < len(left) < len(files) - 3
        assert left == files[-len(left) - 1 :][:-2] + files[-1:]
        with pytest.raises(mqstore.StoreIOError):  # what it held has not expired: "none" would be no answer
            store.query("t", "k7")


def test_units_are_on_the_device_before_the_records_go_that_they_alone_then_tell_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    remove_file = durable.remove_file

    def removed(path: Path) -> None:
        happened.append(f"removed from {path.parent.name}")
        remove_file(path)

    with open_small(tmp_path / "s", flush_interval_consume_queue=3_600_000) as store:
        put_many(store, 60)
        store._engine.commit_log.sync()
        queue = store._engine.queues.find("t", 0)
        assert queue is not None
        sync = queue.sync
        monkeypatch.setattr(queue, "sync", lambda: (happened.append("synced"), sync()))
        monkeypatch.setattr(durable, "remove_file", removed)
        assert store.expire(FAR_MS).removed
        assert "synced" in happened[: happened.index("removed from commitlog")]


def test_a_full_disk_that_keeps_units_from_the_device_does_not_keep_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise DiskFullError("no space left")

    with open_small(tmp_path / "s") as store:
        put_many(store, 60)
        store._engine.commit_log.sync()
        monkeypatch.setattr(store._engine.expiry, "_sync_queues", full)
        assert store.expire(FAR_MS).removed
