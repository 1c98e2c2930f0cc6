"""What Python workers of Spark do around the work of their tasks."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from mqstore.spark.telling import telling

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

#: The module that makes workers of Spark which go in silence, whatever runs in them.
DAEMON: Final = "mqstore.spark.daemon"

_WORKERS: Final = ("pyspark.daemon", "pyspark.worker", DAEMON)


def rows_of(partition: InputPartition, read: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """What ``read`` makes of a partition in a task of its own."""
    if partition.value is None:  # what Spark makes of an empty plan
        return
    settle()
    with telling():
        yield from read(partition.value)


def settle() -> None:
    """Make this process quick and quiet between tasks, if it is a worker of Spark.

    Spark keeps its workers and collects garbage in them behind every task. Going through all that pyspark and pyarrow
    have loaded takes 40 ms each time, as long as going through 100 MB of log: that is taken out of it, and again when
    more has been loaded.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name in _WORKERS:
        _settle(len(sys.modules))


@functools.cache
def _settle(modules: int) -> None:
    """Once for each number of modules that are loaded: what new ones bring is to be taken out as well."""
    gc.collect()
    gc.freeze()
    leave_when_idle()


def leave_when_idle() -> None:
    """Make this worker, or the workers of this daemon, go in silence when Spark has no use for them any more.

    A worker without work is told to go after a minute, or when Spark stops, by closing its socket. Where that is a Unix
    socket the worker would print that it cannot say good-bye.
    """
    if os.name == "posix" and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPIPE, _leave_if_idle)


def _leave_if_idle(*_: object) -> None:
    """Nobody reads what was written: between tasks, that is Spark's wish to have the worker gone."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        os._exit(0)
