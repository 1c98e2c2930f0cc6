"""The fuzzing script runs, and tells a difference from none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_kafka.py"


@pytest.fixture(scope="module")
def script(native: ModuleType) -> ModuleType:
    assert native.NAME == "native"
    spec = importlib.util.spec_from_file_location("fuzz_kafka", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_kafka"] = module
    spec.loader.exec_module(module)
    return module


def test_some_rounds(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["--rounds", "1500", "--seed", "42", "--compare", "2"])
    told = capsys.readouterr().out
    assert told.startswith("1500 rounds in")
    assert {"SHORT", "MAGIC", "FULL", "UNWRITTEN", "LENGTH", "CRC"} <= {
        word.split()[0] for word in told[20:].split(": ")[-1].split(", ")
    }


def test_a_difference_is_told(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    real = script.read_all

    def wrong(kernels: Any, log: bytes, chance: Any) -> list[Any]:
        return [*real(kernels, log, chance), kernels.NAME]

    monkeypatch.setattr(script, "read_all", wrong)
    with pytest.raises(RuntimeError, match="round 0 of seed 3"):
        script.fuzz(3, 3, 1)
