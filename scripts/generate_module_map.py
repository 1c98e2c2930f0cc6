"""Write the map of Spark's modules in docs/architecture.md: ``python scripts/generate_module_map.py``.

What a module is for is the first paragraph of its docstring, and told nowhere else.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "mqstore" / "spark"
BEGIN = "<!-- from here on written by scripts/generate_module_map.py -->\n"
END = "<!-- up to here -->\n"


def page_with_map(page: str) -> str:
    """The text of the page with the map as it should be."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + module_map() + END + tail


def module_map() -> str:
    """A table of the modules of the package, and one of its jobs."""
    return "\n".join(["", *_table(PACKAGE, "module"), "", *_table(PACKAGE / "jobs", "module of `jobs`"), "", ""])


def _table(directory: Path, title: str) -> list[str]:
    modules = sorted(path for path in directory.glob("*.py") if path.name != "__init__.py")
    lines = [f"| [{path.stem}](../{path.relative_to(ROOT).as_posix()}) | {_purpose(path)} |" for path in modules]
    return [f"| {title} | what it is for |", "|---|---|", *lines]


def _purpose(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page_with_map(PAGE.read_text("utf-8")), "utf-8")
