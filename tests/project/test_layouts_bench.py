"""The comparison of layouts measures what it says: every cell appends, recovers and reads the messages it counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mqstore.bench import layout_report, layouts
from mqstore.bench.layouts import Plan
from mqstore.cli.app import build_app
from mqstore.errors import UsageError


def run(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(build_app(), ["bench", "layouts", *map(str, words), "--format", "json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_a_tiny_run(tmp_path: Path) -> None:
    words = ["--topics", "3", "--batches", "4", "--mebibytes", "1", "--size", "1024", "--barrier", "1", "--rounds", "1"]
    places = ["--directory", tmp_path, "--output", tmp_path / "results"]
    cells = run(*words, *places, "--read-messages", "2051")["cells"]
    assert [(cell["layout"], cell["barrier_bytes"]) for cell in cells] == [
        ("rocketmq", 0), ("rocketmq", 1 << 20), ("rocketmq+queues", 1 << 20), ("kafka", 0), ("kafka", 1 << 20),
    ]  # fmt: skip
    for cell in cells:
        assert cell["write"]["messages"] == 1024
        if cell["barrier_bytes"]:
            assert cell.keys() & {"open", "cold", "warm"} == set()
            continue
        # Everything survives the crash: what was written without and with barriers, the message that made each topic,
        # and for the commit log none of the barriers, which are in a topic of their own.
        for read in ("cold", "warm"):
            assert (cell[read]["messages"], cell[read]["queues"]) == (2 * 1024 + 3, 3)
            assert cell[read]["bytes"] == (2 * 1024 + 3) * 1024
        assert cell["open"]["bytes_on_disk"] > 1 << 20
    with_barriers = {cell["layout"]: cell["write"]["syncs"] for cell in cells if cell["barrier_bytes"]}
    assert with_barriers["rocketmq"] < with_barriers["rocketmq+queues"]
    assert with_barriers["kafka"] >= 3
    assert {path.name for path in (tmp_path / "results").iterdir()} >= {"layouts.json", "layouts.md"}
    assert json.loads((tmp_path / "results" / "layouts.json").read_text()) == cells
    assert not list(tmp_path.glob("mqstore-layouts-*"))


def test_more_topics_than_the_sample(tmp_path: Path) -> None:
    """Those that are made without waiting are there as well, and a second run adds to the first."""
    plan = Plan((80,), (1,), 1, 4096, 1, 200, 1, 600, tmp_path)
    for layout in ("rocketmq", "kafka"):
        store = {"round": 0, "layout": layout, "topics": 80, "batch": 1, "size": 4096}
        found, _ = layouts.measure_store(plan, store)
        assert layout_report.failure(found) is None
        assert found["write"]["sample"] == 64
        assert found["cold"]["messages"] >= 200
        syncs = found["write"]["sample_syncs"]
        assert syncs >= (64 * 5 if layout == "kafka" else 64)
        results = tmp_path / "results"
        results.mkdir(exist_ok=True)
        kept = layouts.load(results / "layouts.json")
        (results / "layouts.json").write_text(json.dumps([*kept, found]))
    assert [cell["layout"] for cell in layouts.load(results / "layouts.json")] == ["rocketmq", "kafka"]


def test_what_fails_is_told(tmp_path: Path) -> None:
    plan = Plan((1,), (1,), 1, 1024, 1, 1, 1, 0.001, tmp_path)
    cells = layouts.run(plan, tmp_path / "results")
    assert len(cells) == 5
    text = (tmp_path / "results" / "layouts.md").read_text()
    assert "## Not finished" in text
    assert "kafka, 1 topics, batch 1, barrier none: write took more than 0 s" in text
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize(
    "words",
    [
        ["--topics", "many"], ["--topics", "0"], ["--batches", ""], ["--directory", "/nowhere"], ["--add"],
        ["--mebibytes", "1", "--size", "1048577"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_measured(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "layouts.json").write_text("{}")
    found = run(*words, "--output", tmp_path, code=2)
    assert found["error"]["type"] == UsageError.__name__


def tables(page: Path) -> dict[str, list[dict[str, str]]]:
    """Every table of a page, as rows by column name, under the last line of text before it."""
    found: dict[str, list[dict[str, str]]] = {}
    text = ""
    names: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            text, names = (line or text), []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not names:
            names = cells
        elif not set(line) <= set("|-:"):
            found.setdefault(text, []).append(dict(zip(names, cells, strict=True)))
    return found


def test_the_page_tells_what_was_measured() -> None:
    """Each figure in a table of the page is in the report, under the same column, for the same layout and topics."""
    root = Path(__file__).parents[2]
    without, barriers = (
        {(row["layout"], row["topics"]): row for row in rows}
        for rows in tables(root / "bench/results/layouts.md").values()
    )
    told = {text: rows for text, rows in tables(root / "docs/layouts.md").items() if "layout" in rows[0]}
    assert len(told) == 4
    for text, rows in told.items():
        measured = barriers if text.startswith("With a barrier") else without
        for row in rows:
            there = measured[row["layout"], row["topics"]]
            assert {name: there[name] for name in row} == row, text
