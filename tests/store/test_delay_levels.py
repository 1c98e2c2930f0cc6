"""A store knows its own delay levels: whoever computes due times from its log computes those that it had."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import CorruptConfigError, Message, StoreConfig
from mqstore.findings import Severity
from mqstore.layout.constants import SCHEDULE_TOPIC
from mqstore.store.delay_levels import NOTE_NAME
from store.consuming import bodies, open_wide
from store.support import findings, flip_bit, queue_file

LEVELS = "1h 2h"


@pytest.fixture
def delayed(tmp_path: Path) -> Path:
    with open_wide(tmp_path / "s", message_delay_level=LEVELS) as store:
        for level in (1, 2):
            store.put(Message("t", b"in %d h" % level, delay_level=level, queue_id=0))
    return tmp_path / "s"


def due_times(path: Path, *, from_log: bool = False) -> list[int]:
    """In ms after the message was stored."""
    with mqstore.inspect(path, from_log=from_log) as view:
        found = []
        for queue in range(2):
            (unit,) = view.units(SCHEDULE_TOPIC, queue, 0, 1)
            (message,) = view.get(SCHEDULE_TOPIC, queue).messages
            found.append(unit.tags_code - message.store_timestamp_ms)
    return found


RIGHT = [3600_000, 7200_000]


def test_every_tool_computes_the_same_times(delayed: Path, tmp_path: Path) -> None:
    assert due_times(delayed) == RIGHT
    assert findings(delayed) == []
    assert due_times(delayed, from_log=True) == RIGHT
    with mqstore.inspect(delayed) as view:
        end = view.log_end
    mqstore.rebuild(delayed, tmp_path / "rebuilt")
    mqstore.truncate(delayed, end, tmp_path / "cut")
    mqstore.rebuild(delayed, None, in_place=True)
    for path in (delayed, tmp_path / "rebuilt", tmp_path / "cut"):
        assert due_times(path) == RIGHT
        assert findings(path) == []
    with open_wide(delayed, schedule_message_enable=False) as store:
        (message,) = store.get(SCHEDULE_TOPIC, 0).messages
        assert store.deliver_due(message.store_timestamp_ms + 3_599_000) == 0
        assert store.deliver_due(message.store_timestamp_ms + 3_601_000) == 1
        assert bodies(store, "t") == [b"in 1 h"]


def test_the_levels_given_count_and_are_noted(delayed: Path) -> None:
    open_wide(delayed, message_delay_level="5m").close()
    assert json.loads((delayed / NOTE_NAME).read_bytes()) == {"messageDelayLevel": "5m"}


def test_a_store_with_a_brokers_levels_has_no_note(tmp_path: Path) -> None:
    open_wide(tmp_path / "s").close()
    open_wide(tmp_path / "s", message_delay_level=StoreConfig().message_delay_level).close()
    assert not (tmp_path / "s" / NOTE_NAME).exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"messageDelayLevel": 5}', b'{"messageDelayLevel": "soon"}']
)
def test_a_note_that_cannot_be_read_is_told(delayed: Path, tmp_path: Path, content: bytes) -> None:
    (delayed / NOTE_NAME).write_bytes(content)
    calls: list[Any] = [
        lambda: open_wide(delayed).close(),
        lambda: mqstore.rebuild(delayed, tmp_path / "out"),
        lambda: findings(delayed),
    ]
    for call in calls:
        with pytest.raises(CorruptConfigError, match="note of delay levels") as told:
            call()
        assert told.value.path == str(delayed / NOTE_NAME)
        assert re.search("message_delay_level", str(told.value.hint))
    with open_wide(delayed, message_delay_level=LEVELS):
        pass
    assert findings(delayed) == []


FAR_MS = 9_000_000_000_000


@pytest.fixture
def fewer(tmp_path: Path) -> Path:
    """A store with messages that wait in levels which it no more has."""
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        for level in (1, 4, 18):
            store.put(Message("t", b"level %d" % level, delay_level=level, queue_id=0))
    with open_wide(tmp_path / "s", message_delay_level="2s 7s", schedule_message_enable=False) as store:
        store.put(Message("t", b"level 1 now", delay_level=1, queue_id=0))
    return tmp_path / "s"


def test_messages_in_levels_that_a_store_no_more_has_come_when_they_are_due(fewer: Path) -> None:
    with open_wide(fewer, schedule_message_enable=False) as store:
        stored_ms = {queue: store.get(SCHEDULE_TOPIC, queue).messages[0].store_timestamp_ms for queue in (3, 17)}
        assert store.deliver_due(stored_ms[3] + 29_999) == 2  # those of level 1, by 1 s and by 2 s
        assert store.deliver_due(stored_ms[3] + 30_000) == 1
        assert store.deliver_due(stored_ms[17] + 7_199_999) == 0
        assert store.deliver_due(stored_ms[17] + 7_200_000) == 1
        assert bodies(store, "t") == [b"level 1", b"level 1 now", b"level 4", b"level 18"]
    with open_wide(fewer, schedule_message_enable=False) as store:
        assert store.deliver_due(FAR_MS) == 0


def test_they_come_also_from_queues_that_were_built_anew(fewer: Path) -> None:
    mqstore.rebuild(fewer, None, in_place=True)
    assert findings(fewer) == []
    with open_wide(fewer, schedule_message_enable=False) as store:
        assert store.deliver_due(FAR_MS) == 4


def test_check_calls_them_sound_and_says_why_they_differ(fewer: Path) -> None:
    found = findings(fewer)
    assert {(one.severity, one.area) for one in found} == {(Severity.NOTE, "queue")}
    assert all("other delay levels" in one.message for one in found)
    assert sorted(int(Path(one.path).name) for one in found) == [0, 3, 17]


def test_check_still_finds_a_due_time_that_no_level_makes(fewer: Path) -> None:
    flip_bit(queue_file(fewer, SCHEDULE_TOPIC, 17), 0, 19 * 8)
    assert [one.path.rpartition("/")[2] for one in findings(fewer) if one.severity is Severity.ERROR] == ["17"]
