"""Messages in further queues, written by the real store and by ours, read by the other."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import mqstore
from interop.dumps import Dump, differences
from interop.ours import MANY, comparable, dump_of, questions_about
from interop.real_store import RealStore, crash_differences
from interop.writer import JAVA_SIZES, SIZES, batches
from mqstore.layout.properties import java_map_order, parse

ON: dict[str, Any] = {"enable_multi_dispatch": True, "enable_lmq": True, "schedule_message_enable": False}
JAVA_ON: dict[str, Any] = {**JAVA_SIZES, "enableMultiDispatch": True, "enableLmq": True}
NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def put(store: mqstore.Store, seed: int, count: int, choices: list[str]) -> None:
    """As the mix of other tests, every other message to further queues."""
    for number, messages in enumerate(islice(batches(seed), count)):
        for message in messages[:: 1 + number % 2]:
            message.properties = {**message.properties, NAMES: choices[number % len(choices)]}
        store.put_batch(messages)


def choices_for(real_store: RealStore) -> list[str]:
    """Later releases know light queues only."""
    light = ["%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%devices%0"]
    return light + (["mirror", "TopicTest,%LMQ%a"] if real_store.version.startswith("4") else [])


def read(real_store: RealStore, store: Path) -> Dump:
    with mqstore.inspect(store) as view:
        questions = questions_about(view)
    return comparable(real_store.read(store, questions, **JAVA_ON, maxMsgsNumBatch=MANY))


def assert_same(real: Dump, store: Path) -> None:
    with mqstore.inspect(store) as view:
        ours = dump_of(view, real)
    assert real.whole["problems"] == []
    assert differences(ours, real) == []
    assert differences(real, ours) == []


def assert_same_content(real_store: RealStore, real: Dump, store: Path, crash: bool) -> None:
    """The checkpoint is each one's own; after a crash so are the times that 4.9 searches by, and it forgets keys."""
    with mqstore.inspect(store) as view:
        ours = dump_of(view, real)
    assert real.whole["problems"] == []
    if crash:
        assert crash_differences(real_store, real, ours, ("checkpoint", "queues.offsetByTime", "keys")) == []
    else:
        assert differences(ours, real, ignore=("checkpoint",)) == []
        assert differences(real, ours, ignore=("checkpoint",)) == []


def light_units(dump: Dump) -> int:
    return sum(unit["topic"].startswith("%LMQ%") for unit in dump.units)


def test_written_here_read_there(real_store: RealStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with mqstore.open(store, **ON, **SIZES) as opened:
        put(opened, 1, 300, choices_for(real_store))
        assert opened.check() == []
    real = read(real_store, store)
    assert light_units(real) > 100
    assert_same(real, store)
    # The real store builds the same queues from the log alone, and goes on where this one stopped.
    bare = tmp_path / "bare"
    shutil.copytree(store, bare)
    shutil.rmtree(bare / "consumequeue")
    (bare / "abort").touch()
    (bare / "checkpoint").unlink()
    assert undelayed_units(read(real_store, bare)) == undelayed_units(real)
    real_store.write(store, seed=2, count=200, **JAVA_ON)
    assert_same(read(real_store, store), store)


def undelayed_units(dump: Dump) -> list[dict[str, Any]]:
    """All but those for which 4.9.8 gets its delay levels too late when it starts without queues."""
    return [unit for unit in dump.units if unit["topic"] != "SCHEDULE_TOPIC_XXXX"]


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_written_there_read_here(real_store: RealStore, tmp_path: Path, crash: bool) -> None:
    store = tmp_path / "store"
    real_store.write(store, seed=3, count=400, crash=crash, **JAVA_ON)
    real = read(real_store, store)
    assert light_units(real) > 100
    with mqstore.inspect(store) as view:
        for record in view.scan():
            if OFFSETS in record.properties:
                assert list(record.properties) == java_map_order(parse(record.properties_raw))
    rebuilt = mqstore.rebuild(store, tmp_path / "rebuilt").output
    assert_same_content(real_store, real, rebuilt, crash)
    with mqstore.open(store, **ON) as opened:
        assert opened.check() == []
    assert_same_content(real_store, real, store, crash)
    with mqstore.open(store, schedule_message_enable=False) as opened:  # noted, so that nobody need say it again
        put(opened, 4, 100, choices_for(real_store))
        assert opened.check() == []
    assert_same(read(real_store, store), store)
