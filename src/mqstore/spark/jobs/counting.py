"""What is in stores: topics, days, hours, tags, sizes and producers' hosts, counted inside the tasks."""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from mqstore import errors
from mqstore.findings import Finding
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.outputs import check_page
from mqstore.spark.jobs.report import HOUR_MS, write_stats
from mqstore.spark.named import stores_to_read
from mqstore.spark.options import ReadOptions, Source
from mqstore.spark.stores import StoreRef
from mqstore.spark.tasks import Progress, run_tasks
from mqstore.store.overlooked import log_overlooked
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqstore.spark.pieces import Piece

KeyT = TypeVar("KeyT")

OTHERS: Final = "(others)"
_COLUMNS: Final = ("topic", "tags", "storeSize", "storeTimestamp", "bornHost")
_MOST_NAMES: Final = 10_000


class TopicCount(NamedTuple):
    """A topic: its messages, their bytes in the log, when the first and the last of them were stored (ms)."""

    topic: str
    messages: int
    bytes: int
    first_ms: int
    last_ms: int


class TimeCount(NamedTuple):
    """What was stored of a topic in the hour that begins at ``begin_ms``."""

    topic: str
    begin_ms: int
    messages: int
    bytes: int


class NameCount(NamedTuple):
    """How many messages have a tag (None without one) and are of a topic, or come from a host."""

    topic: str | None
    name: str | None
    messages: int


@dataclass(frozen=True)
class StatsResult:
    """What was counted.

    Attributes:
        messages, bytes: in all; bytes are those of records in the log.
        topics: by topic, most messages first.
        hours: by topic and hour (UTC) of storing, in order of time.
        tags: by topic and tag, most messages first; beyond 10,000 in a task, rare ones are counted as ``(others)``.
        hosts: by producer's address, most messages first; with the same limit.
        sizes: messages whose record has up to so many bytes, a power of two, and more than half of that.
        seconds: how long it took, without the report.
        stage_seconds: the same by stage: plan, count.
        report: the page that was written.
        warnings: what could not be looked at, so that there may be more: files of the log, and its end.
    """

    messages: int
    bytes: int
    topics: list[TopicCount]
    hours: list[TimeCount]
    tags: list[NameCount]
    hosts: list[NameCount]
    sizes: list[tuple[int, int]]
    seconds: float
    report: Path | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[Finding] = field(default_factory=list)

    @property
    def days(self) -> list[tuple[str, int, int]]:
        """(date, messages, bytes) of every day (UTC) on which something was stored."""
        found: dict[str, list[int]] = {}
        for one in self.hours:
            total = found.setdefault(time.strftime("%Y-%m-%d", time.gmtime(one.begin_ms / 1000)), [0, 0])
            total[0] += one.messages
            total[1] += one.bytes
        return [(day, *total) for day, total in sorted(found.items())]  # type: ignore[misc]

    @property
    def peak_per_second(self) -> float:
        """Messages a second in the busiest hour."""
        totals: Counter[int] = Counter()
        for one in self.hours:
            totals[one.begin_ms] += one.messages
        return max(totals.values(), default=0) * 1000 / HOUR_MS


@dataclass
class _Counts:
    """Sums of one task. Keys are small; what has too many different ones is cut."""

    hours: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """By topic and hour: as :func:`_add` has it."""
    tags: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)

    def add(self, other: _Counts) -> None:
        for key, sums in other.hours.items():
            _add(self.hours, key, *sums)
        self.tags.update(other.tags)
        self.hosts.update(other.hosts)
        self.sizes.update(other.sizes)


def _add(sums: dict[KeyT, list[int]], key: KeyT, messages: int, size_bytes: int, first_ms: int, last_ms: int) -> None:
    """Add to the sums of ``key``: messages, their bytes, when the first and the last of them were stored."""
    known = sums.setdefault(key, [0, 0, first_ms, last_ms])
    known[:] = known[0] + messages, known[1] + size_bytes, min(known[2], first_ms), max(known[3], last_ms)


def stats(
    spark: SparkSession,
    source: Source,
    *,
    report: str | os.PathLike[str] | None = None,
    options: Mapping[str, object] | None = None,
    on_progress: Progress | None = None,
) -> StatsResult:
    """Count the messages of ``source``, and write a page about them if asked to.

    Args:
        spark: the session; its workers must see ``source``.
        source: a store, a glob or a URL, or several.
        report: file for a page in HTML with tables and pictures; pictures need matplotlib.
        options: options of the source ``rocketmq`` that choose messages, such as ``{"startingTimestamp": "0"}``,
            but for ``path``, ``columns`` and ``pushFilters``.
        on_progress: called with (tasks done, tasks in all).

    Raises:
        UsageError: an option that cannot be meant; ``report`` lies in a store.
        MqstoreError: what reading the stores raises.
    """
    from mqstore.spark.messages import MessagesView

    clock = Clock()
    parsed = ReadOptions.of(source, options, None)
    if parsed.view != "messages" or parsed.columns is not None:
        raise errors.UsageError("only messages are counted, and by columns that are fixed", hint="no view, no columns")
    stores = stores_to_read(parsed)
    page = check_page(report, stores)
    parts = MessagesView(stores, parsed, _COLUMNS).plan()
    warnings = [finding for store in stores for finding in _overlooked(store, parts)]
    clock.note("plan")
    total = _Counts()
    for one in run_tasks(spark, functools.partial(_count_part, parsed), parts, on_progress):
        total.add(one)
    clock.note("count")
    result = replace(_result(total, clock, page), warnings=warnings)
    if page is not None:
        write_stats(result, parsed.paths, page)
    return result


def _overlooked(store: StoreRef, parts: Sequence[Sequence[Piece]]) -> list[Finding]:
    """What of a store's log cannot be looked at, which a read passes over without an error."""
    from mqstore.spark.log_end import readable_end
    from mqstore.spark.splits import Split

    ends = [piece.end for part in parts for piece in part if isinstance(piece, Split) and piece.store == store]
    with StoreView(store.path) as view:
        # Behind damage sound records are read, or the damage is an error. Where they end the plan knows already.
        view.log.trust_to(max(ends) if ends else readable_end(view.log))
        return log_overlooked(view, beginnings=False)


def _count_part(options: ReadOptions, part: list[Piece]) -> _Counts:
    """Runs in a task."""
    from mqstore.spark.messages import MessagesView

    counts = _Counts()
    for batch in MessagesView([], options, _COLUMNS).read(part):
        _count_batch(counts, batch)
        for names in (counts.tags, counts.hosts):
            if len(names) > 2 * _MOST_NAMES:
                _cut(names)
    return counts


def _count_batch(counts: _Counts, batch: Any) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    stored_ms = pc.divide(batch["storeTimestamp"].cast(pa.int64()), 1000)
    hours = pc.subtract(stored_ms, pa.array(stored_ms.to_numpy() % HOUR_MS))
    table = pa.table({"topic": batch["topic"], "hour": hours, "size": batch["storeSize"], "stored": stored_ms,
                      "tags": batch["tags"], "host": batch["bornHost"]})  # fmt: skip
    sums = table.group_by(["topic", "hour"]).aggregate(
        [("size", "count"), ("size", "sum"), ("stored", "min"), ("stored", "max")]
    )
    for row in sums.to_pylist():
        key = (row["topic"], row["hour"])
        _add(counts.hours, key, row["size_count"], row["size_sum"], row["stored_min"], row["stored_max"])
    for row in table.group_by(["topic", "tags"]).aggregate([("size", "count")]).to_pylist():
        counts.tags[row["topic"], row["tags"]] += row["size_count"]
    for row in table.group_by("host").aggregate([("size", "count")]).to_pylist():
        counts.hosts[row["host"].rpartition(":")[0]] += row["size_count"]
    powers, numbers = np.unique(np.ceil(np.log2(batch["storeSize"].to_numpy())).astype(int), return_counts=True)
    for power, number in zip(powers.tolist(), numbers.tolist(), strict=True):
        counts.sizes[1 << power] += number


def _cut(names: Counter[Any]) -> None:
    """Keep the most frequent; the others of a topic as one."""
    rare = names.most_common()[_MOST_NAMES:]
    for key, number in rare:
        del names[key]
        names[(key[0], OTHERS) if isinstance(key, tuple) else OTHERS] += number


def _result(total: _Counts, clock: Clock, report: Path | None) -> StatsResult:
    topics: dict[str, list[int]] = {}
    for (topic, _), sums in total.hours.items():
        _add(topics, topic, *sums)
    hours = [TimeCount(topic, hour, *sums[:2]) for (topic, hour), sums in total.hours.items()]
    return StatsResult(
        sum(one.messages for one in hours),
        sum(one.bytes for one in hours),
        sorted(
            (TopicCount(topic, *sums) for topic, sums in topics.items()), key=lambda one: (-one.messages, one.topic)
        ),
        sorted(hours, key=lambda one: (one.begin_ms, one.topic)),
        [NameCount(topic, tag, number) for (topic, tag), number in total.tags.most_common()],
        [NameCount(None, host, number) for host, number in total.hosts.most_common()],
        sorted(total.sizes.items()),
        clock.seconds,
        report,
        clock.stages,
    )
