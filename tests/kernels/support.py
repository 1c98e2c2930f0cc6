"""Helpers of the kernel tests: small logs, comparisons, columns as Python values."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mqstore.kernels import COLUMN_NAMES, LogColumns
from mqstore.layout import constants as c
from mqstore.layout.record import encode_record

V4 = bytes([10, 0, 0, 9, 0, 0, 0x2A, 0x9F])
V6 = bytes(15) + b"\x01" + bytes([0, 0, 0x2A, 0x9F])
BASE = 3 << 30
"""Log offset of byte 0 of the logs made here."""


def message(**changes: Any) -> dict[str, Any]:
    """Arguments of encode_record for an ordinary message, except its place."""
    fields: dict[str, Any] = {
        "topic": b"TopicTest",
        "body": b"Hello",
        "properties": b"KEYS\x01k1 k2\x02UNIQ_KEY\x017F00\x02TAGS\x01TagA",
        "queue_id": 1,
        "flag": 7,
        "queue_offset": 5,
        "sys_flag": 0,
        "born_timestamp_ms": 1_600_000_000_000,
        "born_host": V4,
        "store_timestamp_ms": 1_600_000_000_500,
        "store_host": V4,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "magic": c.MAGIC_V1,
    }
    return {**fields, **changes}


def make_log(*messages: dict[str, Any], base: int = BASE) -> bytes:
    """The records one behind the other."""
    log = b""
    for fields in messages:
        log += encode_record(**fields, physical_offset=base + len(log))
    return log


def prepared(fields: dict[str, Any]) -> tuple[Any, ...]:
    """A message as put_batch takes it."""
    names = (
        "topic body properties queue_id flag sys_flag born_timestamp_ms born_host store_host reconsume_times"
        " prepared_transaction_offset magic"
    )
    return tuple(fields[name] for name in names.split())


def contents(columns: LogColumns) -> dict[str, Any]:
    """Everything that a scan told, as plain values."""
    told: dict[str, Any] = {name: getattr(columns, name).tolist() for name in COLUMN_NAMES}
    for name in ("count", "physical_offset", "next_position", "stop", "damage", "blank_size", "short_size"):
        told[name] = getattr(columns, name)
    return told


def texts(column: Any) -> list[bytes | None]:
    """A Strings column as Python values."""
    return _with_nulls(_cut(column.offsets, column.data), column.validity)


def _with_nulls(values: list[Any], validity: Any) -> list[Any]:
    if validity is None:
        return values
    bits = bytes(validity)
    return [value if bits[k >> 3] >> (k & 7) & 1 else None for k, value in enumerate(values)]


def lists(column: Any) -> list[list[bytes] | None]:
    """A StringLists column as Python values."""
    strings = _cut(column.offsets, column.data)
    offsets = memoryview(column.list_offsets).cast("i")
    values: list[list[bytes] | None] = [strings[offsets[k] : offsets[k + 1]] for k in range(len(offsets) - 1)]
    return _with_nulls(values, column.validity)


def maps(column: Any) -> list[list[tuple[bytes, bytes]]]:
    """A StringMaps column as lists of pairs."""
    names = _cut(column.name_offsets, column.name_data)
    values = _cut(column.value_offsets, column.value_data)
    pairs = list(zip(names, values, strict=True))
    offsets = memoryview(column.list_offsets).cast("i")
    return [pairs[offsets[k] : offsets[k + 1]] for k in range(len(offsets) - 1)]


def _cut(offsets: Any, data: Any) -> list[bytes]:
    places = memoryview(offsets).cast("i")
    raw = bytes(data)
    return [raw[places[k] : places[k + 1]] for k in range(len(places) - 1)]


# ---- golden stores -----------------------------------------------------------------------------------------


def log_files(store: Path) -> list[tuple[int, bytes]]:
    """(physical offset, bytes) of the commit log files of a golden store."""
    return [(int(path.name), path.read_bytes()) for path in sorted((store / "store" / "commitlog").iterdir())]


def expected_records(store: Path) -> list[dict[str, Any]]:
    """What the real decoder read from a golden store."""
    return [json.loads(line) for line in (store / "EXPECTED.jsonl").read_text("utf-8").splitlines()]


# ---- random logs -------------------------------------------------------------------------------------------

ODD_TEXT = st.lists(
    st.sampled_from([
        b"a", b"Aa", b"BB", b" ", b"\xc3\xa9", b"\xe4\xb8\xad", b"\xf0\x9f\x98\x80", b"\xed\xa0\xbd", b"\xed\xa0",
        b"\xff", b"\xc0", b"\xe0\x80", b"\xf4\x90", b"\xf0\x9f", b"\xef\xbf\xbd", b"DELAY", b"5",
    ]),
    min_size=1, max_size=6,
).map(b"".join)  # fmt: skip
NAMES = st.one_of(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"tags", b"KEYSS", b""]), ODD_TEXT)
PAIRS = st.tuples(NAMES, st.one_of(st.just(b""), st.sampled_from([b"3", b"+2", b"99", b"-1", b"k1  k2 "]), ODD_TEXT))
PROPERTIES = st.lists(PAIRS, max_size=6).map(lambda pairs: b"\x02".join(b"\x01".join(pair) for pair in pairs))
INT = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, -(2**31), 2**31 - 1]))
LONG = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -(2**63), 2**63 - 1]))

MESSAGES = st.fixed_dictionaries({
    "topic": st.one_of(st.sampled_from([b"T", b"TopicTest", b"SCHEDULE_TOPIC_XXXX", b""]), ODD_TEXT),
    "body": st.one_of(st.binary(max_size=40), st.integers(0, 700).map(lambda size: bytes([size % 251]) * size)),
    "properties": PROPERTIES,
    "queue_id": st.one_of(st.integers(0, 3), INT),
    "flag": INT,
    "queue_offset": st.one_of(st.integers(0, 4), LONG),
    "sys_flag": st.one_of(st.sampled_from([0, 1, 4, 8, 0xC]), INT),
    "born_timestamp_ms": LONG,
    "born_host": st.sampled_from([V4, V6, b"\xff" * 8, b"\xfe\x80" + b"\xff" * 18]),
    "store_timestamp_ms": st.one_of(st.integers(1_600_000_000_000, 1_600_000_900_000), LONG),
    "store_host": st.sampled_from([V4, V6]),
    "reconsume_times": INT,
    "prepared_transaction_offset": LONG,
    "magic": st.sampled_from([c.MAGIC_V1, c.MAGIC_V2]),
})  # fmt: skip
LOGS = st.lists(MESSAGES, max_size=8).map(lambda messages: make_log(*messages))

_EXTREMES = (0, 1, -1, 7, 8, 90, 91, 127, 128, 255, 32767, -32768, 2**31 - 1, -(2**31))


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """Logs with bytes changed, numbers set to extremes, parts cut out or repeated."""
    log = bytearray(draw(LOGS))
    for _ in range(draw(st.integers(1, 4))):
        if len(log) < 4:
            break
        at = draw(st.integers(0, len(log) - 4))
        kind = draw(st.sampled_from(["bit", "number", "short", "cut", "repeat", "zeros"]))
        if kind == "bit":
            log[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "number":
            struct.pack_into(">i", log, at, draw(st.sampled_from(_EXTREMES)))
        elif kind == "short":
            struct.pack_into(">h", log, at, draw(st.sampled_from([n for n in _EXTREMES if -32768 <= n <= 32767])))
        elif kind == "cut":
            del log[at : at + draw(st.integers(1, 200))]
        elif kind == "repeat":
            log[at:at] = log[at : at + draw(st.integers(1, 200))]
        else:
            log[at : at + 60] = bytes(len(log[at : at + 60]))
    return bytes(log)
