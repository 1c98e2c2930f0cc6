"""A running store: what goes in comes out, and what cannot go in leaves no trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import mqstore
from mqstore import (
    GetMessageStatus,
    Message,
    MessageIllegalError,
    PutMessageStatus,
    Store,
    UsageError,
)
from mqstore.layout.constants import SysFlag
from mqstore.store.rebuild import rebuild
from store.support import (
    bodies,
    body_of,
    copy_of_running,
    fill,
    findings,
    forget_note,
    open_small,
    put_dispatched,
    tree,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with open_small(tmp_path / "store", mapped_file_size_commit_log=1 << 20) as opened:
        yield opened


def test_a_message_comes_back_as_it_went_in(store: Store) -> None:
    message = Message(
        "orders", b"\x00\xffbody", tags="paid", keys=["o-1", "地图"], properties={"colour": "grün"}, queue_id=3,
        flag=-7, born_timestamp_ms=1_600_000_000_000, born_host="[::1]:4711", reconsume_times=2,
    )  # fmt: skip
    (result,) = put_dispatched(store, message)
    assert result.status is PutMessageStatus.PUT_OK
    assert (result.topic, result.queue_id, result.queue_offset, result.physical_offset) == ("orders", 3, 0, 0)
    (record,) = store.get("orders", 3).messages
    assert record == store.message_at(0) == store.message_by_id(result.msg_id)
    assert record == store.query("orders", "地图").messages[0]
    assert (record.body, record.tags, record.keys) == (message.body, "paid", ["o-1", "地图"])
    assert record.properties == {"colour": "grün", "TAGS": "paid", "KEYS": "o-1 地图"}
    assert (record.flag, record.born_timestamp_ms, record.reconsume_times) == (-7, 1_600_000_000_000, 2)
    assert record.born_host == "0:0:0:0:0:0:0:1:4711"
    assert record.sys_flag == SysFlag.BORN_HOST_V6


def test_messages_without_a_queue_go_round_the_topics_queues(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", default_topic_queue_nums=3) as store:
        queues = [store.put(Message("t", b"")).queue_id for _ in range(7)]
    assert queues == [0, 1, 2, 0, 1, 2, 0]
    assert mqstore.inspect(tmp_path / "store").settings.topics["t"].write_queue_nums == 3


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message("", b""), "topic has an illegal length"),
        (Message("t" * 128, b""), "topic has an illegal length"),
        (Message("../up", b""), "topic holds an illegal character"),
        (Message("t", "text"), "body is not bytes"),  # type: ignore[arg-type]
        (Message("t", b"x" * 2001), "body is larger than max_message_size"),
        (Message("t", b"", keys="a"), "keys is one string"),
        (Message("t", b"", keys=["a b"]), "a key is empty or holds a space"),
        (Message("t", b"", queue_id=-1), "queue_id is out of range"),
        (Message("t", b"", flag=2**31), "flag is out of range"),
        (Message("t", b"", delay_level=-1), "delay_level is out of range"),
        (Message("t", b"", properties={"a": "x\x02y"}), "reserved character"),
        (Message("t", b"", properties={"a": ""}), "empty name or value"),
        (Message("t", b"", properties={"a": 1}), "a property is not text"),  # type: ignore[dict-item]
        (Message("t", b"", properties={"a": "x" * 32_767}), "the properties are too large"),
        (Message("t", b"", tags="\ud800"), "no valid Unicode"),
        (Message("t", b"", born_host="localhost:1"), "numeric address"),
    ],
)
def test_an_illegal_message_is_refused_and_takes_no_offset(tmp_path: Path, message: Message, problem: str) -> None:
    with open_small(tmp_path / "store", mapped_file_size_commit_log=1 << 20, max_message_size=2000) as store:
        store.put(Message("t", b"before", queue_id=0))
        with pytest.raises(ValueError, match=problem):
            store.put(message)
        with pytest.raises(ValueError, match=problem):
            store.put_batch([Message("t", b"in one batch with it", queue_id=0), message])
        assert store.put(Message("t", b"after", queue_id=0)).queue_offset == 1
    assert bodies(tmp_path / "store", "t") == [b"before", b"after"]


def test_properties_at_the_limit_fit_and_one_byte_more_does_not(store: Store) -> None:
    longest = 32_767 - len("a\x01")
    put_dispatched(store, Message("t", b"", properties={"a": "x" * longest}, queue_id=0))
    with pytest.raises(MessageIllegalError, match="too large") as caught:
        store.put(Message("t", b"", properties={"a": "x" * longest}, tags="t", queue_id=0))
    assert caught.value.found == 32_767 + len("\x02TAGS\x01t")


def test_a_message_larger_than_a_file_is_refused(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        with pytest.raises(MessageIllegalError, match="commit log file"):
            store.put(Message("t", b"x" * 5000, queue_id=0))
        assert store.log_end == 0


def test_a_batch_is_not_split_between_files(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.put(Message("t", b"x" * 3000, queue_id=0))
        batch = store.put_batch([Message("t", b"y" * 500, queue_id=0) for _ in range(3)])
        assert [one.physical_offset // 4096 for one in batch] == [1, 1, 1]
        assert [one.queue_offset for one in batch] == [1, 2, 3]
    assert findings(tmp_path / "store") == []


def test_a_delayed_message_waits_in_the_schedule_topic(store: Store) -> None:
    (result,) = put_dispatched(store, Message("t", b"later", tags="x", delay_level=3, queue_id=2))
    assert (result.topic, result.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    (record,) = store.get("SCHEDULE_TOPIC_XXXX", 2).messages
    assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"], record.properties["DELAY"]) == (
        "t",
        "2",
        "3",
    )
    (unit,) = mqstore.inspect(store.path).units("SCHEDULE_TOPIC_XXXX", 2)
    assert unit.tags_code == record.store_timestamp_ms + 10_000
    assert put_dispatched(store, Message("t", b"", delay_level=99))[0].queue_id == 17


def test_prepared_and_rollback_messages_are_in_no_queue(store: Store) -> None:
    flags = [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK, 0]
    results = put_dispatched(store, *(Message("t", b"", keys=[f"k{f}"], sys_flag=f, queue_id=0) for f in flags))
    assert [result.queue_offset for result in results] == [0, 0, 0, 1]
    assert [record.sys_flag for record in store.get("t").messages] == [SysFlag.TRANSACTION_COMMIT, 0]
    found = [len(store.query("t", f"k{flag}").messages) for flag in flags]
    assert found == [1, 1, 0, 1]


def test_every_status_of_get(store: Store) -> None:
    put_dispatched(store, *(Message("t", b"%d" % n, tags="a" if n < 3 else "b", queue_id=0) for n in range(5)))
    assert store.get("none", 0).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.get("t", 0, 5).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    badly = store.get("t", 0, 9)
    assert (badly.status, badly.next_offset) == (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5)
    small = store.get("t", 0, -1)
    assert (small.status, small.next_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, 0)
    nothing = store.get("t", 0, 0, where="c")
    assert (nothing.status, nothing.next_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 5)
    some = store.get("t", 0, 0, 2, where="b || c")
    assert (some.status, [m.body for m in some.messages], some.next_offset) == (
        GetMessageStatus.FOUND, [b"3", b"4"], 5,
    )  # fmt: skip


def test_tags_with_the_same_hash_are_told_apart(store: Store) -> None:
    put_dispatched(store, Message("t", b"1", tags="Aa", queue_id=0), Message("t", b"2", tags="BB", queue_id=0))
    assert [m.body for m in store.get("t", where="BB").messages] == [b"2"]


def test_keys_and_topics_with_the_same_hash_are_told_apart(store: Store) -> None:
    put_dispatched(store, Message("AaTopic", b"1", keys=["Aa"]), Message("BBTopic", b"2", keys=["BB"]))
    assert store.query("AaTopic", "BB").messages == []
    assert [m.body for m in store.query("AaTopic", "Aa").messages] == [b"1"]


def test_a_query_says_when_it_was_cut(store: Store) -> None:
    put_dispatched(store, *(Message("t", b"%d" % n, keys=["k"], queue_id=0) for n in range(10)))
    cut = store.query("t", "k", max_messages=3)
    assert ([m.body for m in cut.messages], cut.truncated) == ([b"7", b"8", b"9"], True)
    assert not store.query("t", "k", max_messages=10).truncated


def test_a_window_is_exact_to_the_millisecond(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index knows whole seconds only; a message must be found by its own store time and by no other."""
    for number in range(4):
        now_ms = 1_900_000_000_700 + 400 * number
        monkeypatch.setattr("time.time_ns", lambda now_ms=now_ms: now_ms * 1_000_000)
        put_dispatched(store, Message("t", b"%d" % number, keys=["k"], queue_id=0))
    for record in store.get("t").messages:
        at = record.store_timestamp_ms
        assert [m.body for m in store.query("t", "k", at, at).messages] == [record.body]
        assert [m.body for m in store.query("t", "k", at - 1, at + 1).messages] == [record.body]
        assert store.query("t", "k", at + 1, at + 2).messages == []


def test_offset_by_time_brackets_exactly_the_window(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for now_ms in (10, 10, 10, 20, 30):
        monkeypatch.setattr("time.time_ns", lambda now_ms=now_ms: now_ms * 1_000_000)
        store.put(Message("t", b"", queue_id=0))
    monkeypatch.undo()
    store.wait_dispatched()
    lower = [store.offset_at("t", 0, t) for t in (5, 10, 15, 20, 30, 31)]
    upper = [store.offset_at("t", 0, t, "upper") for t in (5, 10, 15, 20, 30, 31)]
    assert lower == [0, 0, 3, 3, 4, 5]
    assert upper == [-1, 2, 2, 3, 4, 4]
    assert store.offset_at("t", 7, 10) is None
    with pytest.raises(UsageError, match="boundary"):
        store.offset_at("t", 0, 10, "nearest")


def test_store_times_never_go_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store.put(Message("t", b"", queue_id=0))
    monkeypatch.setattr("time.time_ns", lambda: (first.store_timestamp_ms - 5000) * 1_000_000)
    assert store.put(Message("t", b"", queue_id=0)).store_timestamp_ms == first.store_timestamp_ms


def test_rebuilt_files_are_those_of_live_dispatch(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        for number in range(120):
            keys = [f"k{number}", "all", "地"] if number % 3 else []
            store.put(
                Message(f"t{number % 4}", body_of(number), tags="x", keys=keys, delay_level=number % 5, queue_id=0)
            )
    rebuild(path, tmp_path / "copy")
    for part in ("consumequeue", "commitlog"):
        assert tree(tmp_path / "copy" / part) == tree(path / part)
    assert list(tree(tmp_path / "copy" / "index").values()) == list(tree(path / "index").values())


def test_offsets_of_groups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path, 10)
    with open_small(path) as store:
        store.commit_offset("billing", "T", 0, 5)
        with pytest.raises(UsageError):
            store.commit_offset("billing", "T", 0, 11)
    with open_small(path) as store:
        assert store.committed_offset("billing", "T", 0) == 5
        assert store.committed_offset("other", "T", 0) is None
        (row,) = store.progress()
        assert (row.group, row.topic, row.queue_id, row.lag) == ("billing", "T", 0, 5)


def test_things_that_are_no_message_and_no_tags(store: Store) -> None:
    with pytest.raises(UsageError):
        store.put("text")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        store.get("t", where=5)  # type: ignore[arg-type]


def test_a_condition_on_properties_picks_messages(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", mapped_file_size_consume_queue=2000) as store:
        for number in range(30):
            properties = {"amount": str(number), "odd": "yes"} if number % 2 else {}
            store.put(Message("t", b"%d" % number, properties=properties))
        store.wait_dispatched()
        where = mqstore.sql("amount > 10 AND odd IS NOT NULL")
        result = store.get("t", 0, 0, 4, where)
        assert [message.body for message in result.messages] == [b"11", b"13", b"15", b"17"]
        assert result.status is GetMessageStatus.FOUND
        rest = store.get("t", 0, result.next_offset, 100, where)
        assert [int(message.body) for message in rest.messages] == list(range(19, 30, 2))
        nothing = store.get("t", 0, 0, 100, mqstore.sql("amount > 1000"))
        assert (nothing.status, nothing.next_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 30)
        with store.consumer("g", "t", mqstore.sql("amount = 7"), timeout_s=0.05) as consumer:
            assert [message.body for message in consumer] == [b"7"]


@pytest.mark.parametrize("forget", [False, True], ids=["noted", "guessed"])
@pytest.mark.parametrize(("slots", "entries"), [(8, 30), (13, 29), (3, 31), (8, 32), (100, 101)])
def test_the_shape_of_an_index_is_found_whatever_it_is(tmp_path: Path, slots: int, entries: int, forget: bool) -> None:
    """Several shapes have one length. What was noted tells; without the note, what the entries and slots say."""
    path = tmp_path / "s"
    with open_small(path, max_hash_slot_num=slots, max_index_num=entries) as store:
        store.put(Message("orders", b"1", keys=["b", "c"], queue_id=0))
    if forget:
        forget_note(path)
    assert findings(path) == []
    with mqstore.inspect(path) as view:
        assert [record.body for key in "bc" for record in view.query("orders", key).messages] == [b"1", b"1"]


@pytest.mark.parametrize("own", ["10.0.0.9", "2001:db8::9"], ids=["stored by v4", "stored by v6"])
@pytest.mark.parametrize("born", ["192.0.2.1:4711", "[2001:db8::1]:4711"], ids=["born at v4", "born at v6"])
def test_addresses_of_any_kind_shift_no_field(tmp_path: Path, own: str, born: str) -> None:
    with open_small(tmp_path / "s", broker_ip1=own) as store:
        results = [
            store.put(Message("t", b"%d" % number, keys=["k"], tags="x", born_host=born, queue_id=0))
            for number in range(4)
        ]
        store.wait_dispatched()
        times = [result.store_timestamp_ms for result in results]
        for number, message in enumerate(store.query("t", "k", times[0], times[-1]).messages):
            assert message == store.message_by_id(results[number].msg_id) == store.get("t", 0, number).messages[0]
            assert (message.body, message.tags, message.keys) == (b"%d" % number, "x", ["k"])
            assert message.store_timestamp_ms == times[number]
            assert len(message.msg_id) == (56 if ":" in own else 32)
        assert store.offset_at("t", 0, times[-1], "upper") == 3
        assert store.offset_at("t", 0, times[-1] + 1) == 4
    with mqstore.inspect(tmp_path / "s") as view:
        assert [record.born_host.count(":") > 1 for record in view.scan()] == ["[" in born] * 4
        assert [record.store_host.count(":") > 1 for record in view.scan()] == [":" in own] * 4
    assert findings(tmp_path / "s") == []


def test_every_message_of_a_batch_is_found_by_its_id_also_after_a_crash(tmp_path: Path) -> None:
    put: list[tuple[str, bytes]] = []

    def producer(number: int) -> None:
        for turn in range(10):
            bodies_put = [b"%d/%d/%d" % (number, turn, one) for one in range(8)]
            results = store.put_batch([Message("t", body, queue_id=0) for body in bodies_put])
            put.extend(zip((result.msg_id for result in results), bodies_put, strict=True))

    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 16) as store:
        threads = [threading.Thread(target=producer, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        crashed = copy_of_running(tmp_path / "s", tmp_path / "crashed")
    with mqstore.open(crashed) as again:
        for message_id, body in put:
            message = again.message_by_id(message_id)
            assert message is not None
            assert message.body == body
        assert again.queues("t") == [mqstore.QueueInfo("t", 0, 0, 320)]
    assert findings(crashed) == []


def test_a_group_whose_retry_topic_could_not_be_is_refused_at_once(store: Store) -> None:
    longest = "g" * (127 - len("%RETRY%") - 1)
    with store.consumer(longest, "t", timeout_s=0.05) as consumer:
        assert list(consumer) == []
    for name in ("g" * 128, "g" * 121, "grün", "", "a b"):
        with pytest.raises(UsageError, match="not a name for a group"):
            store.consumer(name, "t")


def test_a_batch_larger_than_a_file_is_refused_and_leaves_no_trace(store: Store) -> None:
    store.put(Message("t", b"before", queue_id=0))
    end = store.log_end
    batch = [Message("t", bytes(60_000), queue_id=0) for _ in range(18)]
    with pytest.raises(MessageIllegalError, match="does not fit into one commit log file"):
        store.put_batch(batch)
    assert store.log_end == end
    assert [one.queue_offset for one in store.put_batch(batch[:17])] == list(range(1, 18))
