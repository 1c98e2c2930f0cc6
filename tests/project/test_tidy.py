"""Nothing in the repository that belongs to one machine, to another day, or to nobody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from project.source import PACKAGE, ROOT, tracked_files

MAX_FILE_BYTES = 1 << 20
MAX_MODULE_LINES = 500

# Spelled in parts, so that this file does not speak of what it forbids.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("maven", "apache", "org/maven2"), ("repo1", "maven", "org"),
        ("repo", "maven", "apache"), ("crates", "io"), ("npmjs", "org"), ("proxy", "golang"), ("deb", "debian"),
    )
]  # fmt: skip
MACHINE_PATHS = [f"/{name}/" for name in ("root", "work", "Users", "opt/wheels", "tmp/venv", "tmp/golden", "tmp/plan")]
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "Not" + "ImplementedError"]

FORBIDDEN = {
    "a registry host": re.compile("|".join(map(re.escape, HOSTS))),
    "a path of one machine": re.compile("|".join(rf"(?<![\w.]){re.escape(path)}" for path in MACHINE_PATHS)),
    "unfinished work": re.compile(rf"\b({'|'.join(UNFINISHED)})\b"),
    "a package that no index has": re.compile(r"pip install '?mqstore\b"),
    "a home directory": re.compile(r"(?<![\w.])/home/[a-z]+/"),
}


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" not in content[:4096] and path.suffix != ".xz":
            found.append((path.relative_to(ROOT), content.decode("utf-8")))
    return found


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_text_has(what: str) -> None:
    assert len(texts()) > 50
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path, text in texts()
        for match in FORBIDDEN[what].finditer(text)
    ]
    assert found == []


def test_the_patterns_find_what_they_should() -> None:
    assert FORBIDDEN["a registry host"].search("https://files." + HOSTS[1] + "/x")
    assert FORBIDDEN["a path of one machine"].search("see " + MACHINE_PATHS[1] + "main")
    assert not FORBIDDEN["a path of one machine"].search("tests" + MACHINE_PATHS[1])
    assert FORBIDDEN["unfinished work"].search("# " + UNFINISHED[0] + ": later")
    assert FORBIDDEN["a package that no index has"].search("pip " + "install 'mqstore[spark]'")
    assert not FORBIDDEN["unfinished work"].search("SCHEDULE_TOPIC_XXXX")


def test_files_are_small() -> None:
    assert [path.name for path in tracked_files() if path.stat().st_size > MAX_FILE_BYTES] == []


def test_modules_are_short() -> None:
    sources = [path for pattern in ("*.py", "*.pyx", "*.pxi", "*.h") for path in PACKAGE.rglob(pattern)]
    lengths = {path.relative_to(ROOT): path.read_text("utf-8").count("\n") for path in sources}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def test_texts_end_with_a_newline_and_have_no_carriage_returns() -> None:
    wrong = [str(path) for path, text in texts() if text and (not text.endswith("\n") or "\r" in text)]
    assert wrong == []


def test_the_lock_file_names_hashes_and_no_places() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.findall(r"^[a-z0-9-]+==", lock, re.MULTILINE)
    assert len(pinned) > 30
    assert lock.count("--hash=sha256:") >= len(pinned)
    assert not re.search(r"https?://|--index-url|--find-links", lock)
