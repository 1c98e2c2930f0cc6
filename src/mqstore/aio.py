"""The store for asyncio: the same verbs, awaited; nothing that may wait runs on the event loop.

There is no loop and no state in here. Calls run on threads of a pool that belongs to the store; those that put go
through one thread, so that messages are stored in the order in which they were given.
"""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mqstore import errors
from mqstore.layout.record import Record
from mqstore.layout.sql92 import SqlExpression
from mqstore.store.arguments import check_seconds
from mqstore.store.consumer import Consumer
from mqstore.store.get_table import GetTableResult
from mqstore.store.message import GetResult, Message, PutResult, QueryResult
from mqstore.store.opening import open_store
from mqstore.store.store import Store
from mqstore.store.table import PutTableResult

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncConsumer", "AsyncStore", "open"]


class _Closable(Protocol):
    def close(self) -> object: ...


T = TypeVar("T")
C = TypeVar("C", bound=_Closable)
_READERS = 8
_SLICE_S = 0.25
"""How long a thread waits for a message before it asks whether anybody still wants one: what exiting waits for."""


async def _call(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    return await asyncio.wrap_future(_submit(pool, work, *arguments, **named))


def _submit(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any, **named: Any) -> Future[T]:
    try:
        return pool.submit(work, *arguments, **named)
    except RuntimeError as error:
        if "after" not in str(error):  # else the pool or the interpreter is shut down
            raise errors.no_thread("mqstore-aio", error) from error
        raise errors.StoreClosedError("the store or consumer is closed", hint="open it again") from None


async def _opened(opening: Future[C]) -> C:
    """What ``opening`` gives. A caller who is cancelled meanwhile leaves nothing open behind."""
    try:
        return await asyncio.wrap_future(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_result)
        raise


def _look_at(taking: asyncio.Future[Record]) -> None:
    """Whoever waited may have been cancelled, and asyncio reports errors that nobody has looked at."""
    if not taking.cancelled():
        taking.exception()


def _close_result(opening: Future[C]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def open(path: str | os.PathLike[str], **settings: Any) -> AsyncStore:  # noqa: A001 (as mqstore.open)
    """Open the store at ``path``; arguments and errors as :func:`mqstore.open`."""
    writer = ThreadPoolExecutor(1, thread_name_prefix="mqstore-aio-put")
    try:
        return AsyncStore(await _opened(_submit(writer, open_store, path, **settings)), writer)
    except BaseException:
        writer.shutdown(wait=False)
        raise


class AsyncStore:
    """A store open for writing, for asyncio. Made by :func:`open`.

    Attributes:
        store: the store itself, for what is not here; its calls may block.
    """

    def __init__(self, store: Store, writer: ThreadPoolExecutor) -> None:
        self.store = store
        self._writer = writer
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="mqstore-aio")
        self._closing: Future[None] | None = None

    async def put(self, message: Message) -> PutResult:
        """As :meth:`mqstore.Store.put`."""
        return await _call(self._writer, self.store.put, message)

    async def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """As :meth:`mqstore.Store.put_batch`."""
        return await _call(self._writer, self.store.put_batch, messages)

    async def put_table(self, table: pa.Table | pa.RecordBatch) -> PutTableResult:
        """As :meth:`mqstore.Store.put_table`."""
        return await _call(self._writer, self.store.put_table, table)

    async def set_max_message_size(self, size_bytes: int) -> None:
        """Set :attr:`mqstore.Store.max_message_size`, for what is put from here on; raises as it does."""
        await _call(self._writer, setattr, self.store, "max_message_size", size_bytes)

    async def create_topic(self, topic: str, queues: int | None = None) -> int:
        """As :meth:`mqstore.Store.create_topic`."""
        return await _call(self._writer, self.store.create_topic, topic, queues)

    async def get(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        max_messages: int = 32,
        where: str | SqlExpression | None = None,
    ) -> GetResult:
        """As :meth:`mqstore.Store.get`."""
        return await _call(self._readers, self.store.get, topic, queue_id, offset, max_messages, where)

    async def get_table(self, topic: str, queue_id: int = 0, offset: int = 0, **named: Any) -> GetTableResult:
        """As :meth:`mqstore.Store.get_table`."""
        return await _call(self._readers, lambda: self.store.get_table(topic, queue_id, offset, **named))

    async def query(self, topic: str, key: str, **named: Any) -> QueryResult:
        """As :meth:`mqstore.Store.query`."""
        return await _call(self._readers, self.store.query, topic, key, **named)

    async def wait_dispatched(self, timeout_s: float | None = None) -> bool:
        """As :meth:`mqstore.Store.wait_dispatched`."""
        return await _call(self._readers, self.store.wait_dispatched, timeout_s)

    async def flush(self) -> None:
        """As :meth:`mqstore.Store.flush`, after everything put so far."""
        await _call(self._writer, self.store.flush)

    async def consumer(
        self, group: str, topic: str, where: str | SqlExpression | None = None, **named: Any
    ) -> AsyncConsumer:
        """As :meth:`mqstore.Store.consumer`."""
        return AsyncConsumer(await _opened(_submit(self._readers, self.store.consumer, group, topic, where, **named)))

    async def close(self) -> None:
        """As :meth:`mqstore.Store.close`, after everything put so far.

        Cancelling it ends the waiting, not the closing; a further call waits for that and ends as it does.
        """
        if self._closing is None:
            self._closing = _submit(self._writer, self.store.close)
            self._writer.shutdown(wait=False)
            self._readers.shutdown(wait=False)
        # Not cancelled itself: while it waits for puts at work, it would be taken out of the queue and never come.
        await asyncio.shield(asyncio.wrap_future(self._closing))

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncConsumer:
    """A consumer for asyncio. Made by :meth:`AsyncStore.consumer`.

    It has a thread of its own, since waiting for a message may take for ever.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mqstore-aio-consume")
        self._taking: asyncio.Future[Record] | None = None
        try:
            _submit(self._thread, int)  # a thread that could not be started later would lose the message it was to take
        except errors.MqstoreError:
            consumer.close()
            raise

    async def get(self, timeout_s: float | None = None) -> Record:
        """The next message; TimeoutError when none came in ``timeout_s`` seconds, None is for ever.

        Several tasks may wait at once; each message goes to one of them. A message that arrives after the timeout, or
        for a task that was cancelled, is what the next call gives.
        """
        check_seconds("timeout_s", timeout_s)
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self._taking is None:
                self._taking = asyncio.wrap_future(_submit(self._thread, self._consumer.get, True, _SLICE_S))
                self._taking.add_done_callback(_look_at)
            taking = self._taking
            done, _ = await asyncio.wait({taking}, timeout=None if deadline is None else max(0, deadline - loop.time()))
            if not done:
                raise TimeoutError(f"no message in {timeout_s} s")
            if self._taking is taking:  # else another task was quicker
                self._taking = None
                try:
                    return taking.result()
                except queue.Empty:
                    pass

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            try:
                yield await self.get(self._consumer.timeout_s)
            except TimeoutError:
                return

    async def seek(self, queue_id: int, offset: int, *, topic: str | None = None) -> None:
        """As :meth:`mqstore.Consumer.seek`; not while another task waits in :meth:`get`."""
        await asyncio.to_thread(self._consumer.seek, queue_id, offset, topic=topic)

    async def ack(self, message: Record) -> bool:
        """As :meth:`mqstore.Consumer.ack`."""
        return await asyncio.to_thread(self._consumer.ack, message)

    async def nack(self, message: Record, delay_level: int | None = None) -> PutResult | None:
        """As :meth:`mqstore.Consumer.nack`."""
        return await asyncio.to_thread(self._consumer.nack, message, delay_level)

    async def commit(self) -> None:
        """As :meth:`mqstore.Consumer.commit`."""
        await asyncio.to_thread(self._consumer.commit)

    async def close(self) -> None:
        """As :meth:`mqstore.Consumer.close`; a waiting :meth:`get` ends with StoreClosedError."""
        self._consumer.close()
        taking = self._taking
        if taking is not None:
            await asyncio.wait({taking})
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
