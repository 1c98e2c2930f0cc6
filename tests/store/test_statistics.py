"""Counts and rates of a running store, and the same for Prometheus."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import mqstore
from mqstore.files import durable
from mqstore.metrics import StoreCollector
from mqstore.store import putting, reading
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
        assert info["putTps"][2] > 0 < info["getFoundTps"][2]
        both = zip(info["getFoundTps"], info["getMissTps"], strict=True)
        assert info["getTotalTps"] == pytest.approx([found + miss for found, miss in both])
        assert 0 < info["commitLogDiskRatio"] <= 1
        assert info["earliestMessageTimeStamp"] <= results[0].store_timestamp_ms
        store.flush()
        assert store.runtime_info()["remainHowManyDataToFlush"] == 0
    with pytest.raises(mqstore.StoreClosedError):
        store.runtime_info()


def test_counts_by_topic_are_those_of_the_records_in_the_log(tmp_path: Path) -> None:
    """Delayed messages count under the topic they wait in, as in RocketMQ, and so do records that are in no queue."""
    with open_small(tmp_path / "s") as store:
        store.put(mqstore.Message("before", b""))
    with open_small(tmp_path / "s", schedule_message_enable=False, mapped_file_size_commit_log=4096) as store:
        for number in range(40):
            store.put(mqstore.Message("a", bytes(number), queue_id=number % 3))
        store.put_batch([mqstore.Message("a", b"x"), mqstore.Message("b", b"y")])
        store.put(mqstore.Message("b", b"later", delay_level=2))
        store.put(mqstore.Message("c", b"half", sys_flag=4))
        store.put(mqstore.Message("c", b"no", sys_flag=12))
        store.put(mqstore.Message("c", b"yes", sys_flag=8))
        assert store.wait_dispatched(30)
        info = store.runtime_info()
    messages: dict[str, int] = {}
    sizes: dict[str, int] = {}
    with mqstore.inspect(tmp_path / "s") as view:
        for record in view.scan():
            if record.topic != "before":
                messages[record.topic] = messages.get(record.topic, 0) + 1
                sizes[record.topic] = sizes.get(record.topic, 0) + record.total_size
    assert messages == {"a": 41, "b": 1, "SCHEDULE_TOPIC_XXXX": 1, "c": 3}
    assert info["putMessageTopicTimesTotal"] == messages
    assert info["putMessageTopicSizeTotal"] == sizes
    assert sum(messages.values()) == info["putMessageTimesTotal"]


def test_counts_of_a_deleted_topic_begin_anew(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", default_topic_queue_nums=2) as store:
        for topic in ("gone", "kept"):
            store.put_batch([mqstore.Message(topic, b"", queue_id=number % 2) for number in range(6)])
        store.wait_dispatched()
        del store._engine.settings.topics["gone"]
        assert len(store.clean_unused_topics()) == 2
        assert store.runtime_info()["putMessageTopicTimesTotal"] == {"kept": 6}
        store.put(mqstore.Message("gone", b"", queue_id=0))
        store.wait_dispatched()
        assert store.runtime_info()["putMessageTopicTimesTotal"] == {"gone": 1, "kept": 6}


def test_threads_lose_no_count(tmp_path: Path) -> None:
    with open_small(
        tmp_path / "s", mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000
    ) as store:
        stop = threading.Event()

        def put(topic: str) -> None:
            for _ in range(500):
                store.put(mqstore.Message(topic, b"x", queue_id=0))

        def look() -> None:
            while not stop.is_set():
                counts = store.runtime_info()["putMessageTopicTimesTotal"]
                assert all(0 < count <= 500 for count in counts.values())

        threads = [threading.Thread(target=put, args=(f"t{number}",)) for number in range(4)]
        reader = threading.Thread(target=look)
        for thread in [reader, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        store.wait_dispatched()
        stop.set()
        reader.join()
        assert store.runtime_info()["putMessageTopicTimesTotal"] == {f"t{number}": 500 for number in range(4)}


def test_percentiles_are_of_the_last_whole_minute() -> None:
    now = [0.0]
    latency = PutLatency(lambda: now[0])
    assert latency.percentile(0.99, 0) == 0.0
    for milliseconds in range(1, 1001):
        latency.note(milliseconds * 1_000_000, 1)
    assert latency.percentile(0.99, 1000) == pytest.approx(990)
    assert latency.percentile(0.999, 1000) == pytest.approx(999)
    assert latency.percentile(0.05, 1000) == pytest.approx(50)
    # Ninety-nine of a hundred were not timed at all, as they took no millisecond.
    assert latency.percentile(0.99, 100_000) == 0.0
    assert latency.percentile(0.9999, 100_000) == pytest.approx(990)
    now[0] = 59.0
    latency.end_minute(1000)
    latency.note(70_000 * 1_000_000, 10)
    assert latency.percentile(0.999, 1010) == pytest.approx(10_000 + 60_000 * (1 - 1.01 / 10))
    now[0] = 60.0
    latency.end_minute(1010)
    latency.note(5_000 * 1_000_000, 1)
    assert latency.percentile(0.5, 1011) == pytest.approx(505)
    now[0] = 120.0
    latency.end_minute(1011)
    assert 4000 < latency.percentile(0.5, 1011) <= 5000
    now[0] = 180.0
    latency.end_minute(1011)
    assert latency.percentile(0.99, 1011) == 0.0


def test_how_long_the_longest_get_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get_messages = reading.get_messages

    def slow(*arguments: Any) -> Any:
        time.sleep(0.02)
        return get_messages(*arguments)

    with open_small(tmp_path / "s") as store:
        store.put(mqstore.Message("t", b"", queue_id=0))
        store.wait_dispatched()
        monkeypatch.setattr(reading, "get_messages", slow)
        store.get("t")
        monkeypatch.undo()
        store.get("t")
        assert store.runtime_info()["getMessageEntireTimeMax"] >= 20


def test_the_store_speaks_rocketmqs_names(tmp_path: Path) -> None:
    """All that StoreStatsService of 4.9.8 reports, but for a buffer that it never fills."""
    with open_small(tmp_path / "s") as store:
        info = store.runtime_info()
    assert {
        "bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes",
        "putMessageSizeTotal", "putMessageDistributeTime", "putMessageAverageSize", "getMessageEntireTimeMax", "putTps",
        "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "putLatency99", "putLatency999",
    } <= set(info)  # fmt: skip


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
    assert samples["rocketmq_brokeruntime_put_tps600", ()] > 0
    assert samples["rocketmq_brokeruntime_gettransfered_tps600", ()] == 0
    assert samples["rocketmq_brokeruntime_put_latency_99", ()] >= 0
    assert samples["rocketmq_brokeruntime_getmessage_entire_time_max", ()] == 0
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
    now_ns = [0]  # a clock by which nothing takes any time but a sync of the log
    monkeypatch.setattr(putting, "time", SimpleNamespace(monotonic_ns=lambda: now_ns[0]))

    def slow(fd: int, path: Path) -> None:
        if Path(path).parent.name == "commitlog":
            now_ns[0] += 60_000_000
        sync_file(fd, path)

    never = 3_600_000
    with open_small(
        tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000, flush_interval_commit_log=never
    ) as store:
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
        assert info["putMessageDistributeTime"]["[50~100ms]"] == 3
        assert info["putMessageDistributeTime"]["[<=0ms]"] == 6
        assert info["putMessageEntireTimeMax"] == 60
        assert info["putMessageFailedTimes"] == 1
        registry = CollectorRegistry()
        registry.register(StoreCollector(store))
        text = generate_latest(registry).decode()
        assert f"rocketmq_brokeruntime_putmessage_entire_time_max {info['putMessageEntireTimeMax']}" in text
        assert "rocketmq_brokeruntime_pmdt_10stomore 0.0" in text
