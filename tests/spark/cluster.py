"""A real Spark cluster on this machine: one standalone master and two worker processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from mqstore.spark.java import environment

START_TIMEOUT_S = 120
RUN_TIMEOUT_S = 840
STOP_TIMEOUT_S = 15
SHOWN_LOG_BYTES = 4000

#: What a worker offers and an executor takes: one core and little memory each, so that each worker runs one.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": 1,
    "spark.executor.memory": "900m",
}

PRELUDE = """\
import mqstore.spark
spark = mqstore.spark.session({url!r}, **{conf!r})
"""


class Cluster:
    """Processes, logs and scratch space of the cluster. :meth:`stop` ends all of it, started whole or in part."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Cluster:
        """Start the master, then both workers; returns once they know each other."""
        # Port 0 lets each choose a free one; the master writes its choice into its log.
        self._spawn("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._wait_for("master", r"Starting Spark master at (spark://[\d.]+:\d+)")
        # Two names of one address: Spark starts a second copy of a task only on another host.
        for name, host in (("worker-1", "127.0.0.1"), ("worker-2", "localhost")):
            self._spawn(
                name, "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(self.directory / name), self.url,
            )  # fmt: skip
        for name in ("worker-1", "worker-2"):
            self._wait_for(name, r"(Successfully registered) with master")
        return self

    def run(self, source: str, **conf: object) -> str:
        """Run Python ``source`` in a process of its own, where ``spark`` is a session on this cluster.

        Returns what it printed. A process of its own, because one process has one Spark.
        """
        prelude = PRELUDE.format(url=self.url, conf={**CONF, **conf})
        done = subprocess.run(
            [sys.executable, "-c", prelude + textwrap.dedent(source) + "\nspark.stop()\n"],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"the job ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def stop(self) -> None:
        """End all processes, with their children; the second time does nothing."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self._processes):
                if process.poll() is None:
                    os.killpg(process.pid, kind)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for process in self._processes:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue

    def logs(self) -> list[tuple[str, str]]:
        """Title and end of every log: of the master, the workers, and the executors that they started."""
        found = sorted(self.directory.glob("*.log")) + sorted(self.directory.glob("worker-*/*/*/stderr"))
        return [(str(path.relative_to(self.directory)), self._tail(path)) for path in found]

    def _spawn(self, name: str, main: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self.directory / f"{name}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", *arguments],
                cwd=self.directory,
                env={**os.environ, **environment(), "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait_for(self, name: str, pattern: str) -> str:
        log = self.directory / f"{name}.log"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and all(process.poll() is None for process in self._processes):
            match = re.search(pattern, log.read_text("utf-8", errors="replace"))
            if match:
                return match.group(1)
            time.sleep(0.1)
        raise RuntimeError(f"{name} did not come up\n{self._tail(log)}")

    @staticmethod
    def _tail(path: Path) -> str:
        return path.read_bytes()[-SHOWN_LOG_BYTES:].decode("utf-8", errors="replace")
