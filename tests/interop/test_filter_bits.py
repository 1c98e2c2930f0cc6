"""Extension files of the queues go both ways: with them a get by tags gives exactly the right messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqstore
from interop.dumps import Dump, differences
from interop.ours import MANY, comparable, dump_of, questions_about
from interop.real_store import RealStore
from interop.writer import JAVA_SIZES, SIZES, put

EXT: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "mapped_file_size_consume_queue_ext": 1024,
}
JAVA_EXT: dict[str, Any] = {**JAVA_SIZES, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024}


def read(real_store: RealStore, store: Path) -> Dump:
    with mqstore.inspect(store) as view:
        questions = questions_about(view)
    return comparable(real_store.read(store, questions, **JAVA_EXT, maxMsgsNumBatch=MANY))


def assert_same(real: Dump, store: Path) -> None:
    """All but the units themselves, in which the real store's harness sees addresses."""
    with mqstore.inspect(store) as view:
        ours = dump_of(view, real)
    assert real.whole["problems"] == []
    for dump in (ours, real):
        for record in dump.records:
            for unit in record.get("cq", ()):
                del unit["tagsCode"]
    assert differences(ours, real, ignore=("units",)) == []
    assert differences(real, ours, ignore=("units",)) == []


def test_ours_and_theirs(real_store: RealStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with mqstore.open(store, **EXT, **SIZES) as opened, opened.consumer("group", "TopicTest", mqstore.sql("a > 5")):
        put(opened, 1, 500)
    files = [len(list(path.iterdir())) for path in (store / "consumequeue_ext" / "TopicTest").iterdir()]
    assert max(files) >= 2
    real = read(real_store, store)
    if real_store.version.startswith("4"):  # later releases look the tags codes up
        assert all(unit["tagsCode"] < -(1 << 62) for unit in real.units)
    assert_same(real, store)
    real_store.write(store, seed=2, count=200, **JAVA_EXT)
    assert_same(read(real_store, store), store)
    with mqstore.open(store, **EXT) as opened:
        assert opened.check() == []
        put(opened, 3, 100)
        assert opened.check() == []
    assert_same(read(real_store, store), store)
