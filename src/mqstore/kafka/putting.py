"""From messages to batches that are ready to be appended: everything that can be judged is judged before the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mqstore import errors
from mqstore.kafka.batching import Sender, as_kafka_message, build_batch, check_message, following, gather
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.message import KafkaMessage
from mqstore.layout.kafka.checkpoints import TopicPartition

SenderOf = Callable[[TopicPartition, int], Sender]
"""On whose behalf a batch of so many records is put into a partition; asked in the order of the batches."""


@dataclass(frozen=True)
class PreparedBatch:
    """A batch at offset 0 for one partition, the timestamp of each of its records, and whose it is."""

    where: TopicPartition
    batch: bytes
    times_ms: list[int]
    sender: Sender


def take_messages(messages: Iterable[object], config: KafkaConfig) -> list[KafkaMessage]:
    """The messages to put, each checked, and with contents that no longer change.

    Raises:
        MessageIllegalError, UsageError: one of them breaks a limit, or is none.
    """
    given: object = messages
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise errors.UsageError("not a sequence of messages", found=type(messages).__name__)
    return [check_message(as_kafka_message(message), config) for message in messages]


def numbered(sender: Sender) -> SenderOf:
    """A sender whose records are numbered through, whatever batches they share."""

    def sender_of(where: TopicPartition, count: int) -> Sender:
        nonlocal sender
        present, sender = sender, following(sender, count)
        return present

    return sender_of


def prepare(messages: Sequence[KafkaMessage], config: KafkaConfig, sender_of: SenderOf) -> list[PreparedBatch]:
    """The batches of ``messages``, in order; neighbours of one partition share them.

    Raises:
        MessageIllegalError: one of them is too large.
    """
    prepared = []
    limit = min(config.max_message_bytes, config.segment_bytes)
    for run in gather(messages, config):
        where = messages[run[0]].topic, messages[run[0]].partition
        sender = sender_of(where, len(run))
        batch, times_ms = build_batch([messages[number] for number in run], config, sender)
        if len(batch) > limit:
            raise errors.MessageIllegalError(
                "the batch is too large", expected=f"at most {limit} bytes", found=len(batch),
                hint="raise max_message_bytes and segment_bytes, or put less at once",
            )  # fmt: skip
        prepared.append(PreparedBatch(where, batch, times_ms, sender))
    return prepared
