"""Messages as the commands show them: the columns of the ``messages`` view, or a table of what matters most."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mqstore.cli.output import Output, body_text, time_text
from mqstore.layout.record import Record
from mqstore.layout.rows import record_row

COLUMNS = ("queue", "offset", "physical", "stored (UTC)", "tags", "keys", "body")


def message_json(record: Record, broker_name: str) -> dict[str, Any]:
    """All columns of one message; timestamps in ms, the body as bytes."""
    return {**record_row(record), "brokerName": broker_name}


def broker_name(store: Path) -> str:
    """The name that stands in the column ``brokerName``: that of the store's directory, as on Spark."""
    return Path(str(store)).resolve().name  # of a URL, without what must not be told


def print_messages(output: Output, title: str, records: Iterable[Record]) -> None:
    """A table of ``records``."""
    output.table(
        title,
        COLUMNS,
        (
            (
                f"{record.topic}/{record.queue_id}",
                record.queue_offset,
                record.physical_offset,
                time_text(record.store_timestamp_ms),
                record.tags,
                " ".join(record.keys) or None,
                body_text(record.body),
            )
            for record in records
        ),
    )
