"""What Python workers of Spark do around the work of their tasks."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from mqstore.spark.on_path import mqstore_daemon
from mqstore.spark.telling import telling

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

_DAEMON: Final = "pyspark.daemon"
_WORKERS: Final = (_DAEMON, "pyspark.worker", mqstore_daemon.__name__.rpartition(".")[2])


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
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is None or spec.name not in _WORKERS:
        return
    _settle(len(sys.modules))
    if spec.name == _DAEMON:
        mqstore_daemon.leave_in_silence(main)  # in sessions on one machine all workers do from the start


@functools.cache
def _settle(modules: int) -> None:
    """Once for each number of modules that are loaded: what new ones bring is to be taken out as well."""
    gc.collect()
    gc.freeze()
