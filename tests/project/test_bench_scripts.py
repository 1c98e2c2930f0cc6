"""The longer benchmarks run, and keep what they measured where their reports look for it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from project.source import ROOT


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def script(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(ROOT / "bench"))
        spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, f"bench_{name}", module)
        spec.loader.exec_module(module)
        return module

    return script


def test_latencies(tmp_path: Path, load) -> None:  # type: ignore[no-untyped-def]
    words = ["--rounds", "1", "--count", "400", "--versions", "", "--directory", str(tmp_path)]
    results = load("latency").main([*words, "--output", str(tmp_path / "results")])
    assert json.loads((tmp_path / "results" / "latency.json").read_text()) == results
    assert [(case["threads"], case["mode"], case["count"]) for case in results["cases"]] == [
        (1, "ASYNC_FLUSH", 400), (4, "ASYNC_FLUSH", 400), (1, "SYNC_FLUSH", 64), (8, "SYNC_FLUSH", 64),
    ]  # fmt: skip
    for case in results["cases"]:
        (cell,) = case["cells"]["mqstore"]
        assert cell["consumed"] == case["count"]
        assert cell["p50_us"] <= cell["p999_us"]
    text = (tmp_path / "results" / "latency.md").read_text()
    assert "| ASYNC_FLUSH, 4 threads: mqstore | 400 | " in text
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_curves(tmp_path: Path, load) -> None:  # type: ignore[no-untyped-def]
    words = ["--rounds", "1", "--versions", "", "--directory", str(tmp_path), "--output", str(tmp_path / "results")]
    module = load("curves")
    assert set(module.series(5)) == set(module.curves_report.SHOWN)
    module.main([*words, "--series", "bodies", "--points", "100,1024", "--scale", "0.001"])
    small = ["--scale", "0.001", "--largest", "0.001"]
    module.main([*words, "--series", "crashed,rebuild", "--points", "0.001,100000", *small])
    results = module.main([*words, "--series", "bodies", "--points", "100", "--scale", "0.002"])
    assert json.loads((tmp_path / "results" / "curves.json").read_text()) == results
    found = {name: [(one["x"], one["messages"]) for one in points] for name, points in results["series"].items()}
    assert found == {"bodies": [(100, 200), (1024, 100)], "crashed": [(0.001, 64)], "rebuild": [(100_000, 100)]}
    assert not any("failed" in cell for points in results["series"].values() for cell in points[0]["cells"]["mqstore"])
    text = (tmp_path / "results" / "curves.md").read_text()
    assert "## Puts of larger bodies" in text
    if Path("/proc/self/status").exists():
        assert "| crashed: 0.001 GiB | mqstore | " in text
        assert "| bodies: " not in text  # whose memory no curve follows
    assert (tmp_path / "results" / "curves.svg").read_text().startswith("<?xml")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_pieces(tmp_path: Path, load, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    module = load("pieces")
    monkeypatch.setattr(module, "COUNT", 1500)
    words = ["--rounds", "1", "--directory", str(tmp_path), "--output", str(tmp_path / "results")]
    pieces = module.main(words)["pieces"]
    assert len(pieces) == 17
    assert all(times[0] > 0 for times in pieces.values())
    assert "| put_batch of 32, with making the messages | " in (tmp_path / "results" / "pieces.md").read_text()


def test_ratios_above_one_are_better(load) -> None:  # type: ignore[no-untyped-def]
    ratio = load("curves_report")._ratio
    assert (ratio([10.0], [20.0], "per_second"), ratio([10.0], [20.0], "seconds")) == ("0.50", "2.00")


def test_spark(tmp_path: Path) -> None:
    words = ["--quick", "--only", "audit", "--directory", tmp_path, "--output", tmp_path / "results"]
    script = [sys.executable, ROOT / "bench" / "spark.py", *words, "--results", "audits"]
    subprocess.run(list(map(str, script)), check=True, capture_output=True)
    results = json.loads((tmp_path / "results" / "audits.json").read_text())
    found = [(row["name"], row["perCore"], row["messages"]) for row in results["rows"]]
    assert found == [
        ("audit, a core", True, None), ("large log: audit, a core", True, 40_000),
        ("large log: audit, 2 cores", False, 40_000),
    ]  # fmt: skip
    assert all(row["ratio"] > 0 for row in results["rows"])
    text = (tmp_path / "results" / "audits.md").read_text()
    assert "20,000 messages with bodies of 1,024 bytes, 0.02 GiB of log; files on " in text
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
