"""When a segment ends, and which index entries it has then."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    SMALL,
    TOPIC,
    bad,
    batch_positions,
    fill,
    log_files,
    mark_crashed,
    message,
    open_small,
    partition_of,
    read_all,
    tree,
    value_of,
)
from mqstore.errors import MessageIllegalError
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.record import Record


class TestRolling:
    def test_by_size(self, tmp_path: Path) -> None:
        fill(tmp_path, 100, segment_index_bytes=4000)
        sizes = [path.stat().st_size for path in log_files(tmp_path)]
        assert len(sizes) > 3
        assert all(1800 < size <= 2000 for size in sizes[:-1])

    def test_names_are_the_next_offsets(self, tmp_path: Path) -> None:
        fill(tmp_path, 60)
        with kafka.inspect(tmp_path) as view:
            for segment in view.partition(TOPIC).segments():
                _, header, _ = next(segment.headers())
                assert header.base_offset == segment.base_offset

    def test_by_time_of_the_records(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path, segment_ms=1000) as store:
            for stamp in (5000, 6000, 6001, 7001, 7002, 4000):
                store.put(message(0, timestamp_ms=stamp))
        # A segment ends when a record is more than segment_ms younger than its first.
        assert [int(path.stem) for path in log_files(tmp_path)] == [0, 2, 4]

    def test_by_full_indexes(self, tmp_path: Path) -> None:
        # Room for 5 offset entries and 3 - 1 time entries.
        with kafka.open(tmp_path, segment_index_bytes=40, index_interval_bytes=1) as store:
            for number in range(12):
                store.put(message(number))
        # The first batch gets no entry; the third has the second entry, so that the fourth batch goes to the next.
        assert [int(path.stem) for path in log_files(tmp_path)] == [0, 3, 6, 9]
        with kafka.inspect(tmp_path) as view:
            assert [len(one.time_index()) for one in view.partition(TOPIC).segments()] == [2, 2, 2, 2]
        (tmp_path / "other").mkdir()
        with kafka.open(tmp_path / "other", segment_index_bytes=40, index_interval_bytes=1) as store:
            for _ in range(12):
                store.put(message(0))  # one timestamp: one time entry
        assert [int(path.stem) for path in log_files(tmp_path / "other")] == [0, 6]

    def test_by_the_span_of_offsets(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path) as store:
            store.put(message(0))
            for base in (2**31 - 1, 2**31, 2**33):
                batch = encode_batch([Record(base, 7, 0, b"k", b"v")], base_offset=base)
                assert store.append_batch(TOPIC, 0, batch, keep_offsets=True).base_offset == base
            assert [one.offset for one in read_all(store)] == [0, 2**31 - 1, 2**31, 2**33]
        assert [int(path.stem) for path in log_files(tmp_path)] == [0, 2**31, 2**33]
        assert bad(kafka.check(tmp_path)) == []

    def test_by_hand(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path) as store:
            store.create_topic(TOPIC)
            assert not store.roll(TOPIC)
            store.put(message(0))
            assert store.roll(TOPIC)
            assert not store.roll(TOPIC)
            store.put(message(1))
            assert [one.offset for one in read_all(store)] == [0, 1]

    def test_live_indexes_are_those_of_a_rebuild(self, tmp_path: Path) -> None:
        """With records just below, at and above the size of the interval among them."""
        with open_small(tmp_path / "log") as store:
            for number in range(150):
                store.put(message(number, size=(150 - 61 - 10, 150 - 61, 150, 3)[number % 4]))
        written = kafka.reindex(tmp_path / "log", output=tmp_path / "new", index_interval_bytes=150)
        assert len(written) > 10
        for path in written:
            assert path.read_bytes() == (partition_of(tmp_path / "log") / path.name).read_bytes()

    def test_a_restart_counts_anew(self, tmp_path: Path) -> None:
        """As a broker's does: the next entry comes a whole interval after the restart."""
        with kafka.open(tmp_path, index_interval_bytes=250) as store:
            for number in range(2):
                store.put(message(number))
        with kafka.open(tmp_path, index_interval_bytes=250) as store:
            for number in range(2, 6):
                store.put(message(number))
        with kafka.inspect(tmp_path) as view:
            (segment,) = view.partition(TOPIC).segments()
            assert [entry.offset for entry in segment.offset_index()] == [5]
        assert bad(kafka.check(tmp_path)) == []


def test_batches_lie_where_the_index_says(tmp_path: Path) -> None:
    fill(tmp_path, 40)
    for log in log_files(tmp_path):
        assert batch_positions(log)[0] == 0
    assert SMALL["segment_bytes"] >= max(path.stat().st_size for path in log_files(tmp_path))


def largest_value(path: Path, limit_bytes: int) -> int:
    """Size of the largest value that is taken."""
    low, high = 0, limit_bytes
    with open_small(path, max_message_bytes=limit_bytes, segment_bytes=1 << 20) as store:
        while low < high:
            middle = (low + high + 1) // 2
            try:
                store.put(message(0, size=middle))
                low = middle
            except MessageIllegalError:
                high = middle - 1
    return low


@pytest.mark.parametrize("limit_bytes", [1000, 2000])
def test_records_at_the_largest_size_are_indexed_as_when_they_came(tmp_path: Path, limit_bytes: int) -> None:
    """Just below, at and above the largest size, and small ones; the larger limit is that of a whole segment."""
    largest = largest_value(tmp_path / "trial", limit_bytes)
    assert limit_bytes - 100 < largest < limit_bytes
    log, wanted = tmp_path / "log", []
    with open_small(log, max_message_bytes=limit_bytes) as store:
        for number in range(60):
            size = (largest, 5, largest - 1, 40, 5)[number % 5]
            wanted.append(value_of(number, size))
            store.put(message(number, size=size))
            with pytest.raises(MessageIllegalError):
                store.put(message(number, size=largest + 1))
    before = tree(partition_of(log))
    derived = [path for path in partition_of(log).iterdir() if path.suffix in (".index", ".timeindex")]
    assert len(derived) > 10
    for path in derived:
        path.unlink()
    kafka.reindex(log, in_place=True, index_interval_bytes=150)
    assert tree(partition_of(log)) == before
    for path in derived:
        path.unlink()
    mark_crashed(log)
    with open_small(log, max_message_bytes=limit_bytes) as store:
        assert [one.value for one in read_all(store)] == wanted
    assert {name: data for name, data in tree(partition_of(log)).items() if name in before} == before
    assert bad(kafka.check(log)) == []
