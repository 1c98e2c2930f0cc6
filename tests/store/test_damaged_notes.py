"""Whatever a note in the store's root holds, opening and reading tell it as damage of that file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptConfigError
from store.support import fill, findings, open_small

LOG, LEVELS, FURTHER = "mqstore-commitlog.json", "mqstore-delay-levels.json", "mqstore-multi-dispatch.json"
DEEP = {
    "lists": b"[" * 200_000,
    "objects": b'{"a":' * 100_000,
    "closed": b'{"storePathCommitLog":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
NO_NOTE = {
    "empty": b"",
    "noise": b"\0" * 100,
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a long number": b"9" * 5000,
    "another code": "{}".encode("utf-16"),
    "half a pair": b'{"a":"\\ud800"}',
}
NO_LOG = {
    "no directory": b'{"storePathCommitLog":[],"readOnlyCommitLogStorePaths":[]}',
    "a NUL": b'{"storePathCommitLog":["\\u0000"],"readOnlyCommitLogStorePaths":[]}',
    "a NUL among the old": b'{"storePathCommitLog":["commitlog"],"readOnlyCommitLogStorePaths":["a\\u0000b"]}',
    "a number": b'{"storePathCommitLog":[5],"readOnlyCommitLogStorePaths":[]}',
    "a text for a list": b'{"storePathCommitLog":"abc","readOnlyCommitLogStorePaths":[]}',
    "an object for a list": b'{"storePathCommitLog":["commitlog"],"readOnlyCommitLogStorePaths":{}}',
}
NO_LEVELS = {"none": b'{"messageDelayLevel":""}', "a number": b'{"messageDelayLevel":5}'}
NO_FLAGS = {"a number": b'{"enableMultiDispatch":1,"enableLmq":true}'}
CASES = [
    *((name, content) for name in (LOG, LEVELS, FURTHER) for content in (*DEEP.values(), *NO_NOTE.values())),
    *((LOG, content) for content in NO_LOG.values()),
    *((LEVELS, content) for content in NO_LEVELS.values()),
    *((FURTHER, content) for content in NO_FLAGS.values()),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("sound") / "s"
    fill(store, 3)
    return store


@pytest.mark.parametrize(("name", "content"), CASES, ids=lambda value: str(value[:24]))
def test_a_damaged_note_is_named_and_the_store_opens_without_it(sound: Path, name: str, content: bytes) -> None:
    note = sound / name
    note.write_bytes(content)
    try:
        with pytest.raises(CorruptConfigError) as caught:
            open_small(sound)
        assert caught.value.path == os.fspath(note)
        assert str(caught.value.hint).startswith("remove it, and give ")
        for look in (findings, lambda store: mqstore.inspect(store).queues()):
            with contextlib.suppress(CorruptConfigError):  # not each of them needs each note
                look(sound)
    finally:
        note.unlink()
    open_small(sound).close()


@pytest.mark.parametrize("content", [*DEEP.values(), *NO_NOTE.values()], ids=lambda value: str(value[:24]))
def test_a_damaged_note_of_dispatch_or_progress_costs_time_only(sound: Path, content: bytes) -> None:
    (sound / "mqstore-dispatch.json").write_bytes(content)
    (sound / "mqstore-scan.json").write_bytes(content)
    (sound / "mqstore-progress.json").write_bytes(content)
    with open_small(sound) as store:
        assert store.max_offset("T", 0) == 3
    assert findings(sound) == []


@pytest.mark.parametrize("content", [*DEEP.values(), *NO_NOTE.values()], ids=lambda value: str(value[:24]))
@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset", "delayOffset"])
def test_a_damaged_settings_file_gives_way_to_its_backup(sound: Path, name: str, content: bytes) -> None:
    with open_small(sound) as store:
        store.commit_offset("g", "T", 0, 1)
    tables = {"topics": "topicConfigTable", "subscriptionGroup": "subscriptionGroupTable"}
    path, backup = sound / "config" / f"{name}.json", sound / "config" / f"{name}.json.bak"
    backup.write_bytes(b'{"%s":{}}' % tables.get(name, "offsetTable").encode())
    path.write_bytes(content)
    open_small(sound).close()
    path.write_bytes(content)
    backup.unlink()
    with pytest.raises(CorruptConfigError) as caught:
        open_small(sound)
    assert caught.value.path == os.fspath(path)
    path.unlink()


@pytest.mark.parametrize("name", [LOG, LEVELS, FURTHER])
def test_a_damaged_note_beside_an_empty_log_is_not_passed_over_by_a_check(tmp_path: Path, name: str) -> None:
    open_small(tmp_path / "s").close()
    (tmp_path / "s" / name).write_bytes(b"[]")
    with pytest.raises(CorruptConfigError) as caught:
        findings(tmp_path / "s")
    assert caught.value.path == os.fspath(tmp_path / "s" / name)
