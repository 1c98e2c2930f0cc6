"""Reader of the example on the page about the broker's own topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqstore.layout.kafka.internal_topics import OFFSETS_TOPIC, decode_internal


def internal_topics(data: bytes) -> Any:
    return decode_internal(OFFSETS_TOPIC, data[:17], data[17:])._asdict()


EXAMPLES: dict[str, Callable[[bytes], Any]] = {"kafka-internal-topics": internal_topics}
