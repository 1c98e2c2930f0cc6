"""A unit damaged in the middle of a queue is told, whichever of its bits it is; only a wrong tag cannot be seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore import DamageError, Message
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from store.support import findings, open_small

COUNT, DAMAGED = 10, 4


@pytest.fixture
def queue_file(tmp_path: Path) -> Path:
    with open_small(tmp_path / "s") as store:
        for number in range(COUNT):
            store.put(Message("T", b"%d" % number, tags="paid", queue_id=0))
    return tmp_path / "s" / "consumequeue" / "T" / "0" / f"{0:020d}"


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(DAMAGED * QUEUE_UNIT_SIZE + bit // 8)
        (byte,) = opened.read(1)
        opened.seek(-1, 1)
        opened.write(bytes([byte ^ 1 << bit % 8]))


def consume(consumer: mqstore.Consumer, handle: Callable[[mqstore.Record], None]) -> None:
    for message in consumer:
        handle(message)


def test_every_bit_of_a_unit_is_told_or_harmless(queue_file: Path) -> None:
    store = queue_file.parents[3]
    for bit in range(QUEUE_UNIT_SIZE * 8):
        flip(queue_file, bit)
        in_tag = bit >= 12 * 8
        with mqstore.inspect(store) as view:
            first = view.get("T", 0, 0)
            if in_tag:
                assert len(first.messages) == COUNT
            else:
                assert [message.body for message in first.messages] == [b"%d" % number for number in range(DAMAGED)]
                assert first.next_offset == DAMAGED
                with pytest.raises(DamageError, match="message 4 of queue T/0"):
                    view.get("T", 0, DAMAGED)
                assert view.get("T", 0, DAMAGED + 1).messages[0].body == b"5"
        assert len(findings(store)) == 1, bit
        flip(queue_file, bit)
    assert findings(store) == []


def test_a_consumer_stops_at_a_unit_that_points_before_the_log(queue_file: Path) -> None:
    """Such a message looks expired; but it comes behind others that are there."""
    store_path = queue_file.parents[3]
    flip(queue_file, 0)  # the sign
    with open_small(store_path) as store, store.consumer("g", "T", timeout_s=0) as consumer:
        found = []

        def handle(message: mqstore.Record) -> None:
            consumer.ack(message)
            found.append(message.body)

        with pytest.raises(DamageError):
            consume(consumer, handle)
        assert found == [b"%d" % number for number in range(DAMAGED)]
        assert store.committed_offset("g", "T", 0) == DAMAGED
        assert consumer.lost == 0


def test_units_of_expired_messages_are_passed_over_at_once_and_damage_behind_them_is_told(tmp_path: Path) -> None:
    """A reader that looks before the queue's beginning has followed the log's."""
    with open_small(tmp_path / "s") as store:
        for number in range(200):
            store.put(Message("T", b"%d" % number, queue_id=0))
    logs = sorted((tmp_path / "s" / "commitlog").iterdir())
    assert len(logs) > 3
    with mqstore.inspect(tmp_path / "s") as view:
        first = next(number for number in range(200) if view.get("T", 0, number, 1).messages[0].physical_offset
                     >= int(logs[2].name))  # fmt: skip
        assert len(view.get("T", 0, 0, 200).messages) > 0
        for path in logs[:2]:
            path.unlink()
        view.log.refresh()
        found = view.get("T", 0, 0, 50)
        assert found.status in (mqstore.GetMessageStatus.OFFSET_TOO_SMALL, mqstore.GetMessageStatus.FOUND)
        if not found.messages:
            found = view.get("T", 0, found.next_offset, 50)
        assert found.messages[0].body == b"%d" % first


@pytest.mark.parametrize("place", [27, 15, 90], ids=["queue offset", "queue id", "topic"])
def test_a_record_that_belongs_elsewhere_is_told_not_passed_over(queue_file: Path, place: int) -> None:
    """No checksum covers these fields; a unit that fills a gap repeats the one before it, and this one does not."""
    path = queue_file.parents[3]
    with mqstore.inspect(path) as view:
        start = [record.physical_offset for record in view.scan()][DAMAGED]
    log = path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(start + place)
        byte = file.read(1)[0] ^ 2
        file.seek(start + place)
        file.write(bytes([byte]))
    with open_small(path) as store:
        first = store.get("T", 0, 0)
        assert [message.body for message in first.messages] == [b"%d" % number for number in range(DAMAGED)]
        for _ in range(2):
            with pytest.raises(DamageError, match="message 4 of queue T/0 cannot be read: a message of another place"):
                store.get("T", 0, first.next_offset)
        assert [message.body for message in store.get("T", 0, DAMAGED + 1).messages] == [b"5", b"6", b"7", b"8", b"9"]
        with store.consumer("g", "T", timeout_s=0) as consumer, pytest.raises(DamageError, match="of another place"):
            consume(consumer, consumer.ack)
        assert store.committed_offset("g", "T", 0) == DAMAGED
