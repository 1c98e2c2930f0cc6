"""Further queues of a store: records that are dispatched to other queues beside their own.

A broker does that when its settings ``enableMultiDispatch`` and ``enableLmq`` say so, which its store does not tell;
here the store notes it in its root, so that every tool finds the same queues.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.files.whole import read_whole
from mqstore.kernels.api import PreparedMessage, QueueRun
from mqstore.layout import constants as c
from mqstore.layout import multi_dispatch as layout
from mqstore.layout import properties as props
from mqstore.layout.constants import SysFlag
from mqstore.store.json_note import load_note
from mqstore.store.log_reader import Chunk
from mqstore.store.paths import StorePaths, is_directory_name

NOTE_NAME = "mqstore-multi-dispatch.json"
_ENABLED, _LMQ = "enableMultiDispatch", "enableLmq"
_NAME = c.PROPERTY_INNER_MULTI_DISPATCH.encode()
_NOT_FURTHER = (c.RETRY_PREFIX, c.DLQ_PREFIX, "RMQ_SYS_", "rmq_sys_", c.TRANS_CHECK_MAX_TIME_TOPIC)
"""Topics, beside the schedule topic, whose messages are on their way to or from a topic of their own, or given up."""


class MultiDispatch(NamedTuple):
    """Whether records go to further queues, and whether names with ``%LMQ%`` are light queues with id 0."""

    enabled: bool = False
    lmq: bool = False

    def queue_id(self, name: str, own_queue_id: int) -> int:
        """Which queue of ``name`` a record goes to that is in queue ``own_queue_id`` of its own topic."""
        return 0 if self.lmq and name.startswith(c.LMQ_PREFIX) else own_queue_id


OFF = MultiDispatch()


def find_multi_dispatch(paths: StorePaths) -> MultiDispatch:
    """What the store at ``paths`` does: as noted, or on if there is a light queue.

    Raises:
        CorruptConfigError: the note cannot be read as one.
        StoreIOError: it could not be read.
    """

    def parse(content: Any) -> MultiDispatch:
        found = MultiDispatch(content[_ENABLED], content[_LMQ])
        if not all(isinstance(value, bool) for value in found):
            raise ValueError(f"{found}")
        return found

    noted = load_note(
        paths.root / NOTE_NAME,
        "note of further queues",
        parse,
        expected=f"a JSON object with {_ENABLED} and {_LMQ}, true or false",
        hint="remove it, and give enable_multi_dispatch and enable_lmq when opening the store",
    )
    if noted is not None:
        return noted
    has_light_queue = any(name.startswith(c.LMQ_PREFIX) for name in paths.list_topics())
    return MultiDispatch(has_light_queue, has_light_queue)


def resolve_multi_dispatch(paths: StorePaths, enabled: bool | None, lmq: bool | None) -> MultiDispatch:
    """What the store at ``paths`` is to do: as configured, or else as :func:`find_multi_dispatch` says."""
    found = find_multi_dispatch(paths)
    return MultiDispatch(found.enabled if enabled is None else enabled, found.lmq if lmq is None else lmq)


def save_multi_dispatch(root: Path, multi: MultiDispatch) -> None:
    """Note ``multi`` in the store at ``root``, durably; a store that never had further queues needs no note."""
    path = root / NOTE_NAME
    known = read_whole(path, "note of further queues")
    note = json.dumps({_ENABLED: multi.enabled, _LMQ: multi.lmq}).encode() + b"\n"
    if known != note and (known is not None or multi != OFF):
        durable.replace_file(path, note)


class FurtherQueues(NamedTuple):
    """What a record still needs before it can be appended: its numbers in ``queues``, told in its properties.

    Without queues it is a record that must not keep numbers it got earlier.
    """

    properties: dict[str, str]
    queues: tuple[tuple[str, int], ...]

    def complete(self, fields: PreparedMessage, offsets: list[int]) -> PreparedMessage:
        """``fields`` with the properties as a broker rewrites them; MessageIllegalError when they get too large."""
        properties = dict(self.properties)
        if self.queues:
            properties[c.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = layout.join_offsets(offsets)
        return (*fields[:2], encode_in_map_order(properties), *fields[3:])


def further_queues(fields: PreparedMessage, multi: MultiDispatch) -> FurtherQueues | None:
    """The further queues that a record is to go to; None for one that can be appended as it is.

    A record that is delayed, half, or on its way back to a consumer is not where it belongs yet, nor anywhere else; one
    that was given up has been there, or never will be.

    Raises:
        MessageIllegalError: a name that cannot be a queue's.
    """
    topic, flags = fields[0].decode("utf-8", "replace"), fields[5] & SysFlag.TRANSACTION_MASK
    properties = props.parse(fields[2])
    names = layout.further_names(properties)
    if not names:
        return None
    has_no_offset = flags in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
    if topic.startswith(_NOT_FURTHER) or topic == c.SCHEDULE_TOPIC or has_no_offset:
        return no_further_queues(fields)
    properties.pop(c.PROPERTY_WAIT, None)
    for name in names:
        if not is_directory_name(name):
            raise errors.MessageIllegalError(
                f"{c.PROPERTY_INNER_MULTI_DISPATCH} names a queue that cannot be",
                expected="names divided by commas, each fit for a directory",
                found=repr(name),
            )
    return FurtherQueues(properties, tuple((name, multi.queue_id(name, fields[3])) for name in names))


def no_further_queues(fields: PreparedMessage) -> FurtherQueues | None:
    """What a record needs that must go to no further queue: to lose the numbers that it has; None if it has none."""
    properties = props.parse(fields[2])
    stale = properties.pop(c.PROPERTY_INNER_MULTI_QUEUE_OFFSET, None)
    return None if stale is None else FurtherQueues(properties, ())


def names_further_queues(properties_raw: bytes) -> bool:
    """Whether it is worth asking :func:`further_queues`."""
    return _NAME in properties_raw


def encode_in_map_order(properties: dict[str, str]) -> bytes:
    """The properties string with names in the order of a broker's map."""
    return props.encode([(name, properties[name]) for name in props.java_map_order(tuple(properties))])


def queue_runs(chunk: Chunk, delay_ms: Sequence[int], multi: MultiDispatch) -> Iterator[tuple[QueueRun, bool]]:
    """The queue units of all records of ``chunk`` in log order, and whether they are of the records' own queues."""
    buffer, columns, start = chunk.buffer, chunk.columns, 0
    for row in _rows_with_further_queues(chunk) if multi.enabled else ():
        for run in kernels.queue_runs(buffer, columns, start, row, delay_ms):
            yield run, True
        for run in kernels.queue_runs(buffer, columns, row, row + 1, delay_ms):
            yield run, True
            for further in _further_runs(chunk, row, run, multi):
                yield further, False
        start = row + 1
    for run in kernels.queue_runs(buffer, columns, start, columns.count, delay_ms):
        yield run, True


def _rows_with_further_queues(chunk: Chunk) -> Iterator[int]:
    """Rows whose properties hold the name, in order; most chunks are done with one look at all of their bytes."""
    buffer, columns = chunk.buffer, chunk.columns
    at = buffer.find(_NAME)
    while at >= 0:
        row = bisect_right(columns.position, at) - 1
        if row >= 0:
            start = columns.properties_position[row]
            if start <= at < start + columns.properties_size[row]:
                yield row
                at = columns.position[row] + columns.size[row] - 1
            elif at < start:
                at = start - 1  # it was in the body
        at = buffer.find(_NAME, at + 1)


def _further_runs(chunk: Chunk, row: int, own: QueueRun, multi: MultiDispatch) -> Iterator[QueueRun]:
    start = chunk.columns.properties_position[row]
    properties = props.parse(chunk.buffer[start : start + chunk.columns.properties_size[row]])
    done = {(own.topic, own.queue_id)}  # its own queue may be among them, and one may be named twice
    for name, offset in layout.further_places(properties):
        place = (name.encode(), multi.queue_id(name, own.queue_id))
        if place not in done:
            done.add(place)
            yield own._replace(topic=place[0], queue_id=place[1], first_queue_offset=offset)
