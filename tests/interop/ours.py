"""What our own reader says of a store, in the form of a :class:`~interop.dumps.Dump`."""

from __future__ import annotations

import base64
import zlib
from functools import partial
from typing import Any

from interop.dumps import Dump, Questions
from mqstore import QueueInfo, Record, StoreView
from mqstore.layout.index import index_keys
from store.offset_as_v4 import offset_at_as_v4

#: More than any key has, so that no answer is cut.
MANY = 100_000
LONG_MAX = (1 << 63) - 1


def dump_of(view: StoreView, answers: Dump) -> Dump:
    """Everything ``view`` says, asked the very look-ups that the real store gave ``answers`` to."""
    records = {record.physical_offset: _record(view, record) for record in view.scan()}
    asked = {(queue["topic"], queue["queueId"]): queue for queue in answers.whole["queues"]}
    is_v4 = answers.whole["version"].startswith("4.")
    queues, units = [], []
    for info in view.queues():
        here = _units(view, info)
        for unit in here:
            place = {name: value for name, value in unit.items() if name != "phyOffset"}
            records[unit["phyOffset"]]["cq"].append(place)
        units += here
        times = asked.get((info.topic, info.queue_id), {})
        queues.append({**_queue(records, info, here), **_by_time(view, info, times, is_v4)})
    whole = {
        "minPhyOffset": view.min_physical_offset,
        "maxPhyOffset": view.log_end,
        "messages": len(records),
        "blanks": [{"offset": blank.physical_offset, "size": blank.size_bytes} for blank in view.blanks()],
        "problems": [],
        "getMessage": _walk(view),
        "checkpoint": _checkpoint(view, answers),
        "queues": queues,
        "keys": [_by_key(view, question) for question in answers.whole["keys"]],
    }
    return Dump(list(records.values()), units, whole)


def questions_about(view: StoreView) -> Questions:
    """Every key of every record, one that is not there, and the times around five messages of each queue."""
    questions = Questions()
    keys = {(record.topic, key) for record in view.scan() for key in index_keys(record)}
    for topic, key in [*sorted(keys), ("TopicTest", "no such key")]:
        questions.key(topic, key, MANY, 0, LONG_MAX)
    for info in view.queues():
        units = list(view.units(info.topic, info.queue_id))
        stored = [view.message_at(unit.physical_offset) for unit in units[:: max(1, len(units) // 4)]]
        times = [record.store_timestamp_ms for record in stored if record is not None]
        for time in sorted({time + way for time in times for way in (-100_000, -1, 0, 1, 100_000)}):
            questions.time(info.topic, info.queue_id, time)
    return questions


def comparable(answers: Dump) -> Dump:
    """``answers`` without what the real store says besides.

    It compares hashes of keys alone: it also gives messages of other keys and topics with the same hash, and one
    message once for each of its keys that collide (docs/format/index-file.md). And it makes an empty queue, without
    a file, of each that it was ever asked about.
    """
    bearers = {row["commitLogOffset"]: (row["topic"], _keys_of(row)) for row in answers.records}
    keys = []
    for asked in answers.whole["keys"]:
        assert len(asked["offsets"]) < asked["max"], "an answer that was cut cannot be compared"
        offsets = [
            offset
            for offset in dict.fromkeys(asked["offsets"])
            if bearers[offset][0] == asked["topic"] and asked["key"] in bearers[offset][1]
        ]
        keys.append({**asked, "offsets": offsets})
    checkpoint = {name: value for name, value in answers.whole["checkpoint"].items() if name != "confirmPhyOffset"}
    queues = [queue for queue in answers.whole["queues"] if queue["files"]]
    return Dump(
        answers.records, answers.units, {**answers.whole, "keys": keys, "queues": queues, "checkpoint": checkpoint}
    )


def _keys_of(row: dict[str, Any]) -> list[str]:
    properties = row["properties"]
    return [key for key in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")] if key]


def _record(view: StoreView, record: Record) -> dict[str, Any]:
    raw = view.log.read(record.physical_offset, record.total_size)
    assert raw is not None
    return {
        "commitLogOffset": record.physical_offset,
        "storeSize": record.total_size,
        "magic": record.magic,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": record.born_host,
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": record.store_host,
        "bodyCRC": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "msgId": record.msg_id,
        "body": base64.b64encode(record.body).decode(),
        "properties": record.properties,
        "recordCrc32": zlib.crc32(raw),
        "cq": [],
    }


def _units(view: StoreView, info: QueueInfo) -> list[dict[str, Any]]:
    return [
        {
            "topic": info.topic,
            "queueId": info.queue_id,
            "cqOffset": offset,
            "phyOffset": unit.physical_offset,
            "size": unit.size_bytes,
            "tagsCode": unit.tags_code,
        }
        for offset, unit in enumerate(view.units(info.topic, info.queue_id), info.min_offset)
    ]


def _queue(records: dict[int, dict[str, Any]], info: QueueInfo, units: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "topic": info.topic,
        "queueId": info.queue_id,
        "minOffset": info.min_offset,
        "maxOffset": info.max_offset,
        "maxPhysicOffset": units[-1]["phyOffset"] + units[-1]["size"],
        "earliestMessageTime": records[units[0]["phyOffset"]]["storeTimestamp"],
    }


def _by_time(view: StoreView, info: QueueInfo, asked: dict[str, Any], is_v4: bool) -> dict[str, Any]:
    topic, queue_id = info.topic, info.queue_id
    lower = partial(offset_at_as_v4, view) if is_v4 else view.offset_at
    found = {"offsetByTime": [[time, lower(topic, queue_id, time)] for time, _ in asked.get("offsetByTime", ())]}
    if "offsetByTimeUpper" in asked:
        # Where no message is as old as that, ours is one less than the minimum, theirs 0 as if the first one were.
        found["offsetByTimeUpper"] = [
            [time, max(0, view.offset_at(topic, queue_id, time, "upper") or 0)]
            for time, _ in asked["offsetByTimeUpper"]
        ]
    return found


def _walk(view: StoreView) -> dict[str, Any]:
    messages = size_bytes = 0
    statuses: dict[str, int] = {}
    for info in view.queues():
        offset = info.min_offset
        while offset < info.max_offset:
            result = view.get(info.topic, info.queue_id, offset)
            assert result.next_offset > offset
            statuses[result.status.value] = statuses.get(result.status.value, 0) + 1
            messages += len(result.messages)
            size_bytes += sum(message.total_size for message in result.messages)
            offset = result.next_offset
    return {"messages": messages, "bytes": size_bytes, "statuses": statuses}


def _checkpoint(view: StoreView, answers: Dump) -> dict[str, int]:
    checkpoint = view.checkpoint
    ours = {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp_ms,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp_ms,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp_ms,
        "masterFlushedOffset": checkpoint.master_flushed_offset,
    }
    # 5.x also tells confirmPhyOffset, which it sets anew while it loads.
    return {name: value for name, value in ours.items() if name in answers.whole["checkpoint"]}


def _by_key(view: StoreView, asked: dict[str, Any]) -> dict[str, Any]:
    result = view.query(asked["topic"], asked["key"], asked["begin"], asked["end"], max_messages=asked["max"])
    return {**asked, "offsets": [message.physical_offset for message in result.messages]}
