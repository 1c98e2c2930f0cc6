"""Settings files: the golden ones byte for byte, texts of 5.x, hostile texts, and bloom positions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptConfigError, UsageError
from mqstore.layout import fastjson
from mqstore.layout.bloom import BloomFilter, murmur3_low
from mqstore.layout.config_files import (
    BloomFilterData,
    ConsumerFilters,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
    offset_key,
    split_offset_key,
)
from mqstore.layout.constants import MAX_QUEUES

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)
KINDS = {
    "topics.json": TopicConfigs,
    "subscriptionGroup.json": SubscriptionGroups,
    "consumerOffset.json": ConsumerOffsets,
    "delayOffset.json": DelayOffsets,
    "consumerFilter.json": ConsumerFilters,
}

BAD_BITS = '{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":["1"]}}}}'

# Printed by the classes of 5.x; the first by its older JSON library's rules, which golden files show.
TOPICS_5 = """{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":1795823834583
	},
	"topicConfigTable":{
		"TopicA":{
			"attributes":{
				"queue.type":"BatchCQ"
			},
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
GROUPS_5 = """{
	"dataVersion":{
		"counter":0,
		"stateVersion":0,
		"timestamp":1795823835211
	},
	"forbiddenTable":{},
	"subscriptionGroupTable":{
		"CG":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"CG",
			"groupRetryPolicy":{
				"type":"CUSTOMIZED"
			},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":16,
			"retryQueueNums":1,
			"subscriptionDataSet":[
				{
					"expression":"a||b",
					"expressionType":"TAG",
					"topic":"T",
					"version":5
				}
			],
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""
OFFSETS_5_5 = """{
	"offsetTable":{
		"T@G":{
			0:250,
			1:3
		}
	}
}"""


class TestGolden:
    def test_every_file_is_written_back_unchanged(self, golden):
        count = 0
        for path in golden.glob("*/store/config/*"):
            data = path.read_bytes()
            kind = KINDS[path.name.removesuffix(".bak")]
            assert kind.decode(data).encode() == data, path
            assert fastjson.dumps(fastjson.loads(data)).encode() == data, path
            count += 1
        assert count >= 30

    def test_other_json_of_a_store(self, golden):
        data = (golden / "v5-empty" / "store" / "compaction" / "position-checkpoint").read_bytes()
        assert fastjson.loads(data) == {"empty": True, "queueOffsetMap": {}}
        assert fastjson.dumps(fastjson.loads(data)).encode() == data

    def config(self, golden, name):
        return KINDS[name].decode((golden / "broker" / "store" / "config" / name).read_bytes())

    def test_topics(self, golden):
        topics = self.config(golden, "topics.json")
        assert topics.data_version == DataVersion(counter=4, timestamp_ms=1795817898987)
        assert topics.topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
        assert topics.topics["TopicTest"] == TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4)

    def test_groups(self, golden):
        groups = self.config(golden, "subscriptionGroup.json")
        assert groups.groups["cg-1"] == SubscriptionGroupConfig(
            group_name="cg-1", consume_broadcast_enable=False, retry_max_times=3
        )

    def test_offsets(self, golden):
        offsets = self.config(golden, "consumerOffset.json")
        assert offsets.offsets == {
            "TopicTest@cg-1": {0: 12, 3: 7},
            "%RETRY%cg-1@cg-1": {0: 1},
            "OrderTopic_v2@auto-group": {1: 99999999999},
        }
        assert offsets.data_version is None
        assert self.config(golden, "delayOffset.json").offsets == {1: 2, 2: 1}

    def test_filters(self, golden):
        filters = self.config(golden, "consumerFilter.json")
        found = filters.filters["TopicTest"]["cg-1"]
        assert found.expression == "a > 5 AND b = 'x'"
        assert found.bloom_filter_data == BloomFilterData(bit_num=112, bit_pos=[63, 36, 7])
        assert not found.is_dead
        bloom = BloomFilter.sized()
        assert bloom.bit_count == found.bloom_filter_data.bit_num
        assert bloom.positions("cg-1", "TopicTest") == found.bloom_filter_data.bit_pos


class TestLaterReleases:
    @pytest.mark.parametrize(("kind", "text"), [(TopicConfigs, TOPICS_5), (SubscriptionGroups, GROUPS_5)])
    def test_unknown_members_are_kept(self, kind, text):
        assert kind.decode(text).encode().decode() == text

    def test_known_members(self):
        topics = TopicConfigs.decode(TOPICS_5)
        assert topics.data_version.state_version == 0
        assert topics.topics["TopicA"].attributes == {"queue.type": "BatchCQ"}
        group = SubscriptionGroups.decode(GROUPS_5).groups["CG"]
        assert group.extra["consumeTimeoutMinute"] == 15

    def test_other_layouts_of_number_keys(self):
        wanted = {"T@G": {0: 250, 1: 3}}
        assert ConsumerOffsets.decode(OFFSETS_5_5).offsets == wanted
        assert ConsumerOffsets.decode('{"offsetTable":{"T@G":{"0":250,"1":3}}}').offsets == wanted

    def test_light_queues(self):
        text = '{\n\t"lmqOffsetTable":{\n\t\t"%LMQ%q@g":7\n\t},\n\t"offsetTable":{}\n}'
        found = ConsumerOffsets.decode(text)
        assert found.lmq_offsets == {"%LMQ%q@g": 7}
        assert found.encode().decode() == text

    def test_extra_members_of_a_filter(self):
        text = '{"filterDataByTopic":{"T":{"groupFilterData":{},"topic":"T","new":1}},"later":[true]}'
        found = ConsumerFilters.decode(text)
        assert fastjson.loads(found.encode()) == json.loads(text)


class TestEditing:
    def test_a_change(self):
        before = TopicConfigs.decode(TOPICS_5)
        after = replace(
            before,
            topics={**before.topics, "B": TopicConfig(topic_name="B")},
            data_version=before.data_version.next(99),
        )
        found = TopicConfigs.decode(after.encode())
        assert list(found.topics) == ["TopicA", "B"]
        assert found.data_version == DataVersion(counter=2, timestamp_ms=99, state_version=0)

    def test_as_many_queues_as_there_can_be(self):
        text = '{"topicConfigTable":{"T":{"readQueueNums":65536,"writeQueueNums":65536}}}'
        assert TopicConfigs.decode(text).topics["T"].write_queue_nums == MAX_QUEUES

    @pytest.mark.parametrize("kind", KINDS.values())
    def test_empty(self, kind):
        assert kind.decode(kind().encode()) == kind()

    def test_offset_keys(self):
        assert split_offset_key(offset_key("%RETRY%g", "g")) == ("%RETRY%g", "g")
        assert split_offset_key(offset_key("a@b", "g")) == ("a@b", "g")
        with pytest.raises(UsageError):
            offset_key("t", "g@h")
        with pytest.raises(UsageError):
            split_offset_key("t")


class TestWrongContent:
    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            (TopicConfigs, "{}"),
            (TopicConfigs, "[]"),
            (TopicConfigs, "null"),
            (TopicConfigs, '{"topicConfigTable":null}'),
            (TopicConfigs, '{"topicConfigTable":[]}'),
            (TopicConfigs, '{"topicConfigTable":{"T":1}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"perm":"6"}}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"perm":true}}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"perm":6.5}}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"order":0}}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"readQueueNums":65537}}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"writeQueueNums":65537}}}'),
            (TopicConfigs, '{"topicConfigTable":{"T":{"writeQueueNums":4611686018427387904}}}'),
            (TopicConfigs, '{"topicConfigTable":{},"dataVersion":3}'),
            (SubscriptionGroups, '{"offsetTable":{}}'),
            (ConsumerOffsets, '{"offsetTable":{"T@G":{"x":1}}}'),
            (ConsumerOffsets, '{"offsetTable":{"T@G":{"-1":1}}}'),
            (ConsumerOffsets, '{"offsetTable":{"T@G":{-1:1}}}'),
            (ConsumerOffsets, '{"offsetTable":{"T@G":{0:1,"0":2}}}'),
            (ConsumerOffsets, '{"offsetTable":{"T@G":{0:"1"}}}'),
            (ConsumerOffsets, '{"offsetTable":{"TG":{0:1}}}'),
            (ConsumerOffsets, '{"offsetTable":{},"lmqOffsetTable":{"T@G":{}}}'),
            (DelayOffsets, '{"offsetTable":{1:null}}'),
            (DelayOffsets, '{"offsetTable":{' + "9" * 30 + ":1}}"),
            (ConsumerFilters, '{"filterDataByTopic":{"T":{}}}'),
            (ConsumerFilters, '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":7}}}}}'),
            (ConsumerFilters, f'{{"filterDataByTopic":{{"T":{BAD_BITS}}}}}'),
        ],
    )  # fmt: skip
    def test_is_named(self, kind, text):
        with pytest.raises(CorruptConfigError):
            kind.decode(text)

    def test_place_is_told(self):
        with pytest.raises(CorruptConfigError, match=r"topicConfigTable\.T\.perm"):
            TopicConfigs.decode('{"topicConfigTable":{"T":{"perm":"6"}}}')


class TestLoads:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("{}", {}),
            (" [ ] ", []),
            ("\ufeff{}", {}),
            ('{0:1,-3:2,"4":3}', {0: 1, -3: 2, "4": 3}),
            ('"\\u0041\\n\\/\\"\\\\"', 'A\n/"\\'),
            ('"\\ud83d\\ude00\\ud83d"', "\U0001f600\ufffd"),
            ("[1.5,-2e3,0,-0,true,false,null]", [1.5, -2000.0, 0, 0, True, False, None]),
            ("9223372036854775807", 2**63 - 1),
        ],
    )
    def test_values(self, text, value):
        assert fastjson.loads(text) == value
        assert fastjson.loads(text.encode()) == value

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "   ",
            "{",
            "[",
            '{"a"',
            '{"a":',
            '{"a":1',
            '{"a":1,',
            '{"a":1,}',
            "[1,]",
            "[1 2]",
            "{a:1}",
            "{1.5:2}",
            "{01:2}",
            "{true:1}",
            '{"a":1,"a":2}',
            "{1:1,1:2}",
            '{"a":1}{"b":2}',
            '{"a":1}}',
            "nul",
            "truex",
            "'a'",
            '"a',
            '"a\nb"',
            '"\\x41"',
            '"\\u12"',
            '"\\',
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "1e999",
            "1e9999",
            "NaN",
            "Infinity",
            "9223372036854775808",
            "1" * 5000,
            "\0" * 100,
            "{}\0",
            "//x\n{}",
        ],
    )
    def test_refused(self, text):
        with pytest.raises(CorruptConfigError) as caught:
            fastjson.loads(text)
        assert 0 <= caught.value.offset <= len(text)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 65 + "]" * 65])
    def test_deep_nesting(self, text):
        with pytest.raises(CorruptConfigError, match="malformed"):
            fastjson.loads(text)

    def test_deepest(self):
        text = "[" * 64 + "]" * 64
        assert json.loads(fastjson.dumps(fastjson.loads(text))) == json.loads(text)

    def test_offset_counts_bytes(self):
        with pytest.raises(CorruptConfigError) as caught:
            fastjson.loads('{"标签":x}'.encode())
        assert caught.value.offset == 10
        with pytest.raises(CorruptConfigError) as caught:
            fastjson.loads(b'{"\xff":1}')
        assert caught.value.offset == 2

    def test_leftovers_of_a_longer_text(self):
        with pytest.raises(CorruptConfigError, match="end of the text"):
            fastjson.loads('{"offsetTable":{}}:1}}')

    @given(st.binary(max_size=60) | st.text(max_size=60))
    def test_noise(self, data):
        try:
            value = fastjson.loads(data)
        except CorruptConfigError:
            return
        assert fastjson.loads(fastjson.dumps(value)) is not ...

    @given(st.text(alphabet='{}[]:,"01-.eE\\u truefalsnl\n', max_size=40))
    def test_agrees_with_json(self, text):
        """What both accept is the same value."""
        try:
            expected = json.loads(text)
        except ValueError:
            return
        try:
            found = fastjson.loads(text)
        except CorruptConfigError:
            return
        assert found == expected


class TestDumps:
    def test_strings_as_the_original_escapes_them(self):
        """The 69 characters that the original's JSON library escapes, in its spelling."""
        special = [*range(0x20), 0x22, 0x5C, *range(0x7F, 0xA0), 0x2028, 0x2029]
        short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
        for code in special:
            assert fastjson.dumps(chr(code)) == '"' + short.get(code, f"\\u{code:04X}") + '"'
        ordinary = "'/ a\u00a0\u00e9\u3000\ufeff\uffff\U0001f600"
        assert fastjson.dumps(ordinary) == f'"{ordinary}"'
        assert fastjson.dumps("\ud800") == '"\ufffd"'

    def test_layout(self):
        """Printed by the original's library from a bean with these members."""
        value = {
            "d": 1.5,
            "e": [],
            "em": {"k": 1},
            "ia": [1, 2],
            "lm": {5: 6},
            "mm": {1: {2: 3, 4: 5}, 2: {}},
            "n": None,
            "s": ["a", "b"],
        }
        assert fastjson.dumps(value) == (
            '{\n\t"d":1.5,\n\t"e":[],\n\t"em":{\n\t\t"k":1\n\t},\n\t"ia":[1,2],\n\t"lm":{5:6\n\t},\n'
            '\t"mm":{1:{2:3,4:5\n\t\t},2:{}\n\t},\n\t"s":[\n\t\t"a",\n\t\t"b"\n\t]\n}'
        )

    def test_misuse(self):
        deep: list = []
        for _ in range(70):
            deep = [deep]
        for value in (object(), float("nan"), float("inf"), 2**63, deep, {"a": b""}):
            with pytest.raises(UsageError):
                fastjson.dumps(value)

    @given(
        st.recursive(
            st.none() | st.booleans() | LONGS | TEXT | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | LONGS, inner, max_size=4),
            max_leaves=15,
        )
    )
    def test_reads_back(self, value):
        assert fastjson.loads(fastjson.dumps(value)) == without_none(value)


def without_none(value):
    if isinstance(value, dict):
        return {key: without_none(member) for key, member in value.items() if member is not None}
    return [without_none(member) for member in value] if isinstance(value, list) else value


class TestBloom:
    def test_vector(self):
        bloom = BloomFilter.sized()
        assert (bloom.hash_count, bloom.bit_count) == (3, 112)
        assert bloom.positions("CGS", "TopicA") == [43, 110, 103]

    def test_bits(self):
        bloom = BloomFilter.sized()
        bitmap = bytearray(14)
        assert not bloom.may_match(bitmap, [43, 110, 103])
        bloom.set_bits(bitmap, [43, 110, 103])
        assert bitmap.hex() == "0000000000080000000000008040"
        assert bloom.may_match(bytes(bitmap), [43, 110, 103])
        assert not bloom.may_match(bytes(bitmap), [43, 110, 104])

    def test_misuse(self):
        for arguments in ((0, 32), (100, 32), (20, 0)):
            with pytest.raises(UsageError):
                BloomFilter.sized(*arguments)
        with pytest.raises(UsageError):
            BloomFilter.sized().may_match(bytes(8), [1])

    def test_hash_of_nothing(self):
        assert murmur3_low(b"") == 0
