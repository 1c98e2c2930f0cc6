"""Every number of the configuration, at the ends of what a broker can keep."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import mqstore
from mqstore import Message, StoreConfig, UsageError
from mqstore.layout import index
from store.support import findings

NUMBERS = [field.name for field in dataclasses.fields(StoreConfig) if str(field.type).startswith("int")]
LONGS = {"filter_data_clean_time_span", "transaction_time_out"}
INT_MAX = 2**31 - 1
SMALL = {
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_no_broker_could_keep_is_refused(name: str) -> None:
    for value in (-1, -(2**31), 2**63, 2**64, 10**30, *(() if name in LONGS else (2**31,))):
        with pytest.raises(UsageError) as refused:
            StoreConfig(**{name: value})
        assert name == "listen_port" or name in str(refused.value)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_largest_number_works_or_is_refused(tmp_path: Path, name: str) -> None:
    """No setting is taken and then breaks what it is for; files that large are holes, for the most part."""
    largest = 2**63 - 1 if name in LONGS else INT_MAX
    settings = {**SMALL, name: largest}
    try:
        StoreConfig(**settings)
    except UsageError:
        return
    if name in SMALL:
        settings[name] = SMALL[name]  # their sizes are another test's, and another disk's
    with mqstore.open(tmp_path, **settings) as store:
        store.put(Message("T", b"body", keys=["k"], queue_id=0))
        assert store.wait_dispatched(60)
        store.flush()
        assert [message.body for message in store.get("T", 0).messages] == [b"body"]
        assert len(store.query("T", "k").messages) == 1


def test_an_index_file_that_no_broker_could_map_is_refused() -> None:
    StoreConfig(max_hash_slot_num=1, max_index_num=INT_MAX // 20 - 3)
    for settings in ({"max_index_num": INT_MAX // 20}, {"max_hash_slot_num": INT_MAX // 4}):
        with pytest.raises(UsageError, match="max_index_num"):
            StoreConfig(**settings)


def test_a_queue_file_is_rounded_up_to_whole_units_but_not_beyond_what_fits() -> None:
    most = INT_MAX - INT_MAX % 20
    assert StoreConfig(mapped_file_size_consume_queue=most).mapped_file_size_consume_queue == most
    assert StoreConfig(mapped_file_size_consume_queue=most - 19).mapped_file_size_consume_queue == most
    with pytest.raises(UsageError, match="mapped_file_size_consume_queue"):
        StoreConfig(mapped_file_size_consume_queue=most + 1)


@pytest.mark.parametrize("given", [{"max_hash_slot_num": 16}, {"max_index_num": 20}])
@pytest.mark.parametrize("is_noted", [True, False])
def test_one_size_of_the_index_leaves_the_other_as_the_files_have_it(
    tmp_path: Path, given: dict[str, int], is_noted: bool
) -> None:
    store = tmp_path / "s"
    with mqstore.open(store, **SMALL) as opened:
        for number in range(30):
            opened.put(Message("T", b"body", keys=[f"k{number}"]))
    if not is_noted:
        (store / "mqstore-dispatch.json").unlink()
    with mqstore.open(store, **given) as opened:
        assert len(opened.query("T", "k17").messages) == 1
    shape = SMALL | given
    size = index.file_size(shape["max_hash_slot_num"], shape["max_index_num"])
    assert {path.stat().st_size for path in (store / "index").iterdir()} == {size}
    assert findings(store) == []
