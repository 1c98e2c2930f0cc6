"""A piece of work in a process of its own: nothing that was done before, and no other's memory, weighs on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run_cell(module: str, task: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """What the process says that does ``task`` by ``module``; ``{"failed": why}`` if it took too long or went wrong."""
    command = [sys.executable, "-m", module, json.dumps(task)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        what = task.get("step") or task.get("work")
        return {"failed": f"{what} took more than {timeout_s:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    result: dict[str, Any] = json.loads(done.stdout)
    return result
