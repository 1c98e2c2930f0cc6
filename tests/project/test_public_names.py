"""What the package says it offers is what it offers, and every name of it is explained."""

from __future__ import annotations

import importlib
import inspect
import types

import pytest

import mqstore

PACKAGES = ["mqstore", "mqstore.convert", "mqstore.kernels", "mqstore.spark"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_exist_and_are_explained(name: str) -> None:
    package = importlib.import_module(name)
    for public in package.__all__:
        # A package may offer a module that loads only when it is asked for.
        value = getattr(package, public, None) or importlib.import_module(f"{name}.{public}")
        if callable(value) or isinstance(value, types.ModuleType):
            assert inspect.getdoc(value), public


def test_all_of_the_public_names_are_listed() -> None:
    public = {
        name
        for name, value in vars(mqstore).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(mqstore.__all__)
    assert list(mqstore.__all__) == sorted(mqstore.__all__)


def test_version_is_the_installed_one() -> None:
    assert importlib.import_module("importlib.metadata").version("mqstore") == mqstore.__version__
