"""Fixture ``real_store``: every test that takes it runs once for each release of the real broker store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from interop.real_store import VERSIONS, RealStore, Unavailable, prepare


@pytest.fixture(scope="session", params=sorted(VERSIONS))
def real_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    """One release of the real store; skips where it cannot be had.

    On a CI machine that has Maven a skip would hide a broken set-up, so there it is a failure.
    """
    return _prepare_or_skip(request.param, tmp_path_factory.mktemp("real-store"))


def _prepare_or_skip(version: str, scratch: Path) -> RealStore:
    try:
        return prepare(version, scratch)
    except Unavailable as reason:
        if os.environ.get("CI") == "true" and shutil.which("mvn"):
            pytest.fail(f"CI has Maven, yet the real store is not to be had: {reason}")
        pytest.skip(f"needs the real RocketMQ store: {reason}")
