"""Waiting for dispatch comes to an end, whatever becomes of dispatch."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqstore import DiskFullError, Message, NotWritableError, StoreClosedError
from mqstore.files import durable
from mqstore.store import dispatch
from mqstore.store.commit_log import set_next_offset
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.dispatch import DispatchService
from mqstore.store.index_writer import IndexWriter
from store.support import findings, open_small

pytestmark = pytest.mark.timeout(120)


def fail(*arguments: object) -> bool:
    raise DiskFullError("no space left")


@pytest.mark.parametrize("timeout_s", [None, 100.0])
def test_who_waits_is_told_when_dispatch_ends_with_something_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float | None
) -> None:
    answers: list[object] = []
    with open_small(tmp_path / "s") as store:
        dispatcher = store._engine.dispatcher
        service = DispatchService(dispatcher, lambda: store.log_end)
        waiting = threading.Event()

        class Progress(threading.Condition):
            def wait(self, timeout: float | None = None) -> bool:
                waiting.set()
                return super().wait(timeout)

        monkeypatch.setattr(service, "_progress", Progress())

        def wait() -> None:
            try:
                answers.append(service.wait_for(store.log_end + 1, timeout_s))
            except StoreClosedError as error:
                answers.append(error)

        service.start()
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(60)
        service.stop()
        thread.join(60)
        assert [type(answer) for answer in answers] == [StoreClosedError]
        with pytest.raises(StoreClosedError, match="closed before all was dispatched"):
            service.wait_for(store.log_end + 1)
        with pytest.raises(StoreClosedError):
            service.wait_past(store.log_end, 100)
        assert service.wait_for(dispatcher.offset)


def test_a_transaction_is_not_closed_while_nobody_can_tell_whether_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=65536) as store:
        transaction = store.transaction("p", Message("T", b"once", queue_id=0))
        store.wait_dispatched()
        with monkeypatch.context() as patch:
            patch.setattr(ConsumeQueue, "put", fail)
            store.put(Message("T", b"other", queue_id=0))
            assert store.wait_dispatched() is False
            with pytest.raises(NotWritableError, match="cannot tell whether the transaction is closed"):
                transaction.commit()
        assert store.wait_dispatched(60)
        transaction.commit()
        store.wait_dispatched()
        assert [message.body for message in store.get("T").messages] == [b"other", b"once"]


@pytest.mark.parametrize("first_offset", [1000, 1005])
def test_a_queue_that_could_not_be_begun_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_offset: int
) -> None:
    """As when all messages before have expired, and the disk is full."""
    with open_small(tmp_path / "s") as store:
        set_next_offset(store._engine.commit_log.tail.next_offsets, "T", 0, first_offset)
        with monkeypatch.context() as patch:
            patch.setattr(durable, "write_at", fail)
            store.put(Message("T", b"x", queue_id=0))
            assert store.wait_dispatched() is False
            assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 0)
        assert store.wait_dispatched(60)
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (first_offset, first_offset + 1)
        assert [message.body for message in store.get("T", 0, first_offset).messages] == [b"x"]
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("claimed", [[0], [2, 3]], ids=["all", "the first of them"])
def test_messages_in_no_queue_are_counted_once_however_often_dispatch_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed: list[int]
) -> None:
    monkeypatch.setattr(dispatch, "_RETRY_S", 0.01)
    with open_small(tmp_path / "s") as store:
        for number in range(3):
            store.put(Message("T", b"%d" % number, queue_id=0))
        store.wait_dispatched()
        dispatcher = store._engine.dispatcher
        with monkeypatch.context() as patch:
            patch.setattr(IndexWriter if claimed == [0] else durable, "put" if claimed == [0] else "write_at", fail)
            set_next_offset(store._engine.commit_log.tail.next_offsets, "T", 0, claimed[0])
            store.put_batch([Message("T", b"odd", queue_id=0) for _ in claimed])
            for _ in range(3):
                assert store.wait_dispatched() is False
        assert store.wait_dispatched(60)
        assert dispatcher.left_out == 1
        assert store.max_offset("T", 0) == 2 + len(claimed)
