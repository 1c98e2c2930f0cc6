"""Retention and deletion: whole segments go, and only those that may."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    bad,
    fill,
    log_files,
    message,
    open_small,
    partition_of,
    read_all,
    value_of,
)
from mqstore.errors import (
    UsageError,
)
from mqstore.kafka.segment import Segment
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import decode_offsets
from mqstore.status import GetMessageStatus


def offsets_in(path: Path, name: str) -> int | None:
    return decode_offsets((path / name).read_bytes()).get((TOPIC, 0))


class TestRemoving:
    def test_delete_records(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path) as store:
            assert store.delete_records(TOPIC, 0, 50) == 50
            assert store.delete_records(TOPIC, 0, 20) == 50
            assert [one.offset for one in read_all(store)] == list(range(50, 100))
            assert store.get(TOPIC, 0, 49).status is GetMessageStatus.OFFSET_TOO_SMALL
            assert min(int(path.stem) for path in log_files(tmp_path)) <= 50 < int(log_files(tmp_path)[1].stem)
            with pytest.raises(UsageError):
                store.delete_records(TOPIC, 0, 101)
        assert offsets_in(tmp_path, names.LOG_STARTS) == 50
        with kafka.inspect(tmp_path) as view:
            assert view.min_offset(TOPIC) == 50
            assert [one.offset for one in read_all(view)] == list(range(50, 100))
        with open_small(tmp_path) as store:
            assert store.min_offset(TOPIC) == 50
            store.delete_records(TOPIC, 0, 100)
            assert store.put(message(0)).offset == 100
        assert bad(kafka.check(tmp_path)) == []

    def test_retention_by_time(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, retention_ms=1000) as store:
            newest = 1_000_000 + 99
            assert store.enforce_retention(newest + 1000) > 0
            first = store.min_offset(TOPIC)
            assert first == int(log_files(tmp_path)[0].stem)
            # Whole segments only, and only those whose last record is too old.
            assert [one.value for one in read_all(store)] == [value_of(number) for number in range(first, 100)]
            assert len(log_files(tmp_path)) > 0
            assert store.enforce_retention(newest + 1000) == 0
            store.enforce_retention(newest + 1001)
            assert store.min_offset(TOPIC) == store.max_offset(TOPIC) == 100
            assert store.put(message(100)).offset == 100
        assert bad(kafka.check(tmp_path)) == []

    def test_retention_without_timestamps_goes_by_the_file(self, golden_kafka: Path, tmp_path: Path) -> None:
        source = golden_kafka / "legacyv0-0"
        for path in source.iterdir():
            target = tmp_path / "legacyv0-0" / path.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
            os.utime(target, (1000, 1000 + int(path.stem.split("-")[0] or 0)))
        (tmp_path / names.CLEAN_SHUTDOWN).touch()
        with kafka.open(tmp_path, retention_ms=1000, file_delete_delay_ms=0) as store:
            assert store.enforce_retention(1_000_000 + 1000 + 147_001) == 2
            assert store.min_offset("legacyv0") == 298

    def test_retention_is_not_fooled_by_zeros_in_a_time_index(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        for path in partition_of(tmp_path).glob("*.timeindex"):
            path.write_bytes(path.read_bytes().ljust(396, b"\0"))
        with open_small(tmp_path, retention_ms=10_000_000) as store:
            assert store.enforce_retention(2_000_000) == 0

    def test_retention_by_size(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, retention_bytes=5000, retention_ms=-1) as store:
            store.enforce_retention()
            assert 5000 <= store.partition(TOPIC).size_bytes < 7000

    def test_compacted_partitions_keep_all(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, retention_ms=1, cleanup_policy="compact") as store:
            assert store.enforce_retention() == 0

    def test_deleted_files_wait(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, file_delete_delay_ms=60_000) as store:
            reader = store.partition(TOPIC).segments()[0]
            assert reader.read(0, 20)
            store.delete_records(TOPIC, 0, 90)
            gone = sorted(path.name for path in partition_of(tmp_path).glob("*.deleted"))
            assert "00000000000000000000.log.deleted" in gone
        with open_small(tmp_path) as store:
            assert not list(partition_of(tmp_path).glob("*.deleted"))
            assert len(read_all(store)) == 10


def test_figures_are_taken_anew_when_segments_go_under_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 100)
    real = Segment.headers
    with open_small(tmp_path) as store, kafka.inspect(tmp_path) as view:

        def when_they_are_gone(segment: Segment, *given: Any, **options: Any) -> Any:
            monkeypatch.undo()
            store.delete_records(TOPIC, 0, 50)
            return real(segment, *given, **options)

        before = len(log_files(tmp_path))
        monkeypatch.setattr(Segment, "headers", when_they_are_gone)
        [stats] = view.stats()
        assert (stats.log_start_offset, stats.log_end_offset) == (50, 100)
        assert stats.segments == len(log_files(tmp_path)) < before
        assert stats.records == 100 - int(log_files(tmp_path)[0].stem)
