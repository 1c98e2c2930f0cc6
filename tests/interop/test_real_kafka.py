"""The harness itself: what Kafka's own log says of the golden partitions is what it said when they were made."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from interop.real_kafka import RealKafka
from interop.real_store import copy_store

SIZES: dict[str, Any] = {"segment_bytes": 20_000, "index_interval_bytes": 512, "segment_index_bytes": 16_384}
LEGACY = ("legacyv0-0", "legacyv1-0", "mixed-0")
#: What each kind of line is known by.
NAMES = ("kind", "dir", "segment", "baseOffset", "batchPosition", "position", "offset", "target", "file")


def place(line: dict[str, Any]) -> tuple[object, ...]:
    names = [name for name in NAMES if name != "offset" or line["kind"] == "record"]
    return tuple(line.get(name) for name in names)


def test_reads_the_golden_partitions_as_they_were_read(
    real_kafka: RealKafka, golden_kafka: Path, tmp_path: Path
) -> None:
    data = copy_store(golden_kafka, tmp_path / "data")
    left_out = {"crash-0"} | (set() if real_kafka.reads_legacy else set(LEGACY))
    for name in left_out:
        shutil.rmtree(data / name)
    # It names a start that was not in force when the look-ups were asked.
    (data / "log-start-offset-checkpoint").unlink()
    found = {place(line): line for line in real_kafka.read(data) if "Lookup" not in line["kind"]}
    kinds: Counter[str] = Counter()
    for text in (golden_kafka / "EXPECTED.jsonl").read_text("utf-8").splitlines():
        line = json.loads(text)
        if line["dir"] not in left_out and "Lookup" not in line["kind"]:
            assert found[place(line)] == line
            kinds[line["kind"]] += 1
    assert kinds == Counter(line["kind"] for line in found.values())
    assert kinds["record"] > 2000


def test_recovers_the_crash_image_as_it_did(real_kafka: RealKafka, golden_kafka: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    copy_store(golden_kafka / "crash-0", data / "crash-0")
    assert real_kafka.recover(data, index_interval_bytes=512, segment_index_bytes=16_384) == {
        "clean": False,
        "crash-0": 594,
    }
    for log in sorted((golden_kafka / "recovered-0").glob("*.log")):
        for path in (log, log.with_suffix(".index"), log.with_suffix(".timeindex")):
            assert (data / "crash-0" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.fixture(scope="module")
def written(real_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("kafka") / "data"
    real_kafka.write(data, seed=1, count=400, **SIZES)
    return data


def test_writes_every_kind_and_reads_it_again(real_kafka: RealKafka, written: Path) -> None:
    found = real_kafka.read(written, **SIZES)
    batches = [line for line in found if line["kind"] == "batch"]
    assert all(line["valid"] for line in batches)
    assert {line["codec"] for line in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {line["timestampType"] for line in batches} >= {"CreateTime", "LogAppendTime"}
    assert {line["magic"] for line in batches} == ({0, 1, 2} if real_kafka.reads_legacy else {2})
    controls = {line.get("controlType") for line in found if line["kind"] == "record"}
    assert controls == {None, "COMMIT", "ABORT"}
    assert any(line["abortedTxns"] for line in found if line["kind"] == "segment")
    logs = {line["dir"]: line for line in found if line["kind"] == "log"}
    assert all(line["logEndOffset"] >= 100 for line in logs.values())
    assert len(logs["plain-0"]["segments"]) > 1
    assert logs["txn-0"]["lastStableOffset"] == logs["txn-0"]["logEndOffset"] - 2
    assert real_kafka.dump(sorted(written.glob("*/*.log")))[1] == []


def test_goes_on_after_a_crash(real_kafka: RealKafka, tmp_path: Path) -> None:
    data = tmp_path / "data"
    ends = real_kafka.write(data, seed=2, count=200, crash=True, **SIZES)
    assert not (data / ".kafka_cleanshutdown").exists()
    assert any(path.stat().st_size == 16_384 for path in data.glob("*/*.index"))
    assert real_kafka.recover(data, **SIZES) == ends
    assert (data / ".kafka_cleanshutdown").exists()


def test_the_dump_tool_finds_a_flipped_byte(real_kafka: RealKafka, written: Path, tmp_path: Path) -> None:
    log = Path(shutil.copy(min(written.glob("plain-0/*.log")), tmp_path))
    damaged = bytearray(log.read_bytes())
    damaged[80] ^= 1
    log.write_bytes(damaged)
    assert real_kafka.dump([log])[1] != []
