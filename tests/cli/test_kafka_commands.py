"""The commands for Kafka logs: what they say of the golden partitions is what Kafka's own classes and tools say."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import mqstore
from mqstore import kafka
from mqstore.cli.app import build_app
from mqstore.kafka import KafkaMessage

APP = build_app()
Lines = list[dict[str, Any]]


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(APP, ["kafka", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: object, code: int = 0) -> Lines:
    return [json.loads(line) for line in run(*arguments, "--format", "json", code=code).stdout.splitlines()]


def document(*arguments: object, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--format", "json", code=code).stdout)


def expected(lines: dict[str, Lines], kind: str, name: str) -> Lines:
    return [line for line in lines[kind] if line["dir"] == name]


@pytest.mark.parametrize("name", ["plain-0", "codecs-0", "legacyv0-0", "mixed-0", "txn-0", "compacted-0"])
def test_dump_gives_every_record(golden_kafka: Path, expected_kafka: dict[str, Lines], name: str) -> None:
    found = rows("dump", golden_kafka / name)
    answers = expected(expected_kafka, "record", name)
    assert [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in found] == [
        (line["offset"], line["timestamp"], line["key"], line["value"]) for line in answers
    ]
    for row, line in zip(found, answers, strict=True):
        assert [[one["key"], one["value"]] for one in row["headers"]] == line.get("headers", [])
        assert row["sequence"] == line.get("sequence", -1)
        assert row.get("controlType") == line.get("controlType")
        assert row.get("coordinatorEpoch") == line.get("coordinatorEpoch")


def test_dump_gives_every_batch(golden_kafka: Path, expected_kafka: dict[str, Lines]) -> None:
    found = rows("dump", golden_kafka / "txn-0", "--batches")
    names = {
        "position": "position", "size": "sizeInBytes", "magic": "magic", "baseOffset": "baseOffset", "crc": "crc",
        "lastOffset": "lastOffset", "records": "count", "codec": "codec", "timestampType": "timestampType",
        "maxTimestamp": "maxTimestamp", "leaderEpoch": "leaderEpoch", "producerId": "producerId",
        "producerEpoch": "producerEpoch", "baseSequence": "baseSequence", "transactional": "transactional",
        "control": "control", "deleteHorizon": "deleteHorizonMs",
    }  # fmt: skip
    answers = expected(expected_kafka, "batch", "txn-0")
    assert [{name: row[name] for name in names} for row in found] == [
        {name: line[theirs] for name, theirs in names.items()} for line in answers
    ]


def test_dump_of_small_files(golden_kafka: Path, expected_kafka: dict[str, Lines]) -> None:
    segment = expected(expected_kafka, "segment", "txn-0")[0]
    stem = golden_kafka / "txn-0" / f"{0:020d}"
    index = rows("dump", stem.with_suffix(".index"))
    assert [[row["offset"], row["position"]] for row in index] == segment["offsetIndex"]
    times = rows("dump", stem.with_suffix(".timeindex"))
    assert [[row["timestamp"], row["offset"]] for row in times] == segment["timeIndex"]
    aborted = rows("dump", stem.with_suffix(".txnindex"))
    members = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    assert [{name: row[name] for name in members} for row in aborted] == [
        {name: one[name] for name in members} for one in segment["abortedTxns"]
    ]
    snapshot = expected(expected_kafka, "producerSnapshot", "txn-0")[0]
    found = rows("dump", golden_kafka / "txn-0" / snapshot["file"])
    assert [row["producerId"] for row in found] == [one["producerId"] for one in snapshot["producers"]]
    epochs = rows("dump", golden_kafka / "plain-0" / "leader-epoch-checkpoint")
    assert epochs == expected(expected_kafka, "log", "plain-0")[0]["leaderEpochs"]
    starts = rows("dump", golden_kafka / "log-start-offset-checkpoint")
    assert {"topic": "plain", "partition": 0, "offset": 5} in starts
    assert "version" in rows("dump", golden_kafka / "meta.properties")[0]
    only = rows("dump", stem.with_suffix(".log"))
    assert {row["offset"] for row in only} <= set(range(78))


def test_dump_filters(golden_kafka: Path, expected_kafka: dict[str, Lines]) -> None:
    data = golden_kafka

    def offsets(*options: object, topic: str = "txn") -> list[int]:
        return [row["offset"] for row in rows("dump", data, "--topic", topic, "--partition", 0, *options)]

    records = expected(expected_kafka, "record", "txn-0")
    batches = {line["position"]: line for line in expected(expected_kafka, "batch", "txn-0") if line["segment"] == 0}
    of_2000 = [
        line["offset"]
        for line in records
        if line["segment"] == 0 and batches[line["batchPosition"]]["producerId"] == 2000
    ]
    assert offsets("--producer", 2000, "--end", 78) == of_2000
    controls = [line["offset"] for line in records if "controlType" in line]
    assert offsets("--control") == controls
    assert offsets("--no-control") == [line["offset"] for line in records if "controlType" not in line]
    assert offsets("--start", 20, "--end", 25) == [20, 21, 22, 23, 24]
    key = next(line for line in expected(expected_kafka, "record", "plain-0") if line["key"])["key"]
    same = [line["offset"] for line in expected(expected_kafka, "record", "plain-0") if line["key"] == key]
    text = base64.b64decode(key).decode()
    with_start = [offset for offset in same if offset >= 5]  # where the checkpoint lets the partition start
    assert offsets("--key", text, topic="plain") == offsets("--key", f"base64:{key}", topic="plain") == with_start
    line = records[30]
    at = [one["offset"] for one in records if one["timestamp"] == line["timestamp"]]
    assert offsets("--begin-time", line["timestamp"], "--end-time", line["timestamp"]) == at
    codecs = {row["codec"] for row in rows("dump", data / "codecs-0", "--codec", "zstd", "--batches")}
    assert codecs == {"zstd"}
    of_zstd = {row["baseOffset"] for row in rows("dump", data / "codecs-0", "--codec", "zstd", "--batches")}
    assert {row["batchBaseOffset"] for row in rows("dump", data / "codecs-0", "--codec", "zstd")} == of_zstd
    committed = offsets("--committed")
    with kafka.inspect(data) as view:
        assert committed == [one.offset for one in view.partition("txn").records(isolation="read_committed")]
    assert len(rows("dump", data, "--max", 7)) == 7


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["dump", "nothing"], 1),
        (["dump", "DATA", "--topic", "nothing"], 2),
        (["dump", "DATA", "--codec", "brotli"], 2),
        (["dump", "DATA", "--key", "base64:!"], 2),
        (["dump", "DATA", "--begin-time", "yesterday"], 2),
        (["check", "nothing"], 2),
        (["stats", "nothing"], 1),
        (["reindex", "DATA"], 2),
        (["reindex", "DATA", "--in-place", "--output", "x"], 2),
        (["recover", "nothing"], 1),
        (["convert", "nothing", "--output", "OUT"], 1),
        (["convert", "DATA", "--output", "OUT", "--topic-name", "x"], 2),
        (["convert", "DATA", "--output", "OUT", "--topics", "nosuch"], 2),
        (["convert", "DATA", "--output", "OUT", "--codec", "junk"], 2),
        (["convert", "DATA", "--output", "OUT", "--codec", "none"], 2),  # a store has no batches
        (["convert", "DATA", "--output", "OUT", "--offsets-topic-partitions", "50"], 2),
        (["convert", "DATA", "--output", "OUT", "--master", "junk"], 2),
        (["convert", "DATA", "--output", "DATA/out"], 2),
    ],
)
@pytest.mark.parametrize("style", ["text", "json"])
def test_what_cannot_be(golden_kafka: Path, tmp_path: Path, arguments: list[str], code: int, style: str) -> None:
    places = {"DATA": str(golden_kafka), "OUT": str(tmp_path / "out"), "nothing": str(tmp_path / "nothing")}
    words = (one.replace("DATA", str(golden_kafka)) if one.startswith("DATA/") else one for one in arguments)
    result = run(*(places.get(one, one) for one in words), "--format", style, code=code)
    if style == "json":
        assert json.loads(result.stdout)["error"]["message"]
    else:
        assert "error: " in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", ""],
        ["dump", ""],
        ["check", ""],
        ["recover", ""],
        ["recover", "x", "--output", ""],
        ["reindex", "", "--in-place"],
        ["convert", "", "--output", "x"],
        ["convert", "x", "--output", ""],
    ],
)
def test_an_empty_path_is_not_the_working_directory(arguments: list[str]) -> None:
    assert "the path names nothing" in run(*arguments, code=2).stderr


@pytest.mark.parametrize("when", ["while commands are loaded", "in a command"])
def test_an_interrupt_is_told_in_one_line(tmp_path: Path, when: str) -> None:
    """The interrupt comes as one does from a terminal, at a place that the test chooses."""
    target = "mqstore.cli.app.build_app" if when.startswith("while") else "mqstore.kafka.view.KafkaView.__init__"
    module, _, function = target.rpartition(".")
    script = f"""
import os, signal, sys, importlib, functools
import mqstore.cli.app, mqstore.kafka.view
def interrupted(*args):
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
signal.signal(signal.SIGINT, signal.default_int_handler)
owner = functools.reduce(getattr, {module.split(".")[1:]!r}, mqstore)
setattr(owner, {function!r}, interrupted)
from mqstore.cli import main
sys.argv = ["mqstore", "kafka", "convert", {str(tmp_path)!r}, "--output", {str(tmp_path / "out")!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_damage(golden_kafka: Path, tmp_path: Path) -> None:
    partition = Path(shutil.copytree(golden_kafka / "plain-0", tmp_path / "plain-0"))
    log = partition / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[735 + 100] ^= 1  # in the second batch, offsets 4 to 8
    log.write_bytes(damaged)
    assert [row["offset"] for row in rows("dump", partition, code=1)] == [0, 1, 2, 3]
    passed = [row["offset"] for row in rows("dump", partition, "--skip-damage", code=1)]
    assert passed == [*range(4), *range(9, 1412)]
    found = document("check", partition, code=1)
    assert found["summary"]["findings"] >= 1
    assert any(one.get("offset") == 735 for one in found["findings"])
    told = document("recover", partition, code=1)
    assert not told["done"]
    assert told["partitions"][0]["logEndAfter"] == 4
    assert told["partitions"][0]["removedSegments"] == [470, 939, 1393]
    assert log.read_bytes() == damaged
    assert document("recover", partition, "--output", tmp_path / "out" / "plain-0", code=1)["done"]
    assert [row["offset"] for row in rows("dump", tmp_path / "out" / "plain-0")] == [0, 1, 2, 3]


def test_recover_makes_of_the_crash_image_what_kafka_made(golden_kafka: Path, tmp_path: Path) -> None:
    run("recover", golden_kafka / "crash-0", "--output", tmp_path / "r-0", "--index-interval-bytes", 512, code=1)
    for path in (golden_kafka / "recovered-0").glob("*.log"):
        for other in (path, path.with_suffix(".index"), path.with_suffix(".timeindex")):
            assert (tmp_path / "r-0" / other.name).read_bytes() == other.read_bytes()


def test_reindex(golden_kafka: Path, tmp_path: Path) -> None:
    written = document("reindex", golden_kafka / "plain-0", "--output", tmp_path / "plain-0")["written"]
    assert len(written) == 8
    for path in map(Path, written):
        assert path.read_bytes() == (golden_kafka / "plain-0" / path.name).read_bytes()
    copy = Path(shutil.copytree(golden_kafka / "txn-0", tmp_path / "txn-0"))
    for path in [*copy.glob("*.index"), *copy.glob("*.timeindex"), *copy.glob("*.txnindex")]:
        path.write_bytes(b"\1" * 40)
    assert document("check", copy, code=1)["findings"]
    run("reindex", copy, "--in-place", "--index-interval-bytes", 512)
    for path in (golden_kafka / "txn-0").glob("*index"):
        assert (copy / path.name).read_bytes() == path.read_bytes()


def test_stats(golden_kafka: Path, expected_kafka: dict[str, Lines]) -> None:
    found = document("stats", golden_kafka, "--topic", "plain")
    (partition,) = found["partitions"]
    sizes = [line["sizeBytes"] for line in expected(expected_kafka, "segment", "plain-0")]
    assert partition["sizeBytes"] == sum(sizes)
    assert partition["segments"] == len(sizes)
    assert partition["records"] == len(expected(expected_kafka, "record", "plain-0"))
    assert partition["batches"] == len(expected(expected_kafka, "batch", "plain-0"))
    text = run("stats", golden_kafka).stdout
    assert "plain-0" in text
    assert "zstd" in text


def test_check_of_golden_partitions(golden_kafka: Path, tmp_path: Path) -> None:
    for name in ("plain-0", "codecs-0", "txn-0", "legacyv1-0", "recovered-0"):
        assert document("check", golden_kafka / name)["summary"]["findings"] == 0, name
    assert "nothing wrong" in run("check", golden_kafka / "plain-0").stdout


def test_convert_there_and_back(golden_kafka: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(golden_kafka / "codecs-0", tmp_path / "data" / "codecs-0")).parent
    made = document("convert", source, "--output", tmp_path / "store", "--topic-name", "codecs=orders")
    assert made["topics"] == {"codecs": "orders"}
    assert {one["kind"] for one in made["losses"]} == {"BATCHES", "LATER_TIMES"}
    with mqstore.inspect(tmp_path / "store") as view:
        assert sum(queue.count for queue in view.queues()) == made["records"] == 562
    run("convert", tmp_path / "store", "--output", tmp_path / "back", "--aborted-as-rollback", code=2)
    text = run("convert", tmp_path / "store", "--output", tmp_path / "back", "--codec", "lz4").stdout
    assert "562 records in 1 partitions" in text
    assert {row["codec"] for row in rows("dump", tmp_path / "back", "--batches")} == {"lz4"}
    assert len(rows("dump", tmp_path / "back")) == 562


def test_beside_a_live_writer(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "data") as log:
        log.put_batch([KafkaMessage("t", b"%d" % number) for number in range(10)])
        assert len(rows("dump", tmp_path / "data")) == 10
        log.put(KafkaMessage("t", b"more"))
        assert document("stats", tmp_path / "data")["running"]
        assert document("check", tmp_path / "data")["summary"]["findings"] == 0
        run("reindex", tmp_path / "data", "--in-place", code=1)  # it is locked


@pytest.mark.parametrize(
    "asked",
    [("--start", 3, "--end", 2), ("--begin-time", "2030-01-01", "--end-time", "2020-01-01")],
    ids=["offsets", "times"],
)
def test_dump_of_what_ends_before_it_begins(golden_kafka: Path, asked: tuple[object, ...]) -> None:
    run("dump", golden_kafka / "plain-0", *asked, code=2)
    assert run("dump", golden_kafka / "plain-0", "--start", 2, "--end", 2).stdout == ""
