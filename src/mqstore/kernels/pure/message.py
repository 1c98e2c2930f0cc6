"""The parts of a message to put, as an object that is quick to make and to take apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NEW: Any = object()


class MessageFields:
    """What :class:`mqstore.Message` holds; its attributes are described there."""

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp_ms",
        "delay_level",
        "flag",
        "keys",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "tags",
        "topic",
        "wait_store_msg_ok",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: dict[str, str] = _NEW,
        queue_id: int | None = None,
        delay_level: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int | None = None,
        born_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        wait_store_msg_ok: bool = True,
    ) -> None:
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = keys
        self.properties = {} if properties is _NEW else properties
        self.queue_id = queue_id
        self.delay_level = delay_level
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp_ms = born_timestamp_ms
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.wait_store_msg_ok = wait_store_msg_ok
