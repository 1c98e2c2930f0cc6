"""Sessions of Spark whose settings fit stores."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.spark.connect import remote_session
from mqstore.spark.installed import SparkUnavailableError, require_pyspark
from mqstore.spark.java import environment
from mqstore.spark.on_path import mqstore_daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATH_LOCK = threading.Lock()
_DAEMON = Path(mqstore_daemon.__file__)

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Arrow looks at bounds for every value that Spark takes out of a batch, a tenth of the time of reading rows. Spark
# takes none outside of a batch, and what Python workers send comes from pyarrow, whose batches are sound.
_TRUST_ARROW = ("arrow.enable_unsafe_memory_access", "true")


def session(master: str = "local[2]", app_name: str = "mqstore", **conf: object) -> SparkSession:
    """A Spark session whose settings fit stores: UTC times, Arrow transfer, no web page, quiet, nothing left in the
    working directory.

    Args:
        master: where to run: ``local[N]`` in this process on N cores, the URL of a cluster, or ``sc://host:port`` of
            a server of Spark Connect, which makes the formats known to it.
        app_name: the name that Spark shows.
        conf: further Spark settings, which win over ours, as ``**{"spark.sql.shuffle.partitions": 4}``.

    A session that this process already has is returned, with the settings that can still be changed.

    Sets ``JAVA_HOME`` and, where they are missing, ``PYSPARK_PYTHON`` and ``SPARK_LOCAL_IP`` in the environment of
    this process, but for Spark Connect, which needs no Java here.

    Raises:
        SparkUnavailableError: pyspark, Java or what Spark Connect needs is missing; Spark does not start; no server
            answers at the URL; this process has a session of the other kind.
    """
    require_pyspark()
    given = _texts(conf)
    if master.startswith("sc://"):
        return remote_session(master, app_name, given)
    os.environ.update(environment(master))

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().master(master).appName(app_name)
    try:
        for name, value in _settings(master, given).items():
            builder = builder.config(name, value)
        with interrupts_later(), _daemon_on_path():
            return builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError, ConnectionError) as error:
        raise SparkUnavailableError(
            f"Spark did not start: {error}",
            path=os.environ["JAVA_HOME"],
            hint="what Java printed above says why; a JAVA_HOME of your own is taken if its java is 17 or newer",
        ) from error


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let an interrupt (Ctrl-C) wait until the block is over, or until somebody else takes interrupts.

    A Java that was begun and nobody has spoken to yet would stay for ever. Spark takes interrupts itself as soon as it
    is there. Where a process does not take them as Python does by itself, or ignores them, that stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


@contextmanager
def _daemon_on_path() -> Iterator[None]:
    """While Java begins: Spark's Python workers have its search path, and not that of this process."""
    with _PATH_LOCK:
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*([before] if before else []), str(_DAEMON.parent)])
        try:
            yield
        finally:
            if before is None:
                os.environ.pop("PYTHONPATH", None)
            else:
                os.environ["PYTHONPATH"] = before


def _finds_daemon() -> bool:
    """Whether the Java of this process, if it has one already, was begun by a session of ours."""
    from pyspark import SparkContext

    if SparkContext._jvm is None:
        return "PYSPARK_GATEWAY_PORT" not in os.environ  # that of spark-submit
    path = SparkContext._jvm.java.lang.System.getenv("PYTHONPATH")
    return str(_DAEMON.parent) in (path or "").split(os.pathsep)


def _settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "mqstore-warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if os.name == "posix":
        # Over TCP each task waits 40 ms, as the system holds a small packet back until the one before is acknowledged.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        if master.startswith("local") and _finds_daemon():
            settings["spark.python.daemon.module"] = _DAEMON.stem
    settings.update(given)
    _add_java_option(settings, "spark.driver.extraJavaOptions", "log4j2.configurationFile", LOG_SETTINGS.as_uri())
    for whose in ("driver", "executor"):
        _add_java_option(settings, f"spark.{whose}.extraJavaOptions", *_TRUST_ARROW)
    return settings


def _add_java_option(settings: dict[str, str], name: str, option: str, value: str) -> None:
    """Behind those that are given, unless it is among them."""
    given = settings.get(name, "")
    if f"-D{option}=" not in given:
        settings[name] = f"{given} -D{option}={value}".strip()


def _texts(conf: Mapping[str, object]) -> dict[str, str]:
    """Settings as Spark writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in conf.items()}
