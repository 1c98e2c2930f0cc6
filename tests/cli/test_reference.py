"""The page about the commands says what the commands say."""

from __future__ import annotations

import ast
import re
from typing import Final

from mqstore.cli.app import COMMANDS, KAFKA_COMMANDS
from project.source import ROOT, script


def test_the_page_is_what_the_commands_say() -> None:
    written = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert written == script("generate_cli_reference").reference(), "run: python scripts/generate_cli_reference.py"


def test_every_command_is_spoken_of_where_people_read() -> None:
    guides = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text("utf-8") for page in guides if page.name != "cli.md")
    said = [(f"mqstore {name}", f"make {name}", f"`{name}`") for name in COMMANDS]
    said += [(f"mqstore kafka {name}",) for name in KAFKA_COMMANDS]
    assert [ways for ways in said if not any(way in text for way in ways)] == []


def test_every_option_that_a_message_speaks_of_exists() -> None:
    """A hint is followed by somebody in trouble."""
    known = set(_OPTION.findall((ROOT / "docs" / "cli.md").read_text("utf-8"))) | _OTHERS
    said = {
        (str(module.relative_to(ROOT)), option)
        for module in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for option in _OPTION.findall(node.value)
    }
    assert len(said) > 50
    assert sorted(one for one in said if one[1] not in known) == []


_OTHERS: Final = {
    "--add-modules", "--add-opens",  # Java's
    "--cluster-metadata-decoder", "--remote-log-metadata-decoder", "--share-group-state-decoder",  # only refused
}  # fmt: skip
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]+[a-z]\b")
