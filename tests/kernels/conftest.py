"""Both sets of kernels."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

from mqstore.kernels import pure as pure_kernels


def _native() -> Any:
    try:
        return importlib.import_module("mqstore.kernels._native")
    except ImportError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the compiled kernels must be there in CI: {error}")
        pytest.skip(f"the compiled kernels were not built: {error}")


@pytest.fixture(scope="session")
def native() -> Any:
    return _native()


@pytest.fixture(scope="session")
def pure() -> Any:
    return pure_kernels


@pytest.fixture(scope="session", params=["native", "pure"])
def kernels(request: pytest.FixtureRequest) -> Any:
    """Each set in turn: tests with this fixture hold for both."""
    return _native() if request.param == "native" else pure_kernels
