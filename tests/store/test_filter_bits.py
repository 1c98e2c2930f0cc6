"""Extension files beside the queues: written, read, cut, expired, lost and built anew; and what they spare a reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import GetMessageStatus, Message, UsageError
from mqstore.files.pool import FilePool
from mqstore.findings import Severity
from mqstore.layout.queue_ext import ExtUnit, decode_ext_unit, is_ext_address
from mqstore.store import reading
from mqstore.store.queue_ext import QueueExt, codes_of
from store.interleaving import Beside, before_setting
from store.support import findings, forget_note, mark_crashed, open_small, overwrite, queue_file

EXT: dict[str, Any] = {
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "mapped_file_size_consume_queue_ext": 400,
}
CHEAP, DEAR = mqstore.sql("price < 50"), mqstore.sql("price >= 50")


def put(store: mqstore.Store, begin: int, end: int) -> None:
    for number in range(begin, end):
        tags = ("even", "odd")[number % 2]
        message = Message("T", b"%d" % number, tags=tags, properties={"price": str(number % 100)}, queue_id=0)
        store.put(message)
    store.wait_dispatched()


def read_all(store: Any, where: Any = None, **options: Any) -> list[int]:
    found: list[int] = []
    offset = 0
    while True:
        result = store.get("T", 0, offset, 32, where, **options)
        found += [int(message.body) for message in result.messages]
        if result.next_offset == offset:
            return found
        offset = result.next_offset


def stored_codes(store: Path, start: int = 0) -> list[int]:
    return [code for code in codes_of(queue_file(store, start=start).read_bytes()) if code]


def ext_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue_ext" / "T" / "0").iterdir())


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The queue offsets of all messages that a get takes from the log, wanted or not."""
    seen: list[int] = []
    take = reading.kernels.take_messages

    def watched(*arguments: Any) -> tuple[int, int]:
        messages = arguments[11]
        before = len(messages)
        result = take(*arguments)
        seen.extend(message.queue_offset for message in messages[before:])
        return result

    monkeypatch.setattr(reading.kernels, "take_messages", watched, raising=False)
    return seen


def test_a_group_with_a_condition_need_not_look_at_what_it_cannot_want(tmp_path: Path, looked_at: list[int]) -> None:
    with open_small(tmp_path / "s", **EXT) as store:
        put(store, 0, 20)
        cheap, dear = store.consumer("cheap", "T", CHEAP), store.consumer("dear", "T", DEAR)
        put(store, 20, 100)
        assert read_all(store, CHEAP, group="cheap") == list(range(50))
        unwanted = set(looked_at) - set(range(50))
        assert len(unwanted) < 40  # a fifth of the other fifty may be looked at in vain
        looked_at.clear()
        assert read_all(store, DEAR, group="dear") == list(range(50, 100))
        assert set(looked_at) >= set(range(20))  # stored before the group was known
        looked_at.clear()
        for other in ({}, {"group": "dear"}, {"group": "nobody"}):  # the notes are of another condition
            assert read_all(store, CHEAP, **other) == list(range(50))
        assert {int(dear.get(timeout_s=30).body) for _ in range(50)} == set(range(50, 100))
        assert {int(cheap.get(timeout_s=30).body) for _ in range(50)} == set(range(50))
        assert read_all(store, "odd") == list(range(1, 100, 2))
    units = stored_codes(tmp_path / "s")
    assert units
    assert all(is_ext_address(code) for code in units)
    assert findings(tmp_path / "s") == []
    table = json.loads((tmp_path / "s" / "config" / "consumerFilter.json").read_text())["filterDataByTopic"]
    assert set(table["T"]["groupFilterData"]) == {"cheap", "dear"}
    with mqstore.inspect(tmp_path / "s") as view:
        assert read_all(view, "even") == list(range(0, 100, 2))
        assert read_all(view, DEAR) == list(range(50, 100))


def test_the_files_are_as_the_layout_says(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **EXT) as store, store.consumer("cheap", "T", CHEAP):
        put(store, 0, 30)
    with mqstore.inspect(tmp_path / "s") as view:
        stamps = [record.store_timestamp_ms for record in view.scan()]
    data = b"".join(path.read_bytes() for path in ext_files(tmp_path / "s"))
    codes = [code for start in (0, 200, 400) for code in stored_codes(tmp_path / "s", start)]
    assert codes[:2] == [-(1 << 63), -(1 << 63) + 34]
    for code, stamp in zip(codes, stamps, strict=True):
        at = code + (1 << 63)
        unit = decode_ext_unit(data[at - at % 400 : at - at % 400 + 400], at % 400)
        assert unit is not None
        assert (len(unit.bitmap), unit.store_timestamp_ms) == (14, stamp)
    assert data[10 * 34 + 34 : 10 * 34 + 36] == b"\xff\xff"
    with open_small(tmp_path / "n", **{**EXT, "enable_calc_filter_bit_map": False}) as store:
        put(store, 0, 1)
    unit = decode_ext_unit(ext_files(tmp_path / "n")[0].read_bytes())
    assert unit is not None
    assert unit.bitmap == b""
    assert not (tmp_path / "n" / "config" / "consumerFilter.json").exists()


def test_a_condition_counts_from_when_every_message_gets_its_bits(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **EXT) as store:
        put(store, 0, 10)
        store._engine.commit_log.tail.last_timestamp_ms += 5_000  # as after the clock was set back
        with store.consumer("dear", "T", DEAR):
            known = store._engine.settings.consumer_filters["T"]["dear"]
            assert known.born_time_ms >= store._engine.commit_log.tail.last_timestamp_ms
            assert not known.is_dead
            put(store, 10, 60)
            assert read_all(store, DEAR, group="dear") == list(range(50, 60))
        assert store._engine.settings.consumer_filters["T"]["dear"].is_dead
        with store.consumer("dear", "T", DEAR):  # comes back: its bits were set all the time
            assert store._engine.settings.consumer_filters["T"]["dear"].born_time_ms == known.born_time_ms
            assert not store._engine.settings.consumer_filters["T"]["dear"].is_dead
        with store.consumer("dear", "T", CHEAP):  # with another condition it begins anew
            assert store._engine.settings.consumer_filters["T"]["dear"].expression == CHEAP.text
            assert store._engine.settings.consumer_filters["T"]["dear"].born_time_ms >= known.born_time_ms
            assert read_all(store, CHEAP, group="dear") == list(range(50))


def test_the_condition_of_a_group_that_has_gone_is_dropped(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **EXT, filter_data_clean_time_span=0) as store:
        with store.consumer("gone", "T", CHEAP):
            pass
        store._engine.filter_bits._put(store._engine.settings.consumer_filters["T"]["gone"], 1 << 60)  # type: ignore[union-attr]
        with store.consumer("other", "U", CHEAP):
            assert set(store._engine.settings.consumer_filters) <= {"T", "U"}
            assert "U" in store._engine.settings.consumer_filters


@pytest.mark.parametrize("trusted", [True, False], ids=["noted", "from the log"])
def test_after_a_crash_the_files_agree_again(tmp_path: Path, trusted: bool) -> None:
    with open_small(tmp_path / "s", **EXT) as store, store.consumer("cheap", "T", CHEAP):
        put(store, 0, 35)
        store.flush()
        note = (tmp_path / "s" / "mqstore-dispatch.json").read_bytes()
        put(store, 35, 60)
    mark_crashed(tmp_path / "s")
    (tmp_path / "s" / "mqstore-dispatch.json").write_bytes(note)
    if not trusted:
        forget_note(tmp_path / "s")
    for path in ext_files(tmp_path / "s")[3:]:
        path.unlink()  # not synced when the power failed
    with open_small(tmp_path / "s", **EXT) as store, store.consumer("cheap", "T", CHEAP):
        put(store, 60, 80)
        assert read_all(store, CHEAP, group="cheap") == list(range(50))
        assert read_all(store, "odd") == list(range(1, 80, 2))
    assert findings(tmp_path / "s") == []


def test_lost_or_damaged_files_hide_no_message(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **EXT) as store, store.consumer("dear", "T", DEAR):
        put(store, 0, 60)
    overwrite(ext_files(tmp_path / "s")[0], 0, b"\x7f" * 40)
    ext_files(tmp_path / "s")[2].unlink()
    with mqstore.inspect(tmp_path / "s") as view:
        assert read_all(view, "odd") == list(range(1, 60, 2))
        assert read_all(view, DEAR) == list(range(50, 60))
    with open_small(tmp_path / "s", **EXT) as store:
        put(store, 60, 62)
        assert read_all(store, "even") == list(range(0, 62, 2))
        assert read_all(store, DEAR, group="dear") == list(range(50, 62))
    shutil.rmtree(tmp_path / "s" / "consumequeue_ext")
    with mqstore.inspect(tmp_path / "s") as view:
        assert read_all(view, "odd") == list(range(1, 62, 2))
    with open_small(tmp_path / "s", **EXT) as store:
        put(store, 62, 64)
        assert read_all(store, "odd") == list(range(1, 64, 2))
    (told,) = findings(tmp_path / "s")
    assert (told.severity, "notes of" in told.message) == (Severity.WARNING, True)
    mqstore.rebuild(tmp_path / "s", None, in_place=True)
    assert findings(tmp_path / "s") == []


def test_it_may_be_switched_on_and_off(tmp_path: Path) -> None:
    for number, settings in enumerate([{}, EXT, {}, EXT]):
        with open_small(tmp_path / "s", **settings) as store:
            put(store, number * 15, number * 15 + 15)
            assert read_all(store, "odd") == list(range(1, number * 15 + 15, 2))
    assert findings(tmp_path / "s") == []
    mqstore.rebuild(tmp_path / "s", tmp_path / "plain")
    assert not (tmp_path / "plain" / "consumequeue_ext").exists()
    mqstore.rebuild(tmp_path / "s", None, in_place=True, config=mqstore.StoreConfig(**EXT))
    assert len(ext_files(tmp_path / "s")) > 2
    assert findings(tmp_path / "s") == []
    mqstore.rebuild(tmp_path / "s", None, in_place=True)
    assert not (tmp_path / "s" / "consumequeue_ext").exists()
    assert findings(tmp_path / "s") == []


def test_expiry_takes_the_files_along(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **EXT) as store:
        put(store, 0, 100)
        store.flush()
        before = ext_files(tmp_path / "s")
        assert store.expire(9_000_000_000_000).removed
        after = ext_files(tmp_path / "s")
        assert after == before[-len(after) :]
        assert len(after) < len(before)
        low = store.min_offset("T", 0)
        assert store.get("T", 0, low, 1, "even || odd").status is GetMessageStatus.FOUND
    with open_small(tmp_path / "s", **EXT) as store:
        put(store, 100, 101)
        assert read_all(store, "even")[-1] == 100
    assert findings(tmp_path / "s") == []


def test_the_schedule_finds_its_times(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **EXT, message_delay_level="1s 5s", schedule_message_enable=False) as store:
        put = store.put(Message("T", b"1", delay_level=1, queue_id=0))
        store.wait_dispatched()
        assert store.deliver_due(put.store_timestamp_ms + 999) == 0
        assert store.deliver_due(9_000_000_000_000) == 1
        store.wait_dispatched()
        assert read_all(store) == [1]


def test_a_file_that_begins_while_others_expire_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FilePool(writable=True)
    ext = QueueExt(tmp_path / "ext", pool, 400)
    ext.end_after(None)
    addresses = [ext.append(ExtUnit(number, number, bytes(12))) for number in range(40)]
    last = len(addresses) - 1
    beside = Beside(
        lambda: addresses.extend(ext.append(ExtUnit(n, n, bytes(12))) for n in range(40, 60)), ext, "_list_guard"
    )
    todo = [beside.begin]
    with monkeypatch.context() as patch:
        before_setting(patch, ext, "_entries", lambda old, new: todo.pop()() if todo else None)
        ext.expire(addresses[last])
        beside.end()
    units = [ext.find(address) for address in addresses[last:]]
    assert [None if unit is None else unit.tags_code for unit in units] == list(range(last, 60))
    pool.close()


def test_units_of_many_sizes(tmp_path: Path) -> None:
    pool = FilePool(writable=True)
    ext = QueueExt(tmp_path / "ext", pool, 40_000)
    ext.end_after(None)
    units = [ExtUnit(number, number, bytes([number]) * size) for number, size in enumerate([0, 32747, 1, 7140, 14, 3])]
    places = [ext.append(unit) for unit in units]
    assert [ext.find(place) for place in places] == units
    assert [place + (1 << 63) for place in places] == [0, 20, 32787, 32808, 40_000, 40_034]
    again = QueueExt(tmp_path / "ext", pool)
    again.end_after(places[4])
    assert again.find(places[5]) is None
    assert again.append(units[2]) == places[5]
    assert again.find(7) is again.find(places[5] + 1) is again.find(-(1 << 40)) is None
    pool.close()


def test_settings_that_cannot_be_meant(tmp_path: Path) -> None:
    for setting in ({"max_error_rate_of_bloom_filter": 0}, {"expect_consumer_num_use_filter": 0}):
        with pytest.raises(UsageError):
            open_small(tmp_path / "s", **setting)


def test_a_damaged_file_of_conditions_costs_time_and_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"enable_consume_queue_ext": True, "enable_calc_filter_bit_map": True}
    condition = mqstore.sql("n > 5")
    with open_small(tmp_path / "s", **settings) as store:
        store.subscribe("g", "T", condition)
        for number in range(10):
            store.put(Message("T", b"%d" % number, properties={"n": str(number)}, queue_id=0))
    path = tmp_path / "s" / "config" / "consumerFilter.json"
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    path.write_bytes(b"\xff\xfe garbage")
    with open_small(tmp_path / "s") as store:
        assert "going on without" in caplog.text
        assert len(store.get("T", 0, 0, where=condition, group="g").messages) == 4
    with open_small(tmp_path / "s", **settings) as store:
        assert len(store.get("T", 0, 0, where=condition, group="g").messages) == 4
        store.subscribe("g", "T", condition)
    assert b"n > 5" in path.read_bytes()
