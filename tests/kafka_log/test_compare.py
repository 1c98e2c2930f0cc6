"""Comparing replicas: the same, lagging, cut, diverged, compacted each by itself, damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mqstore import kafka, kernels
from mqstore.cli.app import build_app
from mqstore.errors import NotAStoreError, UsageError
from mqstore.kafka import KafkaMessage, Record
from mqstore.kafka.compare import OffsetRange, PartitionComparison, compare
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.constants import TimestampType

NOT_COMPACTED = "B has no such record, and no cleaner-offset-checkpoint says that the partition is compacted"


def one(a: Path, b: Path, **options: Any) -> PartitionComparison:
    (found,) = compare(a, b, **options)
    return found


def make(path: Path, values: list[tuple[bytes | None, bytes | None]], size: int = 1, **settings: Any) -> Path:
    with kafka.open(path, **settings) as log:
        for start in range(0, len(values), size):
            log.put_batch(
                [
                    KafkaMessage("t", value, key, timestamp_ms=1000 + start + number)
                    for number, (key, value) in enumerate(values[start : start + size])
                ]
            )
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make(tmp_path / "a", [(b"k%d" % (number % 20), b"%d" % number) for number in range(100)], 5)


def copy_of(source: Path) -> Path:
    return Path(shutil.copytree(source, source.with_name("b")))


def test_golden_partitions_are_their_own_replicas(golden_kafka: Path, tmp_path: Path) -> None:
    for name in ("plain-0", "codecs-0", "legacyv0-0", "legacyv1-0", "mixed-0", "txn-0", "compacted-0"):
        copied = Path(shutil.copytree(golden_kafka / name, tmp_path / name))
        found = one(golden_kafka / name, copied)
        assert not found.differs(), name
        assert (found.batches > 0, found.records, found.compacted_a, found.compacted_b) == (True, 0, 0, 0)


def test_recovered_is_the_crash_image_up_to_its_damage(golden_kafka: Path) -> None:
    found = one(golden_kafka / "recovered-0", golden_kafka / "crash-0")
    assert found.range_a is not None
    assert (found.first_difference, found.reason) == (found.range_a.end, "B is damaged: CRC")
    assert found.batches > 100


def test_a_follower_that_lags_and_one_that_removed_more(data: Path, tmp_path: Path) -> None:
    other = copy_of(data)
    with kafka.open(other) as log:
        log.put_batch([KafkaMessage("t", b"more")] * 7)
        log.delete_records("t", 0, 10)
        log.create_topic("new")
    found, missing = sorted(compare(data, other), key=lambda item: item.topic, reverse=True)
    assert (found.range_a, found.range_b) == ((0, 100), (10, 107))
    assert (found.only_a, found.only_b) == ([OffsetRange(0, 10)], [OffsetRange(100, 107)])
    assert found.first_difference is None
    assert found.differs()
    assert not found.differs(common_only=True)
    assert (missing.topic, missing.range_a, missing.range_b) == ("new", None, (0, 0))
    assert missing.differs()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("value", "another value"),
        ("key", "another key"),
        ("headers", "another headers"),
        ("time", "another timestamp"),
        ("epoch", "another leader epoch"),
        ("two", "another key and value"),
    ],
)
def test_logs_that_diverged(tmp_path: Path, change: str, reason: str) -> None:
    for name in ("a", "b"):
        with kafka.open(tmp_path / name) as log:
            for offset in range(10):
                changed = name == "b" and offset == 6
                record = Record(
                    0,
                    5 if changed and change == "time" else 4,
                    TimestampType.CREATE_TIME,
                    b"x" if changed and change in ("key", "two") else b"k",
                    b"x" if changed and change in ("value", "two") else b"v",
                    (("h", b"1"),) if changed and change == "headers" else (),
                )
                epoch = 3 if changed and change == "epoch" else 0
                log.append_batch("t", 0, encode_batch([record], checksum=kernels.crc32c), leader_epoch=epoch)
                if epoch:
                    break
    found = one(tmp_path / "a", tmp_path / "b")
    assert (found.first_difference, found.reason) == (6, reason)
    assert found.batches == 6


def test_other_borders_of_batches_are_no_difference(tmp_path: Path) -> None:
    values: list[tuple[bytes | None, bytes | None]] = [(None, b"%d" % number) for number in range(90)]
    a, b = make(tmp_path / "a", values, 5), make(tmp_path / "b", values, 9, compression_type="gzip")
    found = one(a, b)
    assert not found.differs()
    assert (found.batches, found.records) == (0, 90)


def test_replicas_that_were_compacted_differently(data: Path) -> None:
    other = copy_of(data)
    for path, times in ((data, 1), (other, 2)):
        with kafka.open(path, cleanup_policy="compact") as log:
            log.roll("t")
            log.compact("t", 0, force=True)
            log.put_batch([KafkaMessage("t", b"late", b"k3", timestamp_ms=9)])
            if times == 2:
                log.roll("t")
                log.compact("t", 0, force=True)
    found = one(data, other)
    assert found.first_difference is None
    assert found.compacted_b == 1  # the older record of k3
    assert found.compacted_a == 0
    assert not found.differs()


def test_a_record_that_nothing_explains_is_missed(tmp_path: Path) -> None:
    for key in (b"only", None):
        for name, gone in (("a", False), ("b", True)):
            path = tmp_path / str(key) / name
            path.parent.mkdir(exist_ok=True)
            with kafka.open(path) as log:
                for offset in (0, 1, 2, 3):
                    if not (gone and offset == 1):
                        record = Record(0, 1, TimestampType.CREATE_TIME, key if offset == 1 else b"other", b"v")
                        batch = encode_batch([record], base_offset=offset, checksum=kernels.crc32c)
                        log.append_batch("t", 0, batch, keep_offsets=True)
        a, b = tmp_path / str(key) / "a", tmp_path / str(key) / "b"
        for compacted, reason in (
            (None, NOT_COMPACTED),
            (True, "B has no such record"),
            (False, "B has no such record"),
        ):
            found = one(a, b, compacted=compacted)
            assert (found.first_difference, found.reason) == (1, reason)


def cycling(path: Path, count: int, *, compacted: bool) -> Path:
    """Records of the keys k0 to k4 in turn, maybe compacted down to the newest of each."""
    make(path, [(b"k%d" % (number % 5), b"%d" % number) for number in range(count)])
    if compacted:
        with kafka.open(path, cleanup_policy="compact") as log:
            log.roll("t")
            log.compact("t", 0, force=True)
    return path


@pytest.mark.parametrize("lagging_compacted", [False, True])
def test_one_that_lags_and_one_that_was_compacted_further(tmp_path: Path, lagging_compacted: bool) -> None:
    """The newer records that explain what is gone lie behind the end of the other copy."""
    a = cycling(tmp_path / "a", 12, compacted=lagging_compacted)
    b = cycling(tmp_path / "b", 20, compacted=True)
    found, turned = one(a, b), one(b, a)
    assert (found.first_difference, turned.first_difference) == (None, None)
    assert found.compacted_b == turned.compacted_a == (5 if lagging_compacted else 12)
    assert not found.differs(common_only=True)


def test_what_only_the_other_copy_has_behind_the_end_explains_nothing(tmp_path: Path) -> None:
    """The one that lags cannot have been compacted for records that it never had."""
    a = cycling(tmp_path / "a", 20, compacted=False)
    b = cycling(tmp_path / "b", 12, compacted=True)
    assert one(a, b).first_difference is None
    shutil.rmtree(b)
    with kafka.open(b) as log, kafka.inspect(a) as view:
        for record in view.partition("t").records(end=12):
            if record.offset != 9:
                batch = encode_batch([record], base_offset=record.offset, checksum=kernels.crc32c)
                log.append_batch("t", 0, batch, keep_offsets=True)
    assert one(a, b, compacted=True).first_difference == 9
    assert one(b, a, compacted=True).reason == "A has no such record"


@pytest.mark.parametrize("end", [8, 9, 10])
def test_a_tombstone_that_was_removed_behind_the_end_of_the_other(tmp_path: Path, end: int) -> None:
    """The copy that went on has neither the record nor the tombstone: only a hole says that one may have been there."""
    a, b = tmp_path / "a", tmp_path / "b"
    for path, offsets in ((a, range(6)), (b, [*(one for one in range(8) if one != 3), *range(end, 12)])):
        with kafka.open(path) as log:
            for offset in offsets:
                key = b"removed" if offset == 3 else b"k%d" % offset
                record = Record(0, 1, TimestampType.CREATE_TIME, key, b"v")
                batch = encode_batch([record], base_offset=offset, checksum=kernels.crc32c)
                log.append_batch("t", 0, batch, keep_offsets=True)
    found, turned = one(a, b, compacted=True), one(b, a, compacted=True)
    if end == 8:  # no offset is missing: it was lost
        assert (found.first_difference, found.reason, found.undecided) == (3, "B has no such record", 0)
        assert (turned.first_difference, turned.undecided) == (3, 0)
        run(a, b, "--compacted", "--common", code=1)
        return
    assert (found.first_difference, found.undecided) == (None, 1)
    assert (turned.first_difference, turned.undecided) == (None, 1)
    assert (
        "1 records that only one has: lost, or removed with their tombstones since"
        in run(a, b, "--compacted", "--common", code=0).stdout
    )
    assert one(a, b, compacted=False).first_difference == 3


@pytest.mark.parametrize("gone", [4, 5])
def test_a_record_lost_from_a_topic_that_nobody_compacts(tmp_path: Path, gone: int) -> None:
    """One whose key comes again, and one without a value: both are what compaction might have removed."""
    for name in ("a", "b"):
        with kafka.open(tmp_path / name) as log:
            for offset in range(10):
                if (name, offset) != ("b", gone):
                    value = None if offset == 5 else b"v"
                    record = Record(0, 1, TimestampType.CREATE_TIME, b"k%d" % (offset % 2), value)
                    batch = encode_batch([record], base_offset=offset, checksum=kernels.crc32c)
                    log.append_batch("t", 0, batch, keep_offsets=True)
    a, b = tmp_path / "a", tmp_path / "b"
    found = one(a, b)
    assert (found.first_difference, found.reason, found.compacted_b) == (gone, NOT_COMPACTED, 0)
    assert one(a, b, compacted=False).reason == "B has no such record"
    assert not one(a, b, compacted=True).differs()
    (b / "cleaner-offset-checkpoint").write_text("0\n1\nother 0 10\n")
    assert one(a, b).differs()
    (b / "cleaner-offset-checkpoint").write_text("junk")
    assert one(a, b).differs()
    (b / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    assert not one(a, b).differs()
    assert not one(a / "t-0", b / "t-0").differs()
    run(a, b, code=0)
    run(a, b, "--compacted", code=0)
    assert f"differs from offset {gone} on: B has no such record\n" in run(a, b, "--strict", code=1).stdout


def test_damage_is_a_difference(data: Path) -> None:
    other = copy_of(data)
    log = other / "t-0" / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    log.write_bytes(damaged)
    found = one(data, other)
    assert found.first_difference is not None
    assert found.reason is not None
    assert found.reason.startswith("B is damaged")
    with kafka.inspect(other) as view:
        sound = list(view.partition("t").batches(on_damage=lambda damage: False))
    assert found.first_difference == sound[-1].header.last_offset + 1


def test_what_is_compared_with_what(data: Path, tmp_path: Path) -> None:
    other = copy_of(data)
    renamed = Path(shutil.copytree(data / "t-0", tmp_path / "old-copy"))
    assert not one(data / "t-0", renamed).differs()
    assert not one(data / "t-0", other).differs()
    with pytest.raises(UsageError, match="no such partition"):
        compare(data, other, topic="nothing")
    with pytest.raises(NotAStoreError):
        compare(data, tmp_path / "nothing")


def run(*words: object, code: int) -> Any:
    done = CliRunner().invoke(build_app(), ["kafka", "compare", *map(str, words)])
    assert done.exit_code == code, done.output
    return done


def test_the_command(data: Path) -> None:
    other = copy_of(data)
    assert run(data, other, code=0).stdout == "the same: 1 partitions\n"
    with kafka.open(other) as log:
        log.put(KafkaMessage("t", b"more"))
    run(data, other, "--common", code=0)
    assert run(data, other, code=1).stdout.splitlines() == [
        "t-0: only B has offsets 100 to 100",
        "1 of 1 partitions differ",
    ]
    with kafka.open(data) as log:
        log.put(KafkaMessage("t", b"else"))
    document = json.loads(run(data, other, "--common", "--format", "json", code=1).stdout)
    assert document["summary"] == {"partitions": 1, "different": 1}
    (found,) = document["partitions"]
    assert (found["firstDifference"], found["rangeA"], found["batches"]) == (100, {"start": 0, "end": 101}, 20)
    assert "t-0: differs from offset 100 on: another" in run(data, other, code=1).stdout
    assert "error: " in run(data, "nothing", code=2).stderr
    assert "error: " in run(data, other, "--topic", "x", code=2).stderr
