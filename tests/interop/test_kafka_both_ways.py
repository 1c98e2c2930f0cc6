"""What mqstore wrote, Kafka's own log classes load and read, and the other way round; and two other decoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop.kafka_ours import SIZES, comparable, lines_of, write
from interop.real_kafka import RealKafka
from mqstore import convert, kafka
from mqstore.convert import ConvertOptions

JAVA_SIZES: dict[str, Any] = {**SIZES, "segment_index_bytes": 16_384}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def assert_same(real: list[dict[str, Any]], data: Path) -> None:
    """The real classes and mqstore say the same of a directory, neither more nor less."""
    with kafka.inspect(data) as view:
        ours = list(lines_of(view, real))
    # Loading removes the snapshots of earlier stops that begin no segment.
    snapshots = {(line["dir"], line["file"]) for line in real if line["kind"] == "producerSnapshot"}
    ours = [line for line in ours if "file" not in line or (line["dir"], line["file"]) in snapshots]
    assert all(line["valid"] for line in real if line["kind"] == "batch")
    for mine, theirs in zip(comparable(ours), comparable(real), strict=True):
        assert mine == theirs


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with every kind of batch, closed and opened again for each codec."""
    data = tmp_path_factory.mktemp("ours") / "data"
    for seed, codec in enumerate(CODECS, 1):
        write(data, seed, 150, codec)
    return data


def test_ours_is_read_by_the_real_classes(real_kafka: RealKafka, ours: Path, tmp_path: Path) -> None:
    real = real_kafka.read(ours, keep=tmp_path / "kept", **JAVA_SIZES)
    kinds = {line["kind"] for line in real}
    assert len(kinds) == 8
    assert_same(real, ours)
    assert any(line["abortedTxns"] for line in real if line["kind"] == "segment")
    assert (
        real_kafka.dump(sorted([*ours.glob("*/*.log"), *ours.glob("*/*.timeindex"), *ours.glob("*/*.index")]))[1] == []
    )
    # A clean stop there is one here.
    with kafka.inspect(tmp_path / "kept") as view:
        assert not view.was_aborted
        assert view.check() == []


def test_ours_goes_on_there_and_comes_back(real_kafka: RealKafka, ours: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    real_kafka.read(ours, keep=data, **JAVA_SIZES)
    real_kafka.write(data, seed=3, count=100, **JAVA_SIZES)
    write(data, 14, 100, "lz4")
    assert_same(real_kafka.read(data, **JAVA_SIZES), data)
    with kafka.inspect(data) as view:
        assert view.check() == []


def test_theirs_is_read_here_and_goes_on(real_kafka: RealKafka, tmp_path: Path) -> None:
    data = tmp_path / "data"
    real_kafka.write(data, seed=5, count=300, **JAVA_SIZES)
    assert_same(real_kafka.read(data, **JAVA_SIZES), data)
    with kafka.inspect(data) as view:
        assert view.check() == []
    write(data, 6, 100, "gzip")
    assert_same(real_kafka.read(data, **JAVA_SIZES), data)


def test_their_crash_is_recovered_here_as_there(real_kafka: RealKafka, tmp_path: Path) -> None:
    data = tmp_path / "data"
    real_kafka.write(data, seed=7, count=200, crash=True, **JAVA_SIZES)
    theirs = real_kafka.read(data, **JAVA_SIZES)
    with kafka.inspect(data) as view:
        assert view.was_aborted
    kafka.open(data, **SIZES).close()
    again = real_kafka.read(data, **JAVA_SIZES)
    assert_same(again, data)
    for kind in ("record", "batch"):
        assert [one for one in again if one["kind"] == kind] == [one for one in theirs if one["kind"] == kind]


def test_converted_logs_are_read_there(real_kafka: RealKafka, golden: Path, tmp_path: Path) -> None:
    options = ConvertOptions(
        topics="OrderTopic.*|%.*|SCHEDULE.*", kafka_settings={**SIZES, "compression_type": "snappy"}
    )
    report = convert.to_kafka(golden / "basic" / "store", tmp_path / "data", options)
    real = real_kafka.read(tmp_path / "data", **JAVA_SIZES)
    assert sum(line["kind"] == "record" for line in real) == report.records > 500
    assert_same([line for line in real if line["kind"] != "producerSnapshot"], tmp_path / "data")
    files = sorted([*(tmp_path / "data").glob("*/*.log"), *(tmp_path / "data").glob("*/*.index")])
    assert real_kafka.dump(files)[1] == []


# kafka-python, when it is imported.
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("codec", CODECS)
def test_other_decoders_read_our_batches(tmp_path: Path, codec: str) -> None:
    """aiokafka and kafka-python, each a second implementation."""
    from aiokafka.record.memory_records import MemoryRecords as AioRecords
    from kafka.codec import has_snappy
    from kafka.record.memory_records import MemoryRecords as PythonRecords

    readers = [AioRecords, PythonRecords] if codec != "snappy" or has_snappy() else [AioRecords]

    write(tmp_path / "data", 2, 200, codec)
    seen = 0
    with kafka.inspect(tmp_path / "data") as view:
        for partition in view.partitions():
            expected = [
                (record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
                for record in partition.records()
            ]
            data = b"".join(segment.read(0, segment.size_bytes) for segment in partition.segments())
            for reader in readers:
                assert decoded(reader(data)) == expected
            seen += len(expected)
    assert seen > 200


def decoded(reader: Any) -> list[tuple[Any, ...]]:
    found = []
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        if not batch.is_control_batch:
            found += [(one.offset, one.timestamp, one.key, one.value, [*map(tuple, one.headers)]) for one in batch]
    return found
