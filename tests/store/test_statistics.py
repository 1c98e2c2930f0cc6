"""Counts and rates of a running store, and the same for Prometheus."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import mqstore
from mqstore.files import durable
from mqstore.metrics import StoreCollector
from mqstore.store.latency import LABELS, PutLatency
from mqstore.store.statistics import StoreStatistics
from store.support import open_small


def test_rates_are_over_their_windows() -> None:
    """A thousand seconds at 5 a second, then 30 at 20 a second: each window tells of its own time."""
    now, total = [0.0], [0]
    statistics = StoreStatistics(lambda: (total[0], 100 * total[0]), lambda: now[0])
    assert statistics.rates().put == (0, 0, 0)
    for second in range(1030):
        total[0] += 5 if second < 1000 else 20
        now[0] += 1
        statistics.note_get(3)
        statistics.note_get(0)
        statistics.sample()
    rates = statistics.rates()
    assert rates.put == pytest.approx((20, (30 * 20 + 30 * 5) / 60, (30 * 20 + 570 * 5) / 600))
    assert rates.get_found == rates.get_miss == pytest.approx((1, 1, 1))
    assert rates.transferred == pytest.approx((3, 3, 3))
    assert statistics.counts() == (5600, 560_000, 1030, 1030, 3090)
    assert len(statistics._samples) < 620


def test_a_short_life_is_not_taken_for_ten_seconds() -> None:
    now, total = [0.0], [0]
    statistics = StoreStatistics(lambda: (total[0], 0), lambda: now[0])
    total[0], now[0] = 30, 2.0
    assert statistics.rates().put == (15, 15, 15)


def test_runtime_info_counts_what_was_done(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", mapped_file_size_consume_queue=2000) as store:
        store.put(mqstore.Message("old", b"", queue_id=0))
    with open_small(tmp_path / "s", mapped_file_size_consume_queue=2000) as store:
        assert store.runtime_info()["putMessageTimesTotal"] == 0
        results = [store.put(mqstore.Message("t", bytes(100), queue_id=0)) for _ in range(50)]
        store.wait_dispatched()
        for offset in (0, 32, 50, 60):
            store.get("t", 0, offset)
        store.get("nosuch")
        info = store.runtime_info()
        assert info["putMessageTimesTotal"] == 50
        assert info["putMessageSizeTotal"] == sum(result.size_bytes for result in results)
        assert info["putMessageAverageSize"] == info["putMessageSizeTotal"] / 50
        assert info["msgPutTotalTodayNow"] == 51
        assert info["msgGetTotalTodayNow"] == 50
        assert store._statistics.counts()[2:4] == (2, 3)
        assert info["commitLogMaxOffset"] == store.log_end
        assert info["dispatchBehindBytes"] == 0
        assert info["putTps"][0] > 0 < info["getFoundTps"][0]
        both = zip(info["getFoundTps"], info["getMissTps"], strict=True)
        assert info["getTotalTps"] == pytest.approx([found + miss for found, miss in both])
        assert 0 < info["commitLogDiskRatio"] <= 1
        assert info["earliestMessageTimeStamp"] <= results[0].store_timestamp_ms
        store.flush()
        assert store.runtime_info()["remainHowManyDataToFlush"] == 0
    with pytest.raises(mqstore.StoreClosedError):
        store.runtime_info()


def test_what_prometheus_gets(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        for number in range(7):
            store.put(mqstore.Message("t", b"", queue_id=number % 2))
        store.wait_dispatched()
        store.commit_offset("g", "t", 0, 1)
        store.commit_offset("g", "t", 1, 3)
        registry = CollectorRegistry()
        registry.register(StoreCollector(store))
        samples = {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
        }
    assert samples["rocketmq_messages_in_total", ()] == 7
    assert samples["rocketmq_consumer_lag_messages", ("g", "t")] == 3
    assert samples["rocketmq_storage_dispatch_behind_bytes", ()] == 0
    assert samples["rocketmq_storage_size", ()] == store.log_end
    assert samples["rocketmq_topic_number", ()] == 1
    assert samples["rocketmq_consumer_group_number", ()] == 1


def test_how_long_puts_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latency = PutLatency()
    for milliseconds in (0, 1, 10, 11, 50, 999, 1000, 1001, 10_000, 10_001, 60_000):
        latency.note(milliseconds * 1_000_000 + 999_999, 2)
    counts = dict(zip(LABELS, latency.distribution(100), strict=True))
    assert counts == {
        "[<=0ms]": 80, "[0~10ms]": 4, "[10~50ms]": 4, "[50~100ms]": 0, "[100~200ms]": 0, "[200~500ms]": 0,
        "[500ms~1s]": 4, "[1~2s]": 2, "[2~3s]": 0, "[3~4s]": 0, "[4~5s]": 0, "[5~10s]": 2, "[10s~]": 4,
    }  # fmt: skip
    assert latency.max_ms == 60_000

    sync_file = durable.sync_file

    def slow(fd: int, path: Path) -> None:
        if Path(path).parent.name == "commitlog":
            time.sleep(0.06)
        sync_file(fd, path)

    with open_small(tmp_path / "s", flush_disk_type="SYNC_FLUSH") as store:
        store.put(mqstore.Message("t", b"", queue_id=0))
        monkeypatch.setattr(durable, "sync_file", slow)
        for _ in range(3):
            store.put(mqstore.Message("t", b"", queue_id=0))
        for _ in range(5):
            store.put(mqstore.Message("t", b"", queue_id=0, wait_store_msg_ok=False))
        with pytest.raises(mqstore.MessageIllegalError):
            store.put(mqstore.Message("t", bytes(5000)))
        store.wait_dispatched()
        info = store.runtime_info()
        assert sum(info["putMessageDistributeTime"].values()) == info["putMessageTimesTotal"] == 9
        assert sum(list(info["putMessageDistributeTime"].values())[3:]) == 3
        assert info["putMessageEntireTimeMax"] >= 60
        assert info["putMessageFailedTimes"] == 1
        registry = CollectorRegistry()
        registry.register(StoreCollector(store))
        text = generate_latest(registry).decode()
        assert f"rocketmq_brokeruntime_putmessage_entire_time_max {info['putMessageEntireTimeMax']}" in text
        assert "rocketmq_brokeruntime_pmdt_10stomore 0.0" in text
