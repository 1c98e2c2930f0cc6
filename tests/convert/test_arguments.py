"""Arguments that cannot be meant are refused by their names, and nothing is made."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore import convert, kafka
from mqstore.convert import Aborted, ConvertOptions
from mqstore.errors import UsageError
from mqstore.kafka import KafkaMessage

LINE = json.dumps({"topic": "t", "value": "eA=="})
NO_MAPPINGS: list[Any] = [None, 5, "a=b", ["a"], {5: "b"}, {b"a": "b"}]
NO_FLAGS: list[Any] = [None, "no", 0, 1, []]

OF_OPTIONS: dict[str, list[Any]] = {
    "topics": [5, b"t", ["t"], "(", True],
    "names": [*NO_MAPPINGS, {"t": 5}, {"t": None}, {"t": b"u"}],
    "internal": NO_FLAGS,
    "aborted": [None, "keep", 5, True, []],
    "skip_damage": NO_FLAGS,
    "store_settings": NO_MAPPINGS,
    "kafka_settings": NO_MAPPINGS,
    "offsets_topic_partitions": [None, "5", 0, -1, 1.5, True, 1 << 31],
}
OF_LINES: dict[str, tuple[list[Any], Callable[[Path, Any], object]]] = {
    "lines": (
        [None, 5, LINE, LINE.encode(), [5], [None], [LINE, ["x"]], {1: 2}],
        lambda new, odd: convert.from_lines(odd, new),
    ),
    "output": ([None, 5, "", b"x", []], lambda _, odd: convert.from_lines([LINE], odd)),
    "topic": ([5, b"t", "", "a/b", []], lambda new, odd: convert.from_lines([LINE], new, topic=odd)),
    "append": (NO_FLAGS, lambda new, odd: convert.from_lines([LINE], new, append=odd)),
    "settings": ([5, "x", ["a"], {5: 1}, {"no": 1}], lambda new, odd: convert.from_lines([LINE], new, settings=odd)),
}


@pytest.mark.parametrize("name", OF_OPTIONS)
def test_options(name: str) -> None:
    for odd in OF_OPTIONS[name]:
        with pytest.raises(UsageError):
            ConvertOptions(**{name: odd})


def test_a_way_with_aborted_records_may_be_spelled() -> None:
    options: Any = {"aborted": "omit"}
    assert ConvertOptions(**options).aborted is Aborted.OMIT
    options = {"aborted": "rollback"}
    assert ConvertOptions(**options).aborted is Aborted.ROLLBACK


@pytest.mark.parametrize("name", OF_LINES)
def test_lines(tmp_path: Path, name: str) -> None:
    odds, call = OF_LINES[name]
    for odd in odds:
        with pytest.raises(UsageError):
            call(tmp_path / "new", odd)
        assert list(tmp_path.iterdir()) == [], odd


def test_lines_of_every_kind_of_text(tmp_path: Path) -> None:
    given = [LINE, LINE.encode(), bytearray(LINE.encode())]
    assert convert.from_lines(given, tmp_path / "a").records == 3
    assert convert.from_lines(io.StringIO(f"{LINE}\n{LINE}"), str(tmp_path / "b")).records == 2
    assert convert.from_lines(iter(given), tmp_path / "b", append=True).records == 3


def test_a_conversion(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t", b"x"))
    no_options: list[Any] = [{"a": 1}, {}, "topics", 5, False]
    for odd in no_options:
        with pytest.raises(UsageError):
            convert.to_rocketmq(tmp_path / "log", tmp_path / "new", odd)
        with pytest.raises(UsageError):
            convert.to_kafka(tmp_path / "log", tmp_path / "new", odd)
    no_paths: list[Any] = [None, 5, "", b"x"]
    for odd in no_paths:
        with pytest.raises(UsageError):
            convert.to_rocketmq(tmp_path / "log", odd)
        with pytest.raises(UsageError):
            convert.to_kafka(tmp_path / "log", odd)
        with pytest.raises(UsageError):
            convert.to_rocketmq(odd, tmp_path / "new")
    assert [one.name for one in tmp_path.iterdir()] == ["log"]


def test_a_comparison(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t", b"x"))
    odds: list[dict[str, Any]] = [{"compacted": "no"}, {"compacted": 0}, {"topic": 5}, {"partition": "0"}]
    for odd in odds:
        with pytest.raises(UsageError):
            kafka.compare(tmp_path / "log", tmp_path / "log", **odd)
    assert len(kafka.compare(tmp_path / "log", tmp_path / "log", topic="t", partition=0, compacted=True)) == 1
