"""Bulk jobs on Spark: the work is done inside the tasks, and only small summaries come back (docs/spark.md).

Every Python worker of Spark imports the job that its tasks belong to, so each is loaded when it is first used, and
brings in nothing of the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mqstore.spark.jobs.auditing import AuditResult, audit
    from mqstore.spark.jobs.compacting import CompactResult, compact
    from mqstore.spark.jobs.converting import convert
    from mqstore.spark.jobs.counting import StatsResult, stats
    from mqstore.spark.jobs.exporting import ExportResult, export
    from mqstore.spark.jobs.lagging import LagResult, lag
    from mqstore.spark.jobs.loading import LoadResult, load
    from mqstore.spark.jobs.rebuilding import RebuildResult, rebuild

__all__ = [
    "AuditResult",
    "CompactResult",
    "ExportResult",
    "LagResult",
    "LoadResult",
    "RebuildResult",
    "StatsResult",
    "audit",
    "compact",
    "convert",
    "export",
    "lag",
    "load",
    "rebuild",
    "stats",
]

_MODULES: Final = {
    "auditing": ("AuditResult", "audit"),
    "compacting": ("CompactResult", "compact"),
    "converting": ("convert",),
    "counting": ("StatsResult", "stats"),
    "exporting": ("ExportResult", "export"),
    "lagging": ("LagResult", "lag"),
    "loading": ("LoadResult", "load"),
    "rebuilding": ("RebuildResult", "rebuild"),
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
