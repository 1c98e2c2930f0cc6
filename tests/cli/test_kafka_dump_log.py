"""The dump tool by Kafka's own names and options: its lines are those that Kafka's tool printed of the same files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mqstore import kafka
from mqstore.cli.app import KAFKA_ALIASES, build_app
from mqstore.kafka import KafkaMessage

APP = build_app()
PARTITIONS = ["plain-0", "codecs-0", "txn-0", "compacted-0", "recovered-0", "legacyv0-0", "legacyv1-0", "mixed-0"]


def run(*arguments: object, code: int = 0, command: tuple[str, ...] = ("kafka", "dump-log")) -> Result:
    result = CliRunner().invoke(APP, [*command, *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("name", PARTITIONS)
def test_lines_are_those_of_kafkas_tool(golden_kafka: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(golden_kafka)
    theirs = Path("DUMP", f"{name}.txt").read_text().splitlines()
    files = [line.removeprefix("Dumping ") for line in theirs if line.startswith("Dumping ")]
    assert len(files) >= 3
    # Of messages in sets of the old formats the checksum is not shown.
    expected = [re.sub(r" isValid: true crc: \d+}$", "", line) for line in theirs]
    found = run("--deep-iteration", "--files", ",".join(files))
    assert found.stdout.splitlines() == expected
    assert found.stderr == ""  # holes of compaction, and entries of appends of several batches, are no faults


def test_without_deep_iteration_there_are_batches_alone(golden_kafka: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(golden_kafka)
    path = f"codecs-0/{0:020d}.log"
    found = run("--files", path).stdout.splitlines()
    deep = run("--files", path, "--deep-iteration").stdout.splitlines()
    assert found == [line for line in deep if not line.startswith("|")]
    # What is not printed is not hidden: each batch says how many records it holds.
    counts = [int(match[1]) for line in found if (match := re.search(r" count: (\d+) ", line))]
    assert sum(counts) == sum(line.startswith("|") for line in deep)


@pytest.mark.parametrize("name", ["dump-log", *KAFKA_ALIASES])
@pytest.mark.parametrize("change", [str, str.upper])
def test_every_name_in_every_spelling(golden_kafka: Path, name: str, change: object) -> None:
    assert callable(change)
    path = golden_kafka / "plain-0" / f"{0:020d}.index"
    wanted = run("--files", path).stdout
    assert "offset: 31 position: 4356" in wanted
    assert run("--files", path, command=("kafka", change(name))).stdout == wanted
    if name in KAFKA_ALIASES:
        assert run("--files", path, command=(change(name),)).stdout == wanted


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with kafka.open(tmp_path / "data", index_interval_bytes=100) as store:
        store.put_batch(
            [
                KafkaMessage("t", b"\x00\x00\x00\x07", b"k", [("a", b"1"), ("b", None)], 5),
                KafkaMessage("t", None, b"gone", timestamp_ms=6),
                KafkaMessage("t", "zwei\nZeilen ü".encode(), None, timestamp_ms=7),
            ]
        )
        for number in range(9):
            store.put(KafkaMessage("t", b"%d" % number * 30, timestamp_ms=8 + number))
    return tmp_path / "data" / "t-0" / f"{0:020d}.log"


def records(*arguments: object) -> list[str]:
    return [line for line in run(*arguments).stdout.splitlines() if line.startswith("|")]


def test_contents(log: Path) -> None:
    first, second, third = records("--files", log, "--print-data-log")[:3]
    assert first == (
        r"| offset: 0 CreateTime: 5 keySize: 1 valueSize: 4 sequence: -1 headerKeys: [a,b] "
        r"key: k payload: \x00\x00\x00\x07"
    )
    assert second.endswith("valueSize: -1 sequence: -1 headerKeys: [] key: gone")
    assert third.endswith(r"headerKeys: [] payload: zwei\nZeilen ü")


def test_record_metadata_can_be_left_out(log: Path) -> None:
    found = run("--files", log, "--print-data-log", "--skip-record-metadata").stdout
    assert found.splitlines()[3:5] == [r"| key: k payload: \x00\x00\x00\x07", "| key: gone"]
    # What holds for a batch is said once, however many records it has.
    one_batch = found[: found.index("baseOffset: 3 ")]
    for name in ("producerId", "partitionLeaderEpoch", "compresscodec", "isTransactional"):
        assert one_batch.count(f"{name}:") == 1


def test_decoders(log: Path) -> None:
    name = "org.apache.kafka.tools.api.IntegerDecoder"
    assert records("--files", log, "--print-data-log", "--value-decoder-class", name)[0].endswith("key: k payload: 7")
    run("--files", log, "--print-data-log", "--key-decoder-class", "my.OwnDecoder", code=2)
    for other in ("cluster-metadata", "remote-log-metadata", "share-group-state"):
        run("--files", log, f"--{other}-decoder", code=2)


def test_decoders_of_internal_topics(tmp_path: Path) -> None:
    key = bytes.fromhex("000100016700017400000003")
    value = bytes.fromhex("000300000000000012670000000500000000018bcfe5687b")
    with kafka.open(tmp_path) as store:
        store.put(KafkaMessage("backup", value, key, timestamp_ms=5))
    path = tmp_path / "backup-0" / f"{0:020d}.log"
    (found,) = records("--files", path, "--offsets-decoder")
    assert '"group": "g", "topic": "t", "partition": 3' in found
    assert '"offset": 4711' in found
    (found,) = records("--files", path, "--transaction-log-decoder")
    assert "4711" not in found


def test_how_much_is_read(log: Path) -> None:
    whole = run("--files", log).stdout.splitlines()
    for limit, batches in ((1, 0), (150, 1), (270, 2), (1 << 40, len(whole) - 2)):
        found = run("--files", log, "--max-bytes", limit, "--max-message-size", 5)
        assert found.stdout.splitlines() == whole[: 2 + batches], limit
        assert found.stderr == ""


def test_indexes(log: Path) -> None:
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    entries = run("--files", f"{index},{times}").stdout
    assert entries.count("position: ") > 3
    for option in ("--index-sanity-check", "--verify-index-only"):
        found = run("--files", f"{index},{times}", option).stdout
        assert "position: " not in found
        assert found.count("passed sanity check") == (2 if "sanity" in option else 0)
    data = bytearray(index.read_bytes())
    data[11] ^= 4  # the second entry's offset
    index.write_bytes(data)
    run("--files", index, "--index-sanity-check")  # its form alone is looked at
    for option in ([], ["--verify-index-only"]):
        assert str(index) in run("--files", index, *option, code=1).stderr
    index.write_bytes(data[:-3])
    run("--files", index, "--index-sanity-check", code=1)
    alone = Path(shutil.copy(times, log.parents[1] / times.name))
    assert "no .log beside it" in run("--files", alone, code=1).stderr


def test_damage_is_told_and_passed(log: Path) -> None:
    whole = run("--files", log).stdout.splitlines()
    data = bytearray(log.read_bytes())
    data[data.index(b"2" * 30)] ^= 1
    log.write_bytes(data)
    found = run("--files", log, "--deep-iteration", code=1)
    lines = [line for line in found.stdout.splitlines() if not line.startswith("|")]
    assert [line.replace("isvalid: false", "isvalid: true") for line in lines] == whole
    assert sum("isvalid: false" in line for line in lines) == 1
    assert "CRC" in found.stderr


@pytest.mark.parametrize("path", ["missing.log", f"{0:020d}.log", "meta.properties"])
def test_files_that_cannot_be_dumped(tmp_path: Path, path: str) -> None:
    (tmp_path / "meta.properties").touch()
    assert "error: " in run("--files", tmp_path / path, code=1).stderr


@pytest.mark.parametrize("bad", ["missing", "directory", "no name", "snapshot", "txnindex"])
def test_the_other_files_are_printed_beside_one_that_cannot_be(tmp_path: Path, bad: str) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t", b"x"))
    good = tmp_path / "log" / "t-0" / f"{0:020d}.log"
    path = tmp_path / f"{7:020d}.{bad if bad in ('snapshot', 'txnindex') else 'log'}"
    if bad == "directory":
        path.mkdir()
    elif bad == "no name":
        path = tmp_path / "notes"
        path.write_bytes(b"x")
    elif bad != "missing":
        path.write_bytes(b"\xff" * 70)
    alone = run("--files", good).stdout
    found = run("--files", f"{path},{good},{path}", code=1)
    assert alone in found.stdout
    assert found.stderr.count("error: ") == 2
    assert found.stderr.replace("\n", "").count(str(path)) >= 2


def test_a_damaged_small_file_is_told_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}.snapshot"
    path.write_bytes(b"\xff" * 70)
    assert str(path) in run(path, code=1, command=("kafka", "dump")).stderr.replace("\n", "")


def test_records_are_of_one_topic(golden_kafka: Path) -> None:
    log = golden_kafka / "plain-0" / f"{0:020d}.log"
    run("--files", log, "--offsets-decoder", "--transaction-log-decoder", code=2)
