"""JSON of the commands for Kafka logs: parseable on good, damaged and missing directories, and without loss."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mqstore import kafka
from mqstore.cli.app import build_app
from mqstore.kafka import KafkaMessage

APP = build_app()
COMMANDS: dict[str, list[str]] = {
    "compare": ["GOOD", "PATH"],
    "recover": ["PATH"],
    "reindex": ["PATH", "--output", "OUT"],
    "convert": ["PATH", "--output", "OUT"],
}


def run(*arguments: object, code: int) -> Any:
    """What the command printed, as JSON, with the exit code ``code``; a failure is told as JSON as well."""
    result = CliRunner().invoke(APP, ["kafka", *map(str, arguments), "--format", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout or result.stderr)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    with kafka.open(tmp_path / "good", segment_bytes=2000) as log:
        for number in range(60):
            log.put(KafkaMessage("t", b"%d" % number * 20, b"k%d" % number, timestamp_ms=1000 + number))
    return tmp_path / "good"


@pytest.fixture
def damaged(good: Path, tmp_path: Path) -> Path:
    path = Path(shutil.copytree(good, tmp_path / "damaged"))
    log = sorted((path / "t-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[data.index(b"30" * 20)] ^= 1
    log.write_bytes(data)
    (path / ".kafka_cleanshutdown").unlink()
    return path


def words(command: str, good: Path, path: Path) -> list[str]:
    places = {"GOOD": str(good), "PATH": str(path), "OUT": str(good.with_name("out"))}
    return [command, *(places.get(one, one) for one in COMMANDS[command])]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_good_directory(good: Path, command: str) -> None:
    found = run(*words(command, good, good), code=0)
    if command == "compare":
        assert found["summary"] == {"partitions": 1, "different": 0}
    elif command == "recover":
        assert (found["done"], [one["damage"] for one in found["partitions"]]) == (False, [None])
    elif command == "reindex":
        assert all(Path(one).is_file() for one in found["written"])
        assert len(found["written"]) >= 4
    else:
        assert (found["records"], found["topics"]) == (60, {"t": "t"})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_directory(good: Path, damaged: Path, command: str) -> None:
    found = run(*words(command, good, damaged), code=1)
    if command == "compare":
        (one,) = found["partitions"]
        assert one["reason"] == "B is damaged: CRC"
        assert 0 < one["firstDifference"] < 60
    elif command == "recover":
        (one,) = found["partitions"]
        assert one["damage"]["reason"] == "CRC"
        assert one["logEndAfter"] < one["logEndBefore"] == 60
    elif command == "reindex":
        assert all(Path(one).is_file() for one in found["written"])
        assert [one["reason"] for one in found["damages"]] == ["CRC"]
    else:
        assert found["error"]["type"] == "CorruptBatchError"
        assert not good.with_name("out").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_directory(good: Path, tmp_path: Path, command: str) -> None:
    # Exit code 2 is for calls that cannot be meant; compare tells a difference (1) from not having been able to look.
    found = run(*words(command, good, tmp_path / "missing"), code=2 if command == "compare" else 1)
    assert found["error"]["type"] == "NotAStoreError"
    assert str(tmp_path / "missing") in json.dumps(found)
    assert not (tmp_path / "out").exists()


def test_names_and_values_with_commas_colons_and_newlines(tmp_path: Path) -> None:
    headers = [("a,b:c", b"x,y:z"), ("line\nbreak", b"1\n2\r\n"), ('"\\', b"\x00\xff"), ("", b""), ("a,b:c", None)]
    messages = [
        KafkaMessage("t", b"v,1:\n", b"k,1:\n", headers, 5),
        KafkaMessage("t", None, None, [(",", None)], 6),
    ]
    with kafka.open(tmp_path / "log") as log:
        log.put_batch(messages)
    result = CliRunner().invoke(APP, ["kafka", "dump", str(tmp_path / "log"), "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    found = [
        (bytes_of(row["key"]), bytes_of(row["value"]), [(one["key"], bytes_of(one["value"])) for one in row["headers"]])
        for row in rows
    ]
    assert found == [(one.key, one.value, list(one.headers)) for one in messages]


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
