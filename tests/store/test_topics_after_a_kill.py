"""A topic whose first message was acknowledged is there after a kill at any step, with the queues it had."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mqstore import Message, Store
from store.support import copy_of_running, open_small

STEPS = ("open", "pwrite", "ftruncate", "fdatasync", "fsync", "rename", "replace")
"""What a store does to its files between the writes into its maps."""


class Kills:
    """Keeps what a kill before each step would have left, and the topics acknowledged by then with their queues."""

    def __init__(self, store: Path, images: Path, patch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._images = images
        self._guard = threading.RLock()
        self._is_copying = False
        self.acknowledged: dict[str, int] = {}
        self.kept: list[tuple[Path, dict[str, int]]] = []
        for name in STEPS:
            patch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            with self._guard:
                if not self._is_copying:
                    self.keep()
            return real(*arguments, **named)

        return step

    def keep(self) -> None:
        """Keep what a kill would leave now."""
        with self._guard:
            self._is_copying = True
            try:
                acknowledged = dict(self.acknowledged)
                image = copy_of_running(self._store, self._images / str(len(self.kept)))
                self.kept.append((image, acknowledged))
            finally:
                self._is_copying = False

    def check(self) -> None:
        """Open all that was kept."""
        for image, acknowledged in self.kept:
            with open_small(image) as store:
                assert set(acknowledged) <= set(store.topics())
                for topic, queues in acknowledged.items():  # a put that was not acknowledged yet may have made more
                    assert store._engine.settings.topics[topic].write_queue_nums >= queues, image.name


def open_synced(path: Path) -> Store:
    never = 3_600_000
    return open_small(path, flush_disk_type="SYNC_FLUSH", flush_interval_consume_queue=never)


def test_a_topic_is_there_after_a_kill_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with open_synced(path) as store:
        with monkeypatch.context() as patch:
            kills = Kills(path, tmp_path / "images", patch)
            store.create_topic("made", 3)
            kills.acknowledged["made"] = 3
            store.put(Message("made", b"first"))
            store.put(Message("own", b"first", queue_id=11))
            kills.acknowledged["own"] = 12
            store.wait_dispatched()
            store.flush()
            store.put(Message("made", b"further", queue_id=5))
            kills.acknowledged["made"] = 6
            store.flush()
            kills.keep()
        assert len(kills.kept) > 20
    kills.check()


def test_no_note_passes_over_a_topic_that_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message comes when settings have just been saved, and the note that follows speaks of it."""
    path = tmp_path / "s"
    with open_synced(path) as store:
        store.put(Message("old", b"", queue_id=0))
        wait_for = store._engine.dispatch.wait_for
        with monkeypatch.context() as patch:
            kills = Kills(path, tmp_path / "images", patch)

            def put_meanwhile(*arguments: Any) -> bool:
                store.put(Message("late", b"acknowledged", queue_id=9))
                kills.acknowledged["late"] = 10
                return wait_for(store.log_end)

            patch.setattr(store._engine.dispatch, "wait_for", put_meanwhile)
            store.flush()
            kills.keep()
        noted = (kills.kept[-1][0] / "mqstore-dispatch.json").read_text()
        assert "late" in noted, "the last image is behind the note"
    kills.check()
