"""Helpers of the tests of Kafka's kernels: small logs, comparisons, random batches."""

from __future__ import annotations

import random
import struct
from typing import Any

from mqstore.kernels import BatchColumns, HeaderLists, RecordColumns
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.codec import decompress
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.record import Record

TIME = 1_700_000_000_000
CREATE = TimestampType.CREATE_TIME
EXTREMES = (0, 1, -1, 2, 6, 7, 13, 14, 21, 22, 48, 49, 61, 127, 128, 255, 2**31 - 1, -(2**31), 2**31 - 13, 2**31 - 12)


def record(
    key: bytes | None = b"k1", value: bytes | None = b"hello", headers: Any = (), time: int = TIME, offset: int = 0
) -> Record:
    return Record(offset, time, CREATE, key, value, tuple(headers))


RECORDS = [
    record(headers=[("trace", b"7f"), ("trace", None), ("", b"")]),
    record(None, None, time=TIME - 5),
    record(b"", b"", time=TIME + 300),
    record(None, b"v" * 200, time=TIME + 70_000),
]


def contents(columns: BatchColumns | RecordColumns) -> dict[str, Any]:
    """Everything that a walk told, as plain values."""
    told: dict[str, Any] = {name: getattr(columns, name).tolist() for name in columns.COLUMN_NAMES}
    names = {"count", "next_position", "next_row", "stop", "damage"} & vars(columns).keys()
    return told | {name: getattr(columns, name) for name in names}


def headers_of(lists: HeaderLists) -> list[list[tuple[str, bytes | None]]]:
    """A HeaderLists as lists of pairs."""
    bits = None if lists.value_validity is None else bytes(lists.value_validity)
    names = [bytes(raw).decode() for raw in _cut(lists.name_offsets, lists.name_data)]
    values: list[bytes | None] = list(_cut(lists.value_offsets, lists.value_data))
    if bits is not None:
        values = [value if bits[k >> 3] >> (k & 7) & 1 else None for k, value in enumerate(values)]
    pairs = list(zip(names, values, strict=True))
    places = memoryview(lists.list_offsets).cast("i")
    return [pairs[places[k] : places[k + 1]] for k in range(len(places) - 1)]


def _cut(offsets: Any, data: Any) -> list[bytes]:
    places = memoryview(offsets).cast("i")
    raw = bytes(data)
    return [raw[places[k] : places[k + 1]] for k in range(len(places) - 1)]


def inflated(log: bytes, batches: BatchColumns, start: int, stop: int) -> tuple[bytes, list[int]]:
    """The records of rows of format 2, inflated, one behind the other; where each row's begin, and the end."""
    body, places = b"", [0]
    for row in range(start, stop):
        position, end = batches.position[row] + c.BATCH_HEADER_SIZE, batches.position[row] + batches.size[row]
        body += decompress(Codec(batches.attributes[row] & c.CODEC_MASK), log[position:end])
        places.append(len(body))
    return body, places


def random_log(chance: random.Random, batches: int = 5) -> bytes:
    """Batches of all formats, codecs and kinds, small and odd."""
    log, offset = b"", chance.choice([0, 5, 1 << 40])
    for _ in range(chance.randint(1, batches)):
        magic = chance.choice([0, 1, 2, 2, 2, 2])
        items = [_random_record(chance, magic) for _ in range(chance.randint(1, 5))]
        kind = chance.choice([CREATE, TimestampType.LOG_APPEND_TIME])
        codec = chance.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP])
        if magic == 2:
            log += encode_batch(
                items, base_offset=offset, codec=codec, timestamp_type=kind, log_append_time_ms=TIME + 9,
                leader_epoch=chance.randint(-1, 3), producer_id=chance.choice([-1, 1 << 50]), producer_epoch=3,
                base_sequence=chance.choice([-1, 2**31 - 2]), transactional=chance.random() < 0.2,
                delete_horizon_ms=chance.choice([None, TIME + 99]), last_offset_delta=len(items) + 1,
            )  # fmt: skip
            offset += len(items) + 2
        elif codec is Codec.NONE:
            log += encode_message(items[0], offset=offset, magic=magic, timestamp_type=kind)
            offset += 1
        else:
            log += encode_wrapper(items, base_offset=offset, magic=magic, codec=codec, timestamp_type=kind)
            offset += len(items)
    return log


def _random_record(chance: random.Random, magic: int) -> Record:
    size = chance.choice([0, 1, 5, 62, 63, 64, 127, 200])
    headers = [
        (chance.choice(["", "h", "é中😀", "x" * 70]), chance.choice([None, b"", b"v", bytes(130)]))
        for _ in range(chance.choice([0, 0, 1, 3]) if magic == 2 else 0)
    ]
    time = chance.choice([TIME, TIME - 1, TIME + 8191, -1, TIME + (1 << 35)])
    return record(chance.choice([None, b"", b"key"]), chance.choice([None, chance.randbytes(size)]), headers, time)


def damaged_log(chance: random.Random, log: bytes) -> bytes:
    """``log`` with bits flipped, numbers set to extremes, parts cut out, repeated or zeroed."""
    changed = bytearray(log)
    for _ in range(chance.randint(1, 4)):
        if len(changed) < 8:
            break
        at = chance.randrange(len(changed) - 7)
        kind = chance.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            struct.pack_into(">i", changed, at, chance.choice(EXTREMES))
        elif kind == 2:
            struct.pack_into(">q", changed, at, chance.choice([-1, 0, 2**63 - 1, -(2**63)]))
        elif kind == 3:
            del changed[at : at + chance.randint(1, 100)]
        elif kind == 4:
            changed[at:at] = changed[at : at + chance.randint(1, 100)]
        elif kind == 5:
            changed[at : at + 30] = bytes(len(changed[at : at + 30]))
        else:
            changed[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    return bytes(changed)
