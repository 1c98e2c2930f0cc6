"""Settings that are changed while they are saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore import StoreIOError
from mqstore.store import settings_file
from mqstore.store.settings import Settings
from store.interleaving import Beside, before_setting


def committed(directory: Path) -> int | None:
    return Settings(directory).committed_offset("g", "T", 0)


def test_what_is_committed_while_a_save_takes_the_contents_is_saved_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(tmp_path)
    settings.commit_offset("g", "T", 0, 1)
    beside = Beside(lambda: settings.commit_offset("g", "T", 0, 2), settings, "_guard")
    with monkeypatch.context() as patch:
        before_setting(patch, settings._offsets, "_changed", lambda _, changed: None if changed else beside.begin())
        settings.save()
        beside.end()
    assert settings.committed_offset("g", "T", 0) == 2
    settings.save()
    assert committed(tmp_path) == 2


def fail(*arguments: object) -> None:
    raise StoreIOError("could not write")


@pytest.mark.parametrize("place", ["before", "write"])
def test_what_could_not_be_saved_is_saved_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    settings = Settings(tmp_path)
    settings.ensure_group("g")
    settings.commit_offset("g", "T", 0, 1)
    with monkeypatch.context() as patch:
        if place == "write":
            patch.setattr(settings_file, "save", fail)
        with pytest.raises(StoreIOError):
            settings.save(fail if place == "before" else bool)
    assert committed(tmp_path) is None
    settings.save()
    assert committed(tmp_path) == 1
    assert Settings(tmp_path).groups == ["g"]
