"""The fuzzer gives bytes to every decoder, and tells when one answers with anything but an answer or a refusal."""

from __future__ import annotations

import collections
import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from project.source import ROOT


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield importlib.import_module("fuzz")
    for name in ("fuzz", "fuzz_targets"):
        sys.modules.pop(name, None)


def test_every_decoder_answers_or_refuses(fuzz: Any) -> None:
    known = importlib.import_module("fuzz_targets")
    seeds = list(fuzz.golden_seeds())
    assert len(seeds) > 100
    chance = random.Random(11)
    counts: collections.Counter[str] = collections.Counter()
    for number in range(200 * len(known.TARGETS)):
        data = bytes([number % len(known.TARGETS)]) + fuzz.damaged(chance, seeds)
        fuzz.one_input(list(known.TARGETS.items()), known.MqstoreError, counts, data)
    assert counts == dict.fromkeys(known.TARGETS, 200)


def test_a_finding_is_told_and_kept(fuzz: Any, tmp_path: Path) -> None:
    def decode(data: bytes) -> None:
        if b"\xff" in data:
            raise IndexError("out of range")

    counts: collections.Counter[str] = collections.Counter()
    with pytest.raises(IndexError):
        fuzz.by_chance(
            lambda data: fuzz.one_input([("bad", decode)], ValueError, counts, data), [b"\xfe" * 9], 60, 1, tmp_path
        )
    (finding,) = tmp_path.iterdir()
    assert b"\xff" in finding.read_bytes()[1:]
