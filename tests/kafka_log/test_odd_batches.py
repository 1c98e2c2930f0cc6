"""Batches that are whole and have a right checksum, and yet say what no log can bear, or what means nothing."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, bad, mark_crashed, message, open_small, partition_of, read_all, tree, value_of
from mqstore import kernels
from mqstore.errors import CorruptBatchError, DamageError, MessageIllegalError, MqstoreError, UsageError
from mqstore.findings import Severity
from mqstore.kafka.batching import Sender
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.control import ControlType, encode_control_key, encode_end_transaction_marker
from mqstore.layout.kafka.names import CLEAN_SHUTDOWN
from mqstore.layout.kafka.record import Record

LAST = 2**63 - 1
FIELDS = {  # of a batch: position, format, odd values
    "attributes": (21, ">h", (0x20, 0x30, 0x08, 0x10, 0x40, 0x70, 0x7F78)),
    "last offset delta": (23, ">i", (0, 5, 2**31 - 1)),
    "base timestamp": (27, ">q", (-1, LAST, -LAST - 1)),
    "max timestamp": (35, ">q", (-1, LAST, -LAST - 1)),
    "producer id": (43, ">q", (-1, 0, 77, LAST, -2)),
    "producer epoch": (51, ">h", (-1, 0, 32767, -32768)),
    "base sequence": (53, ">i", (-1, 0, 2**31 - 1, -(2**31))),
}


def mended(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum that it should have."""
    data = bytearray(batch)
    struct.pack_into(">I", data, 17, kernels.crc32c(bytes(data[21:])))
    return bytes(data)


def control_batch(key: bytes | None, value: bytes | None, base_offset: int = 0) -> bytes:
    return encode_batch(
        [Record(0, 1000, 0, key, value, ())],
        base_offset=base_offset,
        producer_id=77,
        producer_epoch=0,
        transactional=True,
        control=True,
        checksum=kernels.crc32c,
    )


UNREADABLE = {
    "a short key": control_batch(b"k", b"v"),
    "no key": control_batch(None, b"v"),
    "a negative version": control_batch(b"\xff\xff\0\0", b"v"),
    "a short value": control_batch(encode_control_key(ControlType.ABORT), b"v"),
    "no value": control_batch(encode_control_key(ControlType.COMMIT), None),
}


@pytest.mark.parametrize("why", UNREADABLE)
def test_a_marker_that_cannot_be_read_is_refused(tmp_path: Path, why: str) -> None:
    with open_small(tmp_path) as store:
        store.put(message(0))
        store.put_as([message(1)], Sender(77, 0, 0, is_transactional=True))
        before = tree(partition_of(tmp_path))
        with pytest.raises(CorruptBatchError):
            store.append_batch(TOPIC, 0, UNREADABLE[why])
        assert store.max_offset(TOPIC) == 2
        assert tree(partition_of(tmp_path)) == before
        assert store.end_transaction(TOPIC, 0, 77, 0, commit=True) == 2
    assert bad(kafka.check(tmp_path)) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("why", UNREADABLE)
def test_a_log_that_holds_one_opens(tmp_path: Path, why: str, clean: bool) -> None:
    """It ends nothing and hides nothing, ``check`` tells of it, and the transaction can be ended."""
    with open_small(tmp_path, cleanup_policy="compact") as store:
        store.put(message(0, key=b"a"))
        store.put_as([message(1, key=b"b")], Sender(77, 0, 0, is_transactional=True))
    (log,) = partition_of(tmp_path).glob("*.log")
    with log.open("ab") as file:
        file.write(bytes([0] * 7 + [2]) + UNREADABLE[why][8:])
    for derived in partition_of(tmp_path).glob("*.snapshot"):
        derived.unlink()
    if not clean:
        mark_crashed(tmp_path)
    found = [one.message for one in kafka.check(tmp_path) if one.severity is Severity.ERROR]
    assert len(found) == 1
    assert found[0].startswith("a control batch without a marker")
    assert [one.end_after for one in kafka.recover(tmp_path).partitions] == [3]
    with kafka.inspect(tmp_path) as view:
        assert view.partition(TOPIC).last_stable_offset == 1
    with open_small(tmp_path, cleanup_policy="compact", producer_id_expiration_ms=1 << 60) as store:
        assert store.max_offset(TOPIC) == 3
        assert [one.value for one in read_all(store)] == [value_of(0), value_of(1)]
        assert store.partition(TOPIC).last_stable_offset == 1
        store.end_transaction(TOPIC, 0, 77, 0, commit=True)
        store.roll(TOPIC)
        store.compact(TOPIC, force=True)
        assert len(read_all(store, isolation="read_committed")) == 2


class TestTheLastOffset:
    @staticmethod
    def batch(base_offset: int = LAST) -> bytes:
        return encode_batch([Record(0, 1, 0, b"k", b"v", ())], base_offset=base_offset, checksum=kernels.crc32c)

    def test_it_is_refused(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            with pytest.raises(MessageIllegalError, match="no offset would be left"):
                store.append_batch(TOPIC, 0, self.batch(), keep_offsets=True)
            store.append_batch(TOPIC, 0, self.batch(LAST - 1), keep_offsets=True)
            assert store.max_offset(TOPIC) == LAST
            with pytest.raises(MessageIllegalError):
                store.put(message(0))
        assert (tmp_path / CLEAN_SHUTDOWN).exists()
        with open_small(tmp_path) as store:
            assert [one.offset for one in read_all(store)] == [LAST - 1]

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_log_that_holds_it_opens(self, tmp_path: Path, clean: bool) -> None:
        with open_small(tmp_path) as store:
            store.put(message(0))
            store.append_batch(TOPIC, 0, self.batch(LAST - 1), keep_offsets=True)
        last = max(partition_of(tmp_path).glob("*.log"))
        with last.open("ab") as file:
            file.write(self.batch())
        if not clean:
            mark_crashed(tmp_path)
        assert "no offset is left behind the batch" in bad(kafka.check(tmp_path))
        with open_small(tmp_path) as store:
            assert store.max_offset(TOPIC) == LAST
            assert [one.offset for one in read_all(store)] == [0, LAST - 1]
        assert bad(kafka.check(tmp_path)) == []


def odd_batch(chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        batch = bytearray(chance.choice(list(UNREADABLE.values())))
    elif chance.random() < 0.5:
        batch = bytearray(encode_end_transaction_marker(commit=False, offset=0, timestamp_ms=5, producer_id=77,
                                                        producer_epoch=0, checksum=kernels.crc32c))  # fmt: skip
    else:
        records = [Record(0, 1000 + number, 0, b"k", b"v", ()) for number in range(chance.randrange(1, 4))]
        batch = bytearray(encode_batch(records, checksum=kernels.crc32c))
    for position, form, values in chance.sample(list(FIELDS.values()), chance.randrange(4)):
        struct.pack_into(form, batch, position, chance.choice(values))
    if chance.random() < 0.2:
        struct.pack_into(">q", batch, 0, chance.choice([0, 5, 2**31, 2**40, LAST - 3, LAST]))
    return mended(batch)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_taken_can_be_opened_again(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    settings = {"producer_id_expiration_ms": 1 << 60}
    with open_small(tmp_path, **settings) as store:
        taken = 0
        for _ in range(30):
            end = store.max_offset(TOPIC)
            try:
                store.append_batch(TOPIC, 0, odd_batch(chance), keep_offsets=chance.random() < 0.3)
                taken += 1
            except (DamageError, MessageIllegalError, UsageError):
                assert store.max_offset(TOPIC) == end
        assert taken
        wanted = read_all(store)
        end = store.max_offset(TOPIC)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    for crash in (False, True):
        if crash:
            mark_crashed(tmp_path)
        with open_small(tmp_path, **settings) as store:
            assert store.max_offset(TOPIC) == end
            assert read_all(store) == wanted
    kafka.check(tmp_path)


@pytest.mark.parametrize("seed", range(15))
def test_whatever_a_log_holds_it_opens_or_says_why(tmp_path: Path, seed: int) -> None:
    """Batches that nobody judged, as damage or another writer leaves them: opened, or refused and then recovered."""
    chance = random.Random(seed)
    with open_small(tmp_path) as store:
        store.put(message(0))
    (log,) = partition_of(tmp_path).glob("*.log")
    with log.open("ab") as file:
        for offset in range(1, 20):
            batch = odd_batch(chance)
            file.write(batch if chance.random() < 0.1 else offset.to_bytes(8, "big") + batch[8:])
    if chance.random() < 0.5:
        mark_crashed(tmp_path)
    kafka.check(tmp_path)
    with kafka.inspect(tmp_path) as view:
        view.stats()
        view.get(TOPIC, on_damage=lambda damage: True)
        view.producers(TOPIC)
    try:
        open_small(tmp_path).close()
    except MqstoreError:
        kafka.recover(tmp_path, in_place=True)
        open_small(tmp_path).close()
    with open_small(tmp_path) as store:
        offset = store.max_offset(TOPIC)
        if offset < LAST:
            assert store.put(message(1)).offset == offset
