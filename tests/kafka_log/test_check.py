"""What ``check`` says of sound logs that were compacted, cut up or looked at in part: nothing; and of wrong ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, bad, batch_positions, message, open_small, partition_of, read_all
from kafka_log.test_compaction import COMPACT
from mqstore import kernels
from mqstore.kafka.segment import Segment
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.record import Record
from mqstore.layout.kafka.txn_index import decode_txn_index, encode_txn_index


@pytest.mark.parametrize("seed", range(40))
def test_transactions_that_were_compacted_in_part(tmp_path: Path, seed: int) -> None:
    """Whatever is put, ended, rolled and cleaned, in whatever order."""
    chance = random.Random(seed)
    with open_small(tmp_path, **COMPACT) as store:
        store.create_topic(TOPIC)
        producers = [store.producer(7), store.producer(8)]
        for number in range(14):
            producer = chance.choice(producers)
            what = chance.choice(["send", "send", "commit", "abort", "abort", "roll", "compact", "put"])
            if what == "send":
                if not producer.in_transaction:
                    producer.begin()
                producer.put(message(number, key=b"a"))
            elif what == "put":
                store.put(message(number, key=b"b"))
            elif what in ("commit", "abort") and producer.in_transaction:
                producer.commit() if what == "commit" else producer.abort()
            elif what == "roll":
                store.roll(TOPIC)
            elif what == "compact":
                before = {record.key: record.value for record in read_all(store, isolation="read_committed")}
                store.compact(TOPIC, force=True)
                after = {record.key: record.value for record in read_all(store, isolation="read_committed")}
                assert after == before
            assert bad(store.check()) == []


@pytest.mark.parametrize("shift", [1, -1])
def test_an_entry_that_begins_elsewhere(tmp_path: Path, shift: int) -> None:
    """Later: the record before is shown as committed. Earlier: more may be hidden, where nothing was compacted."""
    with open_small(tmp_path) as store:
        producer = store.producer()
        store.put(message(0))
        producer.begin()
        producer.put_batch([message(1), message(2)])
        producer.abort()
    (index,) = partition_of(tmp_path).glob("*.txnindex")
    (entry,) = decode_txn_index(index.read_bytes())
    index.write_bytes(encode_txn_index([entry._replace(first_offset=entry.first_offset + shift)]))
    (found,) = bad(kafka.check(tmp_path))
    assert found.startswith("an aborted transaction is not listed" if shift > 0 else "an entry has another first")


def test_a_segment_by_itself(tmp_path: Path) -> None:
    """Epochs that begin in later segments are not behind the end of the log."""
    with open_small(tmp_path) as store:
        store.put(message(0))
        for epoch in (3, 7):
            for number in range(40):
                store.put(message(number))
            batch = encode_batch([Record(0, 99, 0, None, b"new epoch", ())], checksum=kernels.crc32c)
            store.append_batch(TOPIC, 0, batch, leader_epoch=epoch)
            store.roll(TOPIC)
        assert [entry.epoch for entry in store.partition(TOPIC).leader_epochs] == [0, 3, 7]
    for path in sorted(partition_of(tmp_path).glob("*.log")):
        assert bad(kafka.check(path)) == [], path.name
    assert bad(kafka.check(partition_of(tmp_path))) == []


def test_golden_segments_by_themselves(golden_kafka: Path) -> None:
    for path in sorted(golden_kafka.glob("*-0/*.log")):
        if path.parent.name != "crash-0":
            assert bad(kafka.check(path)) == [], path


@pytest.mark.parametrize("kind", ["records", "aborted"])
def test_beside_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Whatever it adds between any two reads of the check, entries and notes of it are no fault."""
    original, left = Segment.scan, 30

    def scan(self: Segment, *arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal left
        found = original(self, *arguments, **options)  # it has looked how long the log is
        if left:
            left -= 1
            write()
        return found

    with open_small(tmp_path, segment_bytes=1 << 20, segment_index_bytes=1 << 16) as store:
        producer, number = store.producer(), 0

        def write() -> None:
            nonlocal number
            if kind == "aborted":
                producer.begin()
            for _ in range(10):
                producer.put(message(number))
                number += 1
            if kind == "aborted":
                producer.abort()
            store.flush()

        write()
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "scan", scan)
            for _ in range(3):
                assert bad(kafka.check(tmp_path)) == []
        assert left < 28
        assert bad(kafka.check(tmp_path)) == []


def test_entries_behind_the_end_of_a_log_that_does_not_grow(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(15):
            store.put(message(number))
    (log,) = partition_of(tmp_path).glob("*.log")
    with log.open("r+b") as file:
        file.truncate(batch_positions(log)[10])
    found = bad(kafka.check(tmp_path))
    assert "an entry points at no batch" in found
    assert "an entry is not the largest timestamp up to its offset" in found
