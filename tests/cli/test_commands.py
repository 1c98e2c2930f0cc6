"""Every command on good, damaged and missing stores: exit codes, JSON that parses, no traceback, no hang."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import mqstore
from mqstore import Message
from mqstore.cli.app import build_app
from store.support import body_of, fill, log_file, open_small, overwrite, queue_file

APP = build_app()
COMMAND = [sys.executable, "-c", "from mqstore.cli import main; main()"]
FORMATS = ["text", "json"]


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(APP, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def run_process(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **settings)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("good") / "store"
    fill(store, 30)
    with open_small(store) as opened:
        opened.put(Message("T", "é🚀".encode(), tags="\x1b[2Jé", properties={"a": "🚀"}, keys=["k30"], queue_id=0))
        opened.wait_dispatched()
        opened.commit_offset("group", "T", 0, 3)
    return store


def flip_a_record(store: Path) -> None:
    with mqstore.inspect(store) as view:
        third = [record.physical_offset for record in view.scan()][3]
    overwrite(log_file(store), third + 95, b"stray")


def lose_units(store: Path) -> None:
    overwrite(queue_file(store), 40, bytes(60))


def break_settings(store: Path) -> None:
    for path in (store / "config").iterdir():
        path.write_bytes(b"{")


def break_index(store: Path) -> None:
    overwrite(max((store / "index").iterdir()), 36, b"\x7f\xff\xff\xff")


def keep_log_only(store: Path) -> None:
    for path in store.iterdir():
        if path.name != "commitlog":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def make_log_a_file(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").touch()


def empty_directory(store: Path) -> None:
    shutil.rmtree(store)
    store.mkdir()


def file_instead(store: Path) -> None:
    shutil.rmtree(store)
    store.touch()


def nothing_at_all(store: Path) -> None:
    shutil.rmtree(store)


READERS: list[list[str]] = [
    ["stats"], ["dump"], ["dump", "--skip-damage"], ["get", "T"], ["query", "--topic", "T", "--key", "k1"],
    ["query", "--physical-offset", "0"], ["tail"], ["check"],
]  # fmt: skip
DAMAGES: list[tuple[Callable[[Path], None], int]] = [
    (flip_a_record, 1), (lose_units, 1), (break_settings, 1), (break_index, 1), (keep_log_only, 1),
    (make_log_a_file, 2), (empty_directory, 2), (file_instead, 2), (nothing_at_all, 2),
]  # fmt: skip


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_good_store(good: Path, command: list[str], style: str) -> None:
    result = run(command[0], good, *command[1:], "--format", style)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout
    assert "\x1b" not in result.stdout  # no text of a message acts on a terminal
    if style == "json":
        parse(command[0], result.stdout)


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize(("damage", "code_of_check"), DAMAGES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_damaged_or_missing_store(
    good: Path, tmp_path: Path, damage: Callable[[Path], None], code_of_check: int, style: str
) -> None:
    store = shutil.copytree(good, tmp_path / "store")
    damage(store)
    for command in READERS:
        result = run(command[0], store, *command[1:], "--format", style)
        if command == ["check"]:
            assert result.exit_code == code_of_check
        else:
            assert result.exit_code in (0, 1)
            assert result.exit_code == 1 or code_of_check == 1, command
        if style == "json":
            parse(command[0], result.stdout)
        elif result.exit_code == 1 and command[0] not in ("check", "dump"):
            assert "hint: " in result.stderr, command
    for options in (["--output", tmp_path / "out"], ["--output", tmp_path / "out2", "--salvage"], ["--in-place"]):
        result = run("rebuild", store, *options, "--format", style)
        assert result.exit_code in (0, 1)
        if style == "json":
            parse("rebuild", result.stdout)


def parse(command: str, text: str) -> None:
    """Raise unless ``text`` is one JSON document, or one a line where a command prints rows."""
    if command in ("dump", "tail") and not text.startswith("{\n"):
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
    else:
        answer = json.loads(text)
        assert "error" not in answer or answer["error"]["hint"]


USAGE = [
    ["get", "T", "--max", "99999999999999999999"], ["get", "T", "--max", "0"],
    ["query", "--topic", "T", "--key", "k1", "--max", "99999999999999999999"], ["query"], ["query", "--key", "k"],
    ["query", "--id", "zz"], ["query", "--topic", "T", "--key", "k", "--begin", "2026-13-45"],
    ["query", "--physical-offset", "0", "--begin", "2"], ["query", "--physical-offset", "0", "--end", "1"],
    ["query", "--topic", "T", "--key", "k", "--begin", "2", "--end", "1"], ["dump", "--start", "5"],
    ["check", "--delay-levels", "abc"], ["check", "--delay-levels", "99999999999999999999d"],
    ["tail", "--lines", "99999999999999999999"], ["tail", "--follow", "--interval-ms", "99999999999999999999"],
    ["rebuild"], ["rebuild", "--output", "x", "--in-place"], ["rebuild", "--in-place", "--salvage"],
    ["stats", "--format", "xml"],
]  # fmt: skip


@pytest.mark.parametrize("command", USAGE, ids=" ".join)
def test_a_call_that_cannot_be_meant(good: Path, command: list[str]) -> None:
    assert run(command[0], good, *command[1:]).exit_code == 2


ODD = [
    ["get", "../../x"], ["get", "\udcff"], ["get", "T", "--offset", "99999999999999999999"],
    ["get", "T", "--queue", "99999999999999999999"], ["query", "--topic", "T", "--key", "\udcff"],
    ["query", "--topic", "\udcff", "--key", "k"], ["query", "--physical-offset", "99999999999999999999"],
    ["dump", "--start", "99999999999999999999"], ["dump", "--topic", "\udcff"],
    ["query", "--topic", "T", "--key", "k1", "--end=-999999999999999999"],
]  # fmt: skip


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("command", ODD, ids=ascii)
def test_odd_arguments(good: Path, command: list[str], style: str) -> None:
    result = run(command[0], good, *command[1:], "--format", style)
    assert result.exit_code in (0, 1, 2)
    if style == "json":
        parse(command[0], result.stdout)


NAMES = {
    "physicalOffset": "commitLogOffset",
    **{
        name: name
        for name in (
            "topic", "queueId", "queueOffset", "msgId", "flag", "sysFlag", "bornTimestamp", "bornHost",
            "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "bodyCRC", "storeSize",
            "body", "properties",
        )
    },
}  # fmt: skip
MORE = {"keys", "tags", "propertiesString", "brokerName"}


@pytest.mark.parametrize(
    "name",
    ["basic", "broker", "cleaned", "crashed-recovered", "crashed-bigindex", "v5-basic", "v5-cleaned", "v5-crashed"],
)  # fmt: skip
def test_dump_gives_every_record_as_expected(golden: Path, name: str) -> None:
    root = golden / name
    expectations = root if (root / "EXPECTED.jsonl").exists() else root / "live"
    expected = [json.loads(line) for line in (expectations / "EXPECTED.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in run("dump", root / "store", "--format", "json").stdout.splitlines()]
    # What was alive while the expectations were taken went on to newer messages.
    assert len(rows) == len(expected) or (expectations.name == "live" and len(rows) > len(expected))
    for row, wanted in zip(rows, expected, strict=False):
        assert row.keys() == {*NAMES, *MORE}
        assert {theirs: row[ours] for ours, theirs in NAMES.items()} == {one: wanted[one] for one in NAMES.values()}
        properties = wanted["properties"]
        assert row["tags"] == properties.get("TAGS")
        assert (row["keys"] or []) == [key for key in properties.get("KEYS", "").split(" ") if key]
        assert row["brokerName"] == "store"
        pairs = [part.split("\1", 1) for part in row["propertiesString"].split("\2") if part]
        assert {pair[0]: pair[1] for pair in pairs} == properties


def test_what_the_answers_hold(good: Path) -> None:
    stats = json.loads(run("stats", good, "--format", "json").stdout)
    assert stats["topics"] == [{"topic": "T", "queues": 1, "messages": 31}]
    assert stats["progress"][0]["lag"] == 28
    got = json.loads(run("get", good, "T", "--offset", "4", "--max", "2", "--format", "json").stdout)
    assert [base64.b64decode(message["body"]) for message in got["messages"]] == [body_of(4), body_of(5)]
    assert (got["status"], got["nextOffset"], got["maxOffset"]) == ("FOUND", 6, 31)
    found = json.loads(run("query", good, "--topic", "T", "--key", "k30", "--format", "json").stdout)
    assert [message["properties"]["a"] for message in found["messages"]] == ["🚀"]
    by_id = json.loads(run("query", good, "--id", found["messages"][0]["msgId"], "--format", "json").stdout)
    assert by_id == found
    tail = run("tail", good, "--lines", "2", "--format", "json").stdout.splitlines()
    assert [json.loads(line)["queueOffset"] for line in tail] == [29, 30]


def test_a_condition_where_tags_are_meant_is_told(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        for tags in ("paid", "amount > 10", "not paid", "true"):
            store.put(Message("t", b"", tags=tags, properties={"amount": "20"}, queue_id=0))
        store.wait_dispatched()
    for text in ("amount > 10", "amount>10 and TAGS is not null", "a in ('x', 'y')"):
        result = run("get", tmp_path / "s", "t", "-w", text)
        assert result.exit_code == 0
        assert f"warning: {text} is taken as a tag" in result.stderr
        assert "--sql" in result.stderr
    for text in ("paid", "paid || refunded", "true", "not paid for", "amount >", "*"):
        assert run("get", tmp_path / "s", "t", "-w", text).stderr == ""
    found = json.loads(run("get", tmp_path / "s", "t", "-w", "amount > 10", "--format", "json").stdout)
    assert [message["tags"] for message in found["messages"]] == ["amount > 10"]  # such a tag can be asked for


def test_each_where_says_what_it_takes() -> None:
    assert "--sql" in run("get", "--help").output
    assert "condition" in run("export", "--help").output


def test_python_runs_the_package_as_the_command(good: Path) -> None:
    command = [sys.executable, "-m", "mqstore"]
    done = subprocess.run([*command, "check", str(good)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing wrong" in done.stdout
    help_text = subprocess.run(
        [*command, "get", "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "Usage: python -m mqstore get" in help_text


def test_a_reader_that_goes_away_is_no_failure(golden: Path) -> None:
    for style in FORMATS:
        command = shlex.join([*COMMAND, "dump", str(golden / "basic" / "store"), "--format", style])
        script = f"{command} 2>&3 | head -1; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", f"exec 3>&2; {script}"], capture_output=True, check=False, timeout=60
        )  # fmt: skip
        assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_output_that_cannot_be_written(good: Path) -> None:
    for style in FORMATS:
        with open("/dev/full", "wb") as full:
            command = [*COMMAND, "dump", str(good), "--format", style]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
        assert done.returncode == 1
        assert b"Traceback" not in done.stderr
        assert b"no space left" in done.stderr


def test_characters_that_the_output_lacks(good: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for style in FORMATS:
        done = run_process("query", good, "--topic", "T", "--key", "k30", "--format", style, env=environment)
        assert (done.returncode, done.stderr) == (0, b"")
        if style == "json":
            assert json.loads(done.stdout)["messages"][0]["properties"]["a"] == "🚀"


def follow(store: Path) -> subprocess.Popen[bytes]:
    """``mqstore tail --follow``, from the newest message on, as an interrupt ends it."""
    command = [*COMMAND, "tail", str(store), "-n", "1", "--follow", "--interval-ms", "20", "--format", "json"]
    # Under nohup and behind a shell's & interrupts are ignored, and what ignores them passes that on to its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)


def test_following_shows_what_comes_and_ends_when_asked(good: Path, tmp_path: Path) -> None:
    store = shutil.copytree(good, tmp_path / "store")
    child = follow(store)
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["queueOffset"] == 30
    with open_small(store) as opened:
        opened.put(Message("T", b"new", queue_id=0))
        assert json.loads(child.stdout.readline())["queueOffset"] == 31
    child.send_signal(signal.SIGINT)
    rest, error = child.communicate(timeout=60)
    assert (child.returncode, rest, error) == (130, b"", b"interrupted\n")


@pytest.mark.parametrize("messages", [3, 60])
def test_following_a_store_that_was_made_anew(good: Path, tmp_path: Path, messages: int) -> None:
    """Shorter than the one before, or longer: all of it is new."""
    store = shutil.copytree(good, tmp_path / "store")
    child = follow(store)
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["queueOffset"] == 30
        with open_small(tmp_path / "new") as opened:
            for number in range(messages):
                opened.put(Message("T", b"%d" % number * 20, queue_id=0))
        store.rename(tmp_path / "old")
        (tmp_path / "new").rename(store)
        seen = [json.loads(child.stdout.readline())["queueOffset"] for _ in range(messages)]
        assert seen == list(range(messages))
        with open_small(store) as opened:
            opened.put(Message("T", b"new", queue_id=0))
        assert json.loads(child.stdout.readline())["queueOffset"] == messages
    finally:
        child.kill()
        child.communicate(timeout=60)
