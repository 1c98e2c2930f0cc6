"""RocketMQ's own commands: their names in any case, their short options, what they answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mqstore
from cli.test_commands import run
from mqstore.cli import mqadmin
from store.support import findings, open_small, tree


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten orders in two queues."""
    path = tmp_path_factory.mktemp("mqadmin") / "shop"
    with open_small(path, default_topic_queue_nums=2) as store:
        for number in range(10):
            store.put(
                mqstore.Message(
                    "orders", b"order %d" % number, tags="paid" if number % 2 else "new", keys=[f"k{number % 3}"],
                    properties={"UNIQ_KEY": f"U{number % 5}"}, queue_id=number // 5,
                )
            )  # fmt: skip
        store.wait_dispatched()
        store.commit_offset("billing", "orders", 0, 2)
    return path


def answer(*arguments: object) -> Any:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def rows(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_names_are_found_in_any_case_with_and_without_the_group(shop: Path) -> None:
    for name in ("topicList", "TopicList", "topiclist", "TOPICLIST"):
        assert answer(name, shop) == answer("mqadmin", name, shop) == {"topics": ["orders"]}
    assert run("decodeMsgIdd", "-i", "0").exit_code == 2
    help_text = run("mqadmin", "--help").output
    assert all(name in help_text for name in mqadmin.COMMANDS)


def test_messages(shop: Path) -> None:
    with mqstore.inspect(shop) as view:
        fourth = view.get("orders", 0, 3, 1).messages[0]
    for found in (
        answer("queryMsgById", shop, "-i", fourth.msg_id)["messages"],
        answer("queryMsgByOffset", shop, "-t", "orders", "-i", 0, "-o", 3)["messages"],
    ):
        assert [one["physicalOffset"] for one in found] == [fourth.physical_offset]
    assert len(answer("queryMsgByKey", shop, "-t", "orders", "-k", "k0", "-m", 100)["messages"]) == 4
    assert answer("queryMsgByKey", shop, "-t", "orders", "-k", "k0", "-m", 3)["truncated"]
    assert answer("queryMsgByKey", shop, "-t", "orders", "-k", "k0", "-e", 1)["messages"] == []
    assert run("queryMsgByKey", shop, "-t", "orders", "-k", "k0", "-b", 5, "-e", 1).exit_code == 2
    assert len(answer("queryMsgByUniqueKey", shop, "-t", "orders", "-i", "U4")["messages"]) == 1
    assert len(answer("queryMsgByUniqueKey", shop, "-t", "orders", "-i", "U4", "-a")["messages"]) == 2
    missing = run("queryMsgByOffset", shop, "-t", "orders", "-i", 0, "-o", 99)
    assert missing.exit_code == 1
    assert "OFFSET_OVERFLOW_BADLY" in missing.output
    place = answer("DecodeMessageId", "-i", fourth.msg_id)
    assert place == {"storeHost": fourth.store_host, "physicalOffset": fourth.physical_offset}


def test_printing_queues(shop: Path) -> None:
    found = rows("printMsgByQueue", shop, "-t", "orders", "-i", 1, "-s", "paid")
    assert [row["queueOffset"] for row in found] == [0, 2, 4]
    assert [row["queueId"] for row in rows("printMsg", shop, "-t", "orders")] == [0] * 5 + [1] * 5
    counted = rows("printMsgByQueue", shop, "-t", "orders", "-i", 1, "-p", "false", "-f", "true")
    assert counted == [{"tag": "new", "count": 2}, {"tag": "paid", "count": 3}]
    assert "body" not in rows("printMsg", shop, "-t", "orders", "-d", "false")[0]
    assert run("printMsgByQueue", shop, "-t", "orders", "-i", 1, "-p", "perhaps").exit_code == 2
    times = [row["storeTimestamp"] for row in found]
    between = rows("printMsgByQueue", shop, "-t", "orders", "-i", 1, "-b", times[1], "-e", times[1])
    assert {row["storeTimestamp"] for row in between} == {times[1]}
    assert rows("printMsgByQueue", shop, "-t", "orders", "-i", 1, "-e", times[0] - 10_000) == []
    units = rows("queryCq", shop, "-t", "orders", "-q", 1, "-i", 1, "-c", 2)
    assert [(unit["index"], unit["message"]["queueOffset"]) for unit in units] == [(1, 1), (2, 2)]
    assert run("queryCq", shop, "-t", "orders", "-q", 7, "-i", 1).exit_code == 2


def test_topics_and_groups(shop: Path) -> None:
    status = answer("topicStatus", shop, "-t", "orders")["queues"]
    assert [(row["queueId"], row["minOffset"], row["maxOffset"]) for row in status] == [(0, 0, 5), (1, 0, 5)]
    assert all(row["lastUpdated"] > 0 for row in status)
    assert answer("consumerProgress", shop, "-g", "billing")["lag"] == {"billing": 3}
    metadata = answer("exportMetadata", shop)
    assert metadata["topicConfigTable"]["orders"]["writeQueueNums"] == 2
    state = answer("brokerStatus", shop)
    assert state["msgPutTotalTodayNow"] == 10
    assert 0 <= state["msgPutTotalYesterdayMorning"] <= state["msgPutTotalTodayMorning"] <= 10
    with mqstore.inspect(shop) as view:
        assert (state["commitLogMinOffset"], state["commitLogMaxOffset"]) == (0, view.log_end)


def test_resetting_a_group_is_told_first_and_done_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_small(path) as store:
        times = [store.put(mqstore.Message("t", b"", queue_id=0)).store_timestamp_ms for _ in range(3)]
        store.wait_dispatched()
        store.commit_offset("g", "t", 0, 3)
    before = tree(path)
    told = answer("resetOffsetByTime", path, "-g", "g", "-t", "t", "-s", times[0])
    assert (told["offsets"], told["done"]) == ({"0": 0}, False)
    assert tree(path) == before
    assert answer("resetOffsetByTime", path, "-g", "g", "-t", "t", "-s", times[0], "--in-place")["done"]
    with mqstore.open(path) as store:
        assert store.committed_offset("g", "t", 0) == 0
    answer("resetOffsetByTime", path, "-g", "g", "-t", "t", "-s", "now", "--in-place")
    with mqstore.open(path) as store:
        assert store.committed_offset("g", "t", 0) == 3
    assert findings(path) == []
    assert run("resetOffsetByTime", path, "-g", "g", "-t", "nosuch", "-s", "now").exit_code == 2
    before = tree(path)
    for group in ("../..", "üüü", "g" * 200, ""):
        assert run("resetOffsetByTime", path, "-g", group, "-t", "t", "-s", "now", "--in-place").exit_code == 2
    assert tree(path) == before
    assert answer("deleteExpiredCommitLog", path)["files"] == []


def test_queues_that_nobody_needs_go_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_small(path) as store:
        store.put(mqstore.Message("old", b"", queue_id=0))
        for topic in ("gone", "kept"):
            store.put_batch([mqstore.Message(topic, bytes(900), queue_id=number % 2) for number in range(4)])
        for _ in range(12):
            store.put(mqstore.Message("kept", bytes(900), queue_id=0))
        store.put(mqstore.Message("gone", b"", queue_id=0))
        store.flush()
        assert store.expire(9_000_000_000_000).removed
    topics = path / "config" / "topics.json"
    table = json.loads(topics.read_text())
    del table["topicConfigTable"]["gone"]
    topics.write_text(json.dumps(table))
    before = tree(path)
    empty = ["gone/1", "kept/1", "old/0"]
    assert answer("cleanExpiredCQ", path) == {"queues": empty, "done": False}
    assert answer("cleanUnusedTopic", path) == {"queues": ["gone/0", "gone/1"], "done": False}
    assert tree(path) == before
    assert answer("cleanexpiredcq", path, "--in-place") == {"queues": empty, "done": True}
    assert answer("cleanUnusedTopic", path, "--in-place") == {"queues": ["gone/0"], "done": True}
    with mqstore.inspect(path) as view:
        assert view.topics() == ["kept"]
    assert [one for one in findings(path) if one.area != "queue"] == []
    with open_small(path) as store:
        assert [(one.topic, one.queue_id) for one in store.queues()] == [("kept", 0)]
        for topic in ("old", "gone", "kept"):
            store.put(mqstore.Message(topic, b"new", queue_id=1))
        store.wait_dispatched()
        assert store.get("old", 1, store.min_offset("old", 1)).messages[0].body == b"new"
        assert store.clean_expired_queues() == store.clean_unused_topics() == []


def test_a_directory_that_is_no_store_is_one_error_for_all(tmp_path: Path) -> None:
    options = {
        "queryMsgById": ["-i", "0" * 32], "queryMsgByKey": ["-t", "t", "-k", "k"],
        "queryMsgByUniqueKey": ["-t", "t", "-i", "k"], "queryMsgByOffset": ["-t", "t", "-i", 0, "-o", 0],
        "printMsg": ["-t", "t"], "printMsgByQueue": ["-t", "t", "-i", 0], "queryCq": ["-t", "t", "-q", 0, "-i", 0],
        "topicStatus": ["-t", "t"], "resetOffsetByTime": ["-g", "g", "-t", "t", "-s", "now"],
    }  # fmt: skip
    for name in mqadmin.COMMANDS.keys() - {"decodeMessageId"}:
        result = run(name, tmp_path / "no", *options.get(name, []), "--format", "json")
        assert result.exit_code == 1, name
        assert json.loads(result.output)["error"]["type"] == "NotAStoreError"
