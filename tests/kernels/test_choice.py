"""Which kernels are used, and what importing them brings along."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import mqstore.kernels
from mqstore.kernels import Kernels, sources
from mqstore.kernels import pure as pure_kernels

FUNCTIONS = sorted(name for name, _ in inspect.getmembers(Kernels, inspect.isfunction) if name[0] != "_")


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=settings, check=False, timeout=60
    )


def run(code: str, **environment: str) -> str:
    finished = run_python(code, **environment)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.parametrize(("setting", "name"), [("1", "pure"), ("yes", "pure"), ("0", None), ("", None)])
def test_the_environment_forces_the_plain_kernels(setting: str, name: str | None) -> None:
    native = run("import mqstore.kernels._native as n; print(n.NAME)") if name is None else name
    assert run("import mqstore.kernels as k; print(k.NAME)", MQSTORE_PURE=setting) == native


def test_without_the_extension_the_plain_kernels_are_used() -> None:
    code = "import sys; sys.modules['mqstore.kernels._native'] = None; import mqstore.kernels as k; print(k.NAME)"
    assert run(code, MQSTORE_PURE="") == "pure"


def test_importing_them_loads_no_large_package() -> None:
    code = "import sys, mqstore.kernels; print([n for n in ('numpy', 'pyarrow', 'pyspark') if n in sys.modules])"
    for setting in ("", "1"):
        assert run(code, MQSTORE_PURE=setting) == "[]"


def test_both_have_the_functions_of_the_protocol(kernels: Any) -> None:
    assert len(FUNCTIONS) > 25
    for name in FUNCTIONS:
        assert callable(getattr(kernels, name))
        assert name in mqstore.kernels.__all__
        assert getattr(mqstore.kernels, name).__doc__


def test_the_plain_ones_have_its_signatures() -> None:
    for name in FUNCTIONS:
        wanted = list(inspect.signature(getattr(Kernels, name)).parameters.values())[1:]
        assert list(inspect.signature(getattr(pure_kernels, name)).parameters.values()) == wanted, name


def test_the_names_tell_which_is_which(native: types.ModuleType) -> None:
    assert (native.NAME, pure_kernels.NAME) == ("native", "pure")
    assert mqstore.kernels.NAME in ("native", "pure")


NAME_OF_KERNELS = "import mqstore; from mqstore import kernels; print(kernels.NAME)"


@pytest.fixture
def copied(native: types.ModuleType, tmp_path: Path) -> Path:
    """A copy of the package with its compiled module, as in a checkout: ``kernels`` in it."""
    package = Path(mqstore.kernels.__file__).parents[1]
    shutil.copytree(package, tmp_path / "src" / "mqstore", ignore=shutil.ignore_patterns("__pycache__", "demo", "*.c"))
    (tmp_path / "setup.py").touch()
    return tmp_path / "src" / "mqstore" / "kernels"


def test_a_module_built_from_other_sources_is_refused_with_the_command(copied: Path) -> None:
    here = {"PYTHONPATH": str(copied.parents[1])}
    assert run(NAME_OF_KERNELS, MQSTORE_PURE="", **here) == "native"
    with (copied / "native" / "scan.pxi").open("a") as file:
        file.write("# another column\n")
    stale = run_python(NAME_OF_KERNELS, MQSTORE_PURE="", **here)
    assert stale.returncode == 1
    said = stale.stderr.splitlines()[-1]
    assert said.startswith("ImportError: the compiled kernels ")
    assert f"cd {copied.parents[2]} && {sys.executable} setup.py build_ext -i" in said
    assert run(NAME_OF_KERNELS, MQSTORE_PURE="1", **here) == "pure"


def test_a_module_from_before_there_were_marks_is_refused(copied: Path) -> None:
    for path in copied.glob("_native*.so"):
        path.unlink()
    (copied / "_native.py").write_text("NAME = 'native'\n")
    stale = run_python(NAME_OF_KERNELS, MQSTORE_PURE="", PYTHONPATH=str(copied.parents[1]))
    assert "were built from other sources (unmarked ones)" in stale.stderr.splitlines()[-1]


def test_where_no_sources_lie_beside_it_the_module_is_taken(copied: Path) -> None:
    for path in [*copied.glob("*.pyx"), *copied.glob("*.h"), *copied.glob("native/*.pxi")]:
        path.unlink()
    assert run(NAME_OF_KERNELS, MQSTORE_PURE="", PYTHONPATH=str(copied.parents[1])) == "native"


def test_the_build_leaves_the_mark_only_when_it_is_another(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    (directory / "native").mkdir(parents=True)
    assert sources.mark(directory) is None
    (directory / "_native.pyx").write_text("one")
    (directory / "native" / "scan.pxi").write_text("two")
    sources.write_mark(directory)
    written = directory / "native" / sources.BUILT_FROM
    first = written.read_text()
    assert first == f'BUILT_FROM = "{sources.mark(directory)}"\n'
    os.utime(written, (1, 1))
    sources.write_mark(directory)
    assert written.stat().st_mtime == 1
    (directory / "native" / "scan.pxi").write_text("three")
    sources.write_mark(directory)
    assert written.stat().st_mtime > 1
    assert written.read_text() != first
