"""The state of a running store by the names under which RocketMQ's brokers report theirs."""

from __future__ import annotations

import shutil
import time
from typing import Any

from mqstore.files.directories import used_ratio
from mqstore.store.engine import Engine
from mqstore.store.latency import LABELS
from mqstore.store.statistics import StoreStatistics


def runtime_info(statistics: StoreStatistics, engine: Engine) -> dict[str, Any]:
    """See :meth:`mqstore.Store.runtime_info`."""
    counts, rates = statistics.counts(), statistics.rates()
    latency, topics = engine.latency, engine.topic_counts.totals()
    disk = shutil.disk_usage(engine.path)
    ratio = used_ratio(engine.path)
    end, log_min = engine.commit_log.end_offset, engine.log.min_offset
    first = engine.log.record_at(log_min) if log_min < end else None
    return {
        "bootTimestamp": statistics.opened_ms,
        "runtime": time.time_ns() // 1_000_000 - statistics.opened_ms,
        "putMessageTimesTotal": counts.put_messages,
        "putMessageTopicTimesTotal": {topic: total[0] for topic, total in topics.items()},
        "putMessageTopicSizeTotal": {topic: total[1] for topic, total in topics.items()},
        "putMessageFailedTimes": latency.failed,
        "putMessageDistributeTime": dict(zip(LABELS, latency.distribution(counts.put_messages), strict=True)),
        "putMessageEntireTimeMax": latency.max_ms,
        "putLatency99": latency.percentile(0.99, counts.put_messages),
        "putLatency999": latency.percentile(0.999, counts.put_messages),
        "getMessageEntireTimeMax": statistics.longest_get_ms,
        "putMessageSizeTotal": counts.put_bytes,
        "putMessageAverageSize": counts.put_bytes / counts.put_messages if counts.put_messages else 0.0,
        "msgPutTotalTodayNow": sum(queue.max_offset for queue in engine.queues.all()),
        "msgGetTotalTodayNow": counts.transferred_messages,
        "putTps": rates.put,
        "getFoundTps": rates.get_found,
        "getMissTps": rates.get_miss,
        "getTotalTps": tuple(found + miss for found, miss in zip(rates.get_found, rates.get_miss, strict=True)),
        "getTransferredTps": rates.transferred,
        "getTransferedTps": rates.transferred,
        "commitLogMinOffset": log_min,
        "commitLogMaxOffset": end,
        "commitLogDiskRatio": ratio,
        "consumeQueueDiskRatio": ratio,
        "commitLogDirCapacity": {"total": disk.total, "free": disk.free},
        "dispatchBehindBytes": max(0, end - engine.dispatcher.offset),
        "remainHowManyDataToCommit": max(0, end - engine.commit_log.readable_offset),
        "remainTransientStoreBufferNumbs": 0 if engine.buffers is None else engine.buffers.available,
        "remainHowManyDataToFlush": max(0, end - engine.commit_log.flushed_offset),
        "earliestMessageTimeStamp": -1 if first is None else first.store_timestamp_ms,
    }
