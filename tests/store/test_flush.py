"""SYNC_FLUSH: what is acknowledged is on the device, one sync serves all that wait, nobody waits longer than told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, PutMessageStatus
from mqstore.errors import MqstoreError

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_index_num": 1000, "max_hash_slot_num": 250}
NEVER_MS = 3_600_000
QUIET: dict[str, Any] = {
    **SIZES,
    "flush_disk_type": "SYNC_FLUSH",
    "flush_interval_commit_log": NEVER_MS,
    "flush_interval_consume_queue": NEVER_MS,
}
"""No sync but those that are waited for."""


class Device:
    """Stands between the store and fdatasync: counts, and does something before each."""

    def __init__(self) -> None:
        self.syncs = 0
        self.before: Callable[[], None] = lambda: None
        self._real = os.fdatasync

    def __call__(self, fd: int) -> None:
        self.syncs += 1
        self.before()
        self._real(fd)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(os, "fdatasync", device)
    return device


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path / "s", sync_flush_timeout=60_000, **QUIET) as store:
        store.put(Message("T", b"first"))
        yield store


def test_each_put_is_synced_before_it_returns(store: mqstore.Store, device: Device) -> None:
    for number in range(5):
        result = store.put(Message("T", b"x"))
        assert result.status is PutMessageStatus.PUT_OK
        assert device.syncs >= number + 1
        assert store.flushed_offset > result.physical_offset
    store.put(Message("T", b"x", wait_store_msg_ok=False))
    store.put_batch([Message("T", b"x")] * 10)
    assert device.syncs >= 6


def test_one_sync_serves_all_that_wait(store: mqstore.Store, device: Device) -> None:
    """Eight threads that put one message after the other, on a device that is done when all of them wait for it."""
    count, turns = 8, 20
    guard = threading.Lock()
    living, answered = count, 0
    first = store.put(Message("T", b"x"))
    begin = store.log_end
    device.syncs = 0

    def until_all_wait() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with guard:
                waiting = (store.log_end - begin) // first.size_bytes - answered
                if waiting >= living:
                    return
            time.sleep(0.001)

    def put() -> None:
        nonlocal living, answered
        for _ in range(turns):
            assert store.put(Message("T", b"x")).status is PutMessageStatus.PUT_OK
            with guard:
                answered += 1
        with guard:
            living -= 1

    device.before = until_all_wait
    threads = [threading.Thread(target=put) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.before = lambda: None
    assert store.wait_dispatched(60)
    assert sum(queue.max_offset for queue in store.queues("T")) == count * turns + 2
    # At worst one goes alone and the other seven together, again and again; without company each would go alone.
    assert device.syncs <= 2 * turns + count


def test_a_slow_device_is_waited_for(store: mqstore.Store, device: Device) -> None:
    """The first to meet it syncs himself, and those after him have it done for them."""
    device.before = lambda: time.sleep(0.2)
    for _ in range(3):
        result = store.put(Message("T", b"slow"))
        assert result.status is PutMessageStatus.PUT_OK
        assert store.flushed_offset > result.physical_offset


def test_a_stuck_device_keeps_nobody_longer_than_told(tmp_path: Path, device: Device) -> None:
    """Those who put after it was seen to be slow are told in time, and what they put is there all the same."""
    with mqstore.open(tmp_path / "s", sync_flush_timeout=400, **QUIET) as store:
        device.before = lambda: time.sleep(0.2)
        store.put(Message("T", b"slow"))
        stuck = threading.Event()
        device.before = lambda: stuck.wait(120) and None  # type: ignore[assignment]
        results = [store.put(Message("T", b"stuck")), store.put(Message("T", b"stuck"))]
        assert [result.status for result in results] == [PutMessageStatus.FLUSH_DISK_TIMEOUT] * 2
        device.before = lambda: None
        stuck.set()
        deadline = time.monotonic() + 60
        while store.put(Message("T", b"after")).status is not PutMessageStatus.PUT_OK:  # until it has caught up
            assert time.monotonic() < deadline
        for result in results:
            found = store.message_at(result.physical_offset)
            assert found is not None
            assert found.body == b"stuck"


def test_a_slow_device_is_remembered_while_there_is_nothing_to_sync(tmp_path: Path, device: Device) -> None:
    settings = {**QUIET, "flush_interval_commit_log": 1}
    with mqstore.open(tmp_path / "s", sync_flush_timeout=400, **settings) as store:
        device.before = lambda: time.sleep(0.2)
        store.put(Message("T", b"slow"))
        time.sleep(0.2)  # the thread of the service finds nothing to do a hundred times
        stuck = threading.Event()
        device.before = lambda: stuck.wait(10) and None  # type: ignore[assignment]
        assert store.put(Message("T", b"stuck")).status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        device.before = lambda: None
        stuck.set()


def test_a_sync_that_fails_is_told_to_all_that_wait(tmp_path: Path, device: Device) -> None:
    store = mqstore.open(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000, **SIZES)
    store.put(Message("T", b"first"))
    failing = threading.Event()

    def fail() -> None:
        if failing.is_set():
            time.sleep(0.05)
            raise OSError(5, "Input/output error")

    device.before = fail
    failing.set()
    told: list[type[BaseException]] = []

    def put() -> None:
        try:
            store.put(Message("T", b"x"))
        except MqstoreError as error:
            told.append(type(error))

    threads = [threading.Thread(target=put) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told) == 6
    with pytest.raises(MqstoreError):
        store.put(Message("T", b"x"))
    failing.clear()
    with pytest.raises(MqstoreError):
        store.close()


def test_async_flush_syncs_at_its_interval(tmp_path: Path, device: Device) -> None:
    with mqstore.open(tmp_path / "s", flush_interval_commit_log=20, **SIZES) as store:
        for _ in range(50):
            last = store.put(Message("T", b"x")).physical_offset
        deadline = time.monotonic() + 60
        while store.flushed_offset <= last and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.flushed_offset > last
