"""Which kernels are used, and what importing them brings along."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import types
from typing import Any

import pytest

import mqstore.kernels
from mqstore.kernels import Kernels
from mqstore.kernels import pure as pure_kernels

FUNCTIONS = sorted(name for name, _ in inspect.getmembers(Kernels, inspect.isfunction) if name[0] != "_")


def run(code: str, **environment: str) -> str:
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=settings, check=False, timeout=60
    )
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
