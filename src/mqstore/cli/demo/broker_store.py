"""Step 1: a small store as a real RocketMQ broker left it."""

from __future__ import annotations

import tarfile
from importlib import resources
from pathlib import Path

from mqstore.cli.demo.stage import Stage
from mqstore.cli.output import body_text, time_text
from mqstore.cli.stats import topic_totals
from mqstore.findings import Finding
from mqstore.store.check import check_store
from mqstore.store.view import StoreView

ARCHIVE = "broker-store.tar.xz"


def show(stage: Stage, target: Path) -> int:
    """Unpack the broker's store to ``target`` and show what is in it; the number of its messages."""
    stage.heading("1. A store that a RocketMQ 4.9.8 broker wrote")
    unpack(target)
    findings: list[Finding] = []
    with StoreView(target) as view:
        stage.table("topics", ("topic", "queues", "messages"), topic_totals(view.queues()))
        records = list(view.scan())
        newest = [
            (r.topic, r.queue_id, r.queue_offset, time_text(r.store_timestamp_ms), r.tags, body_text(r.body, 24))
            for r in records[-5:]
        ]
        stage.table("newest messages", ("topic", "queue", "offset", "stored (UTC)", "tags", "body"), newest)
        progress = [(p.group, p.topic, p.queue_id, p.consumer_offset, p.max_offset, p.lag) for p in view.progress()]
        stage.table("consumer groups", ("group", "topic", "queue", "offset", "end", "lag"), progress)
        summary = check_store(view, findings.append)
    stage.say(f"check: {summary.findings} findings in {summary.records} records and {summary.units} queue units")
    return len(records)


def unpack(target: Path) -> None:
    """Put the broker's store at ``target``."""
    archive = resources.files("mqstore.cli.demo").joinpath(ARCHIVE)
    with archive.open("rb") as stream, tarfile.open(fileobj=stream) as tar:
        for member in tar.getmembers():
            path = target / Path(member.name).relative_to("store")
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif (data := tar.extractfile(member)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data.read())
