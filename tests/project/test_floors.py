"""Imports only go down, and the lower floors stay as pure as they are meant to be."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from project.source import imports, modules

ROOT = Path(__file__).resolve().parents[2]


def floor_table() -> dict[str, int]:
    """The floor of each package or module directly below mqstore, as docs/architecture.md tells it."""
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(?:mqstore\.)?(\w+)`", names)}


FLOORS = floor_table()
#: Neighbours on one floor do not know of each other. files is lower than its number says: it knows nothing of messages.
ALLOWED_ONLY = {"files": {"errors"}}
#: The package's own module re-exports the API; those on top may use that like any program.
FACADE_USERS = {"bench", "cli", "spark"}

#: The bytes are understood without any input or output.
IO_MODULES = {"os", "io", "mmap", "pathlib", "shutil", "socket", "tempfile", "subprocess", "fcntl", "threading"}
HEAVY_MODULES = ("pyspark", "pyarrow", "numpy", "pandas", "typer", "rich", "asyncio")

MODULES = dict(modules())


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_only_go_down(name: str) -> None:
    own = name.split(".")[1] if "." in name else ""
    wrong = []
    for line, imported in imports(name, MODULES[name]):
        parts = imported.split(".")
        if parts[0] != "mqstore" or not own or (len(parts) > 1 and parts[1] == own):
            continue
        other = parts[1] if len(parts) > 1 else ""
        if other not in FLOORS:
            allowed = own in FACADE_USERS
        else:
            allowed = FLOORS[other] < FLOORS[own] and other in ALLOWED_ONLY.get(own, FLOORS)
        if not allowed:
            wrong.append(f"line {line}: {imported}")
    assert wrong == []


def test_what_the_jobs_of_spark_stand_on_knows_nothing_of_them() -> None:
    """Only the package's own module does, which hands them on."""
    modules = [name for name in MODULES if re.match(r"mqstore\.spark\.(?!jobs\b)", name)]
    assert len(modules) > 20
    found = {(name, imported) for name in modules for _, imported in imports(name, MODULES[name])}
    assert sorted(one for one in found if re.match(r"mqstore\.spark\.jobs\b", one[1])) == []


def test_every_package_has_a_floor() -> None:
    assert {name.split(".")[1] for name in MODULES if "." in name} == FLOORS.keys()


@pytest.mark.parametrize("name", [name for name in sorted(MODULES) if name.startswith("mqstore.layout")])
def test_layout_does_no_io(name: str) -> None:
    used = {imported.split(".")[0] for _, imported in imports(name, MODULES[name])}
    # One module names the type of mapped files, for annotations; it maps none.
    allowed = {"mmap"} if name == "mqstore.layout.buffers" else set()
    assert used & IO_MODULES <= allowed


@pytest.mark.parametrize("name", ["mqstore", "mqstore.spark"])
def test_import_loads_nothing_heavy(name: str) -> None:
    source = f"import {name}, sys; print(*{{module.partition('.')[0] for module in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & set(HEAVY_MODULES) == set()


@pytest.mark.parametrize("job", ["exporting", "auditing", "rebuilding", "loading", "lagging"])
def test_a_job_brings_no_other_into_sparks_workers(job: str) -> None:
    """Each worker imports what its tasks need; the Kafka side alone would take as long as a hundred MB of log."""
    source = f"import mqstore.spark.jobs.{job}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert f"mqstore.spark.jobs.{job}" in loaded
    assert [name for name in loaded if name.startswith(("mqstore.kafka", "mqstore.convert", "pyspark"))] == []


def test_no_job_of_spark_knows_of_another() -> None:
    homes = {f"mqstore.spark.jobs.{module}" for module in importlib.import_module("mqstore.spark.jobs")._MODULES}
    used = {name: {imported for _, imported in imports(name, MODULES[name])} for name in homes}
    found = [(name, other) for name in homes for other in used[name] if re.match("|".join(homes - {name}), other)]
    assert found == []


def test_every_job_is_found_where_it_is_said_to_be() -> None:
    jobs = importlib.import_module("mqstore.spark.jobs")
    for name in jobs.__all__:
        assert getattr(jobs, name).__name__ == name
    assert set(jobs.__all__) <= set(dir(jobs))
    with pytest.raises(AttributeError, match="no attribute 'exports'"):
        _ = jobs.exports


def test_kernels_do_without_arrow_and_numpy() -> None:
    for name, path in MODULES.items():
        if name.startswith("mqstore.kernels"):
            used = {imported.split(".")[0] for _, imported in imports(name, path)}
            assert used & {"numpy", "pyarrow"} == set(), name


def test_relative_imports_are_resolved(tmp_path: Path) -> None:
    module = tmp_path / "a.py"
    module.write_text("from . import b\nfrom ..c import d\nimport e.f\n")
    assert [full for _, full in imports("mqstore.layout.a", module)] == ["mqstore.layout.b", "mqstore.c.d", "e.f"]


#: What changes files or names raises the errors of this package only when it goes through mqstore.files.
_RAW = {"rename", "rmdir", "unlink", "mkdir", "touch", "write_bytes", "write_text"}


@pytest.mark.parametrize(
    "name", sorted(name for name in MODULES if re.match(r"mqstore\.(store|convert|kafka)\b", name))
)
def test_stores_change_files_through_the_files_package_only(name: str) -> None:
    found = []
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        method = called.rpartition(".")[2]
        is_raw = method in _RAW and called != f"durable.{method}" and (method != "rename" or bool(node.args))
        if called == "open" or is_raw:
            found.append(f"line {node.lineno}: {called}")
    assert found == []
