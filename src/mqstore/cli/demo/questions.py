"""Step 4: what a person would ask the store."""

from __future__ import annotations

import json
from pathlib import Path

import mqstore
from mqstore import StoreView
from mqstore.cli.demo.flights import GROUP, LoadResult
from mqstore.cli.demo.stage import Stage
from mqstore.cli.output import time_text
from mqstore.layout.record import Record

_SHOWN = 5


def ask(stage: Stage, store: Path, load: LoadResult) -> None:
    """Ask by key, by tag, by time, and for the lag; show the answers as tables."""
    stage.heading("4. Questions")
    with mqstore.inspect(store) as view:
        _by_key(stage, view, load)
        _by_tag(stage, view, load)
        _by_time(stage, view, load)
        _lag(stage, view)


def _by_key(stage: Stage, view: StoreView, load: LoadResult) -> None:
    result = view.query(load.sample_topic, load.sample_plane, max_messages=_SHOWN)
    title = f"key: the last flights of plane {load.sample_plane} in {load.sample_topic}"
    _flights(stage, title, result.messages)


def _by_tag(stage: Stage, view: StoreView, load: LoadResult) -> None:
    result = view.get(load.sample_topic, 0, 0, _SHOWN, where="JFK")
    _flights(stage, f"tag: the first flights of {load.sample_topic}/0 from JFK", result.messages)


def _by_time(stage: Stage, view: StoreView, load: LoadResult) -> None:
    middle_ms = (load.begin_ms + load.end_ms) // 2
    rows = []
    for queue in view.queues(load.sample_topic):
        offset = view.offset_at(queue.topic, queue.queue_id, middle_ms)
        rows.append((f"{queue.topic}/{queue.queue_id}", queue.min_offset, offset, queue.max_offset))
    title = f"time: where each queue was at {time_text(middle_ms)} UTC, half-way through the load"
    stage.table(title, ("queue", "first", "then", "end"), rows)


def _lag(stage: Stage, view: StoreView) -> None:
    lags: dict[str, tuple[int, int]] = {}
    for row in view.progress():
        consumed, lag = lags.get(row.topic, (0, 0))
        lags[row.topic] = (consumed + row.consumer_offset, lag + (row.lag or 0))
    rows = [(topic, consumed, lag) for topic, (consumed, lag) in sorted(lags.items(), key=lambda one: -one[1][1])]
    stage.table(f"lag: what group {GROUP} has still to read", ("topic", "consumed", "lag"), rows[:_SHOWN])


def _flights(stage: Stage, title: str, records: list[Record]) -> None:
    rows = []
    for record in records:
        flight = json.loads(record.body)
        route = f"{flight['origin']} to {flight['dest']}"
        rows.append((time_text(record.born_timestamp_ms)[:16], " ".join(record.keys), route, flight["dep_delay"]))
    stage.table(title, ("scheduled (UTC)", "plane and flight", "route", "minutes late"), rows)
