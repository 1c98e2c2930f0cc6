"""Appending batches to a store so that each is there once, whenever the process dies.

Before its first message a batch is noted as begun: where the log ended, and which files hold its messages. When it is
complete and on the device, that is noted. Whoever comes next finishes what was begun: the records behind the noted end
tell how far it came, as the messages are put in the order of the files.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqstore.errors import CorruptFileError, MessageIllegalError, StoreLockedError
from mqstore.files import durable
from mqstore.layout import constants as c
from mqstore.layout.record import Record
from mqstore.spark.message_rows import message_of
from mqstore.store.config import StoreConfig
from mqstore.store.message import Message
from mqstore.store.multi_dispatch import find_multi_dispatch
from mqstore.store.opening import open_store
from mqstore.store.paths import StorePaths
from mqstore.store.sizes import resolve_sizes
from mqstore.store.store import Store
from mqstore.store.view import StoreView

LEDGER_NAME: Final = "mqstore-sink.json"
_ROWS_AT_A_TIME: Final = 1000
_MOST_NAMES: Final = 1000
_BESIDE_BYTES: Final = 1024
"""More than a blank record, a longer topic and higher numbers add to what a record takes."""
_WAIT_S: Final = 30.0
"""How long a batch waits for others that append to the same store, or for one whose driver was killed just now."""
_LOOK_EVERY_S: Final = 0.1
_OF_FURTHER_QUEUES: Final = frozenset({c.PROPERTY_WAIT, c.PROPERTY_INNER_MULTI_QUEUE_OFFSET})
_OF_A_DELAY: Final = frozenset({c.PROPERTY_DELAY, c.PROPERTY_REAL_TOPIC, c.PROPERTY_REAL_QID})
"""Properties that a store may change or drop, whatever a message says of them."""


class Batch(NamedTuple):
    """Messages to append: the name of the query or job, the number of the batch, and the files that hold them."""

    name: str
    number: int
    paths: list[str]


class _Ledger:
    """What has been appended: the last batch of each query, and the one that was begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: dict[str, int] = {}
        self.begun: tuple[Batch, int] | None = None
        if path.exists():
            try:
                content = json.loads(path.read_text("utf-8"))
                self.done = {str(name): int(number) for name, number in content["done"].items()}
                begun = content["begun"]
                self.begun = None if begun is None else (Batch(*begun["batch"]), int(begun["logEnd"]))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise CorruptFileError(
                    "the note of what Spark has appended is damaged", path=path, found=error,
                    hint="removed, the last batch of each query may be appended twice",
                ) from None  # fmt: skip

    def save(self) -> None:
        """Write it so that a crash leaves the old note or the new."""
        recent = dict(list(self.done.items())[-_MOST_NAMES:])
        begun = None if self.begun is None else {"batch": list(self.begun[0]), "logEnd": self.begun[1]}
        durable.replace_file(self._path, json.dumps({"done": recent, "begun": begun}).encode())
        durable.sync_directory(self._path.parent)


def append(
    root: Path,
    batch: Batch,
    noted: bool = True,
    largest_bytes: int | None = None,
    on_done: Callable[[], None] | None = None,
) -> int:
    """Append a batch to the store at ``root``, which is made if there is none; how many messages were put.

    Other queries may append to it as well: each waits for its turn, but not for ever, as a broker would not go.

    Args:
        root: the store's directory; no other process may have it open for writing.
        batch: what to append. One of a number that its query has appended already is passed over.
        noted: False for a batch that has no name to be known by when it comes again.
        largest_bytes: the most that one of its records takes under the limits of any store; None is not known.
        on_done: called at the end, while nobody else can append.

    Raises:
        StoreLockedError: the store is open elsewhere.
        CorruptFileError: the note of what was appended is damaged, or files of the batch are gone; none was put then.
        MessageIllegalError: this store does not take one of the messages. None was put.
        StoreIOError, DiskFullError.
    """
    with _opened(root) as store:
        ledger = _Ledger(root / LEDGER_NAME)
        count = 0
        if ledger.begun is not None:
            count += _finish(store, root, ledger)
        is_new = not noted or ledger.done.get(batch.name, -1) < batch.number
        # Begun, a batch that cannot be put would be in the way of all others.
        for path in batch.paths if is_new else ():
            if not Path(path).exists():
                raise _gone(
                    path,
                    "start it again; two that run at once under one name, or from one checkpoint, are in each other's "
                    "way",
                )
        if is_new and not _has_room(root, largest_bytes):
            for message in _messages(batch.paths):
                store.check_message(message)
        if not noted:
            count += _put(store, _messages(batch.paths))
            store.flush()
        elif is_new:
            store.flush()  # a power cut must not take the log back behind the end that is noted
            ledger.begun = (batch, store.log_end)
            ledger.save()
            count += _finish(store, root, ledger)
        if on_done is not None:
            on_done()
        return count


def _opened(root: Path) -> Store:
    """The store, opened for writing as soon as no other query has it."""
    deadline_s = time.monotonic() + _WAIT_S
    while True:
        try:
            return open_store(root)
        except StoreLockedError:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_LOOK_EVERY_S)


def _has_room(root: Path, largest_bytes: int | None) -> bool:
    """Whether the store takes whatever tasks found to be in order, as far as its own limits go."""
    paths = StorePaths(root)
    if largest_bytes is None or find_multi_dispatch(paths).enabled:  # names of further queues are checked as well
        return False
    return largest_bytes + _BESIDE_BYTES <= resolve_sizes(paths, StoreConfig()).commit_log


def _finish(store: Store, root: Path, ledger: _Ledger) -> int:
    """Put what is missing of the batch that was begun, and note that it is complete."""
    assert ledger.begun is not None
    batch, log_end = ledger.begun
    messages = _messages(batch.paths)
    message = next(messages, None)
    with StoreView(root) as view:
        for record in view.scan(log_end):
            if message is None:
                break
            if _is_of(record, message):  # others are of delayed messages that fell due, or of another writer
                message = next(messages, None)
    try:
        count = 0 if message is None else _put(store, itertools.chain([message], messages))
    except MessageIllegalError as error:  # the store's limits have changed since
        error.hint = f"{root / LEDGER_NAME} names batch {batch.number} of {batch.name}; without it the rest is given up"
        raise
    store.flush()
    ledger.begun = None
    ledger.done.pop(batch.name, None)
    ledger.done[batch.name] = batch.number
    ledger.save()
    return count


def _is_of(record: Record, message: Message) -> bool:
    """Whether a record is that of a message of ours."""
    properties = record.properties
    expected = dict(message.properties)
    if message.tags is not None:
        expected[c.PROPERTY_TAGS] = message.tags
    if message.keys:
        expected[c.PROPERTY_KEYS] = " ".join(message.keys)
    place, changed = (record.topic, str(record.queue_id)), _OF_FURTHER_QUEUES
    if message.delay_level:
        changed |= _OF_A_DELAY
        place = (properties.get(c.PROPERTY_REAL_TOPIC, ""), properties.get(c.PROPERTY_REAL_QID, ""))
    return (
        place == (message.topic, str(message.queue_id))
        and record.body == message.body
        and record.born_timestamp_ms == message.born_timestamp_ms
        and all(properties.get(name) == value for name, value in expected.items() if name not in changed)
    )


def _gone(path: str, hint: str) -> CorruptFileError:
    return CorruptFileError("messages that were put aside for the store are gone", path=path, hint=hint)


def _messages(paths: list[str]) -> Iterator[Message]:
    import pyarrow.parquet as pq

    for path in paths:
        if not Path(path).exists():
            raise _gone(path, f"{LEDGER_NAME} in the store names the batch; without that note the batch is given up")
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_A_TIME):
                row: dict[str, Any]
                for row in batch.to_pylist():
                    yield message_of(row, StoreConfig())[0]


def _put(store: Store, messages: Iterator[Message]) -> int:
    """Put the messages in order."""
    count = 0
    for message in messages:
        store.put(message)
        count += 1
    return count
