"""The Kafka log under power failures and kills at random moments; see test_power_loss.py and test_kills.py."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crash.kafka_workload import Promises, Workload, take_in, verify
from crash.power import ForgetfulDisk
from crash.test_kills import KILLS, KILLS_A_STORE, LONGEST_S, PUT
from crash.test_power_loss import STATES, STATES_A_RUN, keep, scratch

SYNC, ASYNC = 1, (1 << 63) - 1


class Life:
    """One log under a seeded workload, on a disk that fails now and then."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, flush_messages: int) -> None:
        self._seed = seed
        self._rng = random.Random(seed)
        self._is_sync = flush_messages == SYNC
        self._directory = scratch()
        self._waiting: list[tuple[Path, Promises, dict[tuple[str, int], int] | None]] = []
        self.looked_at = 0
        root = self._directory / "log"
        root.mkdir()
        self._disk = ForgetfulDisk(root, monkeypatch)
        # Removed at once, and by no other thread: the disk does not like what vanishes while it looks.
        self._workload = Workload(root, str(seed), flush_messages=flush_messages, file_delete_delay_ms=0)
        self._disk.at_sync = lambda: self._fail(0.03)

    def _fail(self, probability: float) -> None:
        if len(self._waiting) >= 8 or self._rng.random() >= probability:
            return
        workload = self._workload
        flushed = None if self._is_sync else workload.flushed()
        promises = workload.promises.copy()
        target = self._directory / f"failed-{self._rng.randrange(1 << 60)}"
        self._disk.fail(target, self._rng)
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

    def _look_at(self, target: Path, promises: Promises, flushed: dict[tuple[str, int], int] | None) -> None:
        promises.attempted |= self._workload.promises.attempted
        promises.may_be_gone = {**promises.may_be_gone, **self._workload.promises.may_be_gone}
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


def run(seed: int, states: int, flush_messages: int) -> int:
    """Live one life; how many states were looked at."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        life = Life(seed, monkeypatch, flush_messages)
        try:
            life.live(states)
        finally:
            life.end()
        return life.looked_at


@pytest.mark.parametrize("flush_messages", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.timeout(0 if STATES > 1000 else 300)
def test_after_a_power_failure(flush_messages: int) -> None:
    looked_at = seed = 0
    while looked_at < STATES // 2:
        looked_at += run(seed, min(STATES_A_RUN, STATES // 2 - looked_at), flush_messages)
        seed += 1
    assert looked_at >= STATES // 2


def test_the_layer_finds_a_sync_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle can fail: when partitions' directories are never synced, whole segments go."""
    monkeypatch.setattr(ForgetfulDisk, "is_safe_directory", lambda self, path: path == self.root)
    with pytest.raises(AssertionError, match="seed"):
        run(0, 200, SYNC)


def live_and_die(
    directory: Path, seed: int, flush_messages: int, rng: random.Random, least_puts: int
) -> list[list[Any]]:
    """Start a worker, kill it a while after it has opened the log (or while it opens), and give what it told.

    It lives until so many of its messages were acknowledged, however long that takes.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    script = str(Path(__file__).with_name("kafka_worker.py"))
    worker = subprocess.Popen(
        [sys.executable, "-W", "ignore", script, str(directory), str(seed), str(flush_messages)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert worker.stdout is not None
    told = bytearray(b"" if rng.random() < 0.1 else worker.stdout.readline())
    reader_end = time.monotonic() + rng.random() * LONGEST_S
    os.set_blocking(worker.stdout.fileno(), False)
    while (time.monotonic() < reader_end or told.count(PUT) < least_puts) and worker.poll() is None:
        told += worker.stdout.read() or b""
        time.sleep(0.002)
    died = worker.poll()
    worker.kill()
    os.set_blocking(worker.stdout.fileno(), True)
    told += worker.stdout.read()  # communicate would pass over what readline has taken ahead
    _, complaints = worker.communicate()
    assert died is None, complaints.decode()
    return [json.loads(line) for line in bytes(told).split(b"\n")[:-1]]  # the last one may be cut off


@pytest.mark.timeout(0 if KILLS > 100 else 300)
@pytest.mark.parametrize("flush_messages", [SYNC, ASYNC], ids=["sync", "async"])
def test_killed_and_opened_again(flush_messages: int) -> None:
    killed = puts = 0
    while killed < KILLS // 2:
        rng = random.Random(f"{flush_messages}/{killed}")
        directory = scratch()
        promises = Promises()
        lives = min(KILLS_A_STORE, KILLS // 2 - killed)
        for life in range(lives):
            least_puts = lives + 1 if life == 0 else 0  # so that there is something to lose
            told = live_and_die(directory / "log", killed, flush_messages, rng, least_puts)
            for kind, *words in told:
                take_in(promises, kind, *words)
            puts += sum(one[0] == "put" for one in told)
            killed += 1
            if not (directory / "log").exists():
                continue  # killed before it made its log
            before = directory / "before"
            shutil.copytree(directory / "log", before)
            try:
                verify(directory / "log", promises)
            except BaseException as error:
                raise AssertionError(f"kill {killed}, kept in {keep(before)}") from error
            shutil.rmtree(before)
        shutil.rmtree(directory)
    assert puts > killed
