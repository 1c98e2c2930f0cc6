"""The store as a whole: its state, and what is old in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from mqstore.cli import expire
from mqstore.cli.mqadmin.options import InPlace
from mqstore.cli.options import FormatOption, StorePath
from mqstore.cli.output import Format, make_output, size_text
from mqstore.files.directories import used_ratio
from mqstore.store.cleaning import is_expired, is_unused
from mqstore.store.message import QueueInfo
from mqstore.store.opening import open_store
from mqstore.store.store import Store
from mqstore.store.view import StoreView


def broker_status(store: StorePath, format: FormatOption = Format.text) -> int:
    """Print what a broker tells of its store, as far as the directory knows it, by the broker's names for it.

    Counts of today and yesterday are of messages in queues, by store time and this machine's midnight.
    """
    with StoreView(store) as view:
        status = _status(view)
    disk = shutil.disk_usage(store)
    status |= {
        "commitLogDiskRatio": used_ratio(store),
        "consumeQueueDiskRatio": used_ratio(store),
        "commitLogDirCapacity": f"Total : {size_text(disk.total)}, Free : {size_text(disk.free)}.",
    }
    make_output(format).document(status, [f"{name:<32}: {value}" for name, value in sorted(status.items())])
    return 0


def _status(view: StoreView) -> dict[str, Any]:
    end = view.log_end
    first = view.message_at(view.min_physical_offset)
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    mornings = [int(day.timestamp() * 1000) for day in (midnight - timedelta(days=1), midnight)]
    queues = view.queues()
    before = [
        sum(view.offset_at(queue.topic, queue.queue_id, morning) or 0 for queue in queues) for morning in mornings
    ]
    return {
        "commitLogMinOffset": view.min_physical_offset,
        "commitLogMaxOffset": end,
        "earliestMessageTimeStamp": -1 if first is None else first.store_timestamp_ms,
        "msgPutTotalYesterdayMorning": before[0],
        "msgPutTotalTodayMorning": before[1],
        "msgPutTotalTodayNow": sum(queue.max_offset for queue in queues),
        "runtime": "running, or ended without a clean close" if view.was_aborted else "closed",
    }


def delete_expired_commit_log(
    store: StorePath,
    hours: Annotated[int, typer.Option("--hours", min=0, help="Keep files written to within so many hours.")] = 72,
    in_place: InPlace = False,
    format: FormatOption = Format.text,
) -> int:
    """Remove log files older than --hours, and the queues and index files that lead to nothing after that."""
    return expire.run(store, hours, in_place, format)


def clean_expired_cq(store: StorePath, in_place: InPlace = False, format: FormatOption = Format.text) -> int:
    """Remove the queues whose messages have all expired with the log's old files."""
    return _clean(store, in_place, format, lambda view: is_expired, Store.clean_expired_queues)


def clean_unused_topic(store: StorePath, in_place: InPlace = False, format: FormatOption = Format.text) -> int:
    """Remove the queues of topics that are not in topics.json any more; their records stay until they expire."""

    def judge(view: StoreView) -> Callable[[QueueInfo], bool]:
        topics = view.settings.topics
        return lambda queue: is_unused(queue, topics)

    return _clean(store, in_place, format, judge, Store.clean_unused_topics)


def _clean(
    store: Path,
    in_place: bool,
    format: Format,
    judge: Callable[[StoreView], Callable[[QueueInfo], bool]],
    clean: Callable[[Store], list[QueueInfo]],
) -> int:
    with StoreView(store) as view:  # also for what is no store: it is not made one
        is_needless = judge(view)
        found = [one for one in view.queues() if is_needless(one)]
    if in_place:
        with open_store(store, schedule_message_enable=False) as opened:
            found = clean(opened)
    verb = "removed" if in_place else "would go"
    names = [f"{one.topic}/{one.queue_id}" for one in found]
    make_output(format).document(
        {"queues": names, "done": in_place},
        [*(f"{verb}: {name}" for name in names), f"{len(names)} queues {verb}"],
    )
    return 0
