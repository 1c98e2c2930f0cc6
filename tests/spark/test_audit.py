"""An audit finds what a check finds: the same findings, whatever is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
import mqstore.spark
from mqstore import Message
from mqstore.cli import audit as audit_command
from mqstore.cli import check
from mqstore.findings import Finding, Severity
from mqstore.spark.jobs import audit, auditing
from mqstore.store.check import check_store
from mqstore.store.config import StoreConfig
from spark.support import run_here

NO_SPARK: Any = None
LOG_FILE = 1 << 14
SIZES = {
    "mapped_file_size_commit_log": LOG_FILE, "mapped_file_size_consume_queue": 20 * 50, "max_hash_slot_num": 20,
    "max_index_num": 150,
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "run_tasks", run_here)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 messages in six log files, four queues and three index files."""
    path = tmp_path_factory.mktemp("made") / "store"
    with mqstore.open(path, **SIZES) as store:
        for number in range(400):
            topic = "returns" if number % 5 == 0 else "orders"
            keys = [f"k{number}"] if number % 3 else []
            store.put(Message(topic, b"body %d" % number * 5, keys=keys, tags="t", queue_id=number % 2))
        store.wait_dispatched()
        store.commit_offset("billing", "orders", 0, 4)
    return path


def files(path: Path, *parts: str) -> list[Path]:
    return sorted(one for one in path.joinpath(*parts).iterdir() if one.is_file())


def outcome(find: Callable[[], list[Finding]]) -> object:
    try:
        return [finding.as_dict() for finding in find()]
    except mqstore.MqstoreError as error:
        return type(error), error.path


def both(path: Path) -> tuple[Any, Any]:
    """What an audit finds, and what a check does. They count the same."""
    counted = []

    def checked() -> list[Finding]:
        found: list[Finding] = []
        with mqstore.inspect(path) as view:
            counted.append(check_store(view, found.append))
        return found

    def audited() -> list[Finding]:
        result = audit(NO_SPARK, path, split_bytes=5000)
        counted.append(result.summary)
        assert result.ok == (result.summary.findings == 0)
        return result.findings

    outcomes = outcome(audited), outcome(checked)
    assert counted[1:] in ([], counted[:1])
    return outcomes


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x41
    path.write_bytes(data)


def starts(path: Path) -> list[int]:
    with mqstore.inspect(path) as view:
        return [record.physical_offset for record in view.scan()]


def test_a_sound_store(made: Path) -> None:
    assert both(made) == ([], [])


def test_queues_of_which_the_log_has_nothing_count(tmp_path: Path) -> None:
    """Their messages have expired, or they never had any; `topics.json` need not know them."""
    with mqstore.open(tmp_path / "store", **SIZES) as store:
        store.put(Message("old", b"x", queue_id=3))
        store.wait_dispatched()
        while store.log_end < 2 * LOG_FILE:
            store.put(Message("orders", bytes(500), queue_id=0))
    files(tmp_path / "store", "commitlog")[0].unlink()
    (tmp_path / "store" / "config" / "topics.json").unlink()
    (tmp_path / "store" / "consumequeue" / "none" / "0").mkdir(parents=True)
    assert both(tmp_path / "store") == ([], [])
    with mqstore.inspect(tmp_path / "store") as view:
        assert check_store(view, lambda finding: None).queues == 3


# Every field of a record: sizes, magic, checksum, ids, offsets, times, hosts, body, topic, properties.
@pytest.mark.parametrize("place", [0, 4, 8, 12, 19, 20, 35, 36, 40, 55, 56, 64, 71, 72, 76, 84, 87, 90, 120, 160])
@pytest.mark.parametrize("record", [0, 130])
def test_a_flipped_byte_in_a_record(made: Path, tmp_path: Path, record: int, place: int) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    offset = starts(store)[record] + place
    flip(store / "commitlog" / f"{offset - offset % LOG_FILE:020d}", offset % LOG_FILE)
    found, expected = both(store)
    assert found == expected


@pytest.mark.parametrize("place", [0, 7, 11, 12, 19])
@pytest.mark.parametrize(("unit", "file"), [(0, 0), (49, 1), (9, -1)])
def test_a_flipped_byte_in_a_unit(made: Path, tmp_path: Path, unit: int, file: int, place: int) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    flip(files(store, "consumequeue", "orders", "0")[file], unit * 20 + place)
    found, expected = both(store)
    assert found == expected != []


@pytest.mark.parametrize("file", [0, 1, -1])
@pytest.mark.parametrize(
    "place",
    # The header; two slots; the first entry; one in the middle; the last of a full file.
    [*range(3, 40, 4), 40, 83, *range(123, 140, 4), *range(1523, 1540, 4), *range(3103, 3120, 4)],
)  # fmt: skip
def test_a_flipped_byte_in_an_index_file(made: Path, tmp_path: Path, file: int, place: int) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    flip(files(store, "index")[file], place)
    found, expected = both(store)
    assert found == expected


def removed(path: Path) -> None:
    path.unlink()


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def blanked(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def foreign_beside(path: Path) -> None:
    path.with_name("notes.txt").write_text("mine")


def doubled(path: Path) -> None:
    """Once more, a third of a file later: they overlap."""
    digits = len(path.name)
    shutil.copy(path, path.with_name(f"{int(path.name) + path.stat().st_size // 3:0{digits}d}"))


def directory_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [removed, shortened, emptied, blanked, foreign_beside, doubled, directory_instead])
@pytest.mark.parametrize(
    ("where", "file"),
    [
        *(
            (part, file)
            for part in (("commitlog",), ("consumequeue", "orders", "1"), ("index",))
            for file in (0, 1, -1)
        ),
        (("consumequeue", "returns", "0"), 0),
    ],
)
def test_a_file_that_is_not_as_it_should_be(
    made: Path, tmp_path: Path, where: tuple[str, ...], file: int, damage: Callable[[Path], None]
) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    damage(files(store, *where)[file])
    found, expected = both(store)
    assert found == expected


@pytest.mark.parametrize(
    "damage", [removed, shortened, emptied, lambda path: flip(path, 0), lambda path: flip(path, 8)]
)
@pytest.mark.parametrize("name", ["checkpoint", "config/topics.json", "config/consumerOffset.json"])
def test_small_files(made: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    damage(store / name)
    found, expected = both(store)
    assert found == expected


def test_a_queue_that_the_log_knows_nothing_of(made: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    shutil.copytree(store / "consumequeue" / "orders" / "0", store / "consumequeue" / "orders" / "7")
    found, expected = both(store)
    assert found == expected
    queue = store / "consumequeue" / "orders" / "7"
    for path in files(queue):
        data = bytearray(path.read_bytes())
        for unit in range(0, len(data), 20):
            data[unit : unit + 8] = (1 << 40).to_bytes(8, "big")
        path.write_bytes(data)
    found, expected = both(store)
    assert found == expected != []


def test_an_index_that_is_older_or_gone(made: Path, tmp_path: Path) -> None:
    for count in (1, 2, 3):
        store = shutil.copytree(made, tmp_path / str(count))
        for path in files(store, "index")[:count]:
            path.unlink()
        found, expected = both(store)
        assert found == expected == []


def test_a_salvaged_store_and_other_delay_levels(made: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    flip(store / "commitlog" / f"{LOG_FILE:020d}", 100)
    mqstore.rebuild(store, tmp_path / "salvaged", salvage=True)
    found, expected = both(tmp_path / "salvaged")
    assert found == expected
    assert audit(NO_SPARK, made, config=StoreConfig(message_delay_level="1s 2s")).ok


def test_what_an_audit_counts(golden: Path, made: Path, tmp_path: Path) -> None:
    store = shutil.copytree(made, tmp_path / "store")
    flip(files(store, "consumequeue", "orders", "0")[0], 3 * 20 + 19)
    files(store, "consumequeue", "orders", "1")[0].unlink()
    result = audit(NO_SPARK, store)
    assert (result.records, result.units, result.wrong_units, result.ok) == (400, 400, 51, False)
    assert result.seconds >= sum(result.stage_seconds.values()) > 0
    for name in ("basic", "broker", "cleaned", "v5-basic", "v5-cleaned", "torn-flip-abort", "crashed"):
        found, expected = both(golden / name / "store")
        assert found == expected


def test_both_commands_count_the_same(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Notes are listed, and not counted."""
    store = tmp_path / "store"
    with mqstore.open(store) as running:
        running.put(Message("orders", b"", queue_id=0))
        running.wait_dispatched()
        running.commit_offset("ahead", "orders", 0, 1)
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace("{0:1", "{0:7"))
    monkeypatch.setattr(mqstore.spark, "session", lambda *_: SimpleNamespace(stop=lambda: None))
    for path, severities in ((made, []), (store, [Severity.NOTE])):
        assert [finding.severity for finding in audit(NO_SPARK, path).findings] == severities
        lines = []
        for command in (check, audit_command):
            assert command.run(path) == 0
            lines.append(capsys.readouterr().out.splitlines()[-1])
        assert lines[0] == lines[1]
        assert lines[0].startswith("nothing wrong: ")
