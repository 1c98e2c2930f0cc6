"""``mqstore stats``: what is in a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from mqstore.cli.options import (
    FormatOption,
    FromLogOption,
    OptionalMasterOption,
    ReportOption,
    StorePath,
    check_master,
)
from mqstore.cli.output import Format, Output, make_output, size_text, step_bar, time_text
from mqstore.store.message import QueueInfo
from mqstore.store.view import StoreView

_MOST_ROWS = 30


def run(
    store: StorePath,
    from_log: FromLogOption = False,
    report: ReportOption = None,
    master: OptionalMasterOption = None,
    format: FormatOption = Format.text,
) -> int:
    """Print the topics, the range of the log, the files and the progress of consumer groups.

    With --master or --report every message is looked at, by Spark: days, hours, tags, sizes and producers' hosts are
    counted as well.
    """
    if master is not None or report is not None:
        return _on_spark(store, report, master or "local[2]", make_output(format))
    with StoreView(store, from_log=from_log) as view:
        queues = view.queues()
        progress = view.progress()
        log_min, log_end = view.min_physical_offset, view.log_end
        inventory = view.log.inventory
        index_keys = [] if from_log else [file.header.index_count - 1 for file in view.index_files()]
        checkpoint = view.checkpoint
        aborted = view.was_aborted
        overlooked = view.overlooked()
    topics = list(topic_totals(queues))
    output = make_output(format)
    output.table("topics", ("topic", "queues", "messages"), topics)
    if progress:
        rows = [(p.group, p.topic, p.queue_id, p.consumer_offset, p.max_offset, p.lag) for p in progress]
        output.table("consumer groups", ("group", "topic", "queue", "offset", "end", "lag"), rows)
    document = {
        "commitLogMinOffset": log_min,
        "commitLogMaxOffset": log_end,
        "commitLogFiles": len(inventory.entries),
        "commitLogFileSize": inventory.size_bytes,
        "indexFiles": len(index_keys),
        "indexKeys": sum(index_keys),
        "running": aborted,
        "checkpoint": checkpoint._asdict(),
        "topics": [{"topic": topic, "queues": count, "messages": messages} for topic, count, messages in topics],
        "queues": [dataclasses.asdict(queue) for queue in queues],
        "progress": [dataclasses.asdict(row) for row in progress],
        "warnings": [finding.as_dict() for finding in overlooked],
    }
    output.warnings(overlooked)
    output.document(
        document,
        (
            (
                f"commit log: offsets {log_min} to {log_end} ({size_text(log_end - log_min)}) in "
                f"{len(inventory.entries)} files of {size_text(inventory.size_bytes)}"
            ),
            f"index: {sum(index_keys)} keys in {len(index_keys)} files",
            f"checkpoint: {time_text(checkpoint.physic_msg_timestamp_ms)} UTC",
            f"state: {'running, or ended without a clean close' if aborted else 'closed'}",
        ),
    )
    return 0


def topic_totals(queues: Iterable[QueueInfo]) -> Iterable[tuple[str, int, int]]:
    """Topic, its queues and the messages in them, in order of the topics."""
    totals: dict[str, list[int]] = {}
    for queue in queues:
        total = totals.setdefault(queue.topic, [0, 0])
        total[0] += 1
        total[1] += queue.count
    return ((topic, queues_of, messages) for topic, (queues_of, messages) in sorted(totals.items()))


def _on_spark(store: Path, report: Path | None, master: str, output: Output) -> int:
    from mqstore import spark as mqspark

    StoreView(store).close()  # a path that is no store is told before Spark is started
    session = mqspark.session(check_master(master), "mqstore stats")
    try:
        with step_bar("counting") as on_progress:
            result = mqspark.jobs.stats(session, store.absolute(), report=report, on_progress=on_progress)
    finally:
        session.stop()
    topics = [(*one[:3], time_text(one.first_ms), time_text(one.last_ms)) for one in result.topics]
    output.table("topics", ("topic", "messages", "bytes", "first stored", "last stored"), topics)
    output.table("days", ("day", "messages", "bytes"), result.days)
    output.table("sizes", ("up to bytes", "messages"), result.sizes)
    output.table("tags", ("topic", "tag", "messages"), result.tags[:_MOST_ROWS])
    output.table("hosts", ("host", "messages"), [(one.name, one.messages) for one in result.hosts[:_MOST_ROWS]])
    rate = f"at most {result.peak_per_second:.1f} a second over an hour"
    lines = [f"{result.messages} messages ({size_text(result.bytes)}), {rate}; counted in {result.seconds:.1f} s"]
    if result.report is not None:
        lines.append(f"report: {result.report}")
    output.document(
        {
            "messages": result.messages,
            "bytes": result.bytes,
            "seconds": round(result.seconds, 3),
            "stageSeconds": {name: round(seconds, 3) for name, seconds in result.stage_seconds.items()},
            "peakPerSecond": result.peak_per_second,
            "topics": [one._asdict() for one in result.topics],
            "days": [{"day": day, "messages": count, "bytes": size} for day, count, size in result.days],
            "hours": [one._asdict() for one in result.hours],
            "tags": [one._asdict() for one in result.tags],
            "hosts": [{"host": one.name, "messages": one.messages} for one in result.hosts],
            "sizes": [{"upToBytes": size, "messages": count} for size, count in result.sizes],
            "report": None if result.report is None else str(result.report),
            "warnings": [finding.as_dict() for finding in result.warnings],
        },
        lines,
    )
    output.warnings(result.warnings)
    return 0
