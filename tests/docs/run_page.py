"""Runs the examples of one Markdown page, top to bottom, in the current directory: ``run_page.py PAGE``.

Two kinds of fenced blocks are run, all others are left alone:

* ``python``: all blocks of a page share one namespace. A block fenced as ``output`` right after one is what it prints.
* ``console``: lines that begin with ``$`` are commands for the shell, continued after a backslash at the end. The lines
  up to the next command are what it prints, on both streams; a command without such lines may print anything. A
  command ends with 0, unless the comment ``# exit N`` after it says otherwise.

In expected output ``...`` stands for any text, alone on a line for any number of lines. A block that cannot be run has
the comment ``<!-- not run: REASON -->`` before it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND_TIMEOUT_S = 240
SHOWN_CHARACTERS = 3000

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^`]*)$")
NOT_RUN = re.compile(r"^ *<!-- not run:(?P<reason>.*)-->$")
EXIT_CODE = re.compile(r"\s# exit (\d+)$")


class PageError(Exception):
    """An example does not do what the page says, or the page cannot be read."""


@dataclass
class Block:
    """One fenced block: where its text begins, its language, and whether it is to be run."""

    line: int
    language: str
    text: str
    run: bool = True


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of ``page``. Raises :class:`PageError` for a fence that is never closed."""
    lines = page.splitlines()
    number, run = 0, True
    while number < len(lines):
        line = lines[number]
        number += 1
        skip, fence = NOT_RUN.match(line), FENCE.match(line)
        if skip:
            if not skip["reason"].strip():
                raise PageError(f"line {number}: 'not run' without a reason")
            run = False
        elif fence:
            begin, close = number, fence["indent"] + fence["fence"]
            while number < len(lines) and lines[number].rstrip() != close:
                number += 1
            if number == len(lines):
                raise PageError(f"line {begin}: the block is never closed")
            body = [text.removeprefix(fence["indent"]) for text in lines[begin:number]]
            language = (fence["info"].split() or [""])[0]
            yield Block(begin + 1, language, "\n".join(body), run)
            number, run = number + 1, True
        elif line.strip():
            run = True


def commands(block: Block) -> Iterator[tuple[int, str, int, list[str]]]:
    """Line, text, exit code and expected output of each command of a console block."""
    found: list[tuple[int, str, int, list[str]]] = []
    lines = iter(enumerate(block.text.splitlines(), block.line))
    for number, line in lines:
        if not line.startswith("$ "):
            if not found:
                raise PageError(f"line {number}: output before any command")
            found[-1][3].append(line)
            continue
        command = line[2:]
        while command.endswith("\\"):
            command = command[:-1] + next(lines, (0, ""))[1].removeprefix(">").strip()
        code = EXIT_CODE.search(command)
        found.append((number, EXIT_CODE.sub("", command), int(code[1]) if code else 0, []))
    yield from found


def matches(expected: list[str], found: str) -> bool:
    """Whether ``found`` is what the lines of ``expected``, with their wildcards, say; blanks at line ends are free."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\n]*?".join(map(re.escape, line.rstrip().split("..."))) + "\n"
    text = "".join(f"{line.rstrip()}\n" for line in found.rstrip().splitlines())
    return re.fullmatch(pattern.rstrip("\n") + "\n*", text) is not None


def run_page(page: str) -> int:
    """Run all examples of ``page``; returns how many. Raises :class:`PageError` at the first that does not hold."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    count, printed = 0, ""
    for block in blocks(page):
        if not block.run:
            continue
        if block.language == "python":
            printed = _run_python(block, namespace)
            count += 1
        elif block.language == "output":
            _compare(block.line, block.text.splitlines(), printed)
        elif block.language == "console":
            for line, command, code, expected in commands(block):
                _run_command(line, command, code, expected)
                count += 1
    return count


def _run_python(block: Block, namespace: dict[str, Any]) -> str:
    # Newlines in front make the line numbers of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, "page", "exec")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, namespace)
    return output.getvalue()


def _run_command(line: int, command: str, code: int, expected: list[str]) -> None:
    done = subprocess.run(
        command,
        shell=True,
        env={**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    if done.returncode != code:
        raise PageError(f"line {line}: `{command}` ended with {done.returncode}, not {code}:\n{done.stdout}")
    if expected:
        _compare(line, expected, done.stdout)


def _compare(line: int, expected: list[str], found: str) -> None:
    if not matches(expected, found):
        wanted = "\n".join(expected)
        raise PageError(f"line {line}: expected\n{wanted}\n\nbut found\n{found[:SHOWN_CHARACTERS]}")


if __name__ == "__main__":
    print(f"{run_page(Path(sys.argv[1]).read_text('utf-8'))} examples hold")
