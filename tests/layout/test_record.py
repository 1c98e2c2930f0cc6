"""One record: the vector of a real store, round trips, and every way in which bytes can fail to be one."""

from __future__ import annotations

import mmap
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptRecordError, MessageIllegalError, UsageError
from mqstore.layout import constants as c
from mqstore.layout.constants import SysFlag
from mqstore.layout.hosts import encode_host
from mqstore.layout.record import (
    Blank,
    Damage,
    Record,
    body_crc,
    decode_record,
    encode_blank,
    encode_record,
    queue_of,
    record_size,
)
from mqstore.layout.rows import MESSAGE_COLUMNS, record_row

# Written by the store classes of 4.9.8.
VECTOR = bytes.fromhex(
    "000000a9 daa320a7 779aeca4 00000001 00000007"
    "0000000000000000 0000000000000000 00000000"
    "00000174876e8000 7f00000100003039"
    "000001a21effa0dc 0a00000900002a9f"
    "00000000 0000000000000000"
    "00000006 48656c6c6f30"
    "09 546f70696354657374"
    "003f 636f6c6f72 01 726564 02 4b455953 01 6b30206b6b 02 554e49515f4b4559 01 37463030303030313030303030"
    "02 57414954 01 74727565 02 54414753 01 54616741"
)
HOSTS = {8: encode_host("10.0.0.9:10911"), 20: encode_host("[fe80::1]:10911")}
I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)

PROPERTIES = st.lists(
    st.tuples(
        st.text(st.characters(exclude_characters="\0\1\2", codec="utf-8"), min_size=1, max_size=8),
        st.text(st.characters(exclude_characters="\0\2", codec="utf-8"), min_size=1, max_size=8),
    ),
    max_size=4,
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode())


def parts(**changes) -> dict:
    """Arguments of encode_record for an ordinary message."""
    ordinary = {
        "topic": b"TopicTest",
        "body": b"Hello0",
        "properties": b"TAGS\x01TagA",
        "queue_id": 1,
        "flag": 7,
        "queue_offset": 3,
        "physical_offset": 500,
        "sys_flag": 0,
        "born_timestamp_ms": 1_600_000_000_000,
        "born_host": HOSTS[8],
        "store_timestamp_ms": 1_795_815_835_979,
        "store_host": HOSTS[8],
    }
    return ordinary | changes


def damage_of(data: bytes, position: int = 0, **options) -> Damage:
    with pytest.raises(CorruptRecordError) as caught:
        decode_record(data, position, **options)
    assert isinstance(caught.value.found, Damage)
    return caught.value.found


class TestVector:
    def test_fields(self):
        record = decode_record(VECTOR, physical_offset=0)
        assert isinstance(record, Record)
        assert (record.total_size, record.magic, record.body_crc) == (169, c.MAGIC_V1, 0x779AECA4)
        assert (record.queue_id, record.flag, record.queue_offset, record.physical_offset) == (1, 7, 0, 0)
        assert (record.sys_flag, record.reconsume_times, record.prepared_transaction_offset) == (0, 0, 0)
        assert (record.born_timestamp_ms, record.store_timestamp_ms) == (1_600_000_000_000, 0x1A21EFFA0DC)
        assert (record.born_host, record.store_host) == ("127.0.0.1:12345", "10.0.0.9:10911")
        assert (record.topic, record.body) == ("TopicTest", b"Hello0")

    def test_derived(self):
        record = decode_record(VECTOR)
        assert record.properties == {
            "color": "red",
            "KEYS": "k0 kk",
            "UNIQ_KEY": "7F00000100000",
            "WAIT": "true",
            "TAGS": "TagA",
        }
        assert record.tags == "TagA"
        assert record.keys == ["k0", "kk"]
        assert record.uniq_key == "7F00000100000"
        assert record.tags_code() == 0x27A807
        assert record.msg_id == "0A00000900002A9F0000000000000000"
        assert record.end_offset == 169
        assert record.properties_string.startswith("color\x01red\x02KEYS")
        assert record.is_queued
        assert record.transaction_type == SysFlag.TRANSACTION_NOT

    def test_encodes_back(self):
        record = decode_record(VECTOR)
        assert record.encode() == VECTOR
        assert record_size(6, 9, 63) == 169

    def test_row(self):
        row = record_row(decode_record(VECTOR))
        assert tuple(row) == MESSAGE_COLUMNS
        assert row["topic"] == "TopicTest"
        assert row["keys"] == ["k0", "kk"]
        assert row["body"] == b"Hello0"
        assert row["bornTimestamp"] == 1_600_000_000_000
        assert row["storeSize"] == 169
        assert row["bodyCRC"] == 0x779AECA4
        assert row["properties"]["color"] == "red"

    def test_every_kind_of_buffer(self):
        expected = decode_record(VECTOR)
        with mmap.mmap(-1, 4096) as mapped:
            mapped[10 : 10 + len(VECTOR)] = VECTOR
            assert decode_record(mapped, 10, physical_offset=0) == expected
        for buffer in (bytearray(VECTOR), memoryview(VECTOR)):
            record = decode_record(buffer)
            assert record == expected
            assert type(record.body) is type(record.born_host_raw) is bytes

    def test_is_a_value(self):
        record = decode_record(VECTOR)
        assert pickle.loads(pickle.dumps(record)) == record
        assert len({record, decode_record(VECTOR)}) == 1
        with pytest.raises(AttributeError):
            record.flag = 1


class TestRoundTrip:
    @given(
        topic=st.binary(max_size=127),
        body=st.binary(max_size=200),
        properties=PROPERTIES,
        numbers=st.tuples(I32, I32, I64, st.integers(0, 2**63 - 1), I32, I64, I64, I32, I64),
        hosts=st.tuples(st.sampled_from([8, 20]), st.sampled_from([8, 20])),
        magic=st.sampled_from([c.MAGIC_V1, c.MAGIC_V2]),
        lead=st.binary(max_size=5),
    )
    def test_any_message(self, topic, body, properties, numbers, hosts, magic, lead):
        queue_id, flag, queue_offset, offset, sys_flag, born, stored, reconsumed, prepared = numbers
        data = encode_record(
            topic=topic, body=body, properties=properties, queue_id=queue_id, flag=flag,
            queue_offset=queue_offset, physical_offset=offset, sys_flag=sys_flag, born_timestamp_ms=born,
            born_host=HOSTS[hosts[0]], store_timestamp_ms=stored, store_host=HOSTS[hosts[1]],
            reconsume_times=reconsumed, prepared_transaction_offset=prepared, magic=magic,
        )  # fmt: skip
        record = decode_record(lead + data, len(lead), physical_offset=offset)
        assert record.encode() == data
        assert (record.topic_raw, record.body, record.properties_raw) == (topic, body, properties)
        assert (record.queue_id, record.flag, record.queue_offset) == (queue_id, flag, queue_offset)
        assert (record.born_timestamp_ms, record.store_timestamp_ms) == (born, stored)
        assert (record.reconsume_times, record.prepared_transaction_offset) == (reconsumed, prepared)
        assert record.sys_flag & ~0x30 == sys_flag & ~0x30
        assert record.sys_flag & 0x30 == (hosts[0] == 20) * 0x10 + (hosts[1] == 20) * 0x20
        assert len(data) == record.total_size == record_size(
            len(body), len(topic), len(properties),
            born_host_size=hosts[0], store_host_size=hosts[1], magic=magic,
        )  # fmt: skip
        assert tuple(record_row(record)) == MESSAGE_COLUMNS

    def test_long_topic_needs_version_two(self):
        with pytest.raises(MessageIllegalError):
            encode_record(**parts(topic=b"t" * 128))
        data = encode_record(**parts(topic=b"t" * 200, magic=c.MAGIC_V2))
        assert decode_record(data).topic == "t" * 200

    def test_ipv6_moves_what_follows(self):
        data = encode_record(**parts(born_host=HOSTS[20]))
        assert struct.unpack_from(">q", data, 68)[0] == 1_795_815_835_979
        assert decode_record(data).born_host == "fe80:0:0:0:0:0:0:1:10911"

    def test_checksum_has_31_bits(self):
        assert body_crc(b"hello") == 907060870
        assert body_crc(b"") == 0
        assert encode_record(**parts(body=b"hello"))[8:12] == struct.pack(">i", 907060870)

    def test_checksum_that_happens_to_be_zero(self):
        data = encode_record(**parts(body=bytes.fromhex("9d0ad96d")))
        assert data[8:12] == bytes(4)
        assert decode_record(data).body == bytes.fromhex("9d0ad96d")
        assert damage_of(data[:88] + b"\x9d\x0a\xd9\x6c" + data[92:]) == Damage.BODY_CRC


class TestEncodeRefuses:
    @pytest.mark.parametrize(
        "changes",
        [
            {"properties": b"x" * 32768},
            {"properties": b"no separator"},
            {"properties": b"a\x01b\x02\x00\x01"},
            {"topic": b"t" * 32768, "magic": c.MAGIC_V2},
        ],
    )
    def test_messages(self, changes):
        with pytest.raises(MessageIllegalError):
            encode_record(**parts(**changes))

    @pytest.mark.parametrize(
        "changes",
        [
            {"queue_id": 2**31},
            {"born_timestamp_ms": -(2**63) - 1},
            {"born_host": b"1234"},
            {"magic": c.MAGIC_BLANK},
        ],
    )
    def test_values(self, changes):
        with pytest.raises(UsageError):
            encode_record(**parts(**changes))


class TestBlank:
    def test_vector(self):
        data = bytes.fromhex("00000216cbd43194")
        assert encode_blank(534) == data
        assert decode_record(data + bytes(526), physical_offset=3562) == Blank(3562, 534)
        assert decode_record(b"??" + data, 2) == Blank(2, 534)

    @pytest.mark.parametrize("size", [7, 0, -1, 2**31])
    def test_needs_eight_bytes(self, size):
        with pytest.raises(UsageError):
            encode_blank(size)

    def test_size_is_not_followed(self):
        data = struct.pack(">ii", -5, c.MAGIC_BLANK)
        assert decode_record(data) == Blank(0, -5)


class TestDamage:
    def test_numbers_are_stable(self):
        assert [(reason.name, reason.value) for reason in Damage] == [
            ("SHORT", 1),
            ("UNWRITTEN", 2),
            ("MAGIC", 3),
            ("SIZE", 4),
            ("PHYSICAL_OFFSET", 5),
            ("LENGTHS", 6),
            ("BODY_CRC", 7),
            ("PROPERTIES", 8),
        ]

    def test_every_cut_is_short(self):
        for size in range(len(VECTOR)):
            assert damage_of(VECTOR[:size]) == Damage.SHORT
            assert damage_of(VECTOR + b"more", end=size) == Damage.SHORT

    def test_unwritten(self):
        assert damage_of(bytes(100)) == Damage.UNWRITTEN
        assert damage_of(bytes(8)) == Damage.UNWRITTEN

    def test_magic(self):
        assert damage_of(b"\0\0\0\xa9" + bytes(200)) == Damage.MAGIC

    @pytest.mark.parametrize("size", [-(2**31), -1, 0, 8, 90])
    def test_size(self, size):
        assert damage_of(struct.pack(">i", size) + VECTOR[4:]) == Damage.SIZE

    def test_size_of_version_two(self):
        data = encode_record(**parts(topic=b"", body=b"", properties=b"", magic=c.MAGIC_V2))
        assert len(data) == 92
        assert damage_of(struct.pack(">i", 91) + data[4:]) == Damage.SIZE

    def test_another_place(self):
        assert damage_of(VECTOR, physical_offset=169) == Damage.PHYSICAL_OFFSET
        assert damage_of(VECTOR[:28] + b"\xff" * 8 + VECTOR[36:]) == Damage.PHYSICAL_OFFSET

    @pytest.mark.parametrize("length", [-1, -(2**31), 7, 2**31 - 1, 5])
    def test_body_length(self, length):
        data = VECTOR[:84] + struct.pack(">i", length) + VECTOR[88:]
        assert damage_of(data) == Damage.LENGTHS

    @pytest.mark.parametrize("length", [-1, -128, 8, 10, 127])
    def test_topic_length(self, length):
        assert damage_of(VECTOR[:94] + struct.pack(">b", length) + VECTOR[95:]) == Damage.LENGTHS

    @pytest.mark.parametrize("length", [-1, -32768, 0, 62, 64, 32767])
    def test_properties_length(self, length):
        assert damage_of(VECTOR[:104] + struct.pack(">h", length) + VECTOR[106:]) == Damage.LENGTHS

    def test_head_longer_than_the_record(self):
        data = bytearray(encode_record(**parts(topic=b"", body=b"", properties=b"")))
        data[39] |= 0x30
        assert damage_of(bytes(data) + bytes(50)) == Damage.LENGTHS

    def test_body(self):
        data = VECTOR[:88] + b"J" + VECTOR[89:]
        assert damage_of(data) == Damage.BODY_CRC
        assert decode_record(data, check_crc=False).body == b"Jello0"

    def test_unmasked_checksum(self):
        data = bytearray(VECTOR)
        data[8] |= 0x80
        assert damage_of(bytes(data)) == Damage.BODY_CRC

    def test_tail_that_never_reached_the_disk(self):
        assert damage_of(VECTOR[:-30] + bytes(30)) == Damage.PROPERTIES

    def test_segment_without_separator(self):
        assert damage_of(VECTOR.replace(b"WAIT\x01", b"WAIT.")) == Damage.PROPERTIES

    def test_position_outside(self):
        for position, options in ((-1, {}), (170, {}), (0, {"end": 170}), (5, {"end": 4})):
            with pytest.raises(UsageError):
                decode_record(VECTOR, position, **options)

    def test_message_says_what_and_where(self):
        with pytest.raises(CorruptRecordError) as caught:
            decode_record(VECTOR, physical_offset=4096)
        assert caught.value.offset == 4096
        assert "another offset (0)" in str(caught.value)
        assert "found PHYSICAL_OFFSET" in str(caught.value)
        assert f"{Damage.SHORT:>6}" == " SHORT"

    @given(st.binary(max_size=200), st.integers(0, 200))
    def test_noise(self, data, position):
        self.never_anything_but_a_typed_error(data, position)

    @given(st.data())
    def test_noise_behind_a_good_start(self, data):
        noisy = bytearray(VECTOR)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(8, len(noisy) - 1))
            noisy[at] = data.draw(st.integers(0, 255))
        self.never_anything_but_a_typed_error(bytes(noisy), 0)

    def never_anything_but_a_typed_error(self, data: bytes, position: int) -> None:
        try:
            record = decode_record(data, position)
        except (CorruptRecordError, UsageError):
            return
        if isinstance(record, Record):
            assert record.encode() == data[position : position + record.total_size]
            assert tuple(record_row(record)) == MESSAGE_COLUMNS
            record.tags_code()


# Bytes of VECTOR whose change no rule of the format can notice: numbers that nothing repeats, and text.
UNCOVERED = {
    "QUEUEID": range(12, 16),
    "FLAG": range(16, 20),
    "QUEUEOFFSET": range(20, 28),
    "SYSFLAG": range(36, 40),
    "BORNTIMESTAMP": range(40, 48),
    "BORNHOST": range(48, 56),
    "STORETIMESTAMP": range(56, 64),
    "STOREHOST": range(64, 72),
    "RECONSUMETIMES": range(72, 76),
    "PREPAREDTRANSACTIONOFFSET": range(76, 84),
    "TOPIC": range(95, 104),
    "PROPERTIES": range(106, 169),
}


def test_every_bit_flip_is_noticed_or_in_a_field_without_rule():
    """What is left undetected is exactly the fields above; of two of them, some flips are noticed too."""
    unnoticed = set()
    for bit in range(8 * len(VECTOR)):
        flipped = bytearray(VECTOR)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            record = decode_record(bytes(flipped), physical_offset=0)
        except CorruptRecordError:
            continue
        assert isinstance(record, Record)
        unnoticed.add(bit)
        assert any(bit // 8 in field for field in UNCOVERED.values()), f"bit {bit}"
    everywhere = {bit for field in UNCOVERED.values() for byte in field for bit in range(8 * byte, 8 * byte + 8)}
    noticed_there = everywhere - unnoticed
    # The IPv6 bits move the fields behind them.
    assert {bit for bit in noticed_there if bit // 8 == 39} == {8 * 39 + 4, 8 * 39 + 5}
    # Among the properties: a pair that loses its inner separator, and what is one flip away from a NUL byte.
    others = {bit for bit in noticed_there if bit // 8 != 39}
    assert others == {
        bit
        for at in UNCOVERED["PROPERTIES"]
        for bit in range(8 * at, 8 * at + 8)
        if VECTOR[at] == 1 or VECTOR[at] == 1 << bit % 8
    }


def test_blank_and_magic_flips_are_told_apart():
    data = bytearray(encode_blank(534) + bytes(526))
    for bit in range(32, 64):
        data[bit // 8] ^= 1 << bit % 8
        assert damage_of(bytes(data)) == Damage.MAGIC
        data[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("v6", range(4))
@pytest.mark.parametrize(("topic", "magic"), [("orders", c.MAGIC_V1), ("t" * 127, c.MAGIC_V1), ("t" * 900, c.MAGIC_V2)])
@pytest.mark.parametrize("body_size", [0, 5, 100_000])
def test_the_queue_of_a_record_without_its_body(v6: int, topic: str, magic: int, body_size: int) -> None:
    sizes = (20 if v6 & 1 else 8, 20 if v6 & 2 else 8)
    data = encode_record(
        **parts(topic=topic.encode(), body=bytes(body_size), sys_flag=v6 << 4, born_host=HOSTS[sizes[0]],
                store_host=HOSTS[sizes[1]], magic=magic)
    )  # fmt: skip
    seen: list[int] = []

    def read(position: int, size_bytes: int) -> bytes:
        seen.append(size_bytes)
        return data[position : position + size_bytes]

    assert queue_of(read, len(data)) == (500, topic, 1, 3)
    assert sum(seen) < 1500
    assert queue_of(read, len(data) - 1) is None
    for end in range(0, len(data) - len(parts()["properties"]) - 2, 97):
        assert queue_of(lambda position, size_bytes: data[position:end][:size_bytes], end) is None  # noqa: B023
    assert queue_of(lambda position, size_bytes: bytes(size_bytes), 200) is None
    assert queue_of(lambda position, size_bytes: b"\xff" * size_bytes, 200) is None
