"""Every example in README.md and docs/ does what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs import run_page
from project.source import ROOT

PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]
EXAMPLES = [
    page
    for page in PAGES
    if any(block.run and block.language in ("python", "console") for block in run_page.blocks(page.read_text("utf-8")))
]


@pytest.mark.timeout(900)  # the page on Spark starts it many times
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_the_page_hold(page: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", run_page.__file__, str(page)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, f"{page.relative_to(ROOT)}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_can_be_read(page: Path) -> None:
    assert page.read_text("utf-8").startswith("# ")
    list(run_page.blocks(page.read_text("utf-8")))


GOOD = """\
# Page

```python
x = 2
print("x is", x)
```

```output
x ...
```

```console
$ echo one; echo two; \\
    echo three
one
...
three
$ exit 3  # exit 3
$ printf 'a 1 b\\n\\n'
a ... b
```

<!-- not run: it would end the world -->

```python
raise SystemExit
```

```text
$ left alone
```

```python
assert x == 2
```
"""


def test_a_page_that_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page.run_page(GOOD) == 5


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "line 2: expected\ntwo"),
        ("```console\n$ echo one\n```\n\n```console\n$ exit 2\n```\n", "line 6: `exit 2` ended with 2, not 0"),
        ("```console\n$ true  # exit 1\n```\n", "ended with 0, not 1"),
        ("```console\n$ printf 'a\\nb\\n'\na\n```\n", "but found\na\nb"),
        ("```console\nno command\n```\n", "output before any command"),
        ("```python\nprint(1)\n```\n```output\n2\n```\n", "expected\n2"),
        ("```python\nx = 1\n", "never closed"),
        ("<!-- not run: -->\n```python\n```\n", "without a reason"),
        ("<!-- not run: because -->\nText between.\n```console\n$ exit 1\n```\n", "ended with 1"),
    ],
)
def test_a_page_that_does_not_hold(page: str, complaint: str) -> None:
    with pytest.raises(run_page.PageError) as caught:
        run_page.run_page(page)
    assert complaint in str(caught.value)


def test_wildcards() -> None:
    assert run_page.matches(["a", "...", "z"], "a\nz\n")
    assert run_page.matches(["a", "...", "z"], "a\nb\nc\nz")
    assert run_page.matches(["took ... ms  "], "took 12.5 ms\n")
    assert run_page.matches(["..."], "")
    assert not run_page.matches(["a", "...", "z"], "a\nb")
    assert not run_page.matches(["a"], "a\nb")
    assert not run_page.matches(["a...b"], "a\nb")
