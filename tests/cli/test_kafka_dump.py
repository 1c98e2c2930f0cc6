"""What ``kafka dump`` prints, and how much of it: levels, internal topics, limits, keys, copies of a running log."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mqstore import convert, kafka
from mqstore.cli.app import build_app
from mqstore.kafka import KafkaMessage

APP = build_app()
Lines = list[dict[str, Any]]


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(APP, ["kafka", "dump", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: object, code: int = 0) -> Lines:
    return [json.loads(line) for line in run(*arguments, "--format", "json", code=code).stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A batch of three, and one of one, in each of two partitions."""
    with kafka.open(tmp_path / "log") as store:
        for partition in range(2):
            messages = [KafkaMessage("t", b"v%d" % number, b"k", (), number, partition) for number in range(3)]
            store.put_batch(messages)
            store.put(KafkaMessage("t", b"\xff", b"k", [("h", b"x"), ("n", None)], 9, partition))
    return tmp_path / "log"


BATCH_LEVEL = {
    "producerId", "producerEpoch", "baseSequence", "leaderEpoch", "crc", "codec", "magic", "transactional", "control",
    "baseOffset", "lastOffset", "size", "position",
}  # fmt: skip


def test_what_holds_for_a_batch_is_said_once(log: Path) -> None:
    both = rows(log, "--partition", 0, "--batches", "--records")
    assert ["value" in row for row in both] == [False, True, True, True, False, True]
    for name in BATCH_LEVEL:
        assert [name in row for row in both] == ["value" not in row for row in both], name
    assert [row for row in both if "value" in row] == rows(log, "--partition", 0)
    assert [row for row in both if "value" not in row] == rows(log, "--partition", 0, "--batches")
    assert [row["batchBaseOffset"] for row in rows(log, "--partition", 0)] == [0, 0, 0, 3]


def test_record_metadata_can_be_left_out(log: Path) -> None:
    found = rows(log, "--partition", 0, "--skip-record-metadata")
    assert found[0] == {"key": "aw==", "value": "djA=", "headers": []}
    assert found[3] == {
        "key": "aw==",
        "value": "/w==",
        "headers": [{"key": "h", "value": "eA=="}, {"key": "n", "value": None}],
    }
    assert run(log, "--partition", 0, "--skip-record-metadata").stdout.splitlines()[0] == "k v0"
    text = rows(log, "--partition", 0, "--skip-record-metadata", "--as-text")
    assert text[2] == {"keyText": "k", "valueText": "v2", "headers": []}
    assert text[3] == {
        "keyText": "k",
        "value": "/w==",
        "headers": [{"key": "h", "valueText": "x"}, {"key": "n", "value": None}],
    }


def test_a_dump_that_was_cut_says_so_and_where_to_go_on(log: Path) -> None:
    whole = run(log).stdout.splitlines()
    for limit in range(1, 9):
        found = run(log, "--max", limit)
        assert found.stdout.splitlines() == whole[:limit]
        if limit == len(whole):
            assert found.stderr == ""
            continue
        assert (
            f"cut at --max {limit}: go on with --topic t --partition {limit // 4} --start {limit % 4}" in found.stderr
        )
        rest = run(log, "--partition", limit // 4, "--start", limit % 4).stdout.splitlines()
        assert found.stdout.splitlines() + rest == whole[: 4 * (limit // 4 + 1)]
    assert "cut" not in run(log, "--max", 100).stderr
    assert "cut at --max 1: go on with --topic t --partition 0 --start 3" in run(log, "--batches", "--max", 1).stderr
    assert [row["offset"] for row in rows(log, "--max", 2)] == [
        0,
        1,
    ]  # on standard output there are lines of JSON alone


def test_entries_that_were_cut(golden_kafka: Path) -> None:
    index = golden_kafka / "plain-0" / f"{0:020d}.index"
    count = len(rows(index))
    assert len(rows(index, "--max", 3)) == 3
    assert f"cut at --max 3: {count - 3} more entries" in run(index, "--max", 3).stderr
    assert run(index, "--max", count).stderr == ""


def test_a_busy_key(tmp_path: Path) -> None:
    """However many records have a key, and whichever span of time is asked for."""
    with kafka.open(tmp_path / "log") as store:
        for number in range(300):
            store.put(KafkaMessage("t", b"%d" % number, b"busy" if number % 3 else b"other", (), 1000 + 20 * number))
    assert len(rows(tmp_path / "log", "--key", "busy")) == 200
    found = run(tmp_path / "log", "-k", "busy", "-m", 100, "--format", "json")
    assert len(found.stdout.splitlines()) == 100
    assert "go on with --topic t --partition 0 --start 151" in found.stderr
    second = rows(tmp_path / "log", "-k", "busy", "-b", 2000, "-e", 2999)
    assert [row["offset"] for row in second] == [number for number in range(50, 100) if number % 3]
    assert run(tmp_path / "log", "-k", "busy", "-b", 2000, "-e", 2999, "-m", len(second)).stderr == ""
    assert rows(tmp_path / "log", "-k", "busy", "-b", 90_000) == []
    assert rows(tmp_path / "log", "-k", "nobody") == []


def test_internal_topics_are_decoded(tmp_path: Path) -> None:
    key, value = (
        bytes.fromhex("000100016700017400000003"),
        bytes.fromhex("000300000000000012670000000500000000018bcfe5687b"),
    )
    with kafka.open(tmp_path / "data") as log:
        log.put(KafkaMessage("__consumer_offsets", value, key, timestamp_ms=5))
        log.put(KafkaMessage("__consumer_offsets", None, key, timestamp_ms=6))
        log.put(KafkaMessage("__consumer_offsets", b"?", b"?", timestamp_ms=7))
    first, second, third = rows(tmp_path / "data")
    assert first["decoded"]["value"]["offset"] == 4711
    assert second["decoded"] == {
        "kind": "offset", "key": {"version": 1, "group": "g", "topic": "t", "partition": 3}, "value": None,
    }  # fmt: skip
    assert third["decoded"] is None
    assert "group=g topic=t partition=3 -> offset=4711" in run(tmp_path / "data").stdout


def test_transactions_are_decoded(tmp_path: Path) -> None:
    """Fields as docs/format/kafka-internal-topics.md has them: version 0, and version 1 with its compact lengths."""
    key = bytes.fromhex("0000 0004 74782d31")
    plain = "0000 0000000000000007 0001 0000ea60 02 00000001 0001 74 00000002 00000000 00000005"
    compact = "0001 0000000000000007 0001 0000ea60 05 02 02 74 03 00000000 00000005 00"
    times = "0000018bcfe56800 0000018bcfe567ff"
    with kafka.open(tmp_path / "data") as log:
        log.put(KafkaMessage("__transaction_state", bytes.fromhex(f"{plain} {times}"), key, timestamp_ms=5))
        log.put(KafkaMessage("__transaction_state", bytes.fromhex(f"{compact} {times} 00"), key, timestamp_ms=6))
        log.put(KafkaMessage("__transaction_state", None, key, timestamp_ms=7))
        log.put(KafkaMessage("__transaction_state", b"\0\0rubbish", key, timestamp_ms=8))
    first, second, third, fourth = rows(tmp_path / "data")
    value = {
        "version": 0, "producerId": 7, "producerEpoch": 1, "transactionTimeoutMs": 60_000,
        "transactionStatus": "PrepareCommit", "transactionPartitions": [{"topic": "t", "partitionIds": [0, 5]}],
        "transactionLastUpdateTimestampMs": 1_700_000_000_000, "transactionStartTimestampMs": 1_699_999_999_999,
    }  # fmt: skip
    named = {"version": 0, "transactionalId": "tx-1"}
    assert first["decoded"] == {"kind": "transaction", "key": named, "value": value}
    assert second["decoded"]["value"] == {**value, "version": 1, "transactionStatus": "CompleteAbort"}
    assert third["decoded"] == {"kind": "transaction", "key": named, "value": None}
    assert fourth["decoded"] is None  # its bytes are there all the same
    assert fourth["value"]
    text = run(tmp_path / "data").stdout.splitlines()
    assert "transaction transactionalId=tx-1 -> producerId=7" in text[0]
    assert text[2].endswith("transactionalId=tx-1 -> null")


def test_a_copy_made_while_a_writer_runs(tmp_path: Path) -> None:
    """It ends somewhere, torn or not, and all before is there; the directory itself can be read as well."""
    stop = threading.Event()
    with kafka.open(tmp_path / "log", segment_bytes=20_000) as store:
        store.create_topic("t")

        def write() -> None:
            number = 0
            while not stop.wait(0.002) and number < 5_000:  # there is an end of it, however slow the copying is
                store.put_batch([KafkaMessage("t", b"%d" % (number + one) * 9) for one in range(5)])
                number += 5

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for copy in range(4):
                wanted = store.max_offset("t")
                shutil.copytree(tmp_path / "log", tmp_path / f"copy{copy}", ignore=shutil.ignore_patterns(".*.tmp"))
                for path in (tmp_path / f"copy{copy}", tmp_path / "log"):
                    with kafka.inspect(path) as view:
                        found = [(one.offset, one.value) for one in view.partition("t").records(0, wanted)]
                    assert found == [(number, b"%d" % number * 9) for number in range(wanted)]
                assert len(rows(tmp_path / f"copy{copy}")) >= wanted
        finally:
            stop.set()
            writer.join()


def test_records_of_any_time_are_shown(tmp_path: Path) -> None:
    """Without --begin-time nothing is left out, however far before 1970 it claims to be."""
    times = [-(1 << 63), -2, -1, 0]
    lines = [json.dumps({"topic": "t", "value": "eA==", "timestamp": time}) for time in times]
    convert.from_lines(lines, tmp_path / "log")
    assert [row["timestamp"] for row in rows(tmp_path / "log")] == times
    assert [row["timestamp"] for row in rows(tmp_path / "log", "-b", -(1 << 63), "-e", -2)] == times[:2]
    assert [row["timestamp"] for row in rows(tmp_path / "log", "-b", -1)] == times[2:]
    run(tmp_path / "log", "-b", -(1 << 63) - 1, code=2)


@pytest.mark.parametrize("options", [(), ("--committed",), ("--start", 1)])
def test_deleted_records_are_not_shown(log: Path, options: tuple[object, ...]) -> None:
    """The log starts inside a batch, of which the records before are still in the file."""
    with kafka.open(log) as store:
        store.delete_records("t", 0, 2)
    with kafka.inspect(log) as view:
        readable = [record.offset for record in view.partition("t").records()]
    assert [row["offset"] for row in rows(log, "--partition", 0, *options)] == readable == [2, 3]
    assert [row["offset"] for row in rows(log, "--partition", 1, "--start", 0)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [
        ("--topic", "t"), ("--partition", 0), ("--start", 0), ("--end", 1), ("-b", 0), ("-e", 1), ("--key", "k"),
        ("--producer", 1), ("--codec", "none"), ("--control",), ("--no-control",), ("--committed",), ("--batches",),
        ("--records",), ("--skip-record-metadata",),
    ],
)  # fmt: skip
def test_what_a_small_file_cannot_be_asked_is_refused(log: Path, options: tuple[object, ...]) -> None:
    for path in (log / "t-0" / f"{0:020d}.index", log / "recovery-point-offset-checkpoint"):
        assert "chooses from records" in run(path, *options, code=2).stderr.replace("\n", " ")
    assert run(path, "--max", 1, "--as-text", "--skip-damage").stdout.count("topic=t") == 1
