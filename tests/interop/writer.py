"""A repeatable mix of every kind of message, put by mqstore.

Run as ``python -m interop.writer DIR SEED`` it opens the store under SYNC_FLUSH and puts for ever, with one line on
standard output after each acknowledgement: the physical offset of the last message that was acknowledged.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import mqstore
from mqstore import Message
from mqstore.layout.constants import SysFlag

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 18,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 700,
}
"""Several files of every kind from some hundred messages."""

JAVA_SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 700,
}

LONG_TOPIC = "LongTopic_" + "abcdefghijklm" * 9
TOPICS = ["TopicTest", "OrderTopic_v2", "%RETRY%group-1", "TopicTest", LONG_TOPIC]
TAGS = [None, "TagA", "TagB", "paid", "支付", "AaBB", "BBAa"]
KEYS = ["Aa", "BB", "AaBB", "BBAa", "hot", "订单", "🚀", "ключ"]
TRANSACTIONS = [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]
V6_BORN = "[fe80::d006:6a44:a00b:ffe2]:4721"
V6_STORE = "2001:db8::1"


def batches(seed: int) -> Iterator[list[Message]]:
    """Messages without end, in lists: one message to put, or several to put as a batch."""
    chance = random.Random(seed)
    number = 0
    while True:
        count = chance.randint(2, 12) if chance.random() < 0.05 else 1
        made = [_message(chance, seed, number + one, count > 1) for one in range(count)]
        number += count
        yield made


def _message(chance: random.Random, seed: int, number: int, in_batch: bool) -> Message:
    properties = {} if chance.random() < 0.1 else {"UNIQ_KEY": f"7F0000010A2B18B4AAC2{seed:04X}{number:08X}"}
    if chance.random() < 0.3:
        properties |= {"region": f"東京 🌍 {number % 9}"}
    keys = [
        chance.choice(KEYS) if chance.random() < 0.5 else f"order-{number % 200}"
        for _ in range(chance.choice([0, 1, 1, 2, 3, 30]))
    ]
    transaction = chance.choice(TRANSACTIONS)
    kind = "plain" if in_batch else chance.choice(["plain"] * 9 + ["transaction", "delay", "delay"])
    return Message(
        chance.choice(TOPICS),
        _body(chance),
        tags=chance.choice(TAGS),
        keys=keys,
        properties=properties,
        queue_id=chance.randrange(4),
        delay_level=number % 20 + 1 if kind == "delay" else 0,
        flag=chance.randint(-(1 << 31), (1 << 31) - 1) if chance.random() < 0.3 else 0,
        sys_flag=(transaction if kind == "transaction" else 0) | (chance.random() < 0.05),
        born_host=V6_BORN if chance.random() < 0.25 else "192.168.3.200:51234",
        reconsume_times=chance.choice([0, 0, 0, 3]),
        prepared_transaction_offset=number * 7 if kind == "transaction" else 0,
    )


def _body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.05:
        return b""
    if kind < 0.2:
        return chance.randbytes(chance.randrange(3000))
    return "rocket ошибка \U0001f680 ".encode() * chance.randint(1, 20)


def put(store: mqstore.Store, seed: int, count: int) -> None:
    """Put at least ``count`` messages."""
    for messages in batches(seed):
        store.put_batch(messages)
        count -= len(messages)
        if count <= 0:
            return


def main() -> None:
    with mqstore.open(sys.argv[1], flush_disk_type="SYNC_FLUSH", **SIZES) as store:
        for messages in batches(int(sys.argv[2])):
            print(store.put_batch(messages)[-1].physical_offset, flush=True)


if __name__ == "__main__":
    main()
