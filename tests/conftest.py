"""Fixtures for all floors."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ARCHIVES = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden() -> Path:
    """Directory with the unpacked golden stores, one child per store. Read only: copy before writing.

    The directory is kept between runs and shared by parallel workers; it is unpacked anew when anything in it is
    no longer as it was.
    """
    return _unpacked(ARCHIVES)


@pytest.fixture(scope="session")
def golden_kafka() -> Path:
    """A Kafka data directory with what Kafka's classes say about it (``EXPECTED.jsonl``, ``DUMP``). Read only."""
    return _unpacked(ARCHIVES / "kafka")


@pytest.fixture(scope="session")
def expected_kafka(golden_kafka: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of its ``EXPECTED.jsonl``, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (golden_kafka / "EXPECTED.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(row["kind"], []).append(row)
    return found


def _unpacked(source: Path) -> Path:
    archives = sorted(source.glob("*.tar.xz"))
    digest = hashlib.sha256(b"".join(archive.read_bytes() for archive in archives)).hexdigest()[:16]
    base = Path(tempfile.gettempdir()) / f"mqstore-golden-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    target, seal = base / digest, base / f"{digest}.json"
    with open(base / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_sealed(target, seal):
            shutil.rmtree(target, ignore_errors=True)
            for archive in archives:
                _unpack(archive, target)
            _restore_modification_times(target)
            seal.write_text(json.dumps(_state(target)))
    return target


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
        else:
            tar.extractall(target)


def _restore_modification_times(target: Path) -> None:
    """Queue files get back the milliseconds of their modification time, which the archive does not keep."""
    for expected in target.glob("*/EXPECTED-QUEUES.json"):
        for queue in json.loads(expected.read_text())["queues"]:
            folder = expected.parent / "store" / "consumequeue" / queue["topic"] / str(queue["queueId"])
            for entry in queue["files"]:
                path = folder / entry["name"]
                if path.exists():
                    stamp_ns = entry["lastModified"] * 1_000_000
                    os.utime(path, ns=(stamp_ns, stamp_ns))


def _state(target: Path) -> dict[str, list[int]]:
    return {str(path.relative_to(target)): [size, stamp_ns] for path, size, stamp_ns in _files(target)}


def _files(target: Path) -> Iterator[tuple[Path, int, int]]:
    for path in sorted(target.rglob("*")):
        if path.is_file():
            status = path.stat()
            yield path, status.st_size, status.st_mtime_ns


def _is_sealed(target: Path, seal: Path) -> bool:
    try:
        return bool(json.loads(seal.read_text()) == _state(target))
    except (OSError, ValueError):
        return False
