"""The clock steps by years or seconds: no message is lost, early, expired or out of order by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore import Message
from store.support import findings, mark_crashed, open_small

YEARS_25_MS = 25 * 365 * 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
NOW_MS = 1_700_000_000_000
STEPS = {"ahead and back": (YEARS_25_MS, 0), "back": (-YEARS_25_MS, -YEARS_25_MS), "five seconds": (-5000, -5000)}


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock, which then goes on as before."""
    start_ns, now_ms = time.monotonic_ns(), [NOW_MS]
    monkeypatch.setattr("time.time_ns", lambda: now_ms[0] * 1_000_000 + time.monotonic_ns() - start_ns)

    def step(to_ms: int) -> None:
        now_ms[0] = to_ms

    return step


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_everything_goes_on(
    tmp_path: Path, steps: tuple[int, int], mode: str, set_clock: Callable[[int], None]
) -> None:
    with open_small(
        tmp_path / "s", mapped_file_size_consume_queue=2000, flush_disk_type=mode, schedule_message_enable=False
    ) as store:
        puts = []
        for turn, step in enumerate((0, *steps)):
            set_clock(NOW_MS + step)
            puts += [store.put(Message("t", b"%d" % (10 * turn + n), keys=["k"], queue_id=0)) for n in range(10)]
            assert store.wait_dispatched(60)
            assert not store.wait_arrival(store.log_end, 0.01)
            store.flush()
            assert [one.queue_offset for one in store.get("t").messages] == list(range(10 * turn + 10))
            assert store.expire().removed == []  # nothing was written so long ago as the clock may say
        stamps = [one.store_timestamp_ms for one in puts]
        assert stamps == sorted(stamps)
        for offset, stamp in enumerate(stamps):
            low, high = store.offset_at("t", 0, stamp), store.offset_at("t", 0, stamp, "upper")
            assert low is not None
            assert high is not None
            assert low <= offset <= high
        assert len(store.query("t", "k", stamps[0], stamps[-1]).messages) == 30
        assert store.runtime_info()["putTps"][0] >= 0
    mark_crashed(tmp_path / "s")
    set_clock(NOW_MS)
    with open_small(tmp_path / "s", mapped_file_size_consume_queue=2000, flush_disk_type=mode) as store:
        assert store.put(Message("t", b"", queue_id=0)).store_timestamp_ms >= stamps[-1]
        assert store.wait_dispatched(60)
        with store.consumer("g", "t", timeout_s=0.05) as consumer:
            assert len([consumer.ack(message) for message in consumer]) == 31
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_delayed_messages_are_late_rather_than_early(
    tmp_path: Path, steps: tuple[int, int], set_clock: Callable[[int], None]
) -> None:
    settings = {"message_delay_level": "1h", "schedule_message_enable": False}
    with open_small(tmp_path / "s", mapped_file_size_commit_log=65536, **settings) as store:
        due: list[int] = []
        delivered = latest_ms = 0
        for turn, step in enumerate((0, *steps)):
            set_clock(NOW_MS + step)
            put = store.put(Message("t", b"%d" % turn, queue_id=0, delay_level=1))
            due.append(put.store_timestamp_ms + HOUR_MS)
            assert store.wait_dispatched(60)
            latest_ms = max(latest_ms, NOW_MS + step)
            delivered += store.deliver_due(NOW_MS + step)
            assert delivered == sum(time_ms <= latest_ms for time_ms in due)
        assert due == sorted(due)
        assert store.deliver_due(due[delivered] - 1) == 0
        assert store.deliver_due(due[-1]) == 3 - delivered
        assert store.wait_dispatched(60)
        assert [one.body for one in store.get("t").messages] == [b"0", b"1", b"2"]


def test_files_are_not_older_than_the_clock_before_it_stepped(
    tmp_path: Path, set_clock: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ages go by the files' times, as in RocketMQ: a clock that really is years ahead makes them old."""
    with open_small(tmp_path / "s") as store:
        for _ in range(60):
            store.put(Message("t", bytes(100), queue_id=0))
        store.flush()
        assert store.expire(int(time.time() * 1000) - YEARS_25_MS).removed == []
        low = store.min_physical_offset
        assert store.expire(int(time.time() * 1000) + YEARS_25_MS).removed != []
        assert store.min_physical_offset > low
        assert store.put(Message("t", b"", queue_id=0)).queue_offset == 60
    assert findings(tmp_path / "s") == []
