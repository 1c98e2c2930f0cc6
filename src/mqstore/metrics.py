"""A running store as metrics for Prometheus, under the names that RocketMQ's own exporters use.

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(mqstore.metrics.StoreCollector(store))
    start_http_server(9101)

Needs the extra ``metrics``. Values are read when they are asked for; nothing runs in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.store.latency import METRIC_NAMES
from mqstore.store.statistics import WINDOWS_S
from mqstore.store.store import Store

__all__ = ["StoreCollector"]


class StoreCollector(Collector):
    """The metrics of one open store. After the store is closed, collecting raises StoreClosedError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        info = self._store.runtime_info()
        counters = {
            "rocketmq_messages_in": (info["putMessageTimesTotal"], "Messages stored since the store was opened."),
            "rocketmq_throughput_in": (info["putMessageSizeTotal"], "Bytes of records stored since then."),
            "rocketmq_messages_out": (info["msgGetTotalTodayNow"], "Messages given to readers since then."),
        }
        for name, (value, text) in counters.items():
            yield CounterMetricFamily(name, text, value)
        gauges = {
            "rocketmq_storage_size": (info["commitLogMaxOffset"] - info["commitLogMinOffset"], "Bytes of commit log."),
            "rocketmq_storage_flush_behind_bytes": (info["remainHowManyDataToFlush"], "Bytes not yet on the device."),
            "rocketmq_storage_dispatch_behind_bytes": (info["dispatchBehindBytes"], "Bytes not yet in queues."),
            "rocketmq_storage_message_reserve_time": (_age_ms(info), "Age of the oldest message in ms."),
            "rocketmq_brokeruntime_commitlog_disk_ratio": (
                info["commitLogDiskRatio"],
                "Used part of the disk, 0 to 1.",
            ),
            "rocketmq_topic_number": (len({queue.topic for queue in self._store.queues()}), "Topics with queues."),
        }
        gauges["rocketmq_brokeruntime_putmessage_entire_time_max"] = (
            info["putMessageEntireTimeMax"],
            "Longest put in ms.",
        )
        gauges |= dict(_times_and_rates(info))
        for name, value in zip(METRIC_NAMES, info["putMessageDistributeTime"].values(), strict=True):
            gauges[f"rocketmq_brokeruntime_pmdt_{name}"] = (value, "Messages that took so long to put.")
        for name, (value, text) in gauges.items():
            yield GaugeMetricFamily(name, text, value)
        yield from self._lag()

    def _lag(self) -> Iterator[Metric]:
        """The lag of each group by topic; a queue that is gone gives no sample, which is not the same as 0."""
        lags: dict[tuple[str, str], int] = {}
        groups = set()
        for row in self._store.progress():
            groups.add(row.group)
            if row.lag is not None:
                lags[row.group, row.topic] = lags.get((row.group, row.topic), 0) + row.lag
        family = GaugeMetricFamily(
            "rocketmq_consumer_lag_messages", "Messages that a group has still to consume.",
            labels=["consumer_group", "topic"],
        )  # fmt: skip
        for labels, lag in sorted(lags.items()):
            family.add_metric(labels, lag)
        yield family
        yield GaugeMetricFamily("rocketmq_consumer_group_number", "Groups with progress.", len(groups))


def _times_and_rates(info: dict[str, Any]) -> Iterator[tuple[str, tuple[float, str]]]:
    """Gauges of what RocketMQ's exporter reads from ``brokerStatus``, by its names for them."""
    yield "rocketmq_brokeruntime_getmessage_entire_time_max", (info["getMessageEntireTimeMax"], "Longest get in ms.")
    for digits in ("99", "999"):
        text = f"Milliseconds that {digits[:2]}.{digits[2:] or 0} % of the last minute's puts took at most."
        yield f"rocketmq_brokeruntime_put_latency_{digits}", (info[f"putLatency{digits}"], text)
    for name, key in _RATES.items():
        for window_s, rate in zip(WINDOWS_S, info[key], strict=True):
            yield f"rocketmq_brokeruntime_{name}{window_s}", (rate, f"{key} over the last {window_s} s.")


_RATES = {
    "put_tps": "putTps",
    "getfound_tps": "getFoundTps",
    "getmiss_tps": "getMissTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps",
}


def _age_ms(info: dict[str, float]) -> float:
    now_ms = info["bootTimestamp"] + info["runtime"]
    return max(0, now_ms - info["earliestMessageTimeStamp"]) if info["earliestMessageTimeStamp"] >= 0 else 0
