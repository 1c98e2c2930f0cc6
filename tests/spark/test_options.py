"""Every option of the source: what is understood, what is refused and how."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow.fs

import mqstore
from mqstore import Message
from mqstore.spark.named import check_names, stores_to_read
from mqstore.spark.options import NAMES, OnCorruptRecord, ReadOptions, parse_either
from mqstore.spark.stores import StoreRef, find_stores
from mqstore.spark.stream import StreamReader
from spark.support import expected_messages, read_here


def parse(**options: object) -> ReadOptions:
    return ReadOptions.parse({"path": "x", **options})


def test_defaults() -> None:
    options = parse()
    assert (options.view, options.split_bytes, options.min_partitions) == ("messages", 256 << 20, 1)
    assert options.on_corrupt_record is OnCorruptRecord.FAIL
    assert options.fail_on_data_loss
    assert options.check_crc


def test_names_in_any_case() -> None:
    assert parse(SPLITBYTES="5", failondataloss="FALSE") == parse(splitBytes="5", failOnDataLoss="false")


def test_values_of_a_program() -> None:
    assert parse(splitBytes=5, failOnDataLoss=False) == parse(splitBytes="5", failOnDataLoss="false")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"splitByte": "1"}, "unknown option splitByte"),
        ({"subscribes": "a"}, "unknown option"),
        ({"topic": "a"}, "unknown option topic"),
        ({"offset": "5"}, "unknown option offset"),
        ({"mergeSchema": "true"}, "unknown option mergeSchema"),
        ({"splitBytes": "0"}, "splitBytes"),
        ({"splitBytes": "many"}, "splitBytes"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"minPartitions": "999999999999"}, "minPartitions"),
        ({"maxPartitions": "0"}, "maxPartitions"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"endingTimestamp": ""}, "endingTimestamp"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"verifyChecksum": "1"}, "verifyChecksum"),
        ({"onCorruptRecord": "ignore"}, "onCorruptRecord"),
        ({"where": "||"}, "tag expression"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"assign": "orders"}, "assign"),
        ({"assign": '{"orders": 1}'}, "assign"),
        ({"assign": '{"orders": [-1]}'}, "assign"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "exclude each other"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "read nothing"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "read nothing"),
        ({"startingOffsets": '{"a": 5}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": {"b": {"0": "5"}}}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "startingOffsets"),
        ({"startingOffsets": "[1]"}, "startingOffsets"),
        ({"startingOffsets": '{"a": {"0": 9223372036854775808}}'}, "startingOffsets"),
        ({"endingOffsets": '{"a": {"2147483648": 5}}'}, "endingOffsets"),
        ({"endingOffsets": '{"a": {"%s": 5}}' % ("9" * 5000)}, "endingOffsets"),
        ({"assign": '{"a": [2147483648]}'}, "assign"),
        ({"splitBytes": "9" * 5000}, "splitBytes"),
        ({"endingTimestamp": "9223372036854775808"}, "endingTimestamp"),
        ({"columns": ","}, "columns"),
        ({"path": " "}, "no store"),
        ({"paths": "store"}, "paths"),
        ({"paths": '{"a": 1}'}, "paths"),
        ({"paths": '["a", null]'}, "paths"),
        ({"splitBytes": None}, "splitBytes"),
        ({"columns": ["topic"]}, "columns"),
        ({"minPartitions": 2.5}, "minPartitions"),
        ({"view": "queues", "where": "paid"}, "where makes no sense in view queues"),
        ({"view": "queues", "endingTimestamp": "5"}, "endingTimestamp makes no sense"),
        ({"view": "Progress", "startingOffsets": '{"a": {"0": 1}}'}, "startingOffsets makes no sense in view progress"),
        ({"view": "index", "subscribe": "a"}, "subscribe makes no sense in view index"),
        ({"view": "files", "keys": "a"}, "keys makes no sense in view files"),
    ],
)
def test_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(mqstore.UsageError, match=complaint):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger has a value that cannot be meant"),
        ({"startingOffsets": "latest", "splitBytes": "many"}, "splitBytes has a value"),
        ({"endingOffsets": "earliest"}, "endingOffsets has a value that cannot be meant"),
        ({"startingTimestamp": "1", "startingGroup": "g"}, "no startingTimestamp beside it"),
        ({"endingTimestamp": "1", "discoveryInterval": "1m"}, "discoveryInterval of a stream, endingTimestamp of a"),
        ({"subscribes": "a", "maxTriggerDelay": "1m"}, "unknown option subscribes"),
    ],
)
def test_what_is_wrong_while_nobody_knows_whether_it_is_a_stream(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(mqstore.UsageError, match=complaint):
        parse_either({"path": "x", **options})


def test_a_hint_for_a_misspelt_option() -> None:
    with pytest.raises(mqstore.UsageError) as caught:
        parse(subscribepatern="a")
    assert caught.value.hint == "did you mean subscribePattern?"
    for name, hint in (("Topics", "did you mean subscribe?"), ("mergeSchema", "the options are in docs/spark.md")):
        with pytest.raises(mqstore.UsageError) as caught:
            parse(**{name: "a"})
        assert caught.value.hint == hint


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_documented(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    assert f"`{name}`" in page.read_text("utf-8") or name == "paths"


def rows(golden: Path, **options: object) -> list[dict[str, object]]:
    return read_here(golden / "basic" / "store", splitBytes=100_000, **options)


def test_topics_queues_and_patterns(golden: Path) -> None:
    expected = expected_messages(golden, "basic")
    topics = sorted({row["topic"] for row in expected})
    one = topics[0]
    assert rows(golden, subscribe=f" {one} ,{topics[1]}") == [row for row in expected if row["topic"] in topics[:2]]
    assert rows(golden, subscribePattern="Topic.*") == [row for row in expected if row["topic"].startswith("Topic")]
    assert rows(golden, subscribePattern="opic") == []
    assigned = rows(golden, assign='{"TopicTest": [1, 3], "none": [0]}')
    assert assigned == [row for row in expected if row["topic"] == "TopicTest" and row["queueId"] in (1, 3)]
    assert len(assigned) > 10


def test_offsets_of_brokers_and_topics_that_are_not_there(golden: Path) -> None:
    store = golden / "basic" / "store"
    for bounds, complaint in (
        ('{"TopicTest": {"broker-x": {"0": 5}}}', "names a broker that is not read.*expected store; found broker-x"),
        ('{"TopicTset": {"0": 5}}', "names a topic that is not there.*found TopicTset"),
        ('{"TopicTset": {"store": {"0": 5}}, "TopicTest": {"0": 5}}', "names a topic .*found TopicTset of store"),
    ):
        for name in ("startingOffsets", "endingOffsets"):
            for view in ("messages", "queues"):
                with pytest.raises(mqstore.UsageError, match=f"option {name} {complaint}"):
                    stores_to_read(ReadOptions.of(store, {name: bounds, "view": view}))


def test_a_topic_of_offsets_is_looked_for_in_the_stores_that_they_are_for(tmp_path: Path) -> None:
    for broker, topic in (("a", "orders"), ("b", "returns")):
        with mqstore.open(tmp_path / broker) as store:
            store.put(Message(topic, b"x", queue_id=0))
    both = [tmp_path / "a", tmp_path / "b"]
    for bounds in ('{"orders": {"0": 0}}', '{"orders": {"a": {"0": 0}}}'):
        assert len(stores_to_read(ReadOptions.of(both, {"startingOffsets": bounds}))) == 2
    by_broker = ReadOptions.of(both, {"startingOffsets": '{"orders": {"b": {"0": 0}}}'})
    with pytest.raises(mqstore.UsageError, match="found orders of b"):
        stores_to_read(by_broker)


def test_a_store_that_has_the_log_alone_may_have_any_topic(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "basic" / "store" / "commitlog", tmp_path / "store" / "commitlog")
    options = {"startingOffsets": '{"Elsewhere": {"0": 5}}', "subscribe": "Elsewhere"}
    assert len(stores_to_read(ReadOptions.of(tmp_path / "store", options))) == 1


def damage_settings(store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(b"{")


def make_queues_a_file(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").write_bytes(b"")


@pytest.mark.parametrize("hide", [damage_settings, make_queues_a_file])
def test_of_what_could_not_be_looked_at_nothing_is_said_to_be_missing(
    golden: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, hide: Callable[[Path], None]
) -> None:
    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    hide(tmp_path / "store")
    options = {"startingOffsets": '{"Elsewhere": {"0": 5}}', "subscribe": "Elsewhere"}
    assert len(stores_to_read(ReadOptions.of(tmp_path / "store", options))) == 1
    assert "no topic" not in caplog.text


def test_a_warning_tells_no_secret_of_a_url(golden: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = StoreRef(str(golden / "basic" / "store"), "store")
    check_names([found], ReadOptions.of("s3://AK:hidden@bucket/a?secret=hidden", {"subscribe": "Elsewhere"}))
    assert "there is no topic Elsewhere in s3://bucket/a" in caplog.text
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "TopicTset,TopicTest"}, "no topic TopicTset"),
        ({"assign": '{"TopicTset": [0]}'}, "no topic TopicTset"),
        ({"subscribePattern": "Topictest.*"}, "no topic matches Topictest.*"),
    ],
)
def test_a_topic_that_is_not_there_is_told(
    golden: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str], told: str
) -> None:
    store = golden / "basic" / "store"
    stores_to_read(ReadOptions.of(store, options))
    assert told in caplog.text
    caplog.clear()
    stores_to_read(ReadOptions.of(store, {"subscribe": "TopicTest"}))
    stores_to_read(ReadOptions.of(store, {"subscribePattern": "TopicT.*"}))
    assert caplog.text == ""


def test_a_stream_may_be_given_offsets_of_topics_to_come(golden: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = golden / "basic" / "store"

    def begin(offsets: str) -> None:
        options = ReadOptions.parse({"path": str(store), "startingOffsets": offsets}, streaming=True)
        StreamReader(options, ["topic"]).initialOffset()

    begin('{"ToCome": {"0": 5}}')
    assert "startingOffsets names topics that are not there" in caplog.text
    with pytest.raises(mqstore.UsageError, match="names a broker that is not read"):
        begin('{"TopicTest": {"broker-x": {"0": 5}}}')


def test_offsets(golden: Path) -> None:
    expected = [row for row in expected_messages(golden, "basic") if row["topic"] == "TopicTest"]
    bounds = {"startingOffsets": '{"TopicTest": {"0": 5, "1": -2}}', "endingOffsets": '{"TopicTest": {"0": 9, "2": 3}}'}

    def wanted(row: dict[str, object]) -> bool:
        low, high = {0: (5, 9), 2: (0, 3)}.get(row["queueId"], (0, 1 << 60))
        return low <= row["queueOffset"] < high

    assert rows(golden, subscribe="TopicTest", **bounds) == [row for row in expected if wanted(row)]
    by_broker = {"startingOffsets": '{"TopicTest": {"store": {"0": 7}, "other": {"0": 8}}}'}
    first = [row for row in rows(golden, subscribe="TopicTest", **by_broker) if row["queueId"] == 0]
    assert first[0]["queueOffset"] == 7
    assert rows(golden, startingOffsets="EARLIEST", endingOffsets="latest") == expected_messages(golden, "basic")


def test_a_stream_from_a_group_that_there_is_not_is_told(
    golden: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins at the end of all queues, where a misspelt name was meant to begin earlier."""
    for group, told in (("cg-1", False), ("cg1", True)):
        options = {"path": str(golden / "broker" / "store"), "startingGroup": group, "failOnDataLoss": "false"}
        reader = StreamReader(ReadOptions.parse(options, streaming=True), ["topic"])
        reader.initialOffset()
        reader.stop()
        assert (f"group {group} has no progress" in caplog.text) is told


@pytest.mark.parametrize("option", [{"subscribe": "%LMQ%a,main"}, {"assign": '{"%LMQ%a": [0]}'}])
def test_that_nothing_comes_by_the_name_of_a_light_queue_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, option: dict[str, str]
) -> None:
    with mqstore.open(tmp_path / "s", enable_multi_dispatch=True, enable_lmq=True) as store:
        store.put(Message("main", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}, queue_id=0))
    stores_to_read(parse(path=str(tmp_path / "s"), view="queues", **option))
    assert not caplog.messages
    stores_to_read(parse(path=str(tmp_path / "s"), **option))
    assert caplog.messages == ["messages come by the topic that they name as their own, and none by %LMQ%a"]


def test_a_store_that_a_link_leads_to_as_well_is_read_once(golden: Path, tmp_path: Path) -> None:
    store = golden / "basic" / "store"
    (tmp_path / "link").symlink_to(store)
    paths = f"{store},{tmp_path / 'link'},{store}/../store"
    assert [one.path for one in find_stores(parse(path=paths))] == [str(store)]
    (found,) = find_stores(parse(path=f"{tmp_path}/*"))
    assert (found.path, found.broker_name) == (str(tmp_path / "link"), "link")


def test_times_and_tags(golden: Path) -> None:
    expected = expected_messages(golden, "basic")
    middle = expected[1000]["storeTimestamp"]
    middle_ms = round(middle.timestamp() * 1000)
    assert rows(golden, startingTimestamp=middle_ms) == [row for row in expected if row["storeTimestamp"] >= middle]
    assert rows(golden, endingTimestamp=middle_ms) == [row for row in expected if row["storeTimestamp"] < middle]
    assert rows(golden, where="TagA || TagD") == [row for row in expected if row["tags"] in ("TagA", "TagD")]
    assert rows(golden, where="*") == expected
    narrow = read_here(golden / "basic" / "store", ["queueOffset"], where="TagA", subscribe="TopicTest")
    assert narrow == [
        {"queueOffset": row["queueOffset"]} for row in expected if row["tags"] == "TagA" and row["topic"] == "TopicTest"
    ]


def test_messages_that_expired_are_data_loss(golden: Path) -> None:
    path = golden / "cleaned" / "store"
    with mqstore.inspect(path) as view:
        queue = next(queue for queue in view.queues() if 0 < queue.min_offset < queue.max_offset)
    bounds = f'{{"{queue.topic}": {{"{queue.queue_id}": {queue.min_offset - 1}}}}}'
    with pytest.raises(mqstore.CorruptFileError, match=rf"queue {queue.topic}/{queue.queue_id} .* 1 messages are gone"):
        read_here(path, startingOffsets=bounds)
    found = read_here(path, startingOffsets=bounds, failOnDataLoss="false")
    key = (queue.topic, queue.queue_id)
    # Prepared transactions are in the log without a place in the queue: their queue offset is 0.
    assert found == [
        row
        for row in expected_messages(golden, "cleaned")
        if (row["topic"], row["queueId"]) != key or row["queueOffset"] >= queue.min_offset
    ]


def test_several_stores_are_several_brokers(golden: Path, tmp_path: Path) -> None:
    one, two = golden / "broker" / "store", golden / "cleaned" / "store"
    stores = find_stores(parse(path=f"{one}, {two},{one}"))
    assert [(store.path, store.broker_name) for store in stores] == [
        (str(one), "broker/store"),
        (str(two), "cleaned/store"),
    ]
    assert [store.broker_name for store in find_stores(parse(path=f"{one},{two}", brokerName="a,b"))] == ["a", "b"]
    with pytest.raises(mqstore.UsageError, match="brokerName"):
        find_stores(parse(path=f"{one},{two}", brokerName="a"))
    with pytest.raises(mqstore.UsageError, match="the same name"):
        find_stores(parse(path=f"{one},{two}", brokerName="a,a"))
    assert [store.path for store in find_stores(parse(path=str(golden / "bro*" / "store")))] == [str(one)]
    assert [store.path for store in find_stores(parse(paths=f'["file://{one}"]'))] == [str(one)]
    for nothing in (str(tmp_path), str(tmp_path / "missing"), str(tmp_path / "*")):
        with pytest.raises(mqstore.NotAStoreError):
            find_stores(parse(path=nothing))
    found = read_here(f"{one},{two}", ["brokerName", "physicalOffset"], minPartitions=10)
    assert {row["brokerName"] for row in found} == {"broker/store", "cleaned/store"}
    assert len(found) == 23 + 485


def test_names_of_a_glob_stay_when_it_finds_more(tmp_path: Path) -> None:
    def names(text: str) -> list[str]:
        return [store.broker_name for store in find_stores(parse(path=text))]

    for name in ("b/broker", "a/broker", "other/c/broker"):
        with mqstore.open(tmp_path / name):
            pass
        assert names(f"{tmp_path}/*/broker") == ["a/broker", "b/broker"][-len(names(f"{tmp_path}/*/broker")) :]
    assert names(f"{tmp_path}/a/*") == ["broker"]
    assert names(f"{tmp_path}/b/br[o]ker") == ["broker"]
    # Where even so two would be alike, their parents tell them apart.
    assert names(f"{tmp_path}/a/*,{tmp_path}/b/*") == ["a/broker", "b/broker"]


@pytest.mark.parametrize("text", ["*", "*/", "[a-z]*", "*/store"])
def test_a_glob_passes_over_what_is_the_file_systems_own(tmp_path: Path, text: str) -> None:
    """A broker's disk has it, and nobody may enter it; here anybody may, and would find a store."""
    inner = "store" if text.endswith("store") else "."
    for name in ("lost+found", "broker-a"):
        mqstore.open(tmp_path / name / inner).close()
    assert [one.path for one in find_stores(parse(path=f"{tmp_path}/{text}"))] == [str(tmp_path / "broker-a" / inner)]
    assert [Path(one.path).parts for one in find_stores(parse(path=f"{tmp_path}/lost+found/{inner}"))]


@pytest.mark.parametrize("refused", ["closed", "closed/store"])
def test_a_glob_does_not_pass_over_what_could_not_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    for name in ("closed/store", "open/store"):
        mqstore.open(tmp_path / name).close()
    real_list, real_stat = os.listdir, os.stat

    def refuse(path: object) -> None:
        if str(path) == str(tmp_path / refused):
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", lambda path=".": (refuse(path), real_list(path))[1])
    monkeypatch.setattr(os, "stat", lambda path, **options: (refuse(path), real_stat(path, **options))[1])
    text = f"{tmp_path}/closed/*" if refused == "closed" else f"{tmp_path}/*/store"
    with pytest.raises(mqstore.StoreIOError, match="Permission denied") as caught:
        find_stores(parse(path=text))
    assert caught.value.path == str(tmp_path / refused)
    monkeypatch.undo()
    assert [Path(one.path).parent.name for one in find_stores(parse(path=f"{tmp_path}/[co]*/s*"))] == ["closed", "open"]


def test_a_file_system_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no wrong URL: the cause is told, and what may help."""

    def refuse(url: str) -> None:
        raise OSError(f"When resolving region for bucket '{url[5:]}': could not resolve hostname")

    monkeypatch.setattr(pyarrow.fs, "FileSystem", SimpleNamespace(from_uri=refuse))
    with pytest.raises(mqstore.UsageError, match=r"cannot be reached: .*could not resolve hostname") as caught:
        find_stores(parse(path="s3://bucket-that-nobody-has/store"))
    assert "network" in str(caught.value.hint)
    monkeypatch.undo()
    with pytest.raises(mqstore.UsageError, match="no file system for this URL"):
        find_stores(parse(path="nothing://bucket/store"))
