"""The benchmark of decoding measures what it says: every way reads every record that the segment has."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mqstore.layout.kafka.batch import decode_header, decode_records
from project.source import ROOT

# kafka-python, when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_kafka_decode", ROOT / "bench" / "kafka_decode.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_kafka_decode"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("value_bytes", [100, 1024])
def test_every_way_reads_every_record(bench: ModuleType, value_bytes: int) -> None:
    data, count = bench.make_segment(value_bytes, 40_000)
    position, found = 0, 0
    while position < len(data):
        header = decode_header(data, position)
        records = decode_records(data, header, check_crc=False)
        assert {len(record.value or b"") for record in records} == {value_bytes}
        assert 14_000 < header.size < 17_000
        found += len(records)
        position = header.end_position
    assert found == count
    ways = bench.ways()
    assert list(ways) == ["mqstore, columns", "mqstore, Arrow", "aiokafka", "kafka-python"]
    for name, read in ways.items():
        assert read(data, name != "kafka-python") == count, name


def test_a_damaged_segment_is_not_measured(bench: ModuleType) -> None:
    data, _ = bench.make_segment(100, 1000)
    damaged = bytearray(data)
    damaged[200] ^= 1
    for name, read in bench.ways().items():
        with pytest.raises(RuntimeError, match="not sound"):
            read(bytes(damaged), True)
        assert name


def test_the_report_gives_medians_and_the_ratio_to_the_faster(bench: ModuleType) -> None:
    result = bench.Result("x", 100.0, {"mqstore, columns": [5e6, 7e6, 6e6], "a": [1e6], "b": [2e6, 3e6, 1e6]})
    arguments = type("Arguments", (), {"megabytes": 1, "rounds": 3})
    last = bench.report([result], arguments).splitlines()[-1]
    assert last == (
        "| x | 6,000 (5,000 to 7,000), 600 MB | 1,000 (1,000 to 1,000), 100 MB | 2,000 (1,000 to 3,000), 200 MB | 3.0 |"
    )


def test_it_runs_and_keeps_its_report(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ways", lambda: {"mqstore, columns": bench.to_columns, "mqstore, Arrow": bench.to_arrow})
    results = bench.main(["--quick", "--output", str(tmp_path)])
    assert [result.name for result in results] == [
        row["name"] for row in json.loads((tmp_path / "kafka-decode.json").read_text())
    ]
    assert (tmp_path / "kafka-decode.md").read_text() in capsys.readouterr().out
