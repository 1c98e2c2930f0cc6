"""What contributors are told is so: files that are named exist, and the map of modules has all of them."""

from __future__ import annotations

import re

from project.source import ROOT, script


def test_files_that_the_guide_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert text.startswith("# ")
    named = {name for name in re.findall(r"(?:src|tests|docs|scripts|bench)/[\w./-]*\w", text) if "built" not in name}
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_targets_that_the_guide_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", guide, re.MULTILINE)) <= targets


def test_the_map_has_every_module_with_its_purpose() -> None:
    written = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert written == script("generate_module_map").page_with_map(written), "run: python scripts/generate_module_map.py"


def test_a_module_that_is_new_or_gone_is_noticed() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    found = script("generate_module_map")
    assert found.page_with_map(page.replace("| [sink](", "| [sinks](")) == page
    assert found.module_map().count("\n| [") > 40
    assert all(purpose.strip() for purpose in re.findall(r"^\| \[.*\) \|(.*)\|$", found.module_map(), re.MULTILINE))
