"""What the log's tail writes by itself is what the plain path would have written, and nothing else."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, PutMessageStatus, errors, kernels
from mqstore.kernels import pure
from store.support import findings, open_small

CASES = 400


class Text(str):
    """A str that is not exactly one: its methods could be anybody's."""


def random_text(rng: random.Random) -> Any:
    """A name or value; now and then one that must be refused, or whose kind is not quite right."""
    return rng.choice(
        ["a", "orderId", "Ünïcode", "日本", "😀", "x" * rng.randrange(1, 60), "k\x01v", Text("sub"), str(rng.random())]
        * 6
        + ["", "\x02", "a\x00", "\ud800", "with blank", 7, None]
    )


def random_message(rng: random.Random) -> Message:
    """Mostly ordinary messages of three topics."""
    odd = rng.random() < 0.15
    message = Message(
        rng.choice(["orders", "payments", "a" * 127]),
        rng.choice([b"", b"body", rng.randbytes(rng.randrange(300))]),
        tags=rng.choice([None, "paid", "t|u", random_text(rng) if odd else "x"]),
        keys=rng.choice([(), ["o-1"], ("a", "b", "ünï"), [random_text(rng)] if odd else []]),
        properties={
            (random_text(rng) if odd else f"p{number}{rng.choice('abc')}"): (random_text(rng) if odd else "v")
            for number in range(rng.choice([0, 1, 2, 3, 5, 9, 10, 11, 12, 14]))
        },
        queue_id=rng.choice([None, 0, 1, 3, 9 if odd else 2]),
        flag=rng.choice([0, -1, 2**31 - 1]),
        sys_flag=rng.choice([0, 0, 1, 4 if odd else 0, 12 if odd else 0, 0x30]),
        born_timestamp_ms=rng.choice([None, 0, 1_600_000_000_000]),
        delay_level=rng.choice([0, 3 if odd else 0]),
        reconsume_times=rng.choice([0, 5]),
    )
    if odd:
        name, value = rng.choice(
            [
                ("topic", "no such letter: é"),
                ("topic", Text("orders")),
                ("topic", None),
                ("body", bytearray(b"mutable")),
                ("body", "text"),
                ("body", bytes(5000)),
                ("keys", "one string"),
                ("properties", {"TAGS": "given twice", "KEYS": "too"}),
                ("queue_id", -1),
                ("queue_id", True),
                ("flag", 2**31),
                ("sys_flag", -1),
                ("reconsume_times", -1),
                ("prepared_transaction_offset", 2**63),
                ("born_timestamp_ms", -5),
                ("born_host", "10.0.0.1:99"),
                ("delay_level", None),
            ]
        )
        setattr(message, name, value)
    return message


def outcome(put: Any, argument: Any) -> Any:
    """The result, or what the error says."""
    try:
        return put(argument)
    except errors.MqstoreError as error:
        return type(error), str(error)


def run(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> tuple[list[Any], list[bytes]]:
    """Put a seeded series of messages and batches; all outcomes, and the log's files."""
    rng = random.Random(seed)
    clock = itertools.count(1_700_000_000_000_000_000, 1_000_000)
    now = [next(clock)]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    outcomes = []
    with open_small(directory, default_topic_queue_nums=4, mapped_file_size_commit_log=16384) as store:
        for _ in range(CASES):
            now[0] = next(clock)
            if rng.random() < 0.2:
                outcomes.append(outcome(store.put_batch, [random_message(rng) for _ in range(rng.randrange(5))]))
            else:
                outcomes.append(outcome(store.put, random_message(rng)))
    assert findings(directory) == []
    return outcomes, [path.read_bytes() for path in sorted((directory / "commitlog").iterdir())]


@pytest.mark.skipif(kernels.NAME != "native", reason="without compiled kernels there is only the plain path")
@pytest.mark.parametrize("seed", range(4))
def test_every_outcome_and_every_byte_are_those_of_the_plain_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    ours, our_log = run(tmp_path / "ours", monkeypatch, seed)
    monkeypatch.setattr(kernels, "log_tail", pure.log_tail)
    plain, plain_log = run(tmp_path / "plain", monkeypatch, seed)
    assert sum(isinstance(one, mqstore.PutResult) for one in ours) > CASES / 3
    assert sum(isinstance(one, tuple) and not isinstance(one, mqstore.PutResult) for one in ours) > 5
    assert ours == plain
    assert our_log == plain_log


def test_a_finalizer_that_puts_while_a_put_is_going_on_disturbs_neither(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.put(Message("t", b"", queue_id=0))

        class Putting:
            def __init__(self) -> None:
                self.myself = self

            def __del__(self) -> None:
                store.put(Message("t", b"from a finalizer", tags="f", queue_id=0))

        threshold = gc.get_threshold()
        gc.set_threshold(5)
        try:
            kept = []
            for number in range(300):
                Putting()
                kept.append(store.put_batch([Message("t", b"plain %d" % number, tags="p", queue_id=0)] * 3))
        finally:
            gc.set_threshold(*threshold)
        gc.collect()
        store.wait_dispatched()
        for number, results in enumerate(kept):
            for result in results:
                (message,) = store.get("t", 0, result.queue_offset, 1).messages
                assert (message.body, message.tags) == (b"plain %d" % number, "p")
                assert message.physical_offset == result.physical_offset


def test_many_threads_fill_each_queue_without_holes(tmp_path: Path) -> None:
    results: list[mqstore.PutResult] = []
    with open_small(tmp_path / "store", default_topic_queue_nums=2, mapped_file_size_commit_log=65536) as store:

        def produce(thread: int) -> None:
            messages = [Message("t", b"%d/%d" % (thread, number), queue_id=number % 2) for number in range(1500)]
            results.extend(store.put(message) for message in messages)

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
        for queue_id in range(2):
            offsets = sorted(result.queue_offset for result in results if result.queue_id == queue_id)
            assert offsets == list(range(3000))
        places = sorted((result.physical_offset, result.size_bytes) for result in results)
        for (offset, size), (following, _) in itertools.pairwise(places):
            assert offset + size <= following


def test_results_being_made_are_not_shown_to_the_collector(tmp_path: Path) -> None:
    seen: list[object] = []

    def look(phase: str, info: dict[str, int]) -> None:
        seen.extend(one for one in gc.get_objects() if type(one) in (mqstore.PutResult, mqstore.Record))

    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 20) as store:
        store.put(Message("t", b"", queue_id=0))
        gc.callbacks.append(look)
        try:
            assert len(store.put_batch([Message("t", b"x", queue_id=0)] * 3000)) == 3000
        finally:
            gc.callbacks.remove(look)
    assert all(None not in tuple(one) for one in seen if isinstance(one, tuple))
