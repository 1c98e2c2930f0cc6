"""Write docs/cli.md from what the commands say of themselves: ``python scripts/generate_cli_reference.py``."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from mqstore.cli import mqadmin
from mqstore.cli.app import BENCH_COMMANDS, COMMANDS, KAFKA_COMMANDS, build_app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

HEAD = """# Commands

What `mqstore --help` and `mqstore COMMAND --help` say. This page is written by `scripts/generate_cli_reference.py`.

Exit codes: 0 all well; 1 findings or failure; 2 the call cannot be meant. `check` and `kafka check` alone tell findings
(1) from not having been able to look (2). With `--format json` the answer on standard output is JSON with names in
camelCase, and so is an error, as an object under `error` with `type`, `message`, `hint` and where they apply `path`,
`offset`, `expected`, `found`. `dump`, `tail` and `kafka dump` print one object a line. A command whose work Spark does
(`--master`) tells the same as without, and what only Spark has found out.
"""


def reference() -> str:
    """The content of docs/cli.md."""
    parts = [HEAD, help_of()]
    for name in COMMANDS:
        parts += [f"## {name}\n", help_of(name)]
    groups = (("kafka", KAFKA_COMMANDS), ("bench", BENCH_COMMANDS), ("mqadmin", mqadmin.COMMANDS))
    for group, names in groups:
        parts += [f"## {group}\n", help_of(group)]
        for name in names:
            parts += [f"### {group} {name}\n", help_of(group, name)]
    return "\n".join(parts)


def help_of(*command: str) -> str:
    """The help of one command, or of all, as a block of text."""
    # Without a terminal, help is laid out for COLUMNS.
    done = CliRunner().invoke(
        build_app(), [*command, "--help"], prog_name="mqstore", env={"COLUMNS": "100"}, terminal_width=100
    )
    if done.exit_code:
        raise SystemExit(f"no help of {command}: {done.output}")
    return "\n".join(["```text", *(line.rstrip() for line in done.output.strip().splitlines()), "```", ""])


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
