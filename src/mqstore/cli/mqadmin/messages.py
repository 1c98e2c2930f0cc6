"""Messages by id, by key, and by their place in a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from mqstore.cli import query
from mqstore.cli.messages import broker_name, message_json
from mqstore.cli.mqadmin.options import BeginTime, EndTime, MessageId, PrintBody, QueueId, Tags, Topic, is_true
from mqstore.cli.options import FormatOption, StorePath, parse_time
from mqstore.cli.output import Format, body_text, make_output, time_text
from mqstore.layout.message_id import decode_message_id
from mqstore.layout.record import Record
from mqstore.status import BoundaryType, GetMessageStatus
from mqstore.store.store_reader import TIME_MAX_MS
from mqstore.store.view import StoreView

_AT_A_TIME = 1000


def query_msg_by_id(store: StorePath, message_id: MessageId, format: FormatOption = Format.text) -> int:
    """Print the message with an offset message id."""
    return query.run(store, message_id=message_id, format=format)


def query_msg_by_key(
    store: StorePath,
    topic: Topic,
    key: Annotated[str, typer.Option("--msgKey", "-k", help="The key.")],
    begin: BeginTime = None,
    end: EndTime = None,
    limit: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="At most this many messages.")] = 64,
    format: FormatOption = Format.text,
) -> int:
    """Print the messages that bear a key."""
    return query.run(store, topic, key, begin=begin, end=end, limit=limit, format=format)


def query_msg_by_unique_key(
    store: StorePath,
    topic: Topic,
    unique_key: MessageId,
    everything: Annotated[bool, typer.Option("--showAll", "-a", help="All that bear it, not just the newest.")] = False,
    format: FormatOption = Format.text,
) -> int:
    """Print the message that its producer gave this unique key (UNIQ_KEY)."""
    return query.run(store, topic, unique_key, limit=64 if everything else 1, format=format)


def query_msg_by_offset(
    store: StorePath,
    topic: Topic,
    queue_id: QueueId,
    offset: Annotated[int, typer.Option("--offset", "-o", min=0, help="Queue offset.")],
    format: FormatOption = Format.text,
) -> int:
    """Print the message at an offset of a queue."""
    with StoreView(store) as view:
        result = view.get(topic, queue_id, offset, 1)
    found = [record for record in result.messages if record.queue_offset == offset]
    status = result.status if found or not result.messages else GetMessageStatus.OFFSET_FOUND_NULL
    lines = [line for record in found for line in _lines(record)]
    make_output(format).document(
        {"status": status.value, "messages": [message_json(record, broker_name(store)) for record in found]},
        lines or [f"no message there: {status.value}; stored are {result.min_offset} to {result.max_offset}"],
    )
    return 0 if found else 1


def _lines(record: Record) -> Iterator[str]:
    """What RocketMQ's command prints of a message, by its names."""
    fields = {
        "OffsetID": record.msg_id, "Topic": record.topic, "Tags": record.tags, "Keys": " ".join(record.keys),
        "Queue ID": record.queue_id, "Queue Offset": record.queue_offset,
        "CommitLog Offset": record.physical_offset, "Reconsume Times": record.reconsume_times,
        "Born Timestamp": time_text(record.born_timestamp_ms), "Store Timestamp": time_text(record.store_timestamp_ms),
        "Born Host": record.born_host, "Store Host": record.store_host, "System Flag": record.sys_flag,
        "Properties": record.properties, "Message Body": body_text(record.body, 1000),
    }  # fmt: skip
    for name, value in fields.items():
        yield f"{name + ':':<18} {'' if value is None else value}"


def print_msg_by_queue(
    store: StorePath,
    topic: Topic,
    queue_id: QueueId,
    begin: BeginTime = None,
    end: EndTime = None,
    tags: Tags = None,
    show: Annotated[str, typer.Option("--printMsg", "-p", help="true: print the messages themselves.")] = "true",
    body: PrintBody = "true",
    by_tag: Annotated[str, typer.Option("--calculateByTag", "-f", help="true: count the messages by tag.")] = "false",
    format: FormatOption = Format.text,
) -> int:
    """Print the messages of one queue."""
    counts: dict[str, int] = {}
    output = make_output(format)
    shown, with_body, counted = is_true(show), is_true(body), is_true(by_tag)
    with StoreView(store) as view:
        for record in _between(view, topic, queue_id, begin, end, tags):
            counts[record.tags or ""] = counts.get(record.tags or "", 0) + 1
            if shown:
                row = message_json(record, broker_name(store))
                text = f"MSGID: {record.msg_id} QUEUEOFFSET: {record.queue_offset} TAGS: {record.tags}"
                if with_body:
                    text += f" BODY: {body_text(record.body, 1000)}"
                else:
                    del row["body"]
                output.row(row, text)
    if counted:
        for tag, count in sorted(counts.items()):
            output.row({"tag": tag, "count": count}, f"Tag: {tag or '-'} Count: {count}")
    return 0


def print_msg(
    store: StorePath,
    topic: Topic,
    begin: BeginTime = None,
    end: EndTime = None,
    tags: Tags = None,
    body: PrintBody = "true",
    format: FormatOption = Format.text,
) -> int:
    """Print the messages of all queues of a topic, queue by queue."""
    with StoreView(store) as view:
        queues = [queue.queue_id for queue in view.queues(topic)]
    for queue_id in queues:
        print_msg_by_queue(store, topic, queue_id, begin, end, tags, body=body, format=format)
    return 0


def _between(
    view: StoreView, topic: str, queue_id: int, begin: str | None, end: str | None, tags: str | None
) -> Iterator[Record]:
    begin_ms, end_ms = parse_time(begin, 0), parse_time(end, TIME_MAX_MS)
    offset = view.offset_at(topic, queue_id, begin_ms)
    last = view.offset_at(topic, queue_id, end_ms, BoundaryType.UPPER)
    while offset is not None and last is not None and offset <= last:
        result = view.get(topic, queue_id, offset, _AT_A_TIME, tags)
        yield from (record for record in result.messages if record.queue_offset <= last)
        if result.next_offset <= offset:
            return
        offset = result.next_offset


def decode_msg_id(message_id: MessageId, format: FormatOption = Format.text) -> int:
    """Print the broker's address and the place in its log that an offset message id names."""
    host, physical_offset = decode_message_id(message_id)
    make_output(format).document(
        {"storeHost": host, "physicalOffset": physical_offset},
        [f"store host: {host}", f"physical offset: {physical_offset}"],
    )
    return 0
