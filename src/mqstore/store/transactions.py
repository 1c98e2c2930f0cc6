"""Transactions: a message that counts only once its producer says so.

As RocketMQ's broker keeps them (docs/consuming.md): the half message waits in ``RMQ_SYS_TRANS_HALF_TOPIC``. A
commit puts it into its real queue and a rollback does not; either way an entry in ``RMQ_SYS_TRANS_OP_HALF_TOPIC``
closes it. Half messages that stay open are asked about: the producer's checker decides.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from mqstore import errors
from mqstore.layout import constants as c
from mqstore.layout.record import Record
from mqstore.layout.text import whole
from mqstore.periodic import PeriodicThread
from mqstore.store.commit_log import Pending
from mqstore.store.message import Message, PutResult, once_more
from mqstore.store.schedule import copy_for, real_target

if TYPE_CHECKING:
    from mqstore.store.engine import Engine
    from mqstore.store.store import Store

_log = logging.getLogger(__name__)
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
"""The group under which progress in both topics is kept."""
_READ = 32


class TransactionState(enum.Enum):
    """What became of a transaction."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"
    """Not known yet: ask again later."""


class _Closing(NamedTuple):
    """The entry that closes a half message: its number in the queue of entries, and where it is in the log."""

    queue_offset: int
    physical_offset: int


Checker = Callable[[Record], TransactionState]
"""Asked about a half message whose transaction is still open."""


class Transaction:
    """One open transaction. As a context manager it commits at the end of the block and rolls back on an exception.

    Attributes:
        half: where the half message was stored.
    """

    def __init__(self, transactions: Transactions, half: PutResult) -> None:
        self._transactions = transactions
        self.half = half
        self._closed = False

    def commit(self) -> PutResult:
        """Put the message into its queue. Raises UsageError when the transaction is closed already."""
        result = self._end(TransactionState.COMMIT)
        assert result is not None
        return result

    def rollback(self) -> None:
        """Drop the message. Raises UsageError when the transaction is closed already."""
        self._end(TransactionState.ROLLBACK)

    def _end(self, state: TransactionState) -> PutResult | None:
        if self._closed:
            raise errors.UsageError("the transaction is closed already", offset=self.half.physical_offset)
        result = self._transactions.end(self.half.physical_offset, state)
        self._closed = True  # not before: what failed can be tried again
        return result

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()


class Transactions(PeriodicThread):
    """The half messages of a store, and the thread that asks about those left open."""

    def __init__(self, store: Store, engine: Engine) -> None:
        config = engine.config
        failing = "checking open transactions failed, trying again"
        interval_s = config.transaction_check_interval / 1000
        super().__init__("mqstore-transactions", interval_s, self._check_now, _log, failing)
        self._store = store
        self._engine = engine
        self._check_max = config.transaction_check_max
        self._timeout_ms = config.transaction_time_out
        self._guard = threading.Lock()  # one check at a time
        self._checking_thread: int | None = None  # in which checkers are asked now
        self._ending = threading.Lock()  # for what is closed
        self._checkers: dict[str, Checker] = {}
        self._closed_by: dict[int, _Closing] = {}  # queue offset of a half message: the newest entry that names it
        self._opened_at = engine.commit_log.end_offset
        self._being_closed: set[int] = set()  # queue offsets of half messages whose end is not in the log yet
        self._copies: dict[int, PutResult] = {}  # physical offset of a half message: the copy put in its place
        self._told_open: set[int] = set()  # queue offsets of half messages that were told of as staying open
        self._reading = threading.Lock()
        self._ops_read_to = -1

    # -- producing

    def begin(self, producer_group: str, message: Message) -> Transaction:
        """Store ``message`` as a half message. Raises as :meth:`mqstore.Store.put`."""
        self._engine.check_open()
        queue_id = self._engine.putting.prepared(message).target_queue_id
        if message.delay_level > 0:
            raise errors.MessageIllegalError(
                "a message of a transaction cannot be delayed: it is visible when it is committed",
                found=f"delay level {message.delay_level}",
                hint="put it with its delay when the rest is done, without a transaction",
            )
        self._engine.settings.ensure_group(producer_group)
        properties = {
            **message.properties,
            c.PROPERTY_TRAN_MSG: "true",
            c.PROPERTY_PGROUP: producer_group,
            c.PROPERTY_REAL_TOPIC: message.topic,
            c.PROPERTY_REAL_QID: str(queue_id),
        }
        half = replace(
            message,
            topic=c.HALF_TOPIC,
            queue_id=0,
            delay_level=0,
            properties=properties,
            sys_flag=message.sys_flag & ~c.SysFlag.TRANSACTION_MASK,
        )
        self._check_can_end(half, (message.topic, queue_id))
        return Transaction(self, self._store.put(half))

    def _check_can_end(self, half: Message, target: tuple[str, int]) -> None:
        """Raise MessageIllegalError unless ``half`` can be committed to ``target``, and be asked about to the end."""
        putting, times = self._engine.putting, {c.PROPERTY_TRANSACTION_CHECK_TIMES: str(c.INT_MAX)}
        fullest = putting.prepared(replace(half, properties={**half.properties, **times}))
        closing_bytes = self._entry(c.LONG_MAX).size_bytes
        for topic, queue_id in (target, (c.HALF_TOPIC, 0), (c.TRANS_CHECK_MAX_TIME_TOPIC, 0)):
            putting.check_later(fullest, topic, queue_id, beside_bytes=closing_bytes)

    def end(self, half_physical_offset: int, state: TransactionState) -> PutResult | None:
        """Commit a half message (the result says where it went) or roll it back.

        Raises:
            UsageError: no half message is there, it is closed already, or ``state`` decides nothing.
            NotWritableError: whether it is closed cannot be told now, since queues are not up to date; it stays open.
        """
        if state not in (TransactionState.COMMIT, TransactionState.ROLLBACK):
            raise errors.UsageError("nothing decided", found=repr(state))
        while (copy := self._copies.get(half_physical_offset)) is not None:
            half_physical_offset = copy.physical_offset
        half = self._store.message_at(half_physical_offset)
        if half is None or half.topic != c.HALF_TOPIC or real_target(half) is None:
            raise errors.UsageError("no such half message", offset=half_physical_offset)
        if not self._store.wait_dispatched():  # or an entry that closes it might be among what is not seen yet
            raise errors.NotWritableError(
                "cannot tell whether the transaction is closed: the queues cannot take what was stored last",
                offset=half_physical_offset,
                hint="free space on the device, then try again; flush() tells what is wrong",
            )
        self._read_ops()
        return self._end(half, state)

    def _end(self, half: Record, state: TransactionState) -> PutResult | None:
        return self._close(half, self._committed(half) if state is TransactionState.COMMIT else None)

    def _close(self, half: Record, instead: tuple[str, Pending] | None) -> PutResult | None:
        """Close a half message once, with what comes in its place: whoever comes second, producer or check, is refused.

        Both are one append. If only the first of the two were kept, a second try would put it again.
        """
        offset = half.queue_offset
        with self._ending:
            is_passed = offset < (self._store.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) or 0)
            if is_passed or self._is_closed(half) or offset in self._being_closed:
                raise errors.UsageError("the transaction is closed already", offset=half.physical_offset)
            self._being_closed.add(offset)
        try:
            records = [] if instead is None else [instead]
            results = self._engine.putting.put_prepared([*records, (c.OP_HALF_TOPIC, self._entry(offset))], wait=True)
            with self._ending:
                self._closed_by[offset] = _Closing(results[-1].queue_offset, results[-1].physical_offset)
        finally:
            with self._ending:
                self._being_closed.discard(offset)
        return None if instead is None else results[0]

    def _is_closed(self, half: Record | PutResult) -> bool:
        """Whether an entry closes ``half``: one that names it, and lies behind it in the log.

        A queue begins anew when its files are lost after all of its messages have expired. Then older entries, which
        the log still has, name numbers that new half messages take.
        """
        closing = self._closed_by.get(half.queue_offset)
        return closing is not None and closing.physical_offset > half.physical_offset

    def _is_closed_at(self, offset: int) -> bool:
        """As :meth:`_is_closed`, of the half message at ``offset``; for one that is damaged any entry is believed."""
        closing = self._closed_by.get(offset)
        if closing is None or closing.physical_offset >= self._opened_at:  # no queue begins anew while a store is open
            return closing is not None
        half = self._found_in_log(c.HALF_TOPIC, offset)
        return half is None or self._is_closed(half)

    def _entry(self, offset: int) -> Pending:
        """The record that closes the half message at queue ``offset``."""
        body = str(offset).encode()
        return self._engine.putting.prepared(Message(c.OP_HALF_TOPIC, body, tags=c.TAG_OF_OP_MESSAGES, queue_id=0))

    def _committed(self, half: Record) -> tuple[str, Pending]:
        target = real_target(half)
        assert target is not None
        topic, queue_id = target
        committed = half._replace(prepared_transaction_offset=half.physical_offset)
        flags = half.sys_flag & ~c.SysFlag.TRANSACTION_MASK | c.SysFlag.TRANSACTION_COMMIT
        return topic, copy_for(committed, topic, queue_id, self._engine.config.store_host, flags)

    # -- asking about those left open

    def set_checker(self, producer_group: str, checker: Checker) -> None:
        """Have ``checker`` decide about half messages of ``producer_group`` that stay open."""
        self._checkers[producer_group] = checker

    def _check_now(self) -> None:
        self.check(time.time_ns() // 1_000_000)

    def check(self, now_ms: int) -> int:
        """Ask about every half message that has been open for ``transaction_time_out``; the number closed.

        A close of the store ends this behind the half message at hand. Raises UsageError when a checker calls it.
        """
        self.refuse_checker("check")
        with self._guard:
            self._checking_thread = threading.get_ident()
            try:
                return self._check(now_ms)
            finally:
                self._checking_thread = None

    def refuse_checker(self, what: str) -> None:
        """Raise UsageError when a checker, which is waited for, is about to do what waits for it."""
        if self._checking_thread == threading.get_ident():
            raise errors.UsageError(
                f"a checker cannot {what}: that waits for the checker to return",
                hint="return an answer, and do it from another thread",
            )

    def _check(self, now_ms: int) -> int:
        self._read_ops()
        offset = max(
            self._store.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) or 0, self._store.min_offset(c.HALF_TOPIC, 0)
        )
        end = self._store.max_offset(c.HALF_TOPIC, 0)
        closed = 0
        first_open = None
        while offset < end and not self._stop.is_set():
            if not self._is_closed_at(offset):
                answer = None if offset in self._being_closed else self._ask_if_readable(offset, now_ms)
                closed += answer is True
                if answer is None:
                    first_open = offset if first_open is None else first_open
            offset += 1
        self._save_progress(offset if first_open is None else first_open)
        return closed

    def _read_ops(self) -> None:
        """Take in the entries that close half messages, from where they still matter."""
        with self._reading:
            self._read_new_ops()

    def _read_new_ops(self) -> None:
        if self._ops_read_to < 0:
            self._ops_read_to = self._store.committed_offset(CHECK_GROUP, c.OP_HALF_TOPIC, 0) or 0
        while True:
            begin = self._ops_read_to
            try:
                result = self._store.get(c.OP_HALF_TOPIC, 0, begin, _READ)
                records, first, end = result.messages, max(begin, result.min_offset), result.next_offset
            except errors.DamageError:
                records, first, end = [], begin, begin + 1
            if end == begin:
                return
            given = {record.queue_offset for record in records}
            missing = [offset for offset in range(first, end) if offset not in given]
            found = (self._found_in_log(c.OP_HALF_TOPIC, offset) for offset in missing)
            self._take_in([*records, *(record for record in found if record is not None)])
            self._ops_read_to = end

    def _take_in(self, entries: list[Record]) -> None:
        with self._ending:
            for entry in entries:
                for offset in closed_offsets(entry):
                    self._note_closing(offset, _Closing(entry.queue_offset, entry.physical_offset))

    def _note_closing(self, offset: int, closing: _Closing) -> None:
        known = self._closed_by.get(offset)
        if known is None or known.physical_offset < closing.physical_offset:
            self._closed_by[offset] = closing

    def _found_in_log(self, topic: str, offset: int) -> Record | None:
        """A record that could not be got: units are derived, and what a damaged one hides may be sound in the log."""
        queue = self._engine.queues.find(topic, 0)
        if queue is None or offset < queue.min_offset:
            return None
        record = self._engine.log_units.record_of(queue, offset)
        if record is None and topic == c.OP_HALF_TOPIC and not self._engine.log_units.is_filler(queue, offset):
            _log.error(
                "the record that closed half messages, %d of %s, is damaged or gone: they may be asked about again",
                offset,
                topic,
            )
        return record

    def _half_at(self, offset: int) -> Record | None:
        """The half message at ``offset``; None when it has expired or never was. Raises DamageError as ``get``."""
        try:
            messages = self._store.get(c.HALF_TOPIC, 0, offset, 1).messages
        except errors.DamageError:
            half = self._found_in_log(c.HALF_TOPIC, offset)
            if half is None:
                raise
            return half
        if messages and messages[0].queue_offset == offset:
            return messages[0]
        return self._found_in_log(c.HALF_TOPIC, offset)

    def _ask_if_readable(self, offset: int, now_ms: int) -> bool | None:
        """As :meth:`_ask`, but one that is damaged, or cannot be put again, stays open and holds up no other."""
        try:
            return self._ask(offset, now_ms)
        except (errors.DamageError, errors.MessageIllegalError) as error:
            if offset not in self._told_open:
                self._told_open.add(offset)
                what = "is damaged" if isinstance(error, errors.DamageError) else "cannot be put where it belongs"
                _log.error("half message %d %s, and its transaction stays open: %s", offset, what, error)
            return None

    def _ask(self, offset: int, now_ms: int) -> bool | None:
        """Whether the half message at ``offset`` could be closed; None when it stays open there.

        One that nobody can decide yet is put once more with a higher count, and the present one closed in its favour,
        so that the queue's beginning can move on.
        """
        half = self._half_at(offset)
        if half is None:
            return True  # expired
        if real_target(half) is None:
            _log.warning("message %d of the half topic does not say where it is meant for: passing over it", offset)
            return True
        properties = half.properties
        checker = self._checkers.get(properties.get(c.PROPERTY_PGROUP, ""))
        immunity_s = whole(properties.get(c.PROPERTY_CHECK_IMMUNITY_TIME, ""))
        patience_ms = self._timeout_ms if immunity_s is None else immunity_s * 1000
        if checker is None or now_ms - half.store_timestamp_ms < patience_ms:
            return None
        times = _times_asked(properties)
        if times >= self._check_max:
            with contextlib.suppress(errors.UsageError):  # its producer has closed it meanwhile
                self._close_with_copy(half, properties, c.TRANS_CHECK_MAX_TIME_TOPIC)
            return True
        try:
            state = checker(half)
        except (Exception, SystemExit) as error:  # the application's own; other transactions must not wait for it
            _log.error("the checker of %r failed: %r", properties.get(c.PROPERTY_PGROUP), error)
            return None
        try:
            if state in (TransactionState.COMMIT, TransactionState.ROLLBACK):
                self._end(half, state)
                return True
            properties[c.PROPERTY_TRANSACTION_CHECK_TIMES] = str(times + 1)
            copy = self._close_with_copy(half, properties, c.HALF_TOPIC)
            self._copies[half.physical_offset] = copy
        except errors.UsageError:
            return True  # its producer has closed it meanwhile
        return False

    def _close_with_copy(self, half: Record, properties: dict[str, str], topic: str) -> PutResult:
        """Put ``half`` once more, into ``topic``, and close it; where the copy is."""
        again = once_more(half, topic, properties, half.reconsume_times)
        copy = self._engine.putting.prepared(again, is_stored=True)
        result = self._close(half, (topic, copy))
        assert result is not None
        return result

    def _save_progress(self, half_offset: int) -> None:
        """Everything before ``half_offset`` is closed, and the entries that said so are needed no more."""
        with self._ending:
            closings = (one.queue_offset for half, one in self._closed_by.items() if half >= half_offset)
            op_offset = min(closings, default=max(0, self._ops_read_to))
        for topic, offset in ((c.HALF_TOPIC, half_offset), (c.OP_HALF_TOPIC, op_offset)):
            if offset <= self._store.max_offset(topic, 0):
                self._store.commit_offset(CHECK_GROUP, topic, 0, offset)
        with self._ending:  # not before: until progress says so, only these tell a producer that it comes too late
            self._forget_before(half_offset)

    def _forget_before(self, half_offset: int) -> None:
        """Forget what was needed for half messages before ``half_offset``, and the copies that led to closed ones."""
        self._told_open = {offset for offset in self._told_open if offset >= half_offset}
        kept: dict[int, PutResult] = {}
        for place, copy in reversed(self._copies.items()):  # a copy of a copy comes later than that
            is_open = copy.queue_offset >= half_offset and not self._is_closed(copy)
            if is_open or copy.physical_offset in kept:
                kept[place] = copy
        self._copies = dict(reversed(kept.items()))
        self._closed_by = {offset: one for offset, one in self._closed_by.items() if offset >= half_offset}


def _times_asked(properties: dict[str, str]) -> int:
    return whole(properties.get(c.PROPERTY_TRANSACTION_CHECK_TIMES, "")) or 0


def closed_offsets(entry: Record) -> list[int]:
    """Queue offsets of the half messages that ``entry``, a record of the topic of such entries, closes."""
    numbers = (whole(part.strip().decode("ascii", "replace")) for part in entry.body.split(b","))
    return [number for number in numbers if number is not None]
