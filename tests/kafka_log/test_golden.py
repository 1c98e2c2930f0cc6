"""Everything that Kafka's own classes say about the golden logs, reproduced by the view and by recovery."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import bad, tree
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka.constants import TimestampType

Expected = dict[str, list[dict[str, Any]]]

LOGS = ["plain", "codecs", "legacyv0", "legacyv1", "mixed", "txn", "compacted", "recovered"]
PER_BATCH = {"plain": 4096, "codecs": 4096, "txn": 512, "compacted": 512, "recovered": 512}
"""Logs whose every append was one batch, so that a rebuild is what a broker wrote, with their index interval."""


@pytest.fixture(params=LOGS)
def partition(request: pytest.FixtureRequest, golden_kafka: Path) -> Iterator[PartitionView]:
    # By its own directory: the checkpoint beside it raises the start of one log, which the answers do not.
    with kafka.inspect(golden_kafka / f"{request.param}-0") as view:
        yield view.partition(request.param)


def rows(expected: Expected, kind: str, partition: PartitionView) -> list[dict[str, Any]]:
    found = [row for row in expected[kind] if row["dir"] == f"{partition.topic}-0"]
    assert found
    return found


def raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_log(partition: PartitionView, expected_kafka: Expected) -> None:
    (log,) = rows(expected_kafka, "log", partition)
    assert partition.log_start_offset == log["logStartOffset"]
    assert partition.log_end_offset == log["logEndOffset"]
    assert partition.last_stable_offset == log["lastStableOffset"]
    assert [segment.base_offset for segment in partition.segments()] == log["segments"]
    assert [list(entry) for entry in partition.leader_epochs] == [
        [entry["epoch"], entry["startOffset"]] for entry in log["leaderEpochs"]
    ]


def test_segments(partition: PartitionView, expected_kafka: Expected) -> None:
    segments = partition.segments()
    for row, segment in zip(rows(expected_kafka, "segment", partition), segments, strict=True):
        assert segment.base_offset == row["baseOffset"]
        assert segment.size_bytes == row["sizeBytes"]
        assert [list(entry) for entry in segment.offset_index()] == row["offsetIndex"]
        assert [list(entry) for entry in segment.time_index()] == row["timeIndex"]
        assert len(segment.aborted() or []) == len(row["abortedTxns"])


def test_batches(partition: PartitionView, expected_kafka: Expected) -> None:
    places = list(partition.batches())
    for row, place in zip(rows(expected_kafka, "batch", partition), places, strict=True):
        header = place.header
        assert (place.segment.base_offset, place.position, header.size) == (
            row["segment"], row["position"], row["sizeInBytes"],
        )  # fmt: skip
        assert (header.magic, header.last_offset, header.codec.name.lower()) == (
            row["magic"], row["lastOffset"], row["codec"],
        )  # fmt: skip
        assert header.max_timestamp_ms == row["maxTimestamp"]
        if header.magic == 2:
            assert (header.base_offset, header.leader_epoch, header.record_count) == (
                row["baseOffset"], row["leaderEpoch"], row["count"],
            )  # fmt: skip
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
                row["producerId"], row["producerEpoch"], row["baseSequence"],
            )  # fmt: skip
            assert (header.is_transactional, header.is_control, header.crc) == (
                row["transactional"], row["control"], row["crc"],
            )  # fmt: skip
            assert header.delete_horizon_ms == row["deleteHorizonMs"]


def test_records(partition: PartitionView, expected_kafka: Expected) -> None:
    controls = {
        (row["segment"], row["position"]) for row in rows(expected_kafka, "batch", partition) if row.get("control")
    }
    wanted = [
        row for row in rows(expected_kafka, "record", partition)
        if (row["segment"], row["batchPosition"]) not in controls
    ]  # fmt: skip
    for row, record in zip(wanted, partition.records(), strict=True):
        assert record.offset == row["offset"]
        if record.timestamp_type is not TimestampType.NONE:
            assert record.timestamp_ms == row["timestamp"]
        assert record.key == raw(row["key"])
        assert record.value == raw(row["value"])
        assert record.sequence == row.get("sequence", -1)
        assert list(record.headers) == [(name, raw(value)) for name, value in row.get("headers", [])]


def test_look_ups_by_offset(partition: PartitionView, expected_kafka: Expected) -> None:
    for row in rows(expected_kafka, "offsetLookup", partition):
        place = partition.find_batch(row["target"])
        assert place is not None
        assert (place.segment.base_offset, place.position) == (row["segment"], row["position"])
        assert place.header.last_offset == row["foundBatchLastOffset"]
        entry = place.segment.offset_index().floor(row["target"])
        assert tuple(entry) == (row["indexOffset"], row["indexPosition"])


def test_look_ups_by_time(partition: PartitionView, expected_kafka: Expected) -> None:
    asked = [row for row in expected_kafka["timestampLookup"] if row["dir"] == f"{partition.topic}-0"]
    assert asked or partition.topic == "legacyv0"  # which has no times
    for row in asked:
        found = partition.offset_at(row["target"])
        if row["offset"] is None:
            assert found is None
        else:
            assert found == (row["offset"], row["timestamp"])
    newest = [row for row in expected_kafka["maxTimestampLookup"] if row["dir"] == f"{partition.topic}-0"]
    found = partition.offset_at("max_timestamp")
    assert found == ((newest[0]["offset"], newest[0]["timestamp"]) if newest else None)
    assert partition.offset_at("earliest") == (partition.log_start_offset, -1)
    assert partition.offset_at("latest") == (partition.log_end_offset, -1)


def test_aborted_transactions(golden_kafka: Path, expected_kafka: Expected, tmp_path: Path) -> None:
    shutil.copytree(golden_kafka / "txn-0", tmp_path / "txn-0")
    for index in (tmp_path / "txn-0").glob("*.txnindex"):
        index.unlink()
    wanted = [
        [one["producerId"], one["firstOffset"], one["lastOffset"], one["lastStableOffset"]]
        for row in expected_kafka["segment"]
        for one in row["abortedTxns"]
    ]
    assert len(wanted) == 10
    with kafka.inspect(golden_kafka / "txn-0") as listed, kafka.inspect(tmp_path / "txn-0") as walked:
        for view in (listed, walked):
            partition = view.partition("txn")
            assert [list(entry) for entry in partition.aborted_transactions()] == wanted
            assert [entry.first_offset for entry in partition.aborted_transactions(60, 95)] == [52, 55, 81, 91]
            assert partition.aborted_transactions(143, 150) == []
        committed = [record.offset for record in listed.partition("txn").records(isolation="read_committed")]
        assert committed == [record.offset for record in walked.partition("txn").records(isolation="read_committed")]
        ranges = {(entry[0], offset) for entry in wanted for offset in range(entry[1], entry[2])}
        expected = []
        for row in rows(expected_kafka, "batch", listed.partition("txn")):
            offsets = range(row["baseOffset"], row["lastOffset"] + 1)
            hidden = row["transactional"] and (row["producerId"], row["baseOffset"]) in ranges
            if not row["control"] and not hidden:
                expected += [offset for offset in offsets if offset < 156]
        assert committed == expected
        assert 0 < len(committed) < len(list(listed.partition("txn").records()))


def test_producers(golden_kafka: Path, expected_kafka: Expected, tmp_path: Path) -> None:
    """With the snapshot at the log's end, and from an older one or none by walking the log."""
    (row,) = (
        row for row in expected_kafka["producerSnapshot"]
        if row["dir"] == "txn-0" and row["file"].startswith("00000000000000000159")
    )  # fmt: skip
    wanted = {one["producerId"]: one for one in row["producers"]}
    shutil.copytree(golden_kafka / "txn-0", tmp_path / "txn-0")
    for name in ("00000000000000000159.snapshot", "00000000000000000078.snapshot", ""):
        with kafka.inspect(tmp_path / "txn-0") as view:
            found = {entry.producer_id: entry for entry in view.producers("txn")}
        assert found.keys() == wanted.keys()
        for producer_id, entry in found.items():
            expected = wanted[producer_id]
            assert entry.last_sequence == expected["lastSeq"]
            assert entry.last_offset == expected["lastDataOffset"]
            assert entry.producer_epoch == expected["producerEpoch"]
            assert entry.coordinator_epoch == expected["coordinatorEpoch"]
            assert entry.timestamp_ms == expected["lastTimestamp"]
            open_since = expected["currentTxnFirstOffset"]
            assert entry.current_txn_first_offset == (-1 if open_since is None else open_since)
        if name:
            (tmp_path / "txn-0" / name).unlink()


@pytest.mark.parametrize("topic", PER_BATCH)
def test_rebuilt_indexes_are_the_brokers(golden_kafka: Path, tmp_path: Path, topic: str) -> None:
    source = golden_kafka / f"{topic}-0"
    written = kafka.reindex(source, output=tmp_path / "new", index_interval_bytes=PER_BATCH[topic])
    assert len(written) >= 2 * len(list(source.glob("*.log")))
    for path in written:
        assert path.read_bytes() == (source / path.name).read_bytes(), path.name


@pytest.mark.parametrize("topic", ["legacyv0", "legacyv1", "mixed"])
def test_indexes_of_old_formats_find_the_same(golden_kafka: Path, tmp_path: Path, topic: str) -> None:
    copy = Path(shutil.copytree(golden_kafka / f"{topic}-0", tmp_path / f"{topic}-0"))
    kafka.reindex(copy, in_place=True, index_interval_bytes=1024)
    with kafka.inspect(golden_kafka / f"{topic}-0") as theirs, kafka.inspect(copy) as ours:
        one, other = theirs.partition(topic), ours.partition(topic)
        for offset in range(one.log_end_offset):
            assert one.find_batch(offset)[1] == other.find_batch(offset)[1]
    assert bad(kafka.check(copy)) == []


def test_crash_recovers_to_what_kafka_made_of_it(golden_kafka: Path, tmp_path: Path) -> None:
    before = tree(golden_kafka / "crash-0")
    told = kafka.recover(golden_kafka / "crash-0", index_interval_bytes=512)
    assert not told.was_done
    assert (told.partitions[0].end_before, told.partitions[0].end_after) == (600, 594)
    assert told.partitions[0].cut_bytes == 6252 - 5689
    done = kafka.recover(golden_kafka / "crash-0", output=tmp_path / "new", index_interval_bytes=512)
    assert done.was_done
    assert done.partitions[0].rebuilt == told.partitions[0].rebuilt
    assert tree(tmp_path / "new") == tree(golden_kafka / "recovered-0")
    assert tree(golden_kafka / "crash-0") == before


def test_a_writer_recovers_the_crash_as_well(golden_kafka: Path, tmp_path: Path) -> None:
    shutil.copytree(golden_kafka / "crash-0", tmp_path / "crash-0")
    with kafka.open(
        tmp_path, index_interval_bytes=512, segment_index_bytes=16384, producer_id_expiration_ms=1 << 60
    ) as store:
        assert store.max_offset("crash") == 594
    assert tree(tmp_path / "crash-0") == tree(golden_kafka / "recovered-0")


def test_check_is_content_with_all_of_them(golden_kafka: Path) -> None:
    findings = [one for one in kafka.check(golden_kafka) if "crash-0" not in one.path]
    assert bad(findings) == []
    holes = [one for one in findings if "offsets are missing" in one.message]
    assert [Path(one.path).parent.name for one in holes] == ["compacted-0"]


def test_check_names_the_flipped_bit_and_the_torn_end(golden_kafka: Path) -> None:
    found = [(one.offset, one.found) for one in kafka.check(golden_kafka / "crash-0") if one.severity.value == "error"]
    assert found == [(5689, "CRC"), (6207, "MAGIC")]


def test_the_whole_data_directory(golden_kafka: Path, caplog: pytest.LogCaptureFixture) -> None:
    with KafkaView(golden_kafka) as view:
        assert sorted(view.topics()) == sorted([*LOGS, "crash"])
        assert "no partition's" in caplog.text
        assert view.min_offset("plain") == 5  # as the checkpoint says
        assert view.meta_properties["node.id"] == "1"
        assert not view.was_aborted
        stats = {one.topic: one for one in view.stats()}
    assert stats["plain"].batches == 400
    assert stats["codecs"].batches_by_codec.keys() == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert stats["mixed"].batches_by_magic.keys() == {0, 1, 2}
