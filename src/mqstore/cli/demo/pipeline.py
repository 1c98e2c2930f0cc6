"""Step 3: the store as a table on Spark; exported, rebuilt from its log alone, and both compared with the original."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.cli.demo.flights import LoadResult
from mqstore.cli.demo.stage import Stage
from mqstore.cli.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class PipelineResult:
    """What Spark made: ``per_day`` counts messages by topic and day of departure (UTC)."""

    parquet: Path
    rebuilt: Path
    rows: int
    identical_files: int
    per_day: dict[str, dict[date, int]]


def run(stage: Stage, output: Path, load: LoadResult, master: str) -> PipelineResult:
    """Export ``output/flights`` to Parquet, rebuild a copy without queues and index, compare and audit."""
    from mqstore import spark as mqspark

    stage.heading("3. Spark: export, rebuild, audit")
    store, parquet, rebuilt = output / "flights", output / "parquet", output / "rebuilt"
    with ExitStack() as stack:
        with stage.progress(f"starting Spark ({master})"):
            session = stack.enter_context(spark_session("demo", master))
        mqspark.register(session)
        _export(stage, session, store, parquet)
        identical = _rebuild(stage, session, store, rebuilt)
        rows, per_day = _audit(stage, session, parquet, store, load)
    return PipelineResult(parquet, rebuilt, rows, identical, per_day)


def _export(stage: Stage, session: SparkSession, store: Path, parquet: Path) -> None:
    from mqstore.spark import jobs

    with stage.progress("exporting to Parquet"):
        result = jobs.export(session, str(store), str(parquet))
    stage.say(
        f"export: {result.rows} messages to {result.files} Parquet files in {result.seconds:.1f} s, "
        "written inside the tasks"
    )


def _rebuild(stage: Stage, session: SparkSession, store: Path, rebuilt: Path) -> int:
    """Lose the derived files of a copy, rebuild them on Spark, and compare byte for byte; the files compared."""
    from mqstore.spark import jobs

    copy = rebuilt.with_name("copy-without-queues")
    shutil.copytree(store, copy)
    for derived in ("consumequeue", "index"):
        shutil.rmtree(copy / derived)
    with stage.progress("rebuilding queues and index from the log alone"):
        result = jobs.rebuild(session, str(copy), str(rebuilt))
    shutil.rmtree(copy)
    queues = _compare(store / "consumequeue", rebuilt / "consumequeue")
    index = _compare(store / "index", rebuilt / "index")
    stage.say(
        f"rebuild: {result.units} queue units and {result.keys} index entries in {result.seconds:.1f} s; "
        f"{queues} queue files and {index} index files are the same, byte for byte, as those written live"
    )
    return queues + index


def _compare(left: Path, right: Path) -> int:
    """Number of files that are the same below both directories.

    Raises:
        DamageError: one is missing or differs.
    """
    names = sorted(path.relative_to(left) for path in left.rglob("*") if path.is_file())
    others = sorted(path.relative_to(right) for path in right.rglob("*") if path.is_file())
    for name, other in zip(names, others, strict=False):
        if name != other or not _same_content(left / name, right / name):
            raise errors.DamageError("a rebuilt file differs", path=right / other, expected=f"as {left / name}")
    if len(names) != len(others):
        raise errors.DamageError("files are missing", path=right, expected=f"{len(names)} files", found=len(others))
    return len(names)


def _same_content(left: Path, right: Path) -> bool:
    with left.open("rb") as a, right.open("rb") as b:
        while True:
            one, other = a.read(1 << 20), b.read(1 << 20)
            if one != other:
                return False
            if not one:
                return True


def _audit(
    stage: Stage, session: SparkSession, parquet: Path, store: Path, load: LoadResult
) -> tuple[int, dict[str, dict[date, int]]]:
    """Count what is in the Parquet files and in the store's queues, topic by topic, and hold both to what was put."""
    with stage.progress("auditing counts"):
        exported = session.read.parquet(str(parquet))
        counts = (
            exported.selectExpr("topic", "cast(bornTimestamp as date) as day").groupBy("topic", "day").count().collect()
        )
        queues = session.read.format("rocketmq").option("view", "queues").load(str(store))
        units = {row["topic"]: row["count"] for row in queues.groupBy("topic").count().collect()}
    per_day: dict[str, dict[date, int]] = {}
    for row in counts:
        per_day.setdefault(row["topic"], {})[row["day"]] = row["count"]
    rows = {topic: sum(days.values()) for topic, days in per_day.items()}
    stage.table(
        "audit", ("topic", "put", "Parquet rows", "queue units"),
        ((topic, put, rows.get(topic), units.get(topic)) for topic, put in sorted(load.per_topic.items())),
    )  # fmt: skip
    if not rows == units == load.per_topic:
        raise errors.DamageError("the counts differ", path=parquet, expected=load.per_topic, found=rows)
    return sum(rows.values()), per_day
