"""A server of Spark Connect on this machine, as pyspark brings it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from mqstore.spark.java import environment
from spark.cluster import SHOWN_LOG_BYTES, START_TIMEOUT_S, STOP_TIMEOUT_S

#: What the server runs: two tasks at a time, on a port that is free, for this machine alone.
ARGUMENTS = (
    "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
    "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.connect.grpc.binding.port=0",
    "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.catalogImplementation=in-memory",
    "--conf", "spark.sql.shuffle.partitions=4",
)  # fmt: skip


class ConnectServer:
    """The server's process. :meth:`stop` ends it, with its workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> ConnectServer:
        """Start it; returns once it listens at :attr:`url`."""
        import pyspark

        home = Path(pyspark.__file__).parent
        with open(self.log, "wb") as output:
            self._process = subprocess.Popen(
                [home / "bin" / "spark-submit", *ARGUMENTS],
                cwd=self.directory,
                env={**os.environ, **environment(), "SPARK_HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            match = re.search(r"Spark Connect server started at: \S*:(\d+)\n", self.text())
            if match:
                self.url = f"sc://127.0.0.1:{match.group(1)}"
                return self
            time.sleep(0.1)
        raise RuntimeError(f"the server did not come up\n{self.text()[-SHOWN_LOG_BYTES:]}")

    def text(self) -> str:
        """What it has said."""
        return self.log.read_text("utf-8", errors="replace")

    def stop(self) -> None:
        """End it; the second time does nothing."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if self._process is None or self._process.poll() is not None:
                return
            os.killpg(self._process.pid, kind)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                continue
