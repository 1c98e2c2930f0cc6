"""A file that is missing in the middle is damage, which nobody passes over; one that has expired is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, CorruptRecordError, GetMessageStatus, Message, Store
from mqstore.files.pool import FilePool
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.queue_reader import QueueReader
from store.support import body_of, log_file, open_small, queue_file

FAR_MS = 9_000_000_000_000
PER_FILE = 10


def put_many(store: Store, count: int, topic: str = "T") -> None:
    for number in range(count):
        store.put(Message(topic, b"%d" % number, queue_id=0))
    store.flush()


def lose(store: Store, path: Path) -> None:
    """The file goes, and no descriptor of it is left."""
    path.unlink()
    for pool in (store._engine.pool, store._engine._queue_pool):
        pool.forget(path)


def lose_second_queue_file(store: Store, topic: str = "T") -> None:
    lose(store, queue_file(store.path, topic, start=PER_FILE * 20))


def test_a_consumer_does_not_pass_over_a_queue_file_that_is_missing(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 35)
        lose_second_queue_file(store)
        with store.consumer("g", "T") as consumer:
            for number in range(PER_FILE):
                message = consumer.get(timeout_s=5)
                assert message.body == b"%d" % number
                consumer.ack(message)
            for _ in range(2):
                with pytest.raises(CorruptFileError, match="message 10 of queue T/0"):
                    consumer.get(timeout_s=5)
            assert consumer.lost == 0
        assert store.committed_offset("g", "T", 0) == PER_FILE
        with pytest.raises(CorruptFileError, match="file is missing") as caught:
            store.get("T", 0, 15)
        assert caught.value.hint
        with pytest.raises(CorruptFileError, match="file is missing"):
            store.get_table("T", 0, 15)
        assert [message.body for message in store.get("T", 0, 20, 2).messages] == [b"20", b"21"]
    with open_small(tmp_path / "s") as store, store.consumer("g", "T") as consumer:
        assert consumer.get(timeout_s=5).queue_offset == PER_FILE  # opening has built the queue anew


def test_expiry_does_not_take_a_queue_to_begin_behind_a_missing_file(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", delete_file_batch_max=1) as store:
        for number in range(35):
            store.put(Message("T", body_of(number, 1000), queue_id=0))
        store.flush()
        lose_second_queue_file(store)
        report = store.expire(FAR_MS)
        low = store.min_offset("T", 0)
        assert report.lost_ranges == {("T", 0): (0, low)}
        assert store.get("T", 0, low).messages[0].physical_offset == store.min_physical_offset == 4096


def test_from_outside_what_lies_before_a_missing_file_is_seen(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 35)
    queue_file(tmp_path / "s", start=PER_FILE * 20).unlink()
    with mqstore.inspect(tmp_path / "s") as view:
        (queue,) = view.queues()
        assert (queue.min_offset, queue.max_offset) == (0, 35)
        result = view.get("T")
        assert (len(result.messages), result.next_offset) == (PER_FILE, PER_FILE)
        with pytest.raises(CorruptFileError, match="message 10 of queue T/0"):
            view.get("T", 0, PER_FILE)
        units = view.units("T", 0)
        for _ in range(PER_FILE):
            next(units)
        with pytest.raises(CorruptFileError, match="message 10 of queue T/0"):
            next(units)


def test_records_of_a_log_file_that_is_missing_have_not_expired(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 120)
        lose(store, log_file(store.path, 4096))
        handled: list[int] = []
        with store.consumer("g", "T") as consumer, pytest.raises(CorruptRecordError, match=r"\d+ of queue T/0"):
            consumer.run(lambda message: handled.append(message.physical_offset))
        assert max(handled) < 4096
        assert consumer.lost == 0


@pytest.mark.parametrize("outside", [False, True], ids=["store", "view"])
def test_expiry_beside_a_reader_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: bool) -> None:
    removed: list[Path] = []
    with open_small(tmp_path / "s") as store, mqstore.inspect(tmp_path / "s") as view:
        put_many(store, 200)
        units = QueueReader.units

        def late(self: QueueReader, offset: int, count: int) -> bytes:
            if count > 1 and not removed:  # not while the queue's ends are searched
                removed.extend(store.expire(FAR_MS).removed)
                for path in list(view._pool._open):
                    view._pool.forget(path)  # or it would go on reading what it has open
            return units(self, offset, count)

        monkeypatch.setattr(QueueReader, "units", late)
        result = (view if outside else store).get("T", 0, 0)
        assert removed
        low = store.min_offset("T", 0)
        assert low > PER_FILE
        assert (result.status, result.next_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, low)
        removed.clear()
        put_many(store, 200)
        low = store.min_offset("T", 0)
        found = [unit.physical_offset for unit in view.units("T", 0)]
        assert removed
        assert len(found) == 400 - store.min_offset("T", 0) < 400 - low


def test_a_queue_that_is_removed_beside_a_reader_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = ConsumeQueue.units
    with open_small(tmp_path / "s") as store:
        put_many(store, 35)

        def late(self: ConsumeQueue, offset: int, count: int) -> bytes:
            monkeypatch.undo()
            del store._engine.settings._topics.get().topics["T"]
            store.clean_unused_topics()
            return units(self, offset, count)

        monkeypatch.setattr(ConsumeQueue, "units", late)
        assert store.get("T", 0, 5).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_delayed_messages_wait_for_a_queue_file_that_is_missing(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", schedule_message_enable=False) as store:
        for number in range(25):
            store.put(Message("later", b"%d" % number, queue_id=0, delay_level=1))
        store.wait_dispatched()
        lose_second_queue_file(store, "SCHEDULE_TOPIC_XXXX")
        for _ in range(2):
            with pytest.raises(CorruptFileError, match="message 10 of queue SCHEDULE_TOPIC_XXXX/0"):
                store.deliver_due(FAR_MS)
        assert store._engine.settings.delay_offsets[1] == PER_FILE
    with open_small(tmp_path / "s", schedule_message_enable=False) as store:
        assert store.deliver_due(FAR_MS) == 15


def test_units_come_file_by_file_and_none_of_a_missing_one(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_many(store, 35)
    path = queue_file(tmp_path / "s", start=PER_FILE * 20)
    path.unlink()
    reader = QueueReader("T", 0, path.parent, FilePool())
    stretches = list(reader.stretches(3, 33))
    assert [(first, stop, len(units) // 20) for first, stop, units in stretches] == [
        (3, 10, 7), (10, 20, 0), (20, 30, 10), (30, 33, 3)
    ]  # fmt: skip
    assert stretches[2][2] == reader.units(20, 10)
    nothing = QueueReader("gone", 0, tmp_path / "gone", FilePool())
    assert list(nothing.stretches(3, 33)) == [(3, 33, b"")]
    assert list(nothing.stretches(3, 3)) == []
