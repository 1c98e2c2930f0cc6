"""Marks of a conversion that anybody can make up: no value of theirs loses, hides or moves a record or a message."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mqstore
from convert.support import SIZES, members, plain
from mqstore import convert, kafka
from mqstore.convert import ConvertOptions, Loss
from mqstore.convert.kafka_origin import packed
from mqstore.convert.log_writer import LogWriter
from mqstore.convert.mapping import Mapped
from mqstore.kafka import KafkaMessage, Record
from mqstore.layout import properties as props
from mqstore.layout.constants import LONG_MAX, MAGIC_V1, SysFlag
from mqstore.layout.hosts import encode_host
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.record import record_size

Header = tuple[str, bytes | None]

FITTING: list[Header] = [
    ("rmq.storeTimestamp", b"5"), ("rmq.physicalOffset", b"0"),
    ("rmq.bornHost", b"127.0.0.1:1"), ("rmq.storeHost", b"127.0.0.1:1"),
]  # fmt: skip
CODECS = [SysFlag.COMPRESSED | kind for kind in (0, SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD)]
NO_HOST: list[Header] = [*FITTING[:2], ("rmq.bornHost", b"127.0.0.1:0"), ("rmq.storeHost", b"127.0.0.1:0")]
COUNTED = {
    "rmq.storeTimestamp": Loss.LATER_TIMES,
    "rmq.physicalOffset": Loss.MOVED_IN_LOG,
    "rmq.topic": Loss.FORMER_TOPICS,
}
"""Headers that may come back with another value, or not at all, and the loss under which each such case is counted."""


def there_and_back(messages: list[KafkaMessage], root: Path) -> tuple[dict[Loss, int], list[Any], list[Any]]:
    """Losses of both ways, and the records before and after."""
    with kafka.open(root / "log") as log:
        for message in messages:
            log.put(message)
    there = convert.to_rocketmq(root / "log", root / "store", ConvertOptions(store_settings=SIZES)).total_losses()
    back = convert.to_kafka(root / "store", root / "back").total_losses()
    found = []
    for name in ("log", "back"):
        with kafka.inspect(root / name) as view:
            found.append(plain(view.partition("t").records()))
    return {loss: there.get(loss, 0) + back.get(loss, 0) for loss in {*there, *back}}, *found


def assert_all_there(losses: dict[Loss, int], before: list[Any], after: list[Any]) -> None:
    """Records are equal but for the headers of :data:`COUNTED`, of which no more differ than were counted."""
    assert [one[0] for one in before] == [one[0] for one in after]
    different = dict.fromkeys(COUNTED, 0)
    for old, new in zip(before, after, strict=True):
        assert old[:5] == new[:5]
        for name in COUNTED:
            if [one for one in old[5] if one[0] == name] != [one for one in new[5] if one[0] == name]:
                different[name] += 1
        assert [one for one in old[5] if one[0] not in COUNTED] == [one for one in new[5] if one[0] not in COUNTED]
    assert {name: count for name, count in different.items() if count > losses.get(COUNTED[name], 0)} == {}


@pytest.mark.parametrize("kind", [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK])
def test_a_transaction_type_that_no_record_has(tmp_path: Path, kind: int) -> None:
    messages = [KafkaMessage("t", b"%d" % number, timestamp_ms=7) for number in range(3)]
    messages[1] = KafkaMessage("t", b"1", headers=[*FITTING, ("rmq.sysFlag", b"%d" % kind)], timestamp_ms=7)
    losses, before, after = there_and_back(messages, tmp_path)
    assert losses[Loss.MISFITS] == 1
    assert before == after


def test_a_body_that_only_says_to_be_compressed(tmp_path: Path) -> None:
    headers = [*FITTING, ("rmq.sysFlag", b"%d" % SysFlag.COMPRESSED)]
    messages = [KafkaMessage("t", body, headers=headers, timestamp_ms=5) for body in (zlib.compress(b"body"), b"none")]
    losses, before, after = there_and_back(messages, tmp_path)
    assert (losses[Loss.MISFITS], losses.get(Loss.INFLATED_BODIES, 0)) == (1, 0)
    assert_all_there(losses, before, after)


def test_a_record_inside_a_message_inside_a_record(tmp_path: Path) -> None:
    """Headers that make a message which counts as another record, with another key, value and offset."""
    inner = Record(0, 7, TimestampType.CREATE_TIME, b"other", None)
    texts = props.parse(packed(inner, 0, None)[0])
    assert texts["KAFKA_NULL_VALUE"] == "1"
    for extra in ({}, {"KAFKA_OFFSET": str(LONG_MAX)}):
        pairs = [*texts.items()]
        pairs[2:2] = extra.items()
        headers = [*NO_HOST, *((name, value.encode()) for name, value in pairs)]
        messages = [KafkaMessage("t", b"", b"other", headers, 7), KafkaMessage("t", b"next", timestamp_ms=8)]
        losses, before, after = there_and_back(messages, tmp_path / str(len(extra)))
        assert losses[Loss.MISFITS] == 1
        assert before == after


def test_hosts_of_a_length_that_none_has(tmp_path: Path) -> None:
    headers = [*FITTING[:2], ("rmq.bornHost", b"hex:00ff"), FITTING[3]]
    losses, before, after = there_and_back([KafkaMessage("t", b"x", headers=headers)], tmp_path)
    assert losses[Loss.MISFITS] == 1
    assert before == after


@pytest.mark.parametrize(("topic", "former"), [("a.b", b"a.b"), ("x.252Ey", b"x%2Ey"), ("a.25b", b"a%b" * 90)])
def test_former_topics_that_cannot_be(tmp_path: Path, topic: str, former: bytes) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage(topic, b"x", headers=[*FITTING, ("rmq.topic", former)]))
        log.put(KafkaMessage("x.y", b"x"))
    there = convert.to_rocketmq(tmp_path / "log", tmp_path / "store")
    assert there.topics == {name: name.replace(".", "%2E") for name in (topic, "x.y")}
    assert there.total_losses()[Loss.FORMER_TOPICS] == 1


NUMBERS = st.one_of(
    st.integers(0, 1100), st.sampled_from([-1, 1 << 31, (1 << 31) - 1, LONG_MAX, LONG_MAX + 1, -LONG_MAX - 1])
)
VALUES = st.one_of(NUMBERS.map(lambda number: b"%d" % number), st.none(), st.binary(max_size=6))
HOSTS = st.sampled_from(
    [b"127.0.0.1:0", b"127.0.0.1:1", b"0:0:0:0:0:0:0:1:7", b"[::1]:7", b"hex:", b"hex:" + b"00" * 8]
)
OWN = st.sampled_from(
    [
        *("rmq." + name for name in ("flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "topic")),
        *("rmq." + name for name in ("trailingSeparator", "properties", "storeTimestamp", "physicalOffset", "else")),
    ]
)
OTHER = st.sampled_from(
    ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "KAFKA_OFFSET", "KAFKA_TIMESTAMP_TYPE", "plain", ""]
)
OTHERS = st.one_of(VALUES, st.sampled_from([b"a b", b"CreateTime", b"x\x02y\x01z", b"\xff"]))


@st.composite
def forged(draw: st.DrawFn) -> KafkaMessage:
    """A record with headers that are nearly, or wholly, those of a message."""
    first = {
        "rmq.storeTimestamp": draw(st.one_of(NUMBERS.map(lambda number: b"%d" % number))),
        "rmq.physicalOffset": draw(st.one_of(NUMBERS.map(lambda number: b"%d" % number))),
        "rmq.bornHost": draw(HOSTS),
        "rmq.storeHost": draw(HOSTS),
    }
    headers: list[Header] = list(first.items())
    if draw(st.booleans()):
        flags = draw(st.integers(1, 0x7FF))
        headers.append(("rmq.sysFlag", b"%d" % (flags & ~0x30)))
    headers += draw(st.lists(st.tuples(OWN, VALUES), max_size=2))
    headers += draw(st.lists(st.tuples(OTHER, OTHERS), max_size=3))
    key = draw(st.sampled_from([None, dict(headers).get("KEYS"), b"", b"k"]))
    value = draw(st.sampled_from([None, b"", b"body", zlib.compress(b"body")]))
    return KafkaMessage("t", value, key, headers, draw(st.sampled_from([0, 7, 1000])))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.one_of(forged(), st.just(KafkaMessage("t", b"ordinary", timestamp_ms=7))), min_size=4, max_size=40))
@example([KafkaMessage("t", b"x", headers=[*FITTING, ("rmq.sysFlag", b"4")], timestamp_ms=7)])
@example([KafkaMessage("t", b"", headers=[*FITTING, ("rmq.sysFlag", b"%d" % kind)], timestamp_ms=7) for kind in CODECS])
def test_no_header_loses_hides_or_moves_a_record(messages: list[KafkaMessage]) -> None:
    with tempfile.TemporaryDirectory() as root:
        assert_all_there(*there_and_back(messages, Path(root)))


# -- the other way


HOST = encode_host("127.0.0.1:0")


def messages_back(parts: list[tuple[bytes, bytes]], root: Path) -> tuple[dict[Loss, int], list[Any], list[Any]]:
    """Losses on the way there, and messages before and after: made of properties and body, as if from Kafka."""
    log = root / "store" / "commitlog"
    log.mkdir(parents=True)
    with LogWriter(log, SIZES["mapped_file_size_commit_log"]) as writer:
        for number, (raw, body) in enumerate(parts):
            size = record_size(len(body), 1, len(raw))
            fields = (b"t", body, raw, 0, 0, 0, 7, HOST, HOST, 0, 0, MAGIC_V1)
            writer.append(Mapped(fields, size, 7, -1), number, 7)
    mqstore.open(root / "store", expire_automatically=False, **SIZES).close()
    there = convert.to_kafka(root / "store", root / "kafka").total_losses()
    convert.to_rocketmq(root / "kafka", root / "back", ConvertOptions(store_settings=SIZES))
    found = []
    for name in ("store", "back"):
        with mqstore.inspect(root / name) as view:
            found.append([members(one) for one in view.get("t", 0).messages])
    assert len(found[0]) == len(parts)
    return there, *found


def test_an_offset_that_leaves_no_room_behind_it(tmp_path: Path) -> None:
    raw, body, _ = packed(Record(LONG_MAX, 7, TimestampType.CREATE_TIME, b"k", b"v"), 0, None)
    there, before, after = messages_back([(raw, body), (b"", b"next")], tmp_path)
    assert there == {Loss.MOVED_OFFSETS: 1}
    assert [one.body for one in after] == [one.body for one in before] == [b"v", b"next"]
    with kafka.inspect(tmp_path / "kafka") as view:
        assert [one.offset for one in view.partition("t").records()] == [0, 1]


def test_a_message_inside_a_record_inside_a_message(tmp_path: Path) -> None:
    raw, body, _ = packed(Record(0, 7, TimestampType.CREATE_TIME, None, b"v", tuple(NO_HOST)), 0, None)
    there, before, after = messages_back([(raw, body)], tmp_path)
    assert there == {Loss.MISFITS: 1}
    assert before == after


@pytest.mark.parametrize(
    ("pair", "body"),
    [
        ({"KAFKA_HEADERS": '[["\\ud800","eA=="]]'}, b"v"),
        ({"KAFKA_HEADERS": "[" * 30_000}, b"v"),
        ({"KAFKA_ENVELOPE": "1"}, b"[" * 100_000),
    ],
    ids=["no text", "nested", "nested in the body"],
)
def test_headers_that_no_record_has(tmp_path: Path, pair: dict[str, str], body: bytes) -> None:
    raw = props.encode([("KAFKA_TIMESTAMP_TYPE", "CreateTime"), *pair.items()])
    there, before, after = messages_back([(raw, body)], tmp_path)
    assert there == {Loss.MISFITS: 1}
    assert before == after
