"""A working process is killed at a random moment, again and again, on one directory.

``MQSTORE_CRASH_KILLS`` says how often; `make crash` asks for two thousand.
"""

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

from crash.test_power_loss import keep, scratch
from crash.workload import Promises, verify

KILLS = int(os.environ.get("MQSTORE_CRASH_KILLS", "12"))
KILLS_A_STORE = 20
LONGEST_S = 0.4
PUT = b'["put", '
"""How a line begins that tells of an acknowledged message."""


def live_and_die(directory: Path, seed: int, mode: str, rng: random.Random, least_puts: int) -> list[list[Any]]:
    """Start a worker, kill it a while after it has opened the store (or while it opens), and give what it told.

    It lives until so many of its messages were acknowledged, however long that takes.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    worker = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("worker.py")), str(directory), str(seed), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert worker.stdout is not None
    first = b"" if rng.random() < 0.1 else worker.stdout.readline()
    reader_end = time.monotonic() + rng.random() * LONGEST_S
    os.set_blocking(worker.stdout.fileno(), False)
    told = bytearray(first)
    while (time.monotonic() < reader_end or told.count(PUT) < least_puts) and worker.poll() is None:
        told += worker.stdout.read() or b""
        time.sleep(0.002)
    died = worker.poll()
    worker.kill()
    os.set_blocking(worker.stdout.fileno(), True)
    told += worker.stdout.read()  # communicate would pass over what readline has taken ahead
    _, complaints = worker.communicate()
    assert died is None, complaints.decode()
    lines = bytes(told).split(b"\n")
    return [json.loads(line) for line in lines[:-1]]  # the last one may be cut off


def take_in(promises: Promises, told: list[list[Any]]) -> None:
    for kind, *words in told:
        if kind == "try":
            promises.attempted.add(words[0].encode())
        elif kind == "put":
            topic, queue_id, offset, body, start = words
            promises.acknowledged[topic, queue_id, offset] = (body.encode(), start, start)
        elif kind == "commit":
            promises.committed["orders", words[0]] = words[1]
        elif kind == "expire":
            promises.expired_to = max(promises.expired_to, words[0])


@pytest.mark.timeout(0 if KILLS > 100 else 300)
@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_killed_and_opened_again(mode: str) -> None:
    killed = puts = seed = 0
    while killed < KILLS // 2:
        rng = random.Random(f"{mode}/{killed}")
        directory = scratch()
        promises = Promises()
        lives = min(KILLS_A_STORE, KILLS // 2 - killed)
        for life in range(lives):
            seed += 1
            killed += 1
            least_puts = lives + 1 if life == 0 else 0  # so that there is something to lose
            told = live_and_die(directory / "store", seed, mode, rng, least_puts)
            take_in(promises, told)
            puts += sum(one[0] == "put" for one in told)
            if not (directory / "store").exists():
                continue  # killed before it came to anything
            before = directory / "before"
            shutil.copytree(directory / "store", before)
            try:
                verify(directory / "store", promises)
            except BaseException as error:
                raise AssertionError(f"seed {seed}, mode {mode}, kept in {keep(before)}") from error
            shutil.rmtree(before)
        shutil.rmtree(directory)
    assert puts > killed
