"""Base offsets of batches are under no checksum: a flipped bit there is told by the neighbours, wherever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, batch_positions, fill, log_files, read_all, value_of
from mqstore.errors import CorruptBatchError
from mqstore.kafka.damage import BatchDamage

COUNT = 12


def flip_offset(path: Path, batch: int, bit: int) -> None:
    """Flip a bit of the base offset of a batch in the first segment."""
    file = log_files(path)[0]
    at = batch_positions(file)[batch]
    data = bytearray(file.read_bytes())
    data[at + bit // 8] ^= 0x80 >> bit % 8
    file.write_bytes(data)


@pytest.mark.parametrize("count", [COUNT, 60], ids=["one segment", "several"])
@pytest.mark.parametrize("bit", range(64))
def test_every_bit_of_a_base_offset_is_told_to_readers(tmp_path: Path, bit: int, count: int) -> None:
    """Who passes over damage loses that batch at most."""
    path = tmp_path / "log"
    fill(path, count)
    flip_offset(path, 5, bit)
    with kafka.inspect(path) as view:
        partition = view.partition(TOPIC)
        with pytest.raises(CorruptBatchError):
            list(partition.records())
        with pytest.raises(CorruptBatchError):
            list(partition.batches())
        with pytest.raises(CorruptBatchError):
            list(partition.chunks())
        with pytest.raises(CorruptBatchError):
            read_all(view)
        told: list[BatchDamage] = []

        def note(damage: BatchDamage) -> bool:
            told.append(damage)
            return True

        values = {record.value for record in partition.records(on_damage=note)}
        assert told
        assert {value_of(number) for number in range(count) if number != 5} <= values
        told.clear()
        assert sum(chunk.columns.count for _, chunk in partition.chunks(on_damage=note)) >= count - 1
        assert told


@pytest.mark.parametrize("bit", [1, 20, 40, *range(58, 64)])
@pytest.mark.parametrize("batch", [1, 5, 10])
@pytest.mark.parametrize("count", [COUNT, 60], ids=["one segment", "several"])
def test_a_look_up_by_time_gives_no_wrong_offset(tmp_path: Path, batch: int, bit: int, count: int) -> None:
    path = tmp_path / "log"
    fill(path, count)
    flip_offset(path, batch, bit)
    with kafka.inspect(path) as view, pytest.raises(CorruptBatchError):
        view.offset_at(TOPIC, 0, 1_000_000 + batch)


@pytest.mark.parametrize("bit", range(60, 64))
@pytest.mark.parametrize("batch", range(12))
def test_the_end_of_the_log_does_not_go_back(tmp_path: Path, batch: int, bit: int) -> None:
    """Not by the last batch either, whose offset may have become one that was before."""
    path = tmp_path / "log"
    fill(path, COUNT)
    flip_offset(path, batch, bit)
    changed = batch ^ 1 << (63 - bit)
    with kafka.inspect(path) as view:
        partition = view.partition(TOPIC)
        if batch == COUNT - 1 and changed > batch:  # nothing speaks against a hole before it
            assert partition.log_end_offset == changed + 1
            return
        assert partition.log_end_offset >= COUNT - 1
        with pytest.raises(CorruptBatchError):
            list(partition.records())
        with pytest.raises(CorruptBatchError):
            list(partition.chunks())
