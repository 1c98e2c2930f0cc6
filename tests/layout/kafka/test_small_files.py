"""Names, indexes, snapshots and checkpoints of a Kafka data directory: the golden ones, their borders, damage."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from mqstore.errors import CorruptFileError, UsageError
from mqstore.layout.kafka import checkpoints, names
from mqstore.layout.kafka.checkpoints import EpochEntry
from mqstore.layout.kafka.crc32c import crc32c
from mqstore.layout.kafka.names import FileKind, FileStage, PartitionName, PartitionState, SegmentFile
from mqstore.layout.kafka.offset_index import OffsetEntry, OffsetIndex
from mqstore.layout.kafka.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from mqstore.layout.kafka.time_index import TimeEntry, TimeIndex
from mqstore.layout.kafka.txn_index import AbortedTransaction, decode_txn_index, encode_txn_index

HEX = "0123456789abcdef" * 2


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("plain-0", PartitionName("plain", 0)),
            ("a-b-12", PartitionName("a-b", 12)),
            ("a-1-2", PartitionName("a-1", 2)),
            ("-0", None),
            ("--0", PartitionName("-", 0)),
            ("a--1", PartitionName("a-", 1)),
            ("__cluster_metadata-0", PartitionName("__cluster_metadata", 0)),
            ("a.b_C-2147483647", PartitionName("a.b_C", 2147483647)),
            ("a-2147483648", None),
            ("a-01", None),
            ("a-", None),
            ("a", None),
            ("..-0", None),
            ("a b-0", None),
            ("ä-0", None),
            ("a-٣", None),
            ("x" * 249 + "-0", PartitionName("x" * 249, 0)),
            ("x" * 250 + "-0", None),
            (f"orders-3.{HEX}-delete", PartitionName("orders", 3, PartitionState.DELETE)),
            (f"o.r-d-3.{HEX}-future", PartitionName("o.r-d", 3, PartitionState.FUTURE)),
            (f"orders-3.{HEX}-stray", PartitionName("orders", 3, PartitionState.STRAY)),
            (f"orders-3.{HEX}-gone", None),
            (f"orders.{HEX}-delete", None),
        ],
    )
    def test_partition_directories(self, name: str, expected: PartitionName | None) -> None:
        assert names.parse_partition_directory(name) == expected
        if expected is not None and expected.state is PartitionState.LIVE:
            assert names.partition_directory_name(expected.topic, expected.partition) == name

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("00000000000000000470.log", SegmentFile(470, FileKind.LOG)),
            ("00000000000000000470.index", SegmentFile(470, FileKind.OFFSET_INDEX)),
            ("00000000000000000470.timeindex.deleted", SegmentFile(470, FileKind.TIME_INDEX, FileStage.DELETED)),
            ("09223372036854775807.snapshot", SegmentFile(2**63 - 1, FileKind.SNAPSHOT)),
            ("00000000000000000000.txnindex.swap", SegmentFile(0, FileKind.TXN_INDEX, FileStage.SWAP)),
            ("00000000000000000000.log.cleaned", SegmentFile(0, FileKind.LOG, FileStage.CLEANED)),
            ("09223372036854775808.log", None),
            ("0000000000000000470.log", None),
            ("00000000000000000470.log.tmp", None),
            ("00000000000000000470.checkpoint", None),
            ("00000000000000000470", None),
            ("leader-epoch-checkpoint", None),
            ("٠" * 20 + ".log", None),
        ],
    )
    def test_segment_files(self, name: str, expected: SegmentFile | None) -> None:
        found = names.parse_segment_file(name)
        assert found == expected
        if found is not None:
            assert names.segment_file_name(*found) == name

    def test_metadata_snapshots(self) -> None:
        assert names.parse_metadata_snapshot("00000000000000000470-0000000003.checkpoint") == (470, 3)
        assert names.parse_metadata_snapshot("00000000000000000470.checkpoint") is None

    def test_misuse(self) -> None:
        for topic, partition in (("", 0), ("..", 0), ("a/b", 0), ("a", -1), ("a", 2**31), ("a", True), (None, 0)):
            with pytest.raises(UsageError):
                names.partition_directory_name(topic, partition)
        with pytest.raises(UsageError):
            names.segment_file_name(-1, FileKind.LOG)

    def test_every_golden_name_is_known(self, golden_kafka: Path) -> None:
        for partition in golden_kafka.glob("*-0"):
            assert names.parse_partition_directory(partition.name) is not None
            for path in partition.iterdir():
                assert path.name == names.LEADER_EPOCHS or names.parse_segment_file(path.name), path


class TestIndexes:
    def test_golden(self, golden_kafka: Path, expected_kafka: dict[str, list[dict[str, Any]]]) -> None:
        seen = 0
        for expected in expected_kafka["segment"]:
            stem = golden_kafka / expected["dir"] / f"{expected['baseOffset']:020d}"
            data = stem.with_suffix(".index").read_bytes()
            offsets = OffsetIndex.decode(data, expected["baseOffset"])
            assert [list(entry) for entry in offsets] == expected["offsetIndex"]
            times_data = stem.with_suffix(".timeindex").read_bytes()
            times = TimeIndex.decode(times_data, expected["baseOffset"])
            assert [list(entry) for entry in times] == expected["timeIndex"]
            assert offsets.encode() == data
            assert times.encode() == times_data
            txn = stem.with_suffix(".txnindex")
            aborted = decode_txn_index(txn.read_bytes()) if txn.exists() else []
            assert [list(entry) for entry in aborted] == [
                [one["producerId"], one["firstOffset"], one["lastOffset"], one["lastStableOffset"]]
                for one in expected["abortedTxns"]
            ]
            assert encode_txn_index(aborted) == (txn.read_bytes() if txn.exists() else b"")
            seen += 1
        assert seen == 21

    def test_the_zeros_of_a_running_segment_are_no_entries(self, golden_kafka: Path) -> None:
        stem = golden_kafka / "crash-0" / "00000000000000000531"
        offsets = OffsetIndex.decode(stem.with_suffix(".index").read_bytes(), 531)
        times = TimeIndex.decode(stem.with_suffix(".timeindex").read_bytes(), 531)
        assert len(offsets) > 9
        assert times.last.timestamp_ms > 1_700_000_000_000
        assert stem.with_suffix(".index").read_bytes().rstrip(b"\0").startswith(offsets.encode().rstrip(b"\0"))

    def test_borders_of_the_offset_index(self) -> None:
        good = [OffsetEntry(10, 5), OffsetEntry(11, 7), OffsetEntry(20, 8)]
        data = OffsetIndex(10, good).encode()
        assert list(OffsetIndex.decode(data, 10)) == good
        assert len(OffsetIndex.decode(bytes(8000), 10)) == 0
        assert len(OffsetIndex.decode(b"", 10)) == 0
        assert list(OffsetIndex.decode(data + b"abc", 10)) == good
        assert list(OffsetIndex.decode(data + data[:8], 10)) == good
        assert list(OffsetIndex.decode(data + struct.pack(">ii", 11, 8), 10)) == good
        assert list(OffsetIndex.decode(struct.pack(">ii", -1, 8) + data, 10)) == []

    def test_floor_of_the_offset_index(self) -> None:
        index = OffsetIndex(10, [OffsetEntry(12, 50), OffsetEntry(15, 90)])
        assert [index.floor(offset).position for offset in (0, 10, 11, 12, 14, 15, 99)] == [0, 0, 0, 50, 50, 90, 90]
        assert index.floor(11) == (10, 0)

    def test_borders_of_the_time_index(self) -> None:
        good = [TimeEntry(0, 12), TimeEntry(5, 12), TimeEntry(6, 30)]
        data = TimeIndex(10, good).encode()
        assert list(TimeIndex.decode(data + bytes(120), 10)) == good
        assert TimeIndex.decode(data + bytes(120), 10).last == (6, 30)
        assert list(TimeIndex.decode(bytes(12), 10)) == [TimeEntry(0, 10)]
        assert TimeIndex.decode(bytes(24), 10).last == (-1, 10)
        assert list(TimeIndex.decode(data + struct.pack(">qi", 7, 19), 10)) == good

    def test_floor_of_the_time_index(self) -> None:
        index = TimeIndex(10, [TimeEntry(100, 12), TimeEntry(200, 15)])
        assert [index.floor(time).offset for time in (-5, 99, 100, 199, 200, 300)] == [10, 10, 12, 12, 15, 15]

    def test_offsets_too_far_away(self) -> None:
        with pytest.raises(UsageError):
            OffsetIndex(0, [OffsetEntry(2**31, 1)]).encode()
        with pytest.raises(UsageError):
            TimeIndex(0, [TimeEntry(1, 2**31)]).encode()

    def test_damaged_txn_index(self) -> None:
        one, two = AbortedTransaction(1, 3, 5, 6), AbortedTransaction(1, 7, 9, 10)
        for data in (
            encode_txn_index([one])[:-1],
            encode_txn_index([two, one]),
            encode_txn_index([AbortedTransaction(1, 6, 5, 6)]),
            b"\0\1" + encode_txn_index([one])[2:],
        ):
            with pytest.raises(CorruptFileError):
                decode_txn_index(data)


class TestProducerSnapshot:
    def test_golden(self, golden_kafka: Path, expected_kafka: dict[str, list[dict[str, Any]]]) -> None:
        seen = 0
        for expected in expected_kafka["producerSnapshot"]:
            data = (golden_kafka / expected["dir"] / expected["file"]).read_bytes()
            entries = decode_producer_snapshot(data)
            assert [as_java(entry) for entry in entries] == expected["producers"]
            assert encode_producer_snapshot(entries) == data
            seen += 1
        assert seen == 21

    def test_damage(self) -> None:
        data = encode_producer_snapshot([ProducerEntry(1, 2, 3, 4, 5, 6, 7, 8)])
        assert len(data) == 56
        for position in range(len(data) * 8):
            broken = bytearray(data)
            broken[position // 8] ^= 1 << position % 8
            with pytest.raises(CorruptFileError):
                decode_producer_snapshot(broken)
        for length in range(len(data)):
            with pytest.raises(CorruptFileError):
                decode_producer_snapshot(data[:length])
        body = struct.pack(">i", 1 << 30)
        with pytest.raises(CorruptFileError):
            decode_producer_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


def as_java(entry: ProducerEntry) -> dict[str, int | None]:
    open_since = entry.current_txn_first_offset
    return {
        "producerId": entry.producer_id, "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch, "lastTimestamp": entry.timestamp_ms,
        "lastSeq": entry.last_sequence, "lastDataOffset": entry.last_offset,
        "currentTxnFirstOffset": open_since if open_since >= 0 else None,
    }  # fmt: skip


class TestCheckpoints:
    def test_golden(self, golden_kafka: Path) -> None:
        for path in golden_kafka.glob("*-offset-checkpoint"):
            offsets = checkpoints.decode_offsets(path.read_bytes())
            assert checkpoints.encode_offsets(offsets) == path.read_bytes()
        starts = (golden_kafka / names.LOG_STARTS).read_bytes()
        assert checkpoints.decode_offsets(starts) == {("plain", 0): 5}
        for path in golden_kafka.glob("*-0/leader-epoch-checkpoint"):
            epochs = checkpoints.decode_leader_epochs(path.read_bytes())
            assert checkpoints.encode_leader_epochs(epochs) == path.read_bytes()
        meta = checkpoints.decode_meta_properties((golden_kafka / names.META_PROPERTIES).read_bytes())
        assert meta["cluster.id"] == "Some12ClusterIdAAAAAAAA"
        assert checkpoints.decode_meta_properties(checkpoints.encode_meta_properties(meta)) == meta
        marker = (golden_kafka / names.CLEAN_SHUTDOWN).read_bytes()
        assert checkpoints.decode_clean_shutdown(marker) == 42
        assert checkpoints.encode_clean_shutdown(42) == marker

    @pytest.mark.parametrize(
        "data",
        [
            b"1\n0\n", b"0\n", b"0\nx\n", b"0\n1\n", b"0\n1\n1 2 3\n", b"0\n1\n1\n", b"0\n1\n-1 2\n", b"0\n1\n1 -2\n",
            b"0\n2\n1 2\n1 3\n", b"0\n2\n2 5\n3 4\n", b"0\n1\n2147483648 0\n", b"\xff\xfe",
            b"0\n1\n1 99999999999999999999\n",
        ],
    )  # fmt: skip
    def test_damaged_epochs(self, data: bytes) -> None:
        with pytest.raises(CorruptFileError):
            checkpoints.decode_leader_epochs(data)

    def test_empty_files_hold_nothing(self) -> None:
        assert checkpoints.decode_leader_epochs(b"") == []
        assert checkpoints.decode_leader_epochs(b"0\n0\n") == []
        assert checkpoints.decode_offsets(b"\n") == {}
        assert checkpoints.decode_clean_shutdown(b"") == -1
        assert checkpoints.decode_clean_shutdown(b"[" * 100_000) == -1

    def test_round_trips(self) -> None:
        epochs = [EpochEntry(0, 0), EpochEntry(7, 7)]
        assert checkpoints.decode_leader_epochs(checkpoints.encode_leader_epochs(epochs)) == epochs
        value = uuid.uuid4()
        assert checkpoints.parse_uuid(checkpoints.format_uuid(value)) == value

    @pytest.mark.parametrize(
        "data", [b"", b"version: 0\n", b"version: 1\ntopic_id: " + b"A" * 22, b"version: 0\ntopic_id: short\n", b"\xff"]
    )
    def test_damaged_metadata(self, data: bytes) -> None:
        with pytest.raises(CorruptFileError):
            checkpoints.decode_topic_id(data)

    def test_meta_properties_without_a_version(self) -> None:
        with pytest.raises(CorruptFileError):
            checkpoints.decode_meta_properties(b"node.id=1\n")
