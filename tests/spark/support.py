"""What the golden stores must give as tables, and jobs without Spark."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import mqstore
from mqstore import Message
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.stores import find_stores

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Stores with expectations for every record that is in them now.
ANSWERED = [
    "basic", "broker", "cleaned", "crashed-recovered", "crashed-bigindex-recovered", "cq-lost-recovered",
    "cq-lost-abort-recovered", "torn-flip-abort-recovered", "torn-flip-clean-recovered", "v5-basic", "v5-cleaned",
    "v5-crashed-recovered", "v5-cq-lost-recovered", "v5-cq-lost-abort-recovered",
]  # fmt: skip


def moment(timestamp_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)


def expected_messages(golden: Path, name: str, broker_name: str = "store") -> list[dict[str, Any]]:
    """The rows of the messages view, in log order, by what the real store's decoder saw.

    The properties string is not among what it saw; it is that of the record.
    """
    texts = {}
    with mqstore.inspect(golden / name / "store") as view:
        for record in view.scan():
            texts[record.physical_offset] = record.properties_string
    rows = []
    for line in (golden / name / "EXPECTED.jsonl").read_text().splitlines():
        seen = json.loads(line)
        same = ("topic", "queueId", "queueOffset", "msgId", "flag", "sysFlag", "bornHost", "storeHost",
                "reconsumeTimes", "preparedTransactionOffset", "bodyCRC", "storeSize", "properties")  # fmt: skip
        rows.append(
            {
                **{column: seen[column] for column in same},
                "physicalOffset": seen["commitLogOffset"],
                "keys": [key for key in seen["properties"].get("KEYS", "").split(" ") if key],
                "tags": seen["properties"].get("TAGS"),
                "body": base64.b64decode(seen["body"]),
                "propertiesString": texts[seen["commitLogOffset"]],
                "bornTimestamp": moment(seen["bornTimestamp"]),
                "storeTimestamp": moment(seen["storeTimestamp"]),
                "brokerName": broker_name,
            }
        )
    return rows


def flip_a_body(store: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Change a bit of the first longer body among ``rows``, those of a store's first log file; the row."""
    bad = next(row for row in rows if len(row["body"]) > 20)
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[data.index(bad["body"], bad["physicalOffset"])] ^= 1
    log.write_bytes(data)
    return bad


def fill(path: Path, bodies: list[bytes]) -> Path:
    """A store with these bodies in one queue."""
    with mqstore.open(path) as store:
        store.put_batch(
            [Message("orders", body, tags="a", keys=[f"k-{n}"], queue_id=0) for n, body in enumerate(bodies)]
        )
    return path


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table of messages, in log order, maps as dicts."""
    rows = table.to_pylist()
    for row in rows:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return sorted(rows, key=lambda row: (row.get("brokerName") or "", row["physicalOffset"]))


def read_here(path: Path, columns: Sequence[str] | None = None, **options: object) -> list[dict[str, Any]]:
    """The messages of a store read part by part in this process, each part pickled as Spark does."""
    parsed = ReadOptions.parse({"path": str(path), **{name: str(value) for name, value in options.items()}})
    view = MessagesView(find_stores(parsed), parsed, columns or list(MessagesView.schema.names))
    return [row for part in view.plan() for row in read_part(view, part)]


def read_part(view: MessagesView, part: Any) -> Iterator[dict[str, Any]]:
    table, part = pickle.loads(pickle.dumps((view, part)))
    for batch in table.read(part):
        for row in batch.to_pylist():
            yield {**row, "properties": dict(row["properties"])} if "properties" in row else row


def run_here(
    spark: object, function: Callable[[Any], Any], items: Sequence[Any], on_progress: Any = None, on_result: Any = None
) -> list[Any]:
    """Stands in for ``run_tasks``: the same in this process, everything pickled as between processes, each task twice
    as when an attempt is lost."""
    results = []
    for item in items:
        for _ in range(2):
            result = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(item)))))
        if on_result is not None:
            on_result(result)
        results.append(result)
    return results


def run_at_once(
    spark: object, function: Any, items: Sequence[Any], on_progress: Any = None, on_result: Any = None
) -> list[Any]:
    """The same with every task twice at the same time, as under speculation; either's answer counts."""
    results = []
    with ThreadPoolExecutor(2) as pool:
        for number, item in enumerate(items):
            results.append(list(pool.map(function, [item, item]))[number % 2])
            if on_result is not None:
                on_result(results[-1])
    return results


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def open_files_below(root: Path) -> list[str]:
    """What this process has open below ``root``, also in the frames that an exception keeps alive."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(f"{root}/")]
