"""Real Java classes for the tests: found, resolved, compiled against, kept for the next run.

The jars come from Maven Central through the ordinary client (``mvn``), a harness is compiled once; both land in a cache
outside the repository (``MQSTORE_CACHE``, else ``~/.cache/mqstore``) that later runs take as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

#: Start faster; not for measuring.
QUICK_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

RESOLVE_TIMEOUT_S = 600
RUN_TIMEOUT_S = 300


class Unavailable(Exception):
    """The real classes cannot be had on this machine; the text says why."""


@dataclass(frozen=True)
class Project:
    """A harness: its pom, the property of the pom that chooses the release, its sources and their Java level."""

    name: str
    pom: Path
    version_property: str
    version: str
    sources: tuple[Path, ...]
    release: int = 11


def prepare(project: Project) -> tuple[str, str]:
    """The ``java`` to run and the class path; the first time this resolves the jars and compiles the harness.

    Raises :class:`Unavailable` when Java, its compiler or Maven is missing, or the jars cannot be resolved.
    """
    java, javac = find_tool("java"), find_tool("javac")
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{project.version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        jars = _resolve(project, cache)
        classes = _compile(project, cache, javac, jars)
    return java, os.pathsep.join([str(classes), *jars])


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


def call(command: list[str], timeout_s: float = RUN_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end, whatever its exit code; its output is text."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout_s,
        check=False,
    )


def fresh(directory: Path) -> Path:
    """``directory``, new and empty."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _resolve(project: Project, cache: Path) -> list[str]:
    listing = cache / f"{project.version}-{_digest([project.pom])}.classpath"
    jars = listing.read_text().split(os.pathsep) if listing.exists() else []
    if jars and all(os.path.exists(jar) for jar in jars):
        return jars
    command = [
        find_tool("mvn"), "--batch-mode", "--quiet", "--file", str(project.pom),
        f"-D{project.version_property}={project.version}",
        f"-Dmdep.outputFile={listing}", "dependency:build-classpath",
    ]  # fmt: skip
    try:
        done = call(command, RESOLVE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven did not resolve {project.name} {project.version} in {RESOLVE_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise Unavailable(f"Maven could not resolve {project.name} {project.version}: {done.stdout.strip()[-600:]}")
    return listing.read_text().split(os.pathsep)


def _compile(project: Project, cache: Path, javac: str, jars: list[str]) -> Path:
    classes = cache / f"{project.version}-{_digest(project.sources)}.classes"
    if not classes.exists():
        work = fresh(cache / f"{project.version}.compiling")
        options = ["--release", str(project.release), "-encoding", "UTF-8", "-cp", os.pathsep.join(jars)]
        done = call([javac, *options, "-d", str(work), *map(str, project.sources)])
        if done.returncode != 0:
            raise RuntimeError(f"the harness does not compile against {project.version}:\n{done.stderr}")
        work.rename(classes)
    return classes


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
