"""The real broker store, run as a child process.

The jars come from Maven Central through the ordinary client (``mvn``), the harness in ``java/`` is compiled once; both
land in a cache outside the repository (``MQSTORE_CACHE``, else ``~/.cache/mqstore``) that later runs take as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.dumps import Dump, Questions

HERE = Path(__file__).parent

#: Release of the real store -> folder with the harness's adapter for that line.
VERSIONS = {"4.9.8": "v4", "5.5.1": "v5"}

#: 4.9 reaches into the JDK to unmap files when it shuts down.
JVM_OPTIONS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    f"-Drmq.logback.configurationFile={HERE / 'java' / 'logback-off.xml'}",
    "-Xms64m",
)
#: Start faster; not for measuring.
QUICK_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

REFUSED_EXIT_CODE = 3
RESOLVE_TIMEOUT_S = 600
RUN_TIMEOUT_S = 300


class Unavailable(Exception):
    """The real store cannot be had on this machine; the text says why."""


class Refused(Exception):
    """The real store would not load the directory."""


@dataclass(frozen=True)
class RealStore:
    """One release of the real store, ready to run."""

    version: str
    java: str
    class_path: str
    scratch: Path

    def read(
        self, directory: Path, ask: Questions | None = None, *, keep: Path | None = None, **config: object
    ) -> Dump:
        """Open a copy of the store ``directory`` with the real store and return all it says.

        ``ask`` chooses the look-ups, else a default set is asked: every key of every record, times around five
        messages of each queue. ``keep`` names a new directory for the copy, to look at it afterwards. ``config``
        takes the store's settings by RocketMQ's names. Raises :class:`Refused`.
        """
        work = _fresh(self.scratch / "read")
        copy = copy_store(directory, keep or work / "store")
        arguments = ["read", str(copy), str(work / "dump")]
        if ask is not None:
            (work / "ask").write_text("".join(f"{line}\n" for line in ask.lines), "utf-8")
            arguments.append(f"ask={work / 'ask'}")
        self._run(arguments, config)
        dump = Dump.load(work / "dump")
        shutil.rmtree(work)
        return dump

    def recover(self, directory: Path, **config: object) -> None:
        """Load ``directory`` itself, start, and shut down again. Raises :class:`Refused`."""
        self._run(["recover", str(directory)], config)

    def write(self, directory: Path, *, seed: int, count: int, crash: bool = False, **config: object) -> dict[str, Any]:
        """Put ``count`` messages of every kind into ``directory``, new or not; with ``crash`` never shut it down."""
        command = "write-crash" if crash else "write"
        return self._run([command, str(directory), str(seed), str(count)], config)

    def bench_put(
        self, directory: Path, *, count: int, body_size_bytes: int, threads: int = 1, **config: object
    ) -> dict[str, Any]:
        """Time a plain loop of ``putMessage``; see ``messagesPerSecond`` of the result."""
        arguments = ["bench-put", str(directory), str(count), str(body_size_bytes), str(threads)]
        return self._run(arguments, config, options=("-Xmx1g",))

    def _run(
        self, arguments: list[str], config: dict[str, object], options: Sequence[str] = QUICK_OPTIONS
    ) -> dict[str, Any]:
        settings = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items()
        ]
        home = f"-Duser.home={self.scratch}"
        command = [self.java, *options, *JVM_OPTIONS, home, "-cp", self.class_path, "RealStore", *arguments, *settings]
        done = _call(command, RUN_TIMEOUT_S)
        if done.returncode == REFUSED_EXIT_CODE:
            raise Refused(f"RocketMQ {self.version} would not load {arguments[1]}\n{done.stderr[-2000:]}")
        if done.returncode != 0:
            raise RuntimeError(
                f"RocketMQ {self.version}: {arguments} ended with {done.returncode}\n{done.stderr[-4000:]}"
            )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


def prepare(version: str, scratch: Path) -> RealStore:
    """The real store of ``version``; the first time this resolves its jars and compiles the harness.

    Raises :class:`Unavailable` when Java, its compiler or Maven is missing, or the jars cannot be resolved.
    """
    java, javac = find_tool("java"), find_tool("javac")
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        jars = _resolve(version, cache)
        classes = _compile(version, cache, javac, jars)
    return RealStore(version, java, os.pathsep.join([str(classes), *jars]), scratch)


def cache_directory() -> Path:
    chosen = os.environ.get("MQSTORE_CACHE")
    if chosen:
        return Path(chosen) / "interop"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqstore" / "interop"


def find_tool(name: str) -> str:
    """Full path of ``name`` from JAVA_HOME or PATH. Raises :class:`Unavailable`."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home and name != "mvn" and os.access(Path(java_home, "bin", name), os.X_OK):
        return str(Path(java_home, "bin", name))
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def copy_store(source: Path, target: Path) -> Path:
    """Copy a store directory with its modification times; holes in sparse files stay holes."""
    for folder, _, names in os.walk(source):
        into = target / os.path.relpath(folder, source)
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            _copy_file(Path(folder, name), into / name)
    return target


def _copy_file(source: Path, target: Path) -> None:
    with open(source, "rb") as reader, open(target, "wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        os.truncate(writer.fileno(), size)
        position = 0
        while position < size:
            try:
                begin = os.lseek(reader.fileno(), position, os.SEEK_DATA)
            except OSError:  # nothing but a hole up to the end
                break
            position = os.lseek(reader.fileno(), begin, os.SEEK_HOLE)
            while begin < position:
                chunk = os.pread(reader.fileno(), min(position - begin, 1 << 20), begin)
                begin += os.pwrite(writer.fileno(), chunk, begin)
    shutil.copystat(source, target)


def _resolve(version: str, cache: Path) -> list[str]:
    pom = HERE / "pom.xml"
    listing = cache / f"{version}-{_digest([pom])}.classpath"
    jars = listing.read_text().split(os.pathsep) if listing.exists() else []
    if jars and all(os.path.exists(jar) for jar in jars):
        return jars
    command = [
        find_tool("mvn"), "--batch-mode", "--quiet", "--file", str(pom), f"-Drocketmq.version={version}",
        f"-Dmdep.outputFile={listing}", "dependency:build-classpath",
    ]  # fmt: skip
    try:
        done = _call(command, RESOLVE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven did not resolve rocketmq-store {version} in {RESOLVE_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise Unavailable(f"Maven could not resolve rocketmq-store {version}: {done.stdout.strip()[-600:]}")
    return listing.read_text().split(os.pathsep)


def _compile(version: str, cache: Path, javac: str, jars: list[str]) -> Path:
    sources = [*sorted((HERE / "java").glob("*.java")), *sorted((HERE / "java" / VERSIONS[version]).glob("*.java"))]
    classes = cache / f"{version}-{_digest(sources)}.classes"
    if not classes.exists():
        work = _fresh(cache / f"{version}.compiling")
        command = [javac, "--release", "11", "-encoding", "UTF-8", "-cp", os.pathsep.join(jars), "-d", str(work)]
        done = _call([*command, *map(str, sources)], RUN_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"the harness does not compile against {version}:\n{done.stderr}")
        work.rename(classes)
    return classes


def _call(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout_s,
        check=False,
    )


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
