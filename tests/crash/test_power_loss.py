"""The power fails at a random moment: nothing acknowledged is lost, nothing that nobody put turns up.

``MQSTORE_CRASH_STATES`` says how many such moments; `make crash` asks for ten thousand.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from crash.power import ForgetfulDisk
from crash.workload import Promises, Workload, verify

STATES = int(os.environ.get("MQSTORE_CRASH_STATES", "120"))
STATES_A_RUN = 60
MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {"flush_disk_type": "ASYNC_FLUSH"},
    "async, with filter bits": {
        "flush_disk_type": "ASYNC_FLUSH",
        "enable_consume_queue_ext": True,
        "mapped_file_size_consume_queue_ext": 600,
    },
    "sync, files made ahead": {"flush_disk_type": "SYNC_FLUSH", "warm_maped_file_enable": True},
    "write buffers": {
        "flush_disk_type": "ASYNC_FLUSH",
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 2,
        "commit_interval_commit_log": 5,
        "commit_commit_log_least_pages": 0,
    },
}


def scratch() -> Path:
    """A directory in memory where there is one: the syncs need not be real here, and there are many."""
    base = Path("/dev/shm")
    return Path(tempfile.mkdtemp(dir=base if base.is_dir() and os.access(base, os.W_OK) else None))


class Life:
    """One store under a seeded workload, on a disk that fails now and then."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
        self._seed = seed
        self._rng = random.Random(seed)
        self._is_sync = MODES[mode]["flush_disk_type"] == "SYNC_FLUSH"
        self._directory = scratch()
        self._waiting: list[tuple[Path, Promises, int | None]] = []
        self.looked_at = 0
        root = self._directory / "store"
        root.mkdir()
        self._disk = ForgetfulDisk(root, monkeypatch)
        self._workload = Workload(root, seed, **MODES[mode])
        self._disk.at_sync = lambda: self._fail(0.05)

    def _fail(self, probability: float) -> None:
        """Take a state at this moment, perhaps; it is looked at when the store is not busy."""
        if len(self._waiting) >= 8 or self._rng.random() >= probability:
            return
        promised = self._workload.promises
        flushed = None if self._is_sync else self._workload.store.flushed_offset
        promises = promised.copy()
        target = self._directory / f"failed-{self._rng.randrange(1 << 60)}"
        self._disk.fail(target, self._rng)
        promises.attempted = set(promised.attempted)  # what came meanwhile may be there or not
        promises.expired_to = promised.expired_to
        self._waiting.append((target, promises, flushed))

    def live(self, states: int) -> None:
        """Go on until so many states were looked at."""
        while self.looked_at < states:
            self._workload.step()
            with self._disk.guard:
                self._fail(0.2)
                taken, self._waiting = self._waiting, []
            for target, promises, flushed in taken:
                self._look_at(target, promises, flushed)

    def _look_at(self, target: Path, promises: Promises, flushed: int | None) -> None:
        opened = self._directory / "opened"
        shutil.copytree(target, opened)
        try:
            verify(opened, promises, flushed)
        except BaseException as error:
            raise AssertionError(f"seed {self._seed}, state {self.looked_at}, kept in {keep(target)}") from error
        shutil.rmtree(opened)
        shutil.rmtree(target)
        self.looked_at += 1

    def end(self) -> None:
        self._disk.at_sync = lambda: None
        self._workload.store.close()
        shutil.rmtree(self._directory)


def run(seed: int, states: int, mode: str) -> int:
    """Live one life; how many states were looked at."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        life = Life(seed, monkeypatch, mode)
        try:
            life.live(states)
        finally:
            life.end()
        return life.looked_at


def keep(target: Path) -> Path:
    kept = Path(tempfile.mkdtemp(prefix="mqstore-crash-")) / "store"
    shutil.copytree(target, kept)
    return kept


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.timeout(0 if STATES > 1000 else 300)
def test_after_a_power_failure(mode: str) -> None:
    looked_at = seed = 0
    while looked_at < STATES // len(MODES):
        looked_at += run(seed, min(STATES_A_RUN, STATES // len(MODES) - looked_at), mode)
        seed += 1
    assert looked_at >= STATES // len(MODES)


def test_the_layer_finds_a_sync_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle can fail: when the log's directory is never synced, a whole file of acknowledged messages goes."""
    monkeypatch.setattr(ForgetfulDisk, "is_safe_directory", lambda self, path: path.name != "commitlog")
    with pytest.raises(AssertionError, match="seed"):
        run(0, 200, "sync")
