"""What was dumped as JSON lines can be edited and brought into another log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mqstore import convert, kafka
from mqstore.cli.app import build_app
from mqstore.errors import DiskFullError, UsageError
from mqstore.kafka import KafkaMessage, Record

APP = build_app()
Lines = list[dict[str, Any]]


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(APP, ["kafka", *map(str, arguments)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def records(path: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """All but the producers' numbers, which are not brought along."""
    with kafka.inspect(path) as view:
        return {(one.topic, one.partition): [record[:6] for record in one.records()] for one in view.partitions()}


@pytest.mark.parametrize("options", [[], ["--as-text"]])
def test_golden_records_there_and_back(golden_kafka: Path, tmp_path: Path, options: list[str]) -> None:
    """Keys and values of all kinds, nulls, headers, holes in the offsets, both kinds of timestamp."""
    lines = ""
    wanted = {}
    for name in ("plain-0", "codecs-0", "compacted-0", "txn-0", "legacyv1-0"):
        lines += run("dump", golden_kafka / name, "--format", "json", *options).stdout
        wanted.update(records(golden_kafka / name))
    made = run("import", "-", "--output", tmp_path / "new", "--codec", "lz4", "--format", "json", stdin=lines)
    report = json.loads(made.stdout)
    assert report["records"] == sum(map(len, wanted.values()))
    assert report["controlRecords"] == lines.count('"controlType"') > 10
    assert records(tmp_path / "new") == wanted
    assert kafka.check(tmp_path / "new") == []
    with kafka.open(tmp_path / "new") as log:  # nothing is to be mended
        assert all(not one.rebuilt and one.damage is None for one in log.reports)


def test_bytes_and_times_of_every_kind(tmp_path: Path) -> None:
    headers = [("a,b:c", b"\x00\xff"), ("", b""), ("a,b:c", None), ("ü", "ü\n".encode())]
    with kafka.open(tmp_path / "log", message_timestamp_type="LogAppendTime") as log:
        log.put_batch([KafkaMessage("t", bytes(range(256)), b"\xff", headers), KafkaMessage("t", None, b"")])
        log.put(KafkaMessage("t", b"", None, partition=3))
    for options in ([], ["--as-text"]):
        (tmp_path / "lines").write_text(run("dump", tmp_path / "log", "--format", "json", *options).stdout)
        output = tmp_path / f"new{len(options)}"
        run("import", tmp_path / "lines", "--output", output)
        assert records(output) == records(tmp_path / "log")


def test_a_line_that_was_edited(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put_batch([KafkaMessage("t", b"colour %d" % number, b"k", [("h", b"x")], 5) for number in range(3)])
    text = run("dump", tmp_path / "log", "--format", "json", "--as-text").stdout
    assert '"valueText":"colour 1"' in text
    text = text.replace('"valueText":"colour 1"', '"valueText":"Farbe Grün"')
    run("import", "-", "--output", tmp_path / "new", "--topic", "other", stdin=text)
    found = records(tmp_path / "new")["other", 0]
    values = [b"colour 0", "Farbe Grün".encode(), b"colour 2"]
    assert found == [
        (*old[:4], value, *old[5:]) for old, value in zip(records(tmp_path / "log")["t", 0], values, strict=True)
    ]


def test_appending_to_another_log(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put_batch([KafkaMessage("t", b"%d" % number, b"k", [("h", None)], number) for number in range(1200)])
    with kafka.open(tmp_path / "other") as log:
        log.put(KafkaMessage("t", b"first", timestamp_ms=7))
    lines = run("dump", tmp_path / "log", "--format", "json").stdout
    run("import", "-", "--output", tmp_path / "other", code=2, stdin=lines)  # it is in use
    run("import", "-", "--output", tmp_path / "other", "--append", stdin=lines)
    first, *rest = records(tmp_path / "other")["t", 0]
    assert first[:5] == (0, 7, 0, None, b"first")
    assert rest == [(old[0] + 1, *old[1:]) for old in records(tmp_path / "log")["t", 0]]
    run("import", "-", "--output", tmp_path / "nothing", "--append", code=2, stdin=lines)
    with kafka.open(tmp_path / "other"):
        run("import", "-", "--output", tmp_path / "other", "--append", code=1, stdin=lines)  # it is locked


def test_appended_records_keep_what_lines_say_of_their_time(tmp_path: Path) -> None:
    """Of all kinds, -1 and less among them; only a line that says nothing gets the time of the import."""
    with kafka.open(tmp_path / "stamped", message_timestamp_type="LogAppendTime") as log:
        log.put_batch([KafkaMessage("t", b"%d" % number) for number in range(3)])
        log.put(KafkaMessage("t", b"later"))
    lines = run("dump", tmp_path / "stamped", "--format", "json").stdout.splitlines()
    times = [-1, -5, 7, -(1 << 63), (1 << 63) - 1]
    lines += [json.dumps({**GOOD, "timestamp": time}) for time in times]
    convert.from_lines(lines, tmp_path / "new")
    kafka.open(tmp_path / "old").close()
    run("import", "-", "-o", tmp_path / "old", "--append", stdin="\n".join([*lines, json.dumps(GOOD)]))
    *old, last = records(tmp_path / "old")["t", 0]
    assert old == records(tmp_path / "new")["t", 0]
    assert [record[2] for record in old] == [1] * 4 + [0] * 5
    assert last[1] > 1_600_000_000_000
    assert kafka.check(tmp_path / "old") == []


def test_a_log_that_stamps_stamps_what_is_appended(tmp_path: Path) -> None:
    kafka.open(tmp_path / "log").close()
    convert.from_lines(
        [json.dumps({**GOOD, "timestamp": 5})], tmp_path / "log", append=True,
        settings={"message_timestamp_type": "LogAppendTime"},
    )  # fmt: skip
    [record] = records(tmp_path / "log")["t", 0]
    assert record[2] == 1
    assert record[1] > 1_600_000_000_000


@pytest.mark.parametrize(("bad", "code"), [("{", 2), (json.dumps({"topic": "t", "value": "/" * 2_000_000}), 1)])
def test_nothing_is_appended_of_lines_with_a_bad_one(tmp_path: Path, bad: str, code: int) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t", b"first"))
    before = records(tmp_path / "log")
    lines = [json.dumps({**GOOD, "partition": number % 3}) for number in range(1800)]
    found = run("import", "-", "-o", tmp_path / "log", "--append", code=code, stdin="\n".join([*lines, bad]))
    assert "line 1801" in found.stderr
    assert records(tmp_path / "log") == before


def test_an_append_that_breaks_off_tells_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.open(tmp_path / "log").close()
    real, calls = kafka.KafkaStore.append_batch, iter(range(100))

    def full_at_third(*arguments: Any, **options: Any) -> Any:
        if next(calls) == 2:
            raise DiskFullError("no space left", hint="make room")
        return real(*arguments, **options)

    monkeypatch.setattr(kafka.KafkaStore, "append_batch", full_at_third)
    lines = [json.dumps({**GOOD, "partition": number // 10}) for number in range(50)]
    with pytest.raises(DiskFullError) as caught:
        convert.from_lines(["", *lines], tmp_path / "log", append=True)
    assert caught.value.hint == "lines 1 to 21 are in the log: go on behind them; make room"
    assert {where: len(found) for where, found in records(tmp_path / "log").items()} == {("t", 0): 10, ("t", 1): 10}


@pytest.mark.parametrize("odd", [None, "", "COMIT", 0, [], {}])
def test_a_control_type_that_is_none_is_a_bad_line(tmp_path: Path, odd: object) -> None:
    with pytest.raises(UsageError, match="line 1 is no record: no such controlType"):
        convert.from_lines([json.dumps({**GOOD, "controlType": odd})], tmp_path / "new")
    lines = [json.dumps({**GOOD, "controlType": kind}) for kind in ("COMMIT", "UNKNOWN 9", "UNREADABLE")]
    assert convert.from_lines(lines, tmp_path / "new").control_records == 3


GOOD = {"topic": "t", "value": "eA=="}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2 is no record"),
        ("[1]", "not an object"),
        ("7", "not an object"),
        ("[" * 100_000, "line 2 is no record"),
        ('"\\ud800"', "not an object"),
        ({"topic": "t"}, "no value"),
        ({"value": "eA=="}, "no topic is named"),
        ({**GOOD, "topic": "a/b"}, "no topic can be called"),
        ({**GOOD, "topic": 7}, "no topic can be called"),
        ({**GOOD, "value": "e"}, "value is no base64"),
        ({**GOOD, "value": 7}, "value is 7"),
        ({**GOOD, "valueText": "x"}, "both there"),
        ({"topic": "t", "valueText": 7}, "valueText is 7"),
        ({"topic": "t", "valueText": "\ud800"}, "surrogates"),
        ({**GOOD, "key": "?"}, "key is no base64"),
        ({**GOOD, "offset": -5}, "offset is -5"),
        ({**GOOD, "offset": 0}, "offsets of a partition must ascend"),
        ({**GOOD, "offset": 1 << 63}, "offset is"),
        ({**GOOD, "offset": 1.5}, "offset is 1.5"),
        ({**GOOD, "partition": -1}, "partition is -1"),
        ({**GOOD, "partition": True}, "partition is True"),
        ({**GOOD, "partition": 1 << 31}, "partition is"),
        ({**GOOD, "timestamp": "now"}, "timestamp is 'now'"),
        ({**GOOD, "timestampType": "Mine"}, "no such timestampType"),
        *(({**GOOD, "timestampType": odd}, "no such timestampType") for odd in ([], {}, None, 0, True)),
        *(({**GOOD, "headers": [{"key": odd}]}, "no header") for odd in ([], {})),
        *(({"topic": odd, "value": None}, "topic") for odd in ([], {}, None)),
        *(({"topic": "t", "value": odd}, "value is") for odd in ([], {}, True)),
        *(({**GOOD, "key": odd}, "key is") for odd in ([], {}, True)),
        *(({**GOOD, "timestamp": odd}, "timestamp is") for odd in ([], {}, None, 1 << 63)),
        ({**GOOD, "headers": {}}, "headers are no list"),
        ({**GOOD, "headers": [7]}, "no header"),
        ({**GOOD, "headers": [{"key": None}]}, "no header"),
        ({**GOOD, "headers": [{"key": "\ud800"}]}, "surrogates"),
        ({**GOOD, "headers": [{"key": "k", "valeu": "eA=="}]}, "unknown member 'valeu'"),
        ({**GOOD, "vlaue": "x"}, "unknown member 'vlaue'"),
        ({"topic": "t", "baseOffset": 3, "records": 7}, "unknown member 'baseOffset'"),
    ],
)
def test_bad_lines_are_told_by_number_and_leave_nothing(tmp_path: Path, line: object, why: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(UsageError, match="line 2") as caught:
        convert.from_lines([json.dumps({**GOOD, "offset": 5}), text], tmp_path / "new")
    assert why in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_least_that_a_line_needs(tmp_path: Path) -> None:
    report = convert.from_lines(
        [b'{"topic":"t","value":null}\n', b"\n", '{"topic":"t","valueText":"x"}'], tmp_path / "n"
    )
    assert (report.records, report.partitions) == (2, {("t", 0): 2})
    with kafka.inspect(tmp_path / "n") as view:
        assert list(view.partition("t").records()) == [Record(0, -1, 0, None, None), Record(1, -1, 0, None, b"x")]


@pytest.mark.parametrize(
    "times",
    [
        [-(1 << 63), (1 << 63) - 1],
        [(1 << 63) - 1, -(1 << 63)],
        [0, (1 << 63) - 1, -1, -(1 << 63), 0],
        [-1, (1 << 63) - 2, -(1 << 63) + 1, (1 << 63) - 1],
    ],
)
def test_times_that_are_too_far_apart_for_one_batch(tmp_path: Path, times: list[int]) -> None:
    """A batch holds its records' times as differences of 64 bits."""
    report = convert.from_lines([json.dumps({**GOOD, "timestamp": time}) for time in times], tmp_path / "new")
    assert report.records == len(times)
    assert [record[1] for record in records(tmp_path / "new")["t", 0]] == times
    assert kafka.check(tmp_path / "new") == []


def test_errors_are_json_as_well(tmp_path: Path) -> None:
    found = run("import", "-", "--output", tmp_path / "new", "--format", "json", code=2, stdin="{")
    assert "line 1 is no record" in json.loads(found.stdout)["error"]["message"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "error: " in run("import", tmp_path / "no", "--output", tmp_path / "new", code=1).stderr
    assert not (tmp_path / "new").exists()
