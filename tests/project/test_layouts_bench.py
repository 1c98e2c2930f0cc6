"""The comparison of layouts measures what it says: every cell appends, recovers and reads the messages it counts."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

from project.source import ROOT


def load_bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_layouts", ROOT / "bench" / "layouts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_layouts"] = module
    spec.loader.exec_module(module)
    return module


def test_a_tiny_run(tmp_path: Path) -> None:
    bench = load_bench()
    words = ["--topics", "3", "--batches", "4", "--mebibytes", "1", "--size", "1024", "--barrier", "1", "--rounds", "1"]
    words += ["--directory", str(tmp_path), "--output", str(tmp_path / "results")]
    cells = bench.main([*words, "--read-messages", "2000"])
    assert [(cell["layout"], cell["barrier_bytes"]) for cell in cells] == [
        ("rocketmq", 0), ("kafka", 0), ("rocketmq", 1 << 20), ("rocketmq+queues", 1 << 20), ("kafka", 1 << 20),
    ]  # fmt: skip
    for cell in cells:
        assert cell["write"]["messages"] == 1024
        # Everything survives the crash, the message that made each topic included.
        for read in ("cold", "warm"):
            assert (cell[read]["messages"], cell[read]["queues"]) == (1024 + 3, 3)
            assert cell[read]["bytes"] == (1024 + 3) * 1024
        assert cell["open"]["bytes_on_disk"] > 1 << 20
    with_barriers = {cell["layout"]: cell["write"]["syncs"] for cell in cells if cell["barrier_bytes"]}
    assert with_barriers["rocketmq"] < with_barriers["rocketmq+queues"]
    assert with_barriers["kafka"] >= 3
    assert {path.name for path in (tmp_path / "results").iterdir()} >= {"layouts.json", "layouts.md"}
    assert json.loads((tmp_path / "results" / "layouts.json").read_text()) == cells
    assert not list(tmp_path.glob("mqstore-layouts-*"))


def test_what_fails_is_told() -> None:
    bench = load_bench()
    cell = {"layout": "kafka", "topics": 1, "batch": 1, "size": 1, "barrier_bytes": 0, "write": {"failed": "no"}}
    arguments = type("Arguments", (), {"mebibytes": 1, "size": 1, "rounds": 1, "directory": None})
    text = bench.report([cell], arguments)
    assert "## Not finished" in text
    assert "kafka, 1 topics, batch 1, barrier none: no" in text
