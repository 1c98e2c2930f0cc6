"""What commands print as JSON is spelled in one way, and is the same whoever does the work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.spark
from cli.test_commands import break_index, run
from mqstore import Message, kafka
from mqstore.cli.output import json_name, size_text, to_json
from mqstore.kafka import KafkaMessage
from mqstore.spark.jobs import auditing, counting, derived, exporting, lagging, rebuilding
from spark.support import run_here
from store.support import open_small

STORE = [
    ["stats"], ["stats", "--from-log"], ["dump"], ["get", "t"], ["query", "--topic", "t", "--key", "k1"], ["tail"],
    ["lag"], ["check"], ["truncate", "--at", "{end}", "--output", "{new}"], ["rebuild", "--output", "{new}"],
    ["rebuild", "--output", "{new}", "--salvage"], ["expire"], ["adopt", "--commit-log", "{store}/commitlog"],
    ["queryCq", "-t", "t", "-q", "0", "-i", "0"], ["topicStatus", "-t", "t"], ["brokerStatus"], ["consumerProgress"],
    ["kafka", "convert", "--output", "{new}"],
]  # fmt: skip
KAFKA = [["stats"], ["dump"], ["dump", "--batches"], ["check"], ["recover", "--output", "{new}"], ["convert"]]
SPARK = [
    ["stats", "--master", "local[1]"], ["lag", "--master", "local[1]"], ["audit"], ["export", "--output", "{new}"],
    ["rebuild", "--output", "{new}", "--master", "local[1]"],
]  # fmt: skip
NAMED_BY_OTHERS = {"properties", "metaProperties", "lag", "batchesByCodec", "bytesByCodec", "losses"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "broker-a"
    with open_small(path) as opened:
        for number in range(20):
            opened.put(Message("t", b"x", keys=[f"k{number}"], tags="a_b", queue_id=0))
        opened.wait_dispatched()
        opened.commit_offset("my_group", "t", 0, 3)
    return path


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run here, one after the other."""
    for module in (auditing, counting, derived, exporting, lagging, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run_here)
    monkeypatch.setattr(mqstore.spark, "session", lambda *_: _NoSession())


class _NoSession:
    def stop(self) -> None:
        """There is nothing to stop."""


def documents(text: str) -> list[Any]:
    return [json.loads(text)] if text.startswith("{\n") else [json.loads(line) for line in text.splitlines()]


def names(value: Any) -> Iterator[str]:
    """The keys of a document, but for those of mappings whose keys are data."""
    if isinstance(value, list):
        for item in value:
            yield from names(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            if name not in NAMED_BY_OTHERS:
                yield from names(item)


def answers(path: Path, tmp_path: Path, words: list[str]) -> list[Any]:
    at = 2 if words[0] == "kafka" else 1
    with mqstore.inspect(path) if "{end}" in words else nullcontext() as view:
        end = view.log_end if view else 0
    filled = [word.format(new=tmp_path / "new", store=path, end=end) for word in words]
    result = run(*filled[:at], path, *filled[at:], "--format", "json")
    assert result.exit_code == 0, result.output
    found = documents(result.stdout)
    assert found
    return found


@pytest.mark.parametrize("words", STORE, ids=" ".join)
def test_names_of_stores(store: Path, tmp_path: Path, words: list[str]) -> None:
    assert [name for name in names(answers(store, tmp_path, words)) if "_" in name] == []


@pytest.mark.parametrize("words", KAFKA, ids=" ".join)
def test_names_of_kafka_logs(tmp_path: Path, words: list[str]) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t", b"x"))
    if words == ["convert"]:
        words = ["convert", "--output", "{new}"]
    found = answers(tmp_path / "log", tmp_path, ["kafka", *words])
    assert [name for name in names(found) if "_" in name] == []


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("words", SPARK, ids=" ".join)
def test_names_of_what_spark_has_done(store: Path, tmp_path: Path, words: list[str]) -> None:
    (found,) = answers(store, tmp_path, words)
    assert [name for name in names(found) if "_" in name] == []
    times = found.get("counted", found)
    assert times["stageSeconds"]
    assert times["seconds"] == round(times["seconds"], 3)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["stats"], {"counted"}),
        (["lag"], {"waiting", "seconds", "stageSeconds", "report"}),
        (["rebuild", "--output", "{new}"], {"records", "keys", "indexFiles", "inOrder", "stageSeconds"}),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_spark_tells_the_same_and_more(store: Path, tmp_path: Path, words: list[str], more: set[str]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (plain,) = answers(store, here, words)
    (counted,) = answers(store, there, [*words, "--master", "local[1]"])
    assert counted.keys() - plain.keys() == more
    for document in (plain, counted):
        for name in ("seconds", "output"):
            document.pop(name, None)
    if words == ["lag"]:
        for row in counted["progress"]:
            assert row.pop("oldestMs") <= row.pop("newestMs")
    assert {name: counted[name] for name in plain} == plain


@pytest.mark.usefixtures("no_spark")
def test_a_damaged_index_keeps_no_message_from_being_counted(store: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(store, tmp_path / "broken"))
    break_index(broken)
    (found,) = answers(broken, tmp_path, ["stats", "--master", "local[1]"])
    assert found["counted"]["messages"] == 20
    (warning,) = found["warnings"]
    assert "/index/" in warning["path"]
    assert run("stats", broken).exit_code == 1


def test_the_converter() -> None:
    assert json_name("timestamp_ms") == "timestamp"
    assert json_name("physic_msg_timestamp_ms") == "physicMsgTimestamp"
    assert [json_name(name) for name in ("lag", "queue_id", "oldest_ms")] == ["lag", "queueId", "oldestMs"]
    assert to_json({"a_b": (1, b"x")}) == {"a_b": [1, "eA=="]}


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 29, "1.5 GiB"),
        (5 << 40, "5.0 TiB"), (5 << 50, "5120.0 TiB"),
    ],
)  # fmt: skip
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_what_stats_did_not_look_at(store: Path, tmp_path: Path) -> None:
    """An index of a thousand keys is not one of none, and an option is not dropped without a word."""
    assert "index: 20 keys" in run("stats", store).output
    assert "index: not looked at" in run("stats", store, "--from-log").output
    (found,) = documents(run("stats", store, "--from-log", "--format", "json").stdout)
    assert (found["indexFiles"], found["indexKeys"]) == (None, None)
    for more in (["--master", "local[1]"], ["--report", tmp_path / "page.html"]):
        result = run("stats", store, "--from-log", *more)
        assert result.exit_code == 2
        assert "--from-log" in result.stderr
    broken = shutil.copytree(store, tmp_path / "broken")
    break_index(broken)
    assert run("stats", broken, "--from-log").exit_code == 0
