"""Filters that a view takes over from Spark leave the rows that Spark would have left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

import mqstore
from mqstore import Message
from mqstore.spark.options import ReadOptions
from mqstore.spark.pushed import LONG_MAX, Pushed
from mqstore.spark.source import VIEWS
from mqstore.spark.stores import find_stores

COMPARISONS: dict[Any, Any] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    In: lambda one, others: one in others,
    IsNotNull: lambda one, _: True,
    StringStartsWith: lambda one, other: one.startswith(other),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "broker-a"
    with mqstore.open(path, mapped_file_size_commit_log=1 << 14, max_hash_slot_num=20, max_index_num=40) as store:
        for number in range(120):
            tags = ("x", None, "y")[number % 3]
            store.put(Message("ab"[number % 2], b"%d" % number, tags=tags, keys=[f"k{number}"], queue_id=number % 3))
        store.wait_dispatched()
        for queue_id in range(3):
            store.commit_offset("billing", "a", queue_id, 5 * queue_id)
    return path


def filters_on(name: str, values: list[Any]) -> Iterator[Any]:
    for value in values:
        for kind in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual):
            yield kind((name,), value)
        if isinstance(value, str):
            yield StringStartsWith((name,), value[:1])
    yield In((name,), (values[0], None))
    yield In((name,), (None,))
    yield In((name,), tuple(values))
    yield IsNotNull((name,))


@pytest.mark.parametrize("view", VIEWS)
def test_what_is_taken_is_kept_to(made: Path, view: str) -> None:
    options = ReadOptions.parse({"path": str(made), "view": view})
    names = [
        field.name for field in VIEWS[view].schema if "map" not in str(field.type) and "list" not in str(field.type)
    ]
    table = VIEWS[view](find_stores(options), options, names)
    everything = [row for part in table.plan() for batch in table.read(part) for row in batch.to_pylist()]
    taken = 0
    for name in names:
        seen = sorted({row[name] for row in everything if row[name] is not None})
        if not seen:
            continue
        values = [seen[0], seen[len(seen) // 2], seen[-1]]
        if isinstance(values[0], int):
            values += [-1, LONG_MAX, -LONG_MAX - 1]
        elif not isinstance(values[0], (str, bytes)):
            values += [seen[0] - timedelta(days=9), seen[-1] + timedelta(days=9)]
        for one in filters_on(name, values):
            pushed = Pushed().taking(one, table.pushable)
            if pushed is None:
                continue
            taken += 1
            narrowed = VIEWS[view](find_stores(options), options, names)
            narrowed.pushed = pushed
            found = [row for part in narrowed.plan() for batch in narrowed.read(part) for row in batch.to_pylist()]
            wanted = COMPARISONS[type(one)]
            other = getattr(one, "value", None)
            assert found == [row for row in everything if row[name] is not None and wanted(row[name], other)], one
    assert (taken > 0) is (view in ("messages", "queues", "progress"))
