"""Names of topics on the other side (docs/kafka.md, "Moving data").

Kafka's names are up to 249 characters of ``a-z A-Z 0-9 . _ -``, RocketMQ's up to 127 of ``a-z A-Z 0-9 _ - % |``. What
the other side does not allow is written as two hexadecimal digits behind a character that only the other side has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.constants import MAX_TOPIC_SIZE_V1
from mqstore.layout.kafka.names import is_topic_name as is_kafka_topic
from mqstore.store.paths import is_legal_topic as is_rocketmq_topic

_DIGEST_DIGITS: Final = 16
_ESCAPES: Final = {".": "%2E"}
_BACK: Final = {"%": ".25", "|": ".7C"}
_MAX_KAFKA_TOPIC: Final = 249


def rocketmq_topic(topic: str) -> str:
    """RocketMQ's name for a topic of Kafka's: ``.`` becomes ``%2E``; too long a name ends in a digest of itself."""
    return _fitted("".join(_ESCAPES.get(char, char) for char in topic), topic, "%", MAX_TOPIC_SIZE_V1)


def kafka_topic(topic: str) -> str:
    """Kafka's name for a topic of RocketMQ's: ``%`` becomes ``.25`` and ``|`` becomes ``.7C``."""
    return _fitted("".join(_BACK.get(char, char) for char in topic), topic, ".", _MAX_KAFKA_TOPIC)


def _fitted(name: str, original: str, mark: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(original.encode()).hexdigest()[:_DIGEST_DIGITS]
    return name[: limit - 1 - _DIGEST_DIGITS] + mark + digest


def target_names(
    topics: Iterable[str], given: Mapping[str, str], *, to_rocketmq: bool, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The name that each of ``topics`` gets on the other side.

    ``given`` are names chosen by the caller, ``known`` those from which the topics once came; both win over the rule,
    the latter where they are allowed there and are no other topic's.

    Raises:
        UsageError: a given name is not allowed there, is for a topic that is not there, or two topics get one name.
    """
    rule, is_legal = (rocketmq_topic, is_rocketmq_topic) if to_rocketmq else (kafka_topic, is_kafka_topic)
    limit = MAX_TOPIC_SIZE_V1 if to_rocketmq else _MAX_KAFKA_TOPIC
    names = {topic: given.get(topic) or rule(topic) for topic in topics}
    for topic, name in (known or {}).items():
        if topic not in given and is_legal(name) and len(name) <= limit and name not in names.values():
            names[topic] = name
    for topic, name in names.items():
        if not is_legal(name) or len(name) > limit:
            raise UsageError(
                f"topic {topic} cannot have this name there", found=name, hint="choose another with --topic-name"
            )
    for topic in given:
        if topic not in names:
            raise UsageError("a name was given for a topic that is not there", found=topic)
    owners: dict[str, str] = {}
    for topic, name in names.items():
        if name in owners:
            raise UsageError(
                f"topics {owners[name]} and {topic} would both become {name}", hint="choose names with --topic-name"
            )
        owners[name] = topic
    return names
