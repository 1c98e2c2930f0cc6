"""Names in the options of a read that nothing in its stores bears, which would be without effect."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping, Sequence

from mqstore.errors import MqstoreError, UsageError, shown_path
from mqstore.layout.constants import LMQ_PREFIX
from mqstore.spark.options import OffsetBounds, ReadOptions
from mqstore.spark.stores import StoreRef, find_stores
from mqstore.store.settings import Settings

_log = logging.getLogger(__name__)


def stores_to_read(options: ReadOptions) -> list[StoreRef]:
    """The stores of a batch, as :func:`find_stores` gives them, once :func:`check_names` has looked at the names."""
    stores = find_stores(options)
    check_names(stores, options)
    return stores


def check_names(stores: Sequence[StoreRef], options: ReadOptions, *, streaming: bool = False) -> None:
    """Refuse brokers and topics of offsets that there are not; warn of a group, and of topics in what chooses them.

    Where a store has lost its queues and its list of topics, nobody knows which topics are in its log, and nothing is
    said about them. In a stream a topic may come later, so that there is no more than a warning about any.

    Raises:
        UsageError: offsets are given for a broker that none of the stores is of, or, in a batch, for a topic that it
            does not have.
    """
    for name, bounds in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        _check_brokers(name, bounds, [store.broker_name for store in stores])
    if options.starting_group is not None:
        _warn_of_group(options.starting_group, stores)
    if not _names_topics(options):
        return
    known = {store.broker_name: _topics(store) for store in stores}
    if not all(known.values()):
        return
    for name, bounds in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        _check_topics(name, bounds, known, streaming)
    _warn_of_light_queues(options)
    _warn_of_choices(options, {topic for topics in known.values() for topic in topics})


def _names_topics(options: ReadOptions) -> bool:
    named = (options.topics, options.topic_pattern, options.queues)
    return bool(options.starting.offsets or options.ending.offsets) or any(one is not None for one in named)


def _topics(store: StoreRef) -> set[str]:
    """The topics that a store knows, by its queues, those that a rebuild has moved aside, and its list of topics.

    None at all where one of these could not be looked at: of what the others lack nobody can say that it is not there.
    """
    found: set[str] = set()
    try:
        for directory in (store.paths.consume_queue, store.paths.aside.consume_queue):
            with contextlib.suppress(FileNotFoundError):
                found.update(path.name for path in directory.iterdir())
        found.update(Settings(store.paths.config).topics)
    except (OSError, MqstoreError):
        return set()
    return found


def _check_brokers(name: str, bounds: OffsetBounds, brokers: Sequence[str]) -> None:
    unknown = sorted({broker for _, broker, _, _ in bounds.offsets if broker is not None} - set(brokers))
    if unknown:
        raise UsageError(
            f"option {name} names a broker that is not read", expected=", ".join(brokers), found=", ".join(unknown),
            hint="a broker is called as in column brokerName",
        )  # fmt: skip


def _check_topics(name: str, bounds: OffsetBounds, known: Mapping[str, set[str]], streaming: bool) -> None:
    unknown = {
        topic if broker is None else f"{topic} of {broker}"
        for topic, broker, _, _ in bounds.offsets
        if not any(topic in topics for of, topics in known.items() if broker in (None, of))
    }
    if unknown and streaming:
        to_come = "option %s names topics that are not there and, should they come, begin at their first message: %s"
        _log.warning(to_come, name, ", ".join(sorted(unknown)))
    elif unknown:
        raise UsageError(f"option {name} names a topic that is not there", found=", ".join(sorted(unknown)))


def _warn_of_group(group: str, stores: Sequence[StoreRef]) -> None:
    if not any(name == group for store in stores for _, name in Settings(store.paths.config).consumer_offsets):
        _log.warning("group %s has no progress: the stream begins everywhere as startingOffsets says", group)


def _chosen(options: ReadOptions) -> set[str]:
    return {*(options.topics or ()), *(topic for topic, _ in options.queues or ())}


def _warn_of_light_queues(options: ReadOptions) -> None:
    light = sorted(topic for topic in _chosen(options) if topic.startswith(LMQ_PREFIX))
    if light and options.view == "messages":
        _log.warning("messages come by the topic that they name as their own, and none by %s", ", ".join(light))


def _warn_of_choices(options: ReadOptions, known: set[str]) -> None:
    where = ", ".join(map(shown_path, options.paths))
    if missing := sorted(_chosen(options) - known):
        _log.warning("there is no topic %s in %s", ", ".join(missing), where)
    pattern = options.topic_pattern
    if pattern is not None and not any(re.fullmatch(pattern, topic) for topic in known):
        _log.warning("no topic matches %s in %s", pattern, where)
