"""Keys that share a slot of the index, whose newest entry is not counted yet, or was never written."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, Message
from mqstore.layout import index as layout
from store.support import open_small

SLOTS = 1
KEYS = [f"k{number}" for number in range(6)]


@pytest.fixture
def index_file(tmp_path: Path) -> Path:
    with open_small(tmp_path / "s", max_hash_slot_num=SLOTS, max_index_num=20) as store:
        for key in KEYS:
            store.put(Message("t", key.encode(), keys=[key], queue_id=0))
    (file,) = (tmp_path / "s" / "index").iterdir()
    return file


def count_fewer(file: Path, fewer: int) -> int:
    """The header as it is before the last ``fewer`` entries are counted; how many it counts then."""
    data = bytearray(file.read_bytes())
    header = layout.decode_header(data[: layout.INDEX_HEADER.size])
    count = header.index_count - fewer
    with mqstore.inspect(file.parent.parent) as view:
        last = view.message_at(layout.decode_entry(data, count - 1, SLOTS).physical_offset)
    assert last is not None
    changed = header._replace(
        end_timestamp_ms=last.store_timestamp_ms, end_physical_offset=last.physical_offset, index_count=count
    )
    data[: layout.INDEX_HEADER.size] = layout.encode_header(changed)
    file.write_bytes(data)
    return changed.index_count


def found(file: Path, key: str) -> list[bytes]:
    return [message.body for message in mqstore.inspect(file.parent.parent).query("t", key).messages]


@pytest.mark.parametrize("fewer", [1, 2, 5])
def test_what_was_filed_before_is_found_while_more_is_filed(index_file: Path, fewer: int) -> None:
    """A writer puts the entry, then the slot, and the header last: whoever reads in between sees a slot that leads
    beyond what the header counts. The chain goes on from there to all that is counted."""
    assert [found(index_file, key) for key in KEYS] == [[key.encode()] for key in KEYS]
    count_fewer(index_file, fewer)
    counted = KEYS[: len(KEYS) - fewer]
    assert [found(index_file, key) for key in counted] == [[key.encode()] for key in counted]


@pytest.mark.parametrize("kind", ["never written", "leads on", "outside"])
def test_a_slot_that_leads_nowhere_is_no_answer(index_file: Path, kind: str) -> None:
    count = count_fewer(index_file, 1)
    data = bytearray(index_file.read_bytes())
    entry = layout.entry_position(count, SLOTS)
    if kind == "never written":
        data[entry : entry + layout.INDEX_ENTRY.size] = bytes(layout.INDEX_ENTRY.size)
    elif kind == "leads on":
        data[entry + 16 : entry + 20] = (count + 1).to_bytes(4, "big")
    else:
        data[layout.INDEX_HEADER.size : layout.INDEX_HEADER.size + 4] = (20).to_bytes(4, "big")
    index_file.write_bytes(data)
    with pytest.raises(CorruptFileError) as caught:
        found(index_file, KEYS[0])
    assert caught.value.path == str(index_file)
    assert caught.value.hint
