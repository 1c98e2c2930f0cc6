"""The store from asyncio: order, and a loop that is never blocked."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mqstore import (
    Message,
    MessageIllegalError,
    PutResult,
    StoreClosedError,
    StoreIOError,
    StoreLockedError,
    UsageError,
    aio,
)
from store.support import SMALL, findings
from store.threads import refuse_to_start

WIDE: dict[str, Any] = {**SMALL, "mapped_file_size_commit_log": 65536, "mapped_file_size_consume_queue": 2000}


def test_what_coroutines_put_is_stored_in_their_order(tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with await aio.open(tmp_path / "s", **WIDE, flush_disk_type="SYNC_FLUSH") as store:
            results = await asyncio.gather(*[store.put(Message("t", b"%d" % number)) for number in range(200)])
            await store.wait_dispatched()
            found = (await store.get("t", 0, 0, 200)).messages
            assert [message.body for message in found] == [b"%d" % number for number in range(len(found))]
            assert (await store.put_batch([Message("t", b"x", keys=["k"])] * 2))[1].queue_offset == 201
            await store.wait_dispatched()
            assert len((await store.query("t", "k")).messages) == 2
            return [result.queue_offset for result in results]

    assert asyncio.run(main()) == list(range(200))
    assert findings(tmp_path / "s") == []


def test_a_new_largest_size_holds_for_what_is_put_behind_it(tmp_path: Path) -> None:
    async def main() -> list[object]:
        async with await aio.open(tmp_path / "s", **WIDE, max_message_size=10) as store:
            results = await asyncio.gather(
                store.put(Message("t", bytes(11))),
                store.set_max_message_size(11),
                store.put(Message("t", bytes(11))),
                store.set_max_message_size(0),
                return_exceptions=True,
            )
            return [type(result) for result in results]

    assert asyncio.run(main()) == [MessageIllegalError, type(None), PutResult, UsageError]


def test_the_loop_goes_on_while_others_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "s", **WIDE) as store, await store.consumer("g", "t") as consumer:
            waiting = asyncio.create_task(consumer.get())
            ticks = 0
            while ticks < 20:
                await asyncio.sleep(0.005)
                ticks += 1
            assert not waiting.done()
            await store.put(Message("t", b"here"))
            message = await asyncio.wait_for(waiting, 30)
            assert message.body == b"here"
            assert await consumer.ack(message)

    asyncio.run(main())


def test_a_message_that_comes_too_late_for_one_get_is_the_next_ones(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "s", **WIDE) as store, await store.consumer("g", "t") as consumer:
            with pytest.raises(TimeoutError):
                await consumer.get(timeout_s=0.05)
            cancelled = asyncio.create_task(consumer.get())
            await asyncio.sleep(0.05)
            cancelled.cancel()
            for number in range(2):
                await store.put(Message("t", b"%d" % number, queue_id=0))
            for number in range(2):
                message = await consumer.get(timeout_s=30)
                assert message.body == b"%d" % number
                await consumer.ack(message)
            await consumer.commit()
            assert store.store.committed_offset("g", "t", 0) == 2

    asyncio.run(main())


def test_closing_ends_a_waiting_get(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "s", **WIDE) as store:
            consumer = await store.consumer("g", "t")
            waiting = asyncio.create_task(consumer.get())
            await asyncio.sleep(0.05)
            await consumer.close()
            with pytest.raises(StoreClosedError):
                await asyncio.wait_for(waiting, 60)
        with pytest.raises(StoreClosedError):
            await asyncio.to_thread(store.store.put, Message("t", b""))

    asyncio.run(main())


def test_each_message_goes_to_one_of_the_tasks_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "s", **WIDE) as store, await store.consumer("g", "t") as consumer:
            tasks = [asyncio.create_task(consumer.get(timeout_s=30)) for _ in range(5)]
            await asyncio.sleep(0.05)
            for number in range(5):
                await store.put(Message("t", b"%d" % number, queue_id=0))
            got = await asyncio.gather(*tasks)
            assert sorted(message.body for message in got) == [b"%d" % number for number in range(5)]

    asyncio.run(main())


def test_a_cancelled_open_leaves_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(5):
            opening = asyncio.create_task(aio.open(tmp_path / "s", **WIDE))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        for _ in range(600):  # until the abandoned ones have closed
            try:
                store = await aio.open(tmp_path / "s", **WIDE)
            except StoreLockedError:
                await asyncio.sleep(0.05)
                continue
            break
        making = asyncio.create_task(store.consumer("g", "t"))
        await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        for _ in range(600):
            if not store.store.groups.names():
                break
            await asyncio.sleep(0.01)
        assert store.store.groups.names() == []
        await store.close()

    asyncio.run(main())


def test_after_closing_everything_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "s", **WIDE)
        consumer = await store.consumer("g", "t")
        await consumer.close()
        with pytest.raises(StoreClosedError):
            await consumer.get(timeout_s=1)
        await store.close()
        for call in (store.put(Message("t", b"")), store.get("t"), store.consumer("g", "t"), store.flush()):
            with pytest.raises(StoreClosedError):
                await call

    asyncio.run(main())


def test_a_close_that_is_cancelled_goes_on_and_the_next_one_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "s", **WIDE)
        held = threading.Event()
        put = store.store.put
        monkeypatch.setattr(store.store, "put", lambda message: (held.wait(60), put(message))[1])
        putting = asyncio.create_task(store.put(Message("t", b"x")))
        await asyncio.sleep(0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(store.close(), 0.01)
        again = [asyncio.create_task(store.close()) for _ in range(2)]
        done, _ = await asyncio.wait(again, timeout=0.05)
        assert not done
        again[0].cancel()
        held.set()
        assert (await putting).queue_offset == 0
        await again[1]
        await (await aio.open(tmp_path / "s", **WIDE)).close()
        await store.close()

    asyncio.run(main())


def test_a_close_that_fails_tells_it_to_whoever_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "s", **WIDE)
        close = store.store.close

        def fail() -> None:
            close()
            raise StoreIOError("the disk is gone")

        monkeypatch.setattr(store.store, "close", fail)
        for _ in range(2):
            with pytest.raises(StoreIOError):
                await store.close()

    asyncio.run(main())


def test_the_interpreter_ends_though_a_get_was_never_answered(tmp_path: Path) -> None:
    program = f"""
import asyncio
import gc
from mqstore import aio

async def main():
    store = await aio.open({str(tmp_path / "s")!r})
    consumer = await store.consumer("g", "t")
    try:
        await asyncio.wait_for(consumer.get(), 0.1)
    except TimeoutError:
        print("none")
    except asyncio.TimeoutError:
        print("none")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "none\n"), done.stderr


def test_cancelled_gets_and_a_close_meanwhile_make_no_noise(tmp_path: Path) -> None:
    """What no task has looked at, asyncio would report when it is thrown away."""
    told: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(str(context["message"])))
        async with await aio.open(tmp_path / "s", **WIDE) as store:
            consumer = await store.consumer("g", "t")
            for _ in range(3):
                waiting = asyncio.create_task(consumer.get())
                await asyncio.sleep(0)
                waiting.cancel()
                assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
            assert consumer._taking is not None
            await asyncio.wait({consumer._taking})  # it has found nothing, and nobody asks
            consumer._taking = None
            gc.collect()
            await store.put(Message("t", b"after"))
            assert (await consumer.get(30)).body == b"after"
            waiting = asyncio.create_task(consumer.get())
            await asyncio.sleep(0)
        with pytest.raises(StoreClosedError):
            await waiting
        await consumer.close()
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert told == []


def test_a_consumer_without_a_thread_is_an_error_that_leaves_no_member_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "s", **WIDE) as store:
            await store.put(Message("t", b"1"))
            await store.wait_dispatched()
            with monkeypatch.context() as patch:
                refuse_to_start(patch, "mqstore-aio-consume_0")
                with pytest.raises(StoreIOError, match="could not start thread"):
                    await store.consumer("g", "t")
            async with await store.consumer("g", "t") as consumer:
                assert (await consumer.get(30)).body == b"1"

    asyncio.run(main())
