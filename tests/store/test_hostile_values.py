"""Any value in any field of any file: an answer or one of our errors; never a crash or a hang."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore
from store.hostile import COUNT, try_everything, write
from store.support import bodies, body_of, findings, forget_note, log_file, overwrite

INTS = [0, -1, 1, 7, 2000, 4096, 5000, (1 << 31) - 1, -(1 << 31)]
LONGS = [0, -1, 4096, 1 << 40, 1 << 62, (1 << 63) // 20 - 1, (1 << 63) - 1, -(1 << 63)]
RECORD = {4: INTS, 0: INTS, 8: INTS, 12: INTS, 20: LONGS, 28: LONGS, 36: INTS, 56: LONGS, 84: INTS}
UNIT = {0: LONGS, 8: INTS, 12: LONGS}
INDEX = {0: LONGS, 8: LONGS, 16: LONGS, 24: LONGS, 32: INTS, 36: INTS, 44: INTS, 92: INTS, 96: LONGS, 104: INTS,
         108: [*INTS, 2, 3]}  # fmt: skip
CHECKPOINT = dict.fromkeys((0, 8, 16, 24, 32), LONGS)


def fields(places: dict[int, list[int]]) -> list[tuple[int, bytes]]:
    return [
        (position, struct.pack(">i" if set(INTS) & set(values) >= {5000} else ">q", value))
        for position, values in places.items()
        for value in values
    ]


@pytest.mark.parametrize(("position", "value"), fields(RECORD), ids=str)
def test_any_value_in_a_field_of_a_record(store: Path, position: int, value: bytes) -> None:
    with mqstore.inspect(store) as view:
        third = [record.physical_offset for record in view.scan()][3]
    overwrite(log_file(store), third + position, value)
    forget_note(store)
    try_everything(store)


@pytest.mark.parametrize(("position", "value"), fields(UNIT), ids=str)
def test_any_value_in_a_field_of_a_queue_unit(store: Path, position: int, value: bytes) -> None:
    overwrite(store / "consumequeue/T/0/00000000000000000000", 5 * 20 + position, value)
    try_everything(store)  # with the note only the end of a queue is looked at
    forget_note(store)
    assert not [one for one in try_everything(store) if not one.startswith("look")]
    assert bodies(store)[:COUNT] == [body_of(number) for number in range(COUNT)]


@pytest.mark.parametrize(("position", "value"), fields(INDEX), ids=str)
def test_any_value_in_an_index_file(store: Path, position: int, value: bytes) -> None:
    overwrite(max((store / "index").iterdir()), position, value)
    met = try_everything(store)
    assert not [one for one in met if not one.startswith("look")]  # only a query may say that it could not look
    with mqstore.inspect(store) as view:  # writing has mended it
        assert [message.body for message in view.query("T", "k29").messages] == [body_of(29)]


@pytest.mark.parametrize(("position", "value"), fields(CHECKPOINT), ids=str)
def test_any_value_in_the_checkpoint(store: Path, position: int, value: bytes) -> None:
    overwrite(store / "checkpoint", position, value)
    (store / "abort").touch()
    forget_note(store)
    assert try_everything(store) == []


@pytest.mark.parametrize("length", [0, 1, 10, 24, 4095])
def test_a_short_checkpoint_does_not_keep_a_store_closed(store: Path, length: int) -> None:
    os.truncate(store / "checkpoint", length)
    write(store)
    assert findings(store) == []


SETTINGS = [
    b"", b"{", b"null", b"[]", b'""', b"0", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"1" * 5000, b"1e999",
    b"NaN", b'{"offsetTable":5}', b'{"offsetTable":{"a":1}}', b'{"offsetTable":{"a@b":{0:"x"}}}',
    b'{"offsetTable":{"a@b":{-5:99999999999999999999999}}}', b'{"offsetTable":{"none":{0:1}}}',
    b'{"offsetTable":{"T@g":{0:1e999}}}', b'{"offsetTable":{"T@\\ud800g":{0:1}}}', b'{"topicConfigTable":{"T":null}}',
    b'{"topicConfigTable":{"T":{"writeQueueNums":1e999}}}', b'{"topicConfigTable":{"../x":{"topicName":"../x"}}}',
    b'{"dataVersion":{"counter":"x"}}', b'{"version":1,"logOffset":1e999}',
]  # fmt: skip
NAMES = ["config/topics.json", "config/consumerOffset.json", "config/subscriptionGroup.json", "config/delayOffset.json",
         "mqstore-dispatch.json", "mqstore-progress.json"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_content_of_a_settings_file(original: Path, tmp_path: Path, name: str) -> None:
    for number, content in enumerate(SETTINGS):
        store = shutil.copytree(original, tmp_path / str(number) / "store")
        (store / name).write_bytes(content)
        met = try_everything(store)
        assert not name.startswith("mqstore-") or met == [], content
        assert all(one.endswith("CorruptConfigError") for one in met), content


def note_values(note: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = note.items() if isinstance(note, dict) else enumerate(note) if isinstance(note, list) else None
    if children is None:
        yield place
        return
    for name, child in children:
        yield from note_values(child, (*place, name))


def test_any_value_in_the_note_of_dispatch(original: Path, tmp_path: Path) -> None:
    note = json.loads((original / "mqstore-dispatch.json").read_text())
    values = [None, 7, "x", (1 << 63) - 1]
    for number, place in enumerate(note_values(note)):
        store = shutil.copytree(original, tmp_path / str(number))
        for value in values:
            changed = json.loads(json.dumps(note))
            inner = changed
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = value
            (store / "mqstore-dispatch.json").write_text(json.dumps(changed))
            mqstore.open(store).close()
            assert findings(store) == [], (place, value)
            assert (store / "mqstore-dispatch.json").read_bytes() == (original / "mqstore-dispatch.json").read_bytes()
