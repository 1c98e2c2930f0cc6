"""The real broker store, run as a child process."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop import jvm
from interop.dumps import Dump, Questions, differences
from interop.jvm import HERE, QUICK_OPTIONS

#: Release of the real store -> folder with the harness's adapter for that line.
VERSIONS = {"4.9.8": "v4", "5.5.1": "v5"}

#: 4.9 reaches into the JDK to unmap files when it shuts down.
JVM_OPTIONS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    f"-Drmq.logback.configurationFile={HERE / 'java' / 'logback-off.xml'}",
    "-Xms64m",
)
REFUSED_EXIT_CODE = 3
BENCH_OPTIONS = ("-Xmx1g",)


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
        work = jvm.fresh(self.scratch / "read")
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

    def bench(self, directory: Path, work: str, options: Mapping[str, object], **config: object) -> dict[str, Any]:
        """Time ``work`` ("put", "get", "query" or "open_store") on ``directory``, as Bench.java does it.

        ``options`` are those of mqstore.bench.store_work, and ``warm``: so many untimed puts come before. The figures
        have the same names as there; ``failed`` is how many messages were not put or found.
        """
        arguments = ["bench", str(directory), work, *(f"bench.{name}={value}" for name, value in options.items())]
        return self._run(arguments, config, options=BENCH_OPTIONS)

    def _run(
        self, arguments: list[str], config: dict[str, object], options: Sequence[str] = QUICK_OPTIONS
    ) -> dict[str, Any]:
        settings = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items()
        ]
        home = f"-Duser.home={self.scratch}"
        command = [self.java, *options, *JVM_OPTIONS, home, "-cp", self.class_path, "RealStore", *arguments, *settings]
        done = jvm.call(command)
        if done.returncode == REFUSED_EXIT_CODE:
            raise Refused(f"RocketMQ {self.version} would not load {arguments[1]}\n{done.stderr[-2000:]}")
        if done.returncode != 0:
            raise RuntimeError(
                f"RocketMQ {self.version}: {arguments} ended with {done.returncode}\n{done.stderr[-4000:]}"
            )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


def prepare(version: str, scratch: Path) -> RealStore:
    """The real store of ``version``, as :func:`interop.jvm.prepare` finds or makes it. Raises ``jvm.Unavailable``."""
    java = HERE / "java"
    sources = (*sorted(java.glob("*.java")), *sorted((java / VERSIONS[version]).glob("*.java")))
    return RealStore(
        version,
        *jvm.prepare(jvm.Project("rocketmq-store", HERE / "pom.xml", "rocketmq.version", version, sources)),
        scratch,
    )


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


def crash_differences(real_store: RealStore, real: Dump, ours: Dump, ignore: Iterable[str]) -> list[str]:
    """What differs after a crash, either way, but for a fault of 4.9.8, which loads its delay levels after recovery.

    Where it had not dispatched a delayed message before the crash, all of its units get the hash of its tags for the
    time at which it is due; how many those are, the machine's speed decides.
    """
    both = [
        *differences(ours, real, ignore=ignore, limit=10_000),
        *differences(real, ours, ignore=ignore, limit=10_000),
    ]
    return [line for line in both if not (real_store.version == "4.9.8" and is_late_delay_level(line))]


def is_late_delay_level(line: str) -> bool:
    """Whether a difference is about the tags codes of a delayed message only."""
    if "tagsCode" not in line:
        return False
    return "SCHEDULE_TOPIC_XXXX" in line or re.search(r"^unit .*tagsCode.*\b1\d{12}\b", line) is not None
