"""``mqstore stats``: what is in a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mqstore.cli.options import FormatOption, FromLogOption, OptionalMasterOption, ReportOption, StorePath
from mqstore.cli.output import Format, Output, make_output, size_text, step_bar, time_text, to_json
from mqstore.cli.spark_session import check_report, spark_session
from mqstore.errors import DamageError, UsageError
from mqstore.findings import Finding, Severity
from mqstore.layout.checkpoint import Checkpoint
from mqstore.store.message import QueueInfo
from mqstore.store.settings import GroupProgress
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from mqstore.spark.jobs import StatsResult

_MOST_ROWS = 30


class _Summary(NamedTuple):
    """What a store says of itself. ``index_files`` and ``index_keys`` are None when the log alone was read."""

    commit_log_min_offset: int
    commit_log_max_offset: int
    commit_log_files: int
    commit_log_file_size: int
    index_files: int | None
    index_keys: int | None
    running: bool
    checkpoint: Checkpoint
    topics: list[TopicTotal]
    queues: list[QueueInfo]
    progress: list[GroupProgress]
    warnings: list[Finding]


class TopicTotal(NamedTuple):
    """A topic, how many queues it has, and the messages in them."""

    topic: str
    queues: int
    messages: int


def run(
    store: StorePath,
    from_log: FromLogOption = False,
    report: ReportOption = None,
    master: OptionalMasterOption = None,
    format: FormatOption = Format.text,
) -> int:
    """Print the topics, the range of the log, the files and the progress of consumer groups.

    With --master or --report every message is looked at, by Spark: days, hours, tags, sizes and producers' hosts are
    counted as well.
    """
    on_spark = master is not None or report is not None
    if from_log and on_spark:
        raise UsageError("Spark counts what is in the log in any case", hint="leave out --from-log")
    output = make_output(format)
    if on_spark:
        check_report(report, store)
        summary, warnings = _summary_if_possible(store)
        result = _count(store, report, master or "local[2]")
        _tell_counts(result, output)
        warnings += [one for one in result.warnings if one not in warnings]
        counted = {name: value for name, value in _counts(result).items() if name != "warnings"}
        output.document(summary | {"warnings": warnings, "counted": counted}, _lines_of_counts(result))
    else:
        found = _summary(store, from_log)
        warnings = found.warnings
        _tell_summary(found, output)
        output.document(found, _lines_of_summary(found))
    output.warnings(warnings)
    return 0


def topic_totals(queues: Iterable[QueueInfo]) -> list[TopicTotal]:
    """Each topic with its queues and the messages in them, in order of the topics."""
    totals: dict[str, list[int]] = {}
    for queue in queues:
        total = totals.setdefault(queue.topic, [0, 0])
        total[0] += 1
        total[1] += queue.count
    return [TopicTotal(topic, *total) for topic, total in sorted(totals.items())]


def _summary(store: Path, from_log: bool) -> _Summary:
    with StoreView(store, from_log=from_log) as view:
        queues = view.queues()
        inventory = view.log.inventory
        index_keys = None if from_log else [file.header.index_count - 1 for file in view.index_files()]
        return _Summary(
            commit_log_min_offset=view.min_physical_offset,
            commit_log_max_offset=view.log_end,
            commit_log_files=len(inventory.entries),
            commit_log_file_size=inventory.size_bytes,
            index_files=None if index_keys is None else len(index_keys),
            index_keys=None if index_keys is None else sum(index_keys),
            running=view.was_aborted,
            checkpoint=view.checkpoint,
            topics=topic_totals(queues),
            queues=queues,
            progress=view.progress(),
            warnings=view.overlooked(),
        )


def _summary_if_possible(store: Path) -> tuple[dict[str, Any], list[Finding]]:
    """The summary as JSON has it, and warnings; none of it where derived files are damaged: the log can be counted."""
    try:
        found = _summary(store, from_log=False)
    except DamageError as error:
        repair = error.hint or "mqstore check lists all damage"
        place = error.path or str(store)
        return {}, [
            Finding(Severity.ERROR, "store", place, error.offset, error.message, error.expected, error.found, repair)
        ]
    return to_json(found), list(found.warnings)


def _tell_summary(summary: _Summary, output: Output) -> None:
    output.table("topics", ("topic", "queues", "messages"), summary.topics)
    if summary.progress:
        rows = [(p.group, p.topic, p.queue_id, p.consumer_offset, p.max_offset, p.lag) for p in summary.progress]
        output.table("consumer groups", ("group", "topic", "queue", "offset", "end", "lag"), rows)


def _lines_of_summary(summary: _Summary) -> list[str]:
    begin, end = summary.commit_log_min_offset, summary.commit_log_max_offset
    is_known = summary.index_files is not None
    files = f"{summary.commit_log_files} files of {size_text(summary.commit_log_file_size)}"
    return [
        f"commit log: offsets {begin} to {end} ({size_text(end - begin)}) in {files}",
        f"index: {summary.index_keys} keys in {summary.index_files} files" if is_known else "index: not looked at",
        f"checkpoint: {time_text(summary.checkpoint.physic_msg_timestamp_ms)} UTC",
        f"state: {'running, or ended without a clean close' if summary.running else 'closed'}",
    ]


def _count(store: Path, report: Path | None, master: str) -> StatsResult:
    from mqstore.spark import jobs

    with spark_session("stats", master) as session, step_bar("counting") as on_progress:
        return jobs.stats(session, store.absolute(), report=report, on_progress=on_progress)


def _tell_counts(result: StatsResult, output: Output) -> None:
    topics = [(*one[:3], time_text(one.first_ms), time_text(one.last_ms)) for one in result.topics]
    output.table("topics", ("topic", "messages", "bytes", "first stored", "last stored"), topics)
    output.table("days", ("day", "messages", "bytes"), result.days)
    output.table("sizes", ("up to bytes", "messages"), result.sizes)
    output.table("tags", ("topic", "tag", "messages"), result.tags[:_MOST_ROWS])
    output.table("hosts", ("host", "messages"), [(one.name, one.messages) for one in result.hosts[:_MOST_ROWS]])


def _lines_of_counts(result: StatsResult) -> list[str]:
    rate = f"at most {result.peak_per_second:.1f} a second over an hour"
    lines = [f"{result.messages} messages ({size_text(result.bytes)}), {rate}; counted in {result.seconds:.1f} s"]
    return lines if result.report is None else [*lines, f"report: {result.report}"]


def _counts(result: StatsResult) -> dict[str, Any]:
    counts: dict[str, Any] = to_json(result)
    return counts | {
        "peakPerSecond": result.peak_per_second,
        "days": [{"day": day, "messages": count, "bytes": size} for day, count, size in result.days],
        "hosts": [{"host": one.name, "messages": one.messages} for one in result.hosts],
        "tags": [{"topic": one.topic, "tag": one.name, "messages": one.messages} for one in result.tags],
        "sizes": [{"upToBytes": size, "messages": count} for size, count in result.sizes],
    }
