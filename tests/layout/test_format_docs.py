"""The examples of docs/format: the bytes of each page decode to the values beside them, and encode back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from layout.kafka import batch_examples, internal_topic_examples, small_file_examples
from mqstore.layout import batch, hosts, index, properties_crc
from mqstore.layout.batch_queue_unit import decode_batch_unit, encode_batch_unit
from mqstore.layout.checkpoint import decode_checkpoint, encode_checkpoint
from mqstore.layout.config_files import DelayOffsets
from mqstore.layout.java_hash import java_hash
from mqstore.layout.message_id import decode_message_id, encode_message_id
from mqstore.layout.properties import encode, parse
from mqstore.layout.queue_ext import address_of, decode_ext_unit, encode_ext_unit
from mqstore.layout.queue_unit import encode_units, iter_units
from mqstore.layout.record import Blank, Record, decode_record, encode_blank

PAGES = Path(__file__).parents[2] / "docs" / "format"
ROOT = PAGES.parents[1]


def directory(data: bytes) -> Any:
    return {"lock": data[:4].decode(), "abort": data[4:].decode()}


def commit_log(data: bytes) -> Any:
    record = decode_record(data, physical_offset=0)
    assert isinstance(record, Record)
    blank = decode_record(data, record.total_size)
    assert isinstance(blank, Blank)
    assert record.encode() + encode_blank(blank.size_bytes) == data
    return {
        "totalSize": record.total_size, "queueId": record.queue_id, "flag": record.flag,
        "queueOffset": record.queue_offset, "physicalOffset": record.physical_offset, "sysFlag": record.sys_flag,
        "bodyCRC": record.body_crc, "bornTimestamp": record.born_timestamp_ms, "bornHost": record.born_host,
        "storeTimestamp": record.store_timestamp_ms, "storeHost": record.store_host,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset, "body": record.body.decode(),
        "topic": record.topic, "properties": record.properties, "blankSize": blank.size_bytes,
    }  # fmt: skip


def properties(data: bytes) -> Any:
    found = parse(data)
    assert encode(found, trailing_separator=True) == data
    return {
        "properties": found,
        "tagsHash": java_hash(found["TAGS"]),
        "recordChecksum": properties_crc.stored_crc(data),
    }


def message_id(data: bytes) -> Any:
    found = []
    for raw in (data[:16], data[16:]):
        host, offset = decode_message_id(raw.hex())
        assert encode_message_id(hosts.encode_host(host), offset) == raw.hex().upper()
        found.append({"host": host, "physicalOffset": offset})
    return found


def batch_message(data: bytes) -> Any:
    elements = batch.decode_batch(data)
    assert batch.encode_batch(elements) == data
    return [
        {"flag": element.flag, "body": element.body.decode(), "properties": parse(element.properties_raw)}
        for element in elements
    ]


def consume_queue(data: bytes) -> Any:
    units = list(iter_units(data))
    assert encode_units(units) == data
    return [
        {
            "physicalOffset": unit.physical_offset,
            "size": unit.size_bytes,
            "tagsCode": unit.tags_code,
            "filler": unit.is_pre_blank,
        }
        for unit in units
    ]


def consume_queue_ext(data: bytes) -> Any:
    found, position = [], 0
    while (unit := decode_ext_unit(data, position)) is not None:
        assert encode_ext_unit(unit) == data[position : position + unit.size_bytes]
        found.append(
            {
                "address": address_of(position),
                "tagsCode": unit.tags_code,
                "storeTimestamp": unit.store_timestamp_ms,
                "bitmap": unit.bitmap.hex(),
            }
        )
        position += unit.size_bytes
    assert position == len(data) - 2
    return found


def batch_consume_queue(data: bytes) -> Any:
    unit = decode_batch_unit(data)
    assert encode_batch_unit(unit) == data
    assert unit.is_written
    return {
        "physicalOffset": unit.physical_offset, "size": unit.size_bytes, "tagsCode": unit.tags_code,
        "storeTimestamp": unit.store_timestamp_ms, "base": unit.message_base_offset, "number": unit.batch_size,
        "nextQueueOffset": unit.next_queue_offset,
    }  # fmt: skip


def index_file(data: bytes) -> Any:
    header = index.decode_header(data)
    assert index.encode_header(header) == data[:40]
    assert index.file_size(3, header.index_count) == len(data)
    entries = [index.decode_entry(data, number, 3) for number in range(1, header.index_count)]
    for entry, key in zip(entries, ("7F00000100000", "k0", "kk"), strict=True):
        assert entry.key_hash == index.key_hash("TopicTest", key)
    return {
        "header": {
            "begin": header.begin_timestamp_ms, "end": header.end_timestamp_ms,
            "beginOffset": header.begin_physical_offset, "endOffset": header.end_physical_offset,
            "slotsInUse": header.hash_slot_count, "next": header.index_count,
        },
        "slots": [index.decode_slot(data, slot, 3) for slot in range(3)],
        "entries": [
            {
                "keyHash": entry.key_hash, "physicalOffset": entry.physical_offset,
                "seconds": entry.time_diff_s, "previous": entry.previous,
            }
            for entry in entries
        ],
    }  # fmt: skip


def checkpoint(data: bytes) -> Any:
    found = decode_checkpoint(data)
    assert encode_checkpoint(found)[: len(data)] == data
    return {
        "physicMsgTimestamp": found.physic_msg_timestamp_ms, "logicsMsgTimestamp": found.logics_msg_timestamp_ms,
        "indexMsgTimestamp": found.index_msg_timestamp_ms, "masterFlushedOffset": found.master_flushed_offset,
        "confirmPhyOffset": found.confirm_phy_offset, "minTimestamp": found.min_timestamp(),
    }  # fmt: skip


def config_json(data: bytes) -> Any:
    found = DelayOffsets.decode(data)
    assert found.encode() == data
    return {"offsetTable": {str(level): offset for level, offset in found.offsets.items()}}


EXAMPLES: dict[str, Callable[[bytes], Any]] = {
    "directory": directory,
    "commit-log": commit_log,
    "properties": properties,
    "message-id": message_id,
    "batch-message": batch_message,
    "consume-queue": consume_queue,
    "consume-queue-ext": consume_queue_ext,
    "batch-consume-queue": batch_consume_queue,
    "index-file": index_file,
    "checkpoint": checkpoint,
    "config-json": config_json,
    **batch_examples.EXAMPLES,
    **small_file_examples.EXAMPLES,
    **internal_topic_examples.EXAMPLES,
}


def block(page: str, kind: str) -> str:
    found = re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"one {kind} block a page"
    return found[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    data = bytes.fromhex(re.sub(r";.*", "", block(page, "hex")))
    assert EXAMPLES[name](data) == json.loads(block(page, "json"))


def test_every_page_has_an_example_and_a_place_in_the_index():
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert pages == set(EXAMPLES)
    listed = re.findall(r"\]\(([a-z-]+)\.md\)", (PAGES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(pages)


def test_links_lead_somewhere():
    for path in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_modules_name_pages_that_exist():
    named = {
        match
        for path in (ROOT / "src").rglob("*.py*")
        if path.suffix in (".py", ".pyx")
        for match in re.findall(r"docs/format/([a-z-]+)\.md", path.read_text(encoding="utf-8"))
    }
    assert named <= set(EXAMPLES)


@pytest.mark.parametrize("path", sorted((ROOT / "src/mqstore/layout").glob("*.py")), ids=lambda path: path.stem)
def test_index_names_every_module(path):
    """Every module of the layout has a page, but for what several share."""
    shared = {"__init__", "buffers", "constants", "rows", "text", "config_beans"}
    listed = (PAGES / "README.md").read_text(encoding="utf-8")
    assert path.stem in shared or f"`{path.stem}`" in listed
