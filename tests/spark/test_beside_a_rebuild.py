"""Batches of Spark while a rebuild in place is at work on the store, planned before it or meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
from mqstore.files import durable
from mqstore.spark.jobs import derived, rebuild
from mqstore.spark.options import ReadOptions
from mqstore.spark.source import VIEWS
from mqstore.spark.splits import Split
from mqstore.spark.stores import find_stores
from mqstore.store import rebuild as rebuilding
from mqstore.store.paths import StorePaths
from mqstore.store.queue_states import not_rebuilt_meanwhile
from spark.planned import plan_of, rows_of
from spark.support import run_here

CHOICES: list[dict[str, object]] = [
    {"subscribe": "rare", "plan": "queues"},
    {"subscribe": "orders", "keys": "k-333,g-3", "plan": "queues"},
]


def views_of(store: Path) -> dict[str, list[Any]]:
    """The rows of the other views, the place of the files aside."""
    found = {}
    for view, columns in {
        "queues": ["topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode"],
        "index": ["file", "entryNumber", "keyHash", "physicalOffset", "storeTimestamp", "previous"],
        "files": ["kind", "topic", "queueId", "startOffset", "usedBytes", "sizeBytes"],
        "progress": ["group", "topic", "queueId", "consumerOffset", "maxOffset", "lag"],
    }.items():
        parsed = ReadOptions.parse({"path": str(store), "view": view})
        table = VIEWS[view](find_stores(parsed), parsed, columns)
        rows = [row for part in table.plan() for batch in table.read(part) for row in batch.to_pylist()]
        found[view] = sorted(tuple(map(str, row.values())) for row in rows)
    return found


def test_batches_beside_a_rebuild(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, views = [rows_of(copy, **options) for options in CHOICES], views_of(copy)
    assert all(before)
    assert all(type(piece) is not Split for piece in plan_of(copy, **CHOICES[0]))
    seen: list[list[str]] = []

    def ask() -> None:
        assert [rows_of(copy, **options) for options in CHOICES] == before
        for options in CHOICES:
            assert {type(piece) for piece in plan_of(copy, **options)} == {Split}
        assert views_of(copy) == views
        seen.append(sorted(path.name for path in copy.glob("*before-rebuild")))

    real, real_save = rebuilding.put_in_order, durable.replace_file

    def put_in_order(*arguments: Any) -> int:
        ask()  # nothing is made yet
        return real(*arguments)

    def replace_file(path: Path, content: bytes) -> None:
        real_save(path, content)
        if path.name == "mqstore-dispatch.json":
            ask()  # all is made, and the old state still there

    monkeypatch.setattr(rebuilding, "put_in_order", put_in_order)
    monkeypatch.setattr(durable, "replace_file", replace_file)
    mqstore.rebuild(copy, None, in_place=True)
    assert len(seen) >= 2
    assert all(len(names) == 3 for names in seen[:2])
    monkeypatch.undo()
    assert [rows_of(copy, **options) for options in CHOICES] == before
    assert views_of(copy) == views


def test_an_index_that_is_moved_while_it_is_planned_by(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqstore.spark import planning

    before = rows_of(copy, **CHOICES[1])
    real = planning.find_places

    def find_places(*arguments: Any) -> Any:
        paths = StorePaths(copy)
        paths.dispatch_checkpoint.rename(paths.aside.dispatch_checkpoint)
        paths.index.rename(paths.aside.index)
        return real(*arguments)

    monkeypatch.setattr(planning, "find_places", find_places)
    assert rows_of(copy, **CHOICES[1]) == before


def test_an_audit_is_refused_meanwhile(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a check is; the audit itself takes a session, and asks in this way at its begin and at its end."""
    paths = StorePaths(copy)
    with not_rebuilt_meanwhile(paths):
        pass
    real = rebuilding.put_in_order

    def put_in_order(*arguments: Any) -> int:
        with pytest.raises(mqstore.CorruptFileError, match="rebuilt in place"), not_rebuilt_meanwhile(paths):
            pytest.fail("inside")
        return real(*arguments)

    monkeypatch.setattr(rebuilding, "put_in_order", put_in_order)
    with pytest.raises(mqstore.CorruptFileError, match="could not look"), not_rebuilt_meanwhile(paths):
        mqstore.rebuild(copy, None, in_place=True)


@pytest.mark.parametrize("fails", [False, True])
def test_all_is_found_at_every_step_of_sparks_own(copy: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    before, views = [rows_of(copy, **options) for options in CHOICES], views_of(copy)
    with mqstore.inspect(copy) as view:
        found = view.query("orders", "k-333").messages
        assert len(found) == 1
    real, steps, put = durable.rename, list[str](), derived._note

    def ask() -> None:
        assert [rows_of(copy, **options) for options in CHOICES] == before
        assert views_of(copy) == views
        with mqstore.inspect(copy) as view:
            assert view.query("orders", "k-333").messages == found

    def rename(source: Path, target: Path) -> None:
        if source.parent == copy:
            ask()
        real(source, target)
        if target.parent == copy:
            steps.append(target.name)
            ask()

    def note(*arguments: Any) -> None:
        if fails:
            raise OSError("no note")
        put(*arguments)

    monkeypatch.setattr(derived, "run_tasks", run_here)
    monkeypatch.setattr(durable, "rename", rename)
    monkeypatch.setattr(derived, "_note", note)
    spark: Any = None
    if fails:
        with pytest.raises(OSError, match="no note"):
            rebuild(spark, copy, in_place=True)
    else:
        rebuild(spark, copy, in_place=True)
    assert {"consumequeue.before-rebuild", "index.before-rebuild", "consumequeue", "index"} <= set(steps)
    ask()
