"""The page about the commands says what the commands say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from mqstore.cli.app import COMMANDS, KAFKA_COMMANDS

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    path = ROOT / "scripts" / "generate_cli_reference.py"
    spec = importlib.util.spec_from_file_location("generate_cli_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_commands_say() -> None:
    written = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert written == generator().reference(), "run: python scripts/generate_cli_reference.py"


def test_every_command_is_spoken_of_where_people_read() -> None:
    guides = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text("utf-8") for page in guides if page.name != "cli.md")
    said = [(f"mqstore {name}", f"make {name}", f"`{name}`") for name in COMMANDS]
    said += [(f"mqstore kafka {name}",) for name in KAFKA_COMMANDS]
    assert [ways for ways in said if not any(way in text for way in ways)] == []
