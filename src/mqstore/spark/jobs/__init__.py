"""Bulk jobs on Spark: the work is done inside the tasks, and only small summaries come back (docs/spark.md)."""

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
