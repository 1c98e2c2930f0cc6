"""What the package says it offers is what it offers, and every name of it is explained."""

from __future__ import annotations

import importlib
import inspect
import types

import pytest

import mqstore

PACKAGES = ["mqstore", "mqstore.kernels", "mqstore.spark"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_lists_the_public_names(name: str) -> None:
    package = importlib.import_module(name)
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert sorted(package.__all__) == sorted(public & set(package.__all__)), "a name in __all__ is not there"
    if name == "mqstore":
        assert public == set(package.__all__)
    assert list(package.__all__) == sorted(package.__all__) or name == "mqstore.kernels"


def test_every_public_name_is_explained() -> None:
    missing = [name for name in mqstore.__all__ if not inspect.getdoc(getattr(mqstore, name))]
    assert missing == []
