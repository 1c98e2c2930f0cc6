"""Messages in further queues: light queues and others, through everything that makes, checks and cuts queues."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, MessageIllegalError
from mqstore.layout.properties import java_map_order, parse
from mqstore.store.config import StoreConfig
from mqstore.store.multi_dispatch import NOTE_NAME
from store.support import bodies, body_of, copy_of_running, findings, forget_note, mark_crashed, open_small, tree

ON: dict[str, Any] = {"enable_multi_dispatch": True, "enable_lmq": True}
NAMES = "INNER_MULTI_DISPATCH"
OFFSETS = "INNER_MULTI_QUEUE_OFFSET"


def to(names: str, body: bytes, topic: str = "T", **fields: Any) -> Message:
    return Message(topic, body, properties={NAMES: names, **fields.pop("properties", {})}, **{"queue_id": 0, **fields})


def fill(store: mqstore.Store, count: int = 60) -> dict[tuple[str, int], list[bytes]]:
    """Put ``count`` messages of two topics, most to further queues; the bodies that each queue then has."""
    expected: dict[tuple[str, int], list[bytes]] = {}
    for number in range(count):
        topic, queue = ("T", "U")[number % 3 == 0], number % 2
        names = ["%LMQ%a", "%LMQ%a,%LMQ%b", "other", "T,%LMQ%b", ""][number % 5]
        body = body_of(number, 60 + number % 7)
        store.put(to(names, body, topic, queue_id=queue) if names else Message(topic, body, queue_id=queue))
        further = [(name, 0 if name.startswith("%LMQ%") else queue) for name in names.split(",") if name]
        for place in dict.fromkeys([(topic, queue), *further]):
            expected.setdefault(place, []).append(body)
    return expected


def all_bodies(store: Path) -> dict[tuple[str, int], list[bytes]]:
    with mqstore.inspect(store) as view:
        places = [(queue.topic, queue.queue_id) for queue in view.queues()]
    return {place: bodies(store, *place) for place in places}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], list[bytes]]]:
    path = tmp_path_factory.mktemp("filled") / "s"
    with open_small(path, default_topic_queue_nums=2, **ON) as store:
        expected = fill(store)
    return path, expected


@pytest.fixture
def copied(filled: tuple[Path, dict[tuple[str, int], list[bytes]]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled[0], tmp_path / "s"))


def test_each_queue_has_its_messages_in_order(filled: tuple[Path, dict[tuple[str, int], list[bytes]]]) -> None:
    path, expected = filled
    assert len(expected) == 8
    assert all_bodies(path) == expected
    assert findings(path) == []
    with mqstore.inspect(path, from_log=True) as view:
        assert {(one.topic, one.queue_id): one.count for one in view.queues()} == {
            place: len(found) for place, found in expected.items()
        }
    with mqstore.inspect(path) as view:
        assert "%LMQ%a" not in view.settings.topics


def test_the_record_tells_its_numbers_as_a_broker_writes_them(tmp_path: Path) -> None:
    """Queue ids and offsets under the lock, WAIT taken out, names in the order of a broker's map."""
    with open_small(tmp_path / "s", **ON) as store:
        store.put(Message("q", b"", queue_id=3))
        for _ in range(3):
            result = store.put(
                to("%LMQ%a,q,%LMQ%a", b"", queue_id=3, tags="t", properties={"WAIT": "true", OFFSETS: "9"})
            )
        store.wait_dispatched()
        record = store.message_at(result.physical_offset)
        assert record is not None
        assert record.properties == {NAMES: "%LMQ%a,q,%LMQ%a", "TAGS": "t", OFFSETS: "2,3,2"}
        assert list(parse(record.properties_raw)) == java_map_order(parse(record.properties_raw))
        assert (result.size_bytes, result.queue_offset) == (record.total_size, 2)
        assert store.queues("%LMQ%a") == [mqstore.QueueInfo("%LMQ%a", 0, 0, 3)]
        assert store.queues("q") == [mqstore.QueueInfo("q", 3, 0, 4)]
        assert [one.physical_offset for one in store.get("q", 3).messages][3] == record.physical_offset
        assert store.offset_at("%LMQ%a", 0, record.store_timestamp_ms, "upper") == 2


def test_without_light_queues_the_name_is_a_topics(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", enable_multi_dispatch=True) as store:
        store.put(to("%LMQ%a", b"x", queue_id=2))
        store.wait_dispatched()
        assert store.queues("%LMQ%a") == [mqstore.QueueInfo("%LMQ%a", 2, 0, 1)]
    assert findings(tmp_path / "s") == []


def test_off_the_property_is_one_like_others(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        result = store.put(to("%LMQ%a", b"x", properties={OFFSETS: "5"}))
        store.wait_dispatched()
        record = store.message_at(result.physical_offset)
        assert record is not None
        assert record.properties == {NAMES: "%LMQ%a", OFFSETS: "5"}
        assert [queue.topic for queue in store.queues()] == ["T"]
    assert findings(tmp_path / "s") == []
    assert not (tmp_path / "s" / NOTE_NAME).exists()


def test_offsets_too_long_to_be_any_stop_no_dispatch(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=65536) as store:
        store.put(to("%LMQ%a", b"odd", properties={OFFSETS: "1" * 5000}))
    shutil.rmtree(tmp_path / "s" / "consumequeue")
    with open_small(tmp_path / "s", mapped_file_size_commit_log=65536, **ON) as store:
        store.put(to("%LMQ%a", b"next"))
    assert all_bodies(tmp_path / "s") == {("T", 0): [b"odd", b"next"], ("%LMQ%a", 0): [b"next"]}


def test_a_batch_goes_to_further_queues_or_is_refused_as_a_whole(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **ON) as store:
        batch = [to("%LMQ%a", b"0"), Message("T", b"1", queue_id=0), to("T,%LMQ%a", b"2")]
        assert [one.queue_offset for one in store.put_batch(batch)] == [0, 1, 2]
        for names in ("a/b", "%LMQ%a,,b", "..", "x" * 256):
            with pytest.raises(MessageIllegalError, match="names a queue that cannot be") as caught:
                store.put_batch([*batch, to(names, b"")])
            assert caught.value.offset == 3
        assert store.put(to("%LMQ%a", b"3")).queue_offset == 3
    assert bodies(tmp_path / "s", "%LMQ%a") == [b"0", b"2", b"3"]
    assert findings(tmp_path / "s") == []


def test_properties_that_the_offsets_make_too_long_are_refused(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 18, **ON) as store:
        most = 32_767 - len(f"{NAMES}\x01%LMQ%a\x02a\x01")
        end = store.log_end
        with pytest.raises(MessageIllegalError, match="too large"):
            store.put(to("%LMQ%a", b"", properties={"a": "x" * most}))
        assert store.log_end == end
        fits = most - len(f"\x02{OFFSETS}\x010")
        assert store.put(to("%LMQ%a", b"fits", properties={"a": "x" * fits})).queue_offset == 0
    assert bodies(tmp_path / "s", "%LMQ%a") == [b"fits"]


def test_a_table_goes_to_the_queues_of_its_topics(tmp_path: Path) -> None:
    import pyarrow as pa

    with open_small(tmp_path / "s", **ON) as store:
        store.put(to("T", b"0", topic="U"))
        store.put_table(pa.table({"topic": ["T", "U"], "body": [b"1", b"2"], "queueId": [0, 0]}))
        store.put(to("T", b"3", topic="U"))
    assert bodies(tmp_path / "s", "T") == [b"0", b"1", b"3"]
    assert findings(tmp_path / "s") == []


def test_threads_leave_no_hole_in_a_light_queue(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 18, **ON) as store:

        def put(own: int) -> None:
            for number in range(60):
                store.put(to("%LMQ%a", b"%d" % number, queue_id=own))
                store.put(Message("T", b"plain", queue_id=own))

        threads = [threading.Thread(target=put, args=(own,)) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.wait_dispatched()
        assert store.queues("%LMQ%a") == [mqstore.QueueInfo("%LMQ%a", 0, 0, 240)]
    assert len(bodies(tmp_path / "s", "%LMQ%a")) == 240
    assert findings(tmp_path / "s") == []


def test_a_message_that_waits_is_in_no_further_queue_before_it_is_due(tmp_path: Path) -> None:
    """RocketMQ 4.9 shows a delayed or half message in further queues at once, and again when it is due."""
    with open_small(tmp_path / "s", schedule_message_enable=False, mapped_file_size_commit_log=1 << 16, **ON) as store:
        store.put(to("%LMQ%a", b"delayed", delay_level=1))
        with store.transaction("producers", to("%LMQ%a", b"half")) as transaction:
            store.wait_dispatched()
            assert store.max_offset("%LMQ%a", 0) == 0
        assert transaction is not None
        store.put(to("%LMQ%a", b"now"))
        store.deliver_due(2**50)
        store.put(to("%LMQ%a", b"back", topic="%RETRY%g", properties={OFFSETS: "1"}))
        store.wait_dispatched()
        store.flush()
        assert [one.body for one in store.get("%LMQ%a").messages] == [b"half", b"now", b"delayed"]
    assert findings(tmp_path / "s") == []


def test_the_store_knows_by_itself_that_it_has_further_queues(copied: Path) -> None:
    with mqstore.open(copied) as store:
        store.put(to("other", b"more", queue_id=0))
    assert bodies(copied, "other")[-1] == b"more"
    (copied / NOTE_NAME).unlink()
    assert findings(copied) == []  # a light queue tells it, too
    with mqstore.open(copied, enable_multi_dispatch=False) as store:
        store.put(to("other", b"no more", queue_id=0))
        store.wait_dispatched()
        assert store.get("other", 0, store.max_offset("other", 0) - 1).messages[0].body == b"more"
    (copied / NOTE_NAME).write_text('{"enableMultiDispatch": 1}')
    with pytest.raises(mqstore.CorruptConfigError, match="note of further queues"):
        mqstore.open(copied)


@pytest.mark.parametrize("way", ["output", "in place", "in place without note", "from a broker"])
def test_a_rebuild_makes_the_same_queues(copied: Path, tmp_path: Path, way: str) -> None:
    before = tree(copied / "consumequeue")
    if way in ("in place without note", "from a broker"):
        (copied / NOTE_NAME).unlink()
        forget_note(copied)
    if way.startswith("in place"):
        mqstore.rebuild(copied, None, in_place=True)
        rebuilt = copied
    else:
        rebuilt = mqstore.rebuild(copied, tmp_path / "rebuilt").output
    assert tree(rebuilt / "consumequeue") == before
    assert findings(rebuilt) == []


def test_an_open_that_has_lost_all_queues_makes_them_again(copied: Path) -> None:
    before = tree(copied / "consumequeue")
    shutil.rmtree(copied / "consumequeue")
    mark_crashed(copied)
    mqstore.open(copied).close()
    assert tree(copied / "consumequeue") == before


def test_a_start_trusts_a_note_whose_queues_are_light(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        mqstore.open(copied).close()
    assert "is not as noted" not in caplog.text


def test_after_a_crash_further_queues_end_where_the_log_does(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", default_topic_queue_nums=2, **ON) as store:
        expected = fill(store)
        store.wait_dispatched()
        crashed = copy_of_running(tmp_path / "s", tmp_path / "crashed")
        last = store.put(to("%LMQ%a,%LMQ%new", b"torn"))
        store.wait_dispatched()
        shutil.copytree(tmp_path / "s" / "consumequeue", crashed / "consumequeue", dirs_exist_ok=True)
    assert last.queue_offset
    with mqstore.open(crashed) as store:
        assert store.put(to("%LMQ%a", b"next")).queue_offset == len(expected["T", 0])
    assert bodies(crashed, "%LMQ%a") == [*expected["%LMQ%a", 0], b"next"]
    assert bodies(crashed, "%LMQ%new") == []
    assert findings(crashed) == []


def test_a_truncated_copy_has_shorter_further_queues(copied: Path, tmp_path: Path) -> None:
    with mqstore.inspect(copied) as view:
        records = list(view.scan())
    mqstore.truncate(copied, records[31].physical_offset, tmp_path / "cut")
    kept = [record.body for record in records[:31] if "%LMQ%b" in record.properties.get(NAMES, "")]
    assert bodies(tmp_path / "cut", "%LMQ%b") == kept
    assert findings(tmp_path / "cut") == []


def test_check_finds_what_is_wrong_in_a_light_queue(copied: Path) -> None:
    path = copied / "consumequeue" / "%LMQ%b" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:40] + bytes(20) + path.read_bytes()[60:])
    (found,) = findings(copied)
    assert found.message == "1 messages are missing from the queue"
    assert "%LMQ%b" in found.path


def test_expiry_takes_light_queues_along(copied: Path) -> None:
    with mqstore.open(copied, file_reserved_time=0) as store:
        removed = store.expire(2**50).removed
        assert removed
        low = store.min_physical_offset
        for queue in store.queues():
            first = store.get(queue.topic, queue.queue_id, queue.min_offset).messages
            assert not first or first[0].physical_offset >= low
        assert store.min_offset("%LMQ%a", 0) > 0
        assert store.check() == []
        assert {one.topic for one in store.clean_unused_topics()} == {"other"}  # light queues have no topic, and stay


def test_groups_consume_light_queues(copied: Path) -> None:
    with mqstore.open(copied) as store, store.consumer("g", "%LMQ%a", timeout_s=0.1) as consumer:
        found = []
        for message in consumer:
            found.append(message.body)
            consumer.ack(message)
    assert found == bodies(copied, "%LMQ%a")
    with mqstore.inspect(copied) as view:
        assert [(row.topic, row.lag) for row in view.progress()] == [("%LMQ%a", 0)]


def test_what_is_given_up_is_in_no_further_queue(tmp_path: Path) -> None:
    """A group of a light queue would get its own dead letters again, and others what was never committed."""
    settings = {"schedule_message_enable": False, "mapped_file_size_commit_log": 1 << 16, "transaction_check_max": 0}
    with open_small(tmp_path / "s", **settings, **ON) as store:
        store.put(to("%LMQ%a", b"bad"))
        with store.consumer("g", "%LMQ%a") as consumer:
            assert consumer.nack(consumer.get(timeout_s=60), delay_level=-1) is not None
        store.transactions.set_checker("producers", lambda half: mqstore.TransactionState.UNKNOWN)
        store.transaction("producers", to("%LMQ%a", b"half"))
        store.wait_dispatched()
        store.transactions.check(2**50)
        store.wait_dispatched()
        for topic, body in (("%DLQ%g", b"bad"), ("TRANS_CHECK_MAX_TIME_TOPIC", b"half")):
            assert [one.body for one in store.get(topic).messages] == [body]
        assert [one.body for one in store.get("%LMQ%a").messages] == [b"bad"]
    assert findings(tmp_path / "s") == []


def test_a_body_that_speaks_of_the_property_is_a_body(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **ON) as store:
        for number in range(8):
            text = NAMES.encode() * (number % 3)
            store.put(Message("T", text, queue_id=0) if number % 2 else to("%LMQ%a", text + b"%d" % number))
    assert [body[-1:] for body in bodies(tmp_path / "s", "%LMQ%a")] == [b"0", b"2", b"4", b"6"]
    assert len(bodies(tmp_path / "s")) == 8
    assert findings(tmp_path / "s") == []


def test_the_settings_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("enableMultiDispatch=true\nenableLmq=true\nmaxLmqConsumeQueueNum=20000\n")
    config = StoreConfig.from_broker_conf(tmp_path / "broker.conf")
    assert (config.enable_multi_dispatch, config.enable_lmq) == (True, True)
    with pytest.raises(mqstore.UsageError, match="enable_lmq"):
        StoreConfig(enable_lmq="yes")  # type: ignore[arg-type]
