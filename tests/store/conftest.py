"""A small store to be spoiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from store.hostile import COUNT, SIZES
from store.support import fill


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty messages of one queue in three log files and two index files; for copying."""
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT, **SIZES)
    return store


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A copy of ``original``, whichever the test's module has by that name."""
    return shutil.copytree(original, tmp_path / "store")
