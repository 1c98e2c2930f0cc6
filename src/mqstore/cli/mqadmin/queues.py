"""Queues, topics and the progress of groups."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from mqstore import errors
from mqstore.cli import lag
from mqstore.cli.messages import broker_name, message_json
from mqstore.cli.mqadmin.options import InPlace, Topic
from mqstore.cli.options import FormatOption, StorePath, parse_time
from mqstore.cli.output import Format, make_output, time_text
from mqstore.layout.config_files import SubscriptionGroups, TopicConfigs
from mqstore.store.config import StoreConfig
from mqstore.store.opening import open_store
from mqstore.store.settings import check_group
from mqstore.store.view import StoreView


def query_cq(
    store: StorePath,
    topic: Topic,
    queue_id: Annotated[int, typer.Option("--queue", "-q", min=0, help="The queue.")],
    index: Annotated[int, typer.Option("--index", "-i", min=0, help="Queue offset of the first unit.")],
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Units to print.")] = 10,
    format: FormatOption = Format.text,
) -> int:
    """Print raw units of a queue, each with the message that it points at."""
    output = make_output(format)
    with StoreView(store) as view:
        info = next((one for one in view.queues(topic) if one.queue_id == queue_id), None)
        if info is None:
            raise errors.UsageError(f"no queue {topic}/{queue_id}", hint="topicStatus lists them")
        begin = max(index, info.min_offset)
        for offset, unit in enumerate(view.units(topic, queue_id, begin, begin + count), begin):
            record = view.message_at(unit.physical_offset)
            output.row(
                {
                    "index": offset, "physicalOffset": unit.physical_offset, "storeSize": unit.size_bytes,
                    "tagsCode": unit.tags_code,
                    "message": None if record is None else message_json(record, broker_name(store)),
                },
                f"{offset}: physical offset {unit.physical_offset}, size {unit.size_bytes}, "
                f"tags code {unit.tags_code}, "
                f"{'no message there' if record is None else f'tags {record.tags}, keys {record.keys}'}",
            )  # fmt: skip
    return 0


def topic_list(store: StorePath, format: FormatOption = Format.text) -> int:
    """Print the names of all topics: those configured and those that have queues."""
    with StoreView(store) as view:
        names = sorted({queue.topic for queue in view.queues()} | view.settings.topics.keys())
    make_output(format).document({"topics": names}, names)
    return 0


def topic_status(store: StorePath, topic: Topic, format: FormatOption = Format.text) -> int:
    """Print the range of each queue of a topic and when its newest message was stored."""
    rows: list[dict[str, Any]] = []
    with StoreView(store) as view:
        for queue in view.queues(topic):
            newest = view.get(topic, queue.queue_id, queue.max_offset - 1, 1).messages if queue.count else []
            rows.append({
                "brokerName": broker_name(store), "queueId": queue.queue_id, "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset, "lastUpdated": newest[0].store_timestamp_ms if newest else None,
            })  # fmt: skip
    output = make_output(format)
    cells = [[*list(row.values())[:-1], time_text(row["lastUpdated"]) if row["lastUpdated"] else None] for row in rows]
    output.table("", ("Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated"), cells)
    output.document({"queues": rows}, [] if rows else ["no queue of this topic"])
    return 0


def consumer_progress(
    store: StorePath,
    group: Annotated[str | None, typer.Option("--groupName", "-g", help="Only this group.")] = None,
    topic: Annotated[str | None, typer.Option("--topicName", "-t", help="Only this topic.")] = None,
    format: FormatOption = Format.text,
) -> int:
    """Print where groups stand in each queue, and what they have still to consume."""
    return lag.run(store, group, topic, format=format)


def reset_offset_by_time(
    store: StorePath,
    group: Annotated[str, typer.Option("--group", "-g", help="The group.")],
    topic: Topic,
    moment: Annotated[str, typer.Option("--timestamp", "-s", help='"now", ms, or yyyy-MM-dd#HH:mm:ss:SSS in UTC.')],
    in_place: InPlace = False,
    format: FormatOption = Format.text,
) -> int:
    """Have a group go on, in every queue of a topic, from the first message stored at or after a time."""
    check_group(group)
    with StoreView(store) as view:
        ends = {queue.queue_id: queue.max_offset for queue in view.queues(topic)}
        when = None if moment == "now" else parse_time(moment, 0)
        offsets = {
            queue_id: end if when is None else view.offset_at(topic, queue_id, when) or 0
            for queue_id, end in ends.items()
        }
    if not offsets:
        raise errors.UsageError(f"no queue of topic {topic!r}", hint="mqstore topicList STORE lists the topics")
    if in_place:
        quiet = StoreConfig(schedule_message_enable=False)
        with open_store(store, config=quiet) as opened:
            for queue_id, offset in offsets.items():
                opened.commit_offset(group, topic, queue_id, max(offset, opened.min_offset(topic, queue_id)))
    verb = "goes on" if in_place else "would go on (--in-place does it)"
    make_output(format).document(
        {"group": group, "topic": topic, "offsets": offsets, "done": in_place},
        [f"{topic}/{queue_id}: {group} {verb} at {offset}" for queue_id, offset in offsets.items()],
    )
    return 0


def export_metadata(store: StorePath, format: FormatOption = Format.json) -> int:
    """Print the settings of topics and of consumer groups."""
    with StoreView(store) as view:
        settings = view.settings
        topics = TopicConfigs(topics=dict(settings.topics))
        groups = SubscriptionGroups(groups=dict(settings.subscription_groups))
    found = {file.TABLE: json.loads(file.encode())[file.TABLE] for file in (topics, groups)}
    make_output(format).document(found, [json.dumps(found, indent=2)])
    return 0
