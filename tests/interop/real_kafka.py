"""Kafka's own log classes, run as a child process on a data directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop import jvm
from interop.jvm import HERE
from interop.real_store import copy_store

#: Release -> folder with the harness's adapter for that line. 3.9 is the last that still reads magic 0 and 1.
VERSIONS = {"3.9.2": "v3", "4.3.0": "v4"}


@dataclass(frozen=True)
class RealKafka:
    """One release of Kafka's log, ready to run."""

    version: str
    java: str
    class_path: str
    scratch: Path

    @property
    def reads_legacy(self) -> bool:
        """Whether it still opens logs with message sets of magic 0 and 1."""
        return self.version.startswith("3.")

    def read(self, directory: Path, *, keep: Path | None = None, **config: object) -> list[dict[str, Any]]:
        """Load a copy of the data directory ``directory`` as a broker would and return all its log says.

        One object for each log, segment, batch, record, look-up and producer snapshot, told apart by ``kind``.
        ``keep`` names a new directory for the copy, to look at it afterwards: it was closed cleanly. ``config`` takes
        a topic's settings by Kafka's names with ``_`` for ``.``.
        """
        work = jvm.fresh(self.scratch / "read")
        copy = copy_store(directory, keep or work / "data")
        out = work / "dump.jsonl"
        self._run(["read", str(copy), str(out)], config)
        with open(out, encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        shutil.rmtree(work)
        return found

    def recover(self, directory: Path, **config: object) -> dict[str, Any]:
        """Load ``directory`` itself and close it again; the result tells each partition's log end offset."""
        return self._run(["recover", str(directory)], config)

    def write(self, directory: Path, *, seed: int, count: int, crash: bool = False, **config: object) -> dict[str, Any]:
        """Append about ``count`` records of every kind to ``directory``, new or not; with ``crash`` never close it."""
        return self._run(["write-crash" if crash else "write", str(directory), str(seed), str(count)], config)

    def internal_topics(self) -> list[dict[str, Any]]:
        """Keys and values of the broker's own topics in every version, with what they say; 3.x only."""
        records: list[dict[str, Any]] = self._run(["internal-topics"], {})["records"]
        return records

    def dump(self, files: Iterable[Path]) -> tuple[str, list[str]]:
        """What Kafka's dump tool prints of ``files``, and the lines in which it finds fault with them."""
        said = self._run(["dump", *map(str, files)], {})
        marks = ["mismatch", "out of order", "corrupt", "invalid", "isvalid: false", "exception"]
        if self.reads_legacy:
            # 4.3 says so of the first batch of every segment that does not begin at offset 0.
            marks.append("non-consecutive")
        lines = [*said["output"].splitlines(), *said["complaints"].splitlines()]
        return said["output"], [line for line in lines if any(mark in line.lower() for mark in marks)]

    def _run(self, arguments: list[str], config: dict[str, object]) -> dict[str, Any]:
        if "segment_bytes" in config and not self.reads_legacy:
            # 4.x asks users for 1 MiB at least; its own tests go below that by another name.
            config = {**config, "internal_segment_bytes": config["segment_bytes"]}
            del config["segment_bytes"]
        settings = [
            f"{name.replace('_', '.')}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in config.items()
        ]
        command = [self.java, *jvm.QUICK_OPTIONS, "-cp", self.class_path, "RealKafka", *arguments, *settings]
        done = jvm.call(command)
        if done.returncode != 0:
            raise RuntimeError(f"Kafka {self.version}: {arguments} ended with {done.returncode}\n{done.stderr[-4000:]}")
        result: dict[str, Any] = json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])
        return result


def prepare(version: str, scratch: Path) -> RealKafka:
    """Kafka's log of ``version``, as :func:`interop.jvm.prepare` finds or makes it. Raises ``jvm.Unavailable``."""
    java = HERE / "java"
    sources = (
        java / "Json.java",
        *sorted((java / "kafka").glob("*.java")),
        *sorted((java / "kafka" / VERSIONS[version]).glob("*.java")),
    )
    project = jvm.Project("Kafka", HERE / "kafka-pom.xml", "kafka.version", version, sources, release=17)
    return RealKafka(version, *jvm.prepare(project), scratch)
