"""Fixtures ``real_store`` and ``real_kafka``: a test that takes one runs once for each release of the real thing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from interop import real_kafka as kafka_harness
from interop import real_store as store_harness
from interop.jvm import Unavailable
from interop.real_kafka import RealKafka
from interop.real_store import RealStore

Real = TypeVar("Real")


@pytest.fixture(scope="session", params=sorted(store_harness.VERSIONS))
def real_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RealStore:
    """One release of the real store; skips where it cannot be had.

    On a CI machine that has Maven a skip would hide a broken set-up, so there it is a failure.
    """
    return _prepare_or_skip(store_harness.prepare, request.param, tmp_path_factory.mktemp("real-store"))


@pytest.fixture(scope="session", params=sorted(kafka_harness.VERSIONS))
def real_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RealKafka:
    """One release of Kafka's own log classes, under the same rule."""
    return _prepare_or_skip(kafka_harness.prepare, request.param, tmp_path_factory.mktemp("real-kafka"))


def _prepare_or_skip(prepare: Callable[[str, Path], Real], version: str, scratch: Path) -> Real:
    try:
        return prepare(version, scratch)
    except Unavailable as reason:
        if os.environ.get("CI") == "true" and shutil.which("mvn"):
            pytest.fail(f"CI has Maven, yet the real classes are not to be had: {reason}")
        pytest.skip(f"needs the real Java classes: {reason}")
