"""The harness itself: what it reads from the golden stores is what the golden stores say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from interop.dumps import Dump, Questions, differences
from interop.real_store import RealStore, Refused, copy_store


@pytest.mark.parametrize("name", ["basic", "v5-basic"])
def test_reads_golden_stores_as_they_were_read(real_store: RealStore, golden: Path, name: str) -> None:
    expected = Dump.load(golden / name)
    if real_store.version.split(".")[0] != expected.whole["version"].split(".")[0]:
        pytest.skip(f"{name} was read by {expected.whole['version']}")
    found = real_store.read(golden / name / "store", Questions.of(expected), **expected.config)
    assert len(found.records) > 2000
    assert differences(expected, found) == []


@pytest.fixture(scope="module")
def written(real_store: RealStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the real one has just written and shut down."""
    store = tmp_path_factory.mktemp("written") / "store"
    real_store.write(store, seed=1, count=2500)
    return store


def test_writes_every_kind_and_reads_it_again(real_store: RealStore, written: Path) -> None:
    found = real_store.read(written)
    assert len(found.records) == found.whole["messages"] == 2500
    assert found.whole["problems"] == []
    assert not (written / "abort").exists()
    assert len(found.whole["blanks"]) >= 2
    assert len(list((written / "index").iterdir())) >= 2
    kinds = {
        "batch": any(row["properties"].get("placeInBatch") == "1" for row in found.records),
        "delayed": any(row["topic"] == "SCHEDULE_TOPIC_XXXX" for row in found.records),
        "clamped delay": any(row["properties"].get("DELAY") == "18" for row in found.records),
        "prepared": any(row["sysFlag"] & 0xC == 0x4 and not row["cq"] for row in found.records),
        "commit": any(row["sysFlag"] & 0xC == 0x8 and row["cq"] for row in found.records),
        "rollback": any(row["sysFlag"] & 0xC == 0xC and not row["cq"] for row in found.records),
        "IPv6 born host": any(row["bornHost"].count(":") == 8 for row in found.records),
        "IPv6 store host": any(row["storeHost"].count(":") == 8 for row in found.records),
        "empty body": any(row["body"] == "" for row in found.records),
        "127-byte topic": any(len(row["topic"]) == 127 for row in found.records),
        "no properties": any(row["properties"] == {} for row in found.records),
        "UTF-8": any("\N{EARTH GLOBE EUROPE-AFRICA}" in row["properties"].get("region", "") for row in found.records),
    }
    assert [kind for kind, there in kinds.items() if not there] == []
    found_by_key = {(asked["topic"], asked["key"]): asked["offsets"] for asked in found.whole["keys"]}
    for row in found.records:
        unique = row["properties"].get("UNIQ_KEY")
        if unique and row["sysFlag"] & 0xC != 0xC:
            assert row["commitLogOffset"] in found_by_key[row["topic"], unique]


def test_asks_with_tag_filters(real_store: RealStore, written: Path) -> None:
    whole = real_store.read(written)
    units = [unit for unit in whole.units if (unit["topic"], unit["queueId"]) == ("TopicTest", 0)]
    tags = {row["commitLogOffset"]: row["properties"].get("TAGS") for row in whole.records}
    # One pull never goes beyond the queue file that it began in.
    first_file = units[: whole.config["mappedFileSizeConsumeQueue"] // 20]
    wanted = [unit["phyOffset"] for unit in first_file if tags[unit["phyOffset"]] in ("TagA", "支付")]
    questions = Questions().get("TopicTest", 0, 0, 32, "TagA || 支付").get("TopicTest", 0, 10**6, 32)
    answers = real_store.read(written, questions).whole["gets"]
    assert answers[0]["status"] == "FOUND"
    assert answers[0]["offsets"] == wanted[:32]
    assert answers[1]["status"] == "OFFSET_OVERFLOW_BADLY"


def test_goes_on_after_a_crash(real_store: RealStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    real_store.write(store, seed=2, count=400, crash=True)
    assert (store / "abort").exists()
    crashed = real_store.read(store)
    assert len(crashed.records) == 400
    real_store.write(store, seed=3, count=100)
    assert not (store / "abort").exists()
    longer = real_store.read(store)
    assert longer.records[:400] == crashed.records
    assert len(longer.records) == 500
    real_store.recover(store)
    assert differences(longer, real_store.read(store)) == []


def test_a_refused_store_is_told_apart(real_store: RealStore, golden: Path, tmp_path: Path) -> None:
    store = copy_store(golden / "basic" / "store", tmp_path / "store")
    shutil.copy(store / "checkpoint", store / "commitlog" / "00000000000004194304")
    with pytest.raises(Refused):
        real_store.read(store)
