"""What a report says of the machine and of its figures."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path


def machine() -> str:
    """Processor, cores and Python."""
    model = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def file_system(directory: Path | None) -> str:
    """Type of the file system that the data lies on."""
    place = os.path.realpath(directory or tempfile.gettempdir())
    try:
        with open("/proc/self/mounts", encoding="utf-8") as lines:
            mounts = [line.split()[1:3] for line in lines]
    except OSError:
        return "unknown"
    inside = [one for one in mounts if os.path.commonpath([one[0], place]) == one[0]]
    return max(inside, key=lambda one: len(one[0]))[1] if inside else "unknown"


def resident_kib() -> dict[str, int]:
    """Resident memory of this process in KiB: its own, and pages of files; empty where the system does not say."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in ("RssAnon", "RssFile"):
                found[name] = int(value.split()[0])
    return found


def spread(values: Sequence[float]) -> str:
    """Median with the extremes."""
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def number(value: float) -> str:
    """As many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
