"""``mqstore stats``: what is in a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from mqstore.cli.options import FormatOption, FromLogOption, StorePath
from mqstore.cli.output import Format, make_output, size_text, time_text
from mqstore.store.message import QueueInfo
from mqstore.store.view import StoreView


def run(store: StorePath, from_log: FromLogOption = False, format: FormatOption = Format.text) -> int:
    """Print the topics, the range of the log, the files and the progress of consumer groups."""
    with StoreView(store, from_log=from_log) as view:
        queues = view.queues()
        progress = view.progress()
        log_min, log_end = view.min_physical_offset, view.log_end
        inventory = view.log.inventory
        index_keys = [] if from_log else [file.header.index_count - 1 for file in view.index_files()]
        checkpoint = view.checkpoint
        aborted = view.was_aborted
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
    }
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
