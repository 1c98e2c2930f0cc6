"""Records of the broker's own topics, made by Kafka's own classes, say here what they say there."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from interop.real_kafka import RealKafka
from mqstore.errors import UsageError
from mqstore.layout.kafka.internal_topics import TRANSACTION_STATES, decode_internal, encode_offset_commit


def plain(value: Any) -> Any:
    """Bytes as Kafka's JSON shows them."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_every_version_says_the_same(real_kafka: RealKafka) -> None:
    if not real_kafka.reads_legacy:
        pytest.skip("one release is enough")
    records = real_kafka.internal_topics()
    assert len(records) == 5 + 5 + 16
    for record in records:
        key, value = (base64.b64decode(record[name]) for name in ("key", "value"))
        found = decode_internal(record["topic"], key, value)
        expected = json.loads(record["json"])
        if found.kind == "transaction":
            expected["transactionStatus"] = TRANSACTION_STATES[expected["transactionStatus"]]
            assert found.key == {"version": 0, "transactionalId": "tx-1"}
        elif found.kind == "offset":
            names = {"group": "größe", "topic": "orders", "partition": 7}
            assert found.key == {"version": min(record["version"], 1), **names}
            if record["version"] >= 1:
                assert encode_offset_commit("größe", "orders", 7, 0, 0)[0] == key
            if record["version"] == 3:
                assert encode_offset_commit("größe", "orders", 7, expected["offset"], expected["commitTimestamp"])[
                    1
                ] == value.replace(struct.pack(">i", expected["leaderEpoch"]), b"\xff" * 4, 1).replace(
                    struct.pack(">h", len(expected["metadata"].encode())) + expected["metadata"].encode(), b"\0\0", 1
                )
        else:
            assert found.key == {"version": 2, "group": "g"}
        for member in expected.get("members", ()):
            member.setdefault("groupInstanceId", None) if record["version"] >= 3 else None
        assert plain(found.value) == {"version": record["version"], **expected}
        assert decode_internal(record["topic"], key, None).value is None
        for cut in range(2, len(value)):
            with pytest.raises(UsageError):
                decode_internal(record["topic"], key, value[:cut])


def test_newer_kinds_are_told_by_their_version() -> None:
    assert decode_internal("__consumer_offsets", b"\0\3\0\1g", b"\0\0rest") == ("unknown", {"version": 3}, None)
    with pytest.raises(UsageError):
        decode_internal("__consumer_offsets", None, None)
    with pytest.raises(UsageError):
        decode_internal("orders", b"\0\0", None)
