"""Messages that are in several queues are rows once, however they are got at."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from pyspark.sql.streaming.datasource import ReadAllAvailable

import mqstore
from mqstore import Message
from mqstore.spark.options import ReadOptions
from mqstore.spark.stream import StreamReader
from spark.support import read_here

COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "body"]
ELSEWHERE = ["copies,%LMQ%ann", "copies", "others,copies", "orders", "copies,copies"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 messages of two topics; a third of them go to further queues, some of these of the other topic."""
    path = tmp_path_factory.mktemp("made") / "store"
    with mqstore.open(path, enable_multi_dispatch=True, enable_lmq=True, mapped_file_size_commit_log=1 << 14) as store:
        for number in range(300):
            properties = {} if number % 3 else {"INNER_MULTI_DISPATCH": ELSEWHERE[number // 3 % 5]}
            topic = ("orders", "returns")[number % 2]
            store.put(Message(topic, b"%d" % number * 20, properties=properties, queue_id=number % 2))
    return path


def streamed(path: Path, **options: str) -> list[dict[str, Any]]:
    parsed = ReadOptions.parse({"path": str(path), "startingOffsets": "earliest", **options}, streaming=True)
    reader = StreamReader(parsed, COLUMNS)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    reader.stop()
    return rows


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 300),
        ({"subscribe": "orders"}, 150),
        ({"subscribe": "returns,copies"}, 150),
        ({"subscribe": "copies"}, 0),
        ({"assign": '{"orders": [1], "others": [0], "returns": [1]}'}, 150),
        ({"splitBytes": "3000"}, 300),
    ],
)
def test_each_message_is_one_row(made: Path, options: dict[str, str], count: int) -> None:
    ways = [read_here(made, COLUMNS, plan=plan, **options) for plan in ("scan", "queues")]
    rows = [sorted(way, key=lambda row: row["physicalOffset"]) for way in (*ways, streamed(made, **options))]
    assert len(rows[0]) == count
    assert rows[0] == rows[1] == rows[2]


def test_a_unit_that_leads_elsewhere_is_damage_still(made: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(made, tmp_path / "store"))
    (file,) = (store / "consumequeue" / "copies" / "0").iterdir()
    raw = bytearray(file.read_bytes())
    raw[:20], raw[20:40] = raw[20:40], raw[:20]
    file.write_bytes(raw)
    with pytest.raises(mqstore.CorruptFileError, match="leads to no record of the queue"):
        streamed(store)
    assert len(streamed(store, onCorruptRecord="skip")) == 300
