"""The process of Spark that forks the Python workers of one machine: pyspark's own, whose workers go in silence.

Spark begins it as ``python -m mqstore_daemon pyspark.worker`` (``spark.python.daemon.module``).
"""

from __future__ import annotations

import functools
import os
import signal
import socket
from types import ModuleType


@functools.cache
def leave_in_silence(daemon: ModuleType) -> None:
    """Have the workers of ``daemon``, which is ``pyspark.daemon`` under whatever name, go when they are told to.

    Spark tells a worker to go by closing its socket: after a minute without work, or when it stops. pyspark's worker
    takes that for a task that it cannot read, and where the socket is a Unix socket prints that it cannot say so. It is
    done once, however often it is asked for.
    """
    work = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # as pyspark's does later: those of the daemon end it
        try:
            is_used = sock.recv(1, socket.MSG_PEEK)  # waits for the next task, and leaves it where it is
        except OSError:
            is_used = b""
        if not is_used:
            os._exit(0)
        return int(work(sock, authenticated))

    daemon.worker = worker  # type: ignore[attr-defined]


if __name__ == "__main__":
    import pyspark.daemon

    leave_in_silence(pyspark.daemon)
    pyspark.daemon.manager()
