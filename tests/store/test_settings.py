"""Settings that are changed while they are saved."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from mqstore import CorruptConfigError, Message, StoreConfig, StoreIOError
from mqstore.store import settings_file
from mqstore.store.settings import Settings
from store.interleaving import Beside, before_setting
from store.support import open_small


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


@pytest.mark.parametrize("counter", [(1 << 63) - 2, (1 << 63) - 1])
def test_counting_changes_stays_within_what_a_file_can_hold(tmp_path: Path, counter: int) -> None:
    for name, table in (("topics", "topicConfigTable"), ("subscriptionGroup", "subscriptionGroupTable")):
        (tmp_path / f"{name}.json").write_text(json.dumps({table: {}, "dataVersion": {"counter": counter}}))
    settings = Settings(tmp_path)
    for number in range(3):
        settings.create_topic(f"T{number}", 1)
        settings.ensure_group(f"g{number}")
        settings.commit_offset(f"g{number}", "T", 0, number)
        settings.save()
    saved = Settings(tmp_path)
    assert sorted(saved.topics) == ["T0", "T1", "T2"]
    assert saved.groups == ["g0", "g1", "g2"]
    assert saved.committed_offset("g2", "T", 0) == 2


def test_a_topic_of_queues_beyond_the_last_can_be_loaded_again(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    settings.ensure_topic("T", 70_001, StoreConfig())
    settings.save()
    assert Settings(tmp_path).topics["T"].write_queue_nums == 65_536


@pytest.mark.parametrize("count", [65_537, (1 << 31) - 1, 1 << 62])
def test_a_number_of_queues_that_no_topic_has_is_damage(tmp_path: Path, count: int) -> None:
    with open_small(tmp_path / "s") as store:
        store.create_topic("T", 4)
    file = tmp_path / "s" / "config" / "topics.json"
    sound, backup = file.read_bytes(), file.with_name("topics.json.bak")
    file.write_bytes(sound.replace(b'QueueNums":4', b'QueueNums":%d' % count))
    backup.unlink(missing_ok=True)
    with pytest.raises(CorruptConfigError):
        open_small(tmp_path / "s")
    backup.write_bytes(sound)
    with open_small(tmp_path / "s") as store:
        table = pa.table({"topic": ["T"] * 8, "body": [b""] * 8})
        assert store.put_table(table).messages == 8


@pytest.mark.parametrize("offset", [-1, -5, -(1 << 63)])
def test_an_offset_below_0_is_that_of_the_first_message(tmp_path: Path, offset: int) -> None:
    with open_small(tmp_path / "s") as store:
        for number in range(3):
            store.put(Message("T", b"%d" % number, queue_id=0))
        store.wait_dispatched()
        store.commit_offset("g", "T", 0, 2)
    for name, key in (("consumerOffset", "T@g"), ("delayOffset", "1")):
        table = {key: {"0": offset} if name == "consumerOffset" else offset}
        (tmp_path / "s" / "config" / f"{name}.json").write_text(json.dumps({"offsetTable": table}))
    assert Settings(tmp_path / "s" / "config").delay_offsets == {1: 0}
    with open_small(tmp_path / "s") as store:
        assert [(one.consumer_offset, one.lag) for one in store.progress()] == [(0, 3)]
        with store.consumer("g", "T", timeout_s=0.1) as consumer:
            assert [message.body for message in consumer] == [b"0", b"1", b"2"]
            assert consumer.lost == 0


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
