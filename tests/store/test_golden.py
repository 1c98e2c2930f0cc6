"""Every golden store, read from outside, gives what the real store's code read from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import GetMessageStatus, StoreView
from store.offset_as_v4 import offset_at_as_v4

WITH_EXPECTED = [
    "basic", "broker", "cleaned", "crashed", "crashed-recovered", "crashed-bigindex", "crashed-bigindex-recovered",
    "cq-lost-recovered", "cq-lost-abort-recovered", "torn-flip-abort-recovered", "torn-flip-clean-recovered",
    "v5-basic", "v5-cleaned", "v5-crashed", "v5-crashed-recovered", "v5-cq-lost-recovered",
    "v5-cq-lost-abort-recovered",
]  # fmt: skip


@pytest.fixture(params=WITH_EXPECTED)
def store(request: pytest.FixtureRequest, golden: Path) -> Path:
    return golden / request.param


def expected_dir(store: Path) -> Path:
    return store / "live" if not (store / "EXPECTED-QUEUES.json").exists() else store


def queues_of(store: Path) -> dict[str, Any]:
    return json.loads((expected_dir(store) / "EXPECTED-QUEUES.json").read_text())


def lines_of(store: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (expected_dir(store) / name).read_text().splitlines()]


def died_alive(store: Path) -> bool:
    """Whether the expectations were taken from the living store, some messages before it was killed."""
    return expected_dir(store).name == "live"


def test_every_record(store: Path) -> None:
    expected = lines_of(store, "EXPECTED.jsonl")
    with mqstore.inspect(store / "store") as view:
        rows = [
            (r.physical_offset, r.total_size, r.topic, r.queue_id, r.queue_offset, r.properties, r.msg_id, r.store_host)
            for r in view.scan()
        ]
    names = ("commitLogOffset", "storeSize", "topic", "queueId", "queueOffset", "properties", "msgId", "storeHost")
    # The expectations of a crashed store were taken from the living one, some messages before its death.
    assert rows[: len(expected)] == [tuple(line[name] for name in names) for line in expected]
    assert len(rows) == len(expected) or died_alive(store)


def test_every_unit(store: Path) -> None:
    expected = lines_of(store, "EXPECTED-CQ.jsonl")
    with mqstore.inspect(store / "store") as view:
        for topic, queue_id in {(line["topic"], line["queueId"]) for line in expected}:
            mine = [line for line in expected if (line["topic"], line["queueId"]) == (topic, queue_id)]
            units = [tuple(unit) for unit in view.units(topic, queue_id)]
            # 4.9.8 leaves a queue's minimum where it was when all its messages have expired; ours moves on.
            mine = [line for line in mine if line["phyOffset"] >= view.min_physical_offset]
            assert units[: len(mine)] == [(line["phyOffset"], line["size"], line["tagsCode"]) for line in mine]


def test_ends_blanks_and_checkpoint(store: Path) -> None:
    expected = queues_of(store)
    with mqstore.inspect(store / "store") as view:
        assert view.min_physical_offset == expected["minPhyOffset"]
        blanks = [{"offset": blank.physical_offset, "size": blank.size_bytes} for blank in view.blanks()]
        assert blanks[: len(expected["blanks"])] == expected["blanks"]
        if not died_alive(store):
            assert view.log_end == expected["maxPhyOffset"]
            checkpoint = view.checkpoint._asdict()
            assert checkpoint["logics_msg_timestamp_ms"] == expected["checkpoint"]["logicsMsgTimestamp"]
            assert checkpoint["physic_msg_timestamp_ms"] == expected["checkpoint"]["physicMsgTimestamp"]
            assert checkpoint["index_msg_timestamp_ms"] == expected["checkpoint"]["indexMsgTimestamp"]


def test_queue_ranges(store: Path) -> None:
    # Queues without a file are the original's own doing: it makes one for each that is asked about.
    expected = {
        (q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in queues_of(store)["queues"] if q["files"]
    }
    with mqstore.inspect(store / "store") as view:
        found = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in view.queues()}
    if died_alive(store):
        assert all(found[key][1] >= end for key, (_, end) in expected.items())
        return
    assert found.keys() == expected.keys()
    for key, (low, high) in expected.items():
        # As above: 4.9.8 keeps the minimum of a queue whose messages have all expired.
        assert found[key] in ((low, high), (high, high)), key
        assert found[key] == (low, high) or store.name == "cleaned"


def test_walking_every_queue_gives_every_message(store: Path) -> None:
    expected = queues_of(store)["getMessage"]
    messages = size_bytes = 0
    with mqstore.inspect(store / "store") as view:
        for queue in view.queues():
            offset = queue.min_offset
            while offset < queue.max_offset:
                result = view.get(queue.topic, queue.queue_id, offset)
                assert result.next_offset > offset
                assert result.status is GetMessageStatus.FOUND
                messages += len(result.messages)
                size_bytes += sum(message.total_size for message in result.messages)
                offset = result.next_offset
    if died_alive(store):
        assert messages >= expected["messages"]
    else:
        assert (messages, size_bytes) == (expected["messages"], expected["bytes"])


def test_key_queries(store: Path) -> None:
    with mqstore.inspect(store / "store") as view:
        for query in queues_of(store)["keys"]:
            check_query(view, store.name, query)


def check_query(view: StoreView, name: str, query: dict[str, Any]) -> None:
    """Ours compares topic, key and time; the original compares hashes and whole seconds, and gives a message once
    for each of its keys that collide, which count against the maximum."""
    begin, end = query["begin"], query["end"]
    result = view.query(query["topic"], query["key"], begin, end, max_messages=query["max"])
    ours = [message.physical_offset for message in result.messages]
    assert ours == sorted(set(ours))
    assert all(bears_key(view, offset, query) for offset in ours)
    right = [offset for offset in dict.fromkeys(query["offsets"]) if bears_key(view, offset, query)]
    assert set(right) <= set(ours) or "crashed" in name  # the living store went on to newer messages
    seconds_cut_off = begin > 0 or end < 2**63 - 1
    if len(query["offsets"]) < query["max"] and not seconds_cut_off and "crashed" not in name:
        assert ours == right


def bears_key(view: StoreView, offset: int, query: dict[str, Any]) -> bool:
    record = view.message_at(offset)
    assert record is not None
    in_time = query["begin"] <= record.store_timestamp_ms <= query["end"]
    return in_time and record.topic == query["topic"] and query["key"] in [*record.keys, record.uniq_key]


def test_offsets_by_time(store: Path) -> None:
    is_v5 = store.name.startswith("v5")
    if died_alive(store) and not is_v5:
        return  # the files that 4.9.8 searches depend on when they were last written, which was later
    with mqstore.inspect(store / "store") as view:
        for queue in queues_of(store)["queues"]:
            for timestamp_ms, offset in queue["offsetByTime"]:
                if died_alive(store) and offset >= queue["maxOffset"]:
                    continue  # newer messages came
                if is_v5:
                    found = view.offset_at(queue["topic"], queue["queueId"], timestamp_ms)
                else:
                    found = offset_at_as_v4(view, queue["topic"], queue["queueId"], timestamp_ms)
                assert found == offset, (queue["topic"], queue["queueId"], timestamp_ms)


@pytest.mark.parametrize(
    ("lost", "whole"), [("cq-lost", "basic"), ("cq-lost-abort", "basic"), ("v5-cq-lost", "v5-basic")]
)
def test_a_store_that_lost_its_queues_can_be_read_from_its_log(golden: Path, lost: str, whole: str) -> None:
    with (
        mqstore.inspect(golden / lost / "store", from_log=True) as view,
        mqstore.inspect(golden / whole / "store") as right,
    ):
        assert view.queues() == right.queues()
        for queue in right.queues():
            here = (queue.topic, queue.queue_id)
            assert list(view.units(*here)) == list(right.units(*here))
            assert view.get(*here, offset=3).messages == right.get(*here, offset=3).messages
            assert view.offset_at(*here, 1795815840000) == right.offset_at(*here, 1795815840000)
        for query in queues_of(golden / whole)["keys"][:20]:
            arguments = (query["topic"], query["key"], query["begin"], query["end"], query["max"])
            assert view.query(*arguments) == right.query(*arguments)
        assert mqstore.inspect(golden / lost / "store").queues() == []
