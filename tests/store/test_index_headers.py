"""A flipped bit in the header of an index file: a check tells, a query is whole or an error, opening mends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, Message, StoreView
from mqstore.layout import index as layout
from mqstore.layout.constants import LONG_MAX
from mqstore.store import index_reader
from store.support import findings, mark_crashed, open_small, tree

BITS = range(layout.INDEX_HEADER.size * 8)
SLOTS_IN_USE = range(32 * 8, 36 * 8)
NOW_MS = 1_700_000_000_000
# What is put: for each message whether it has a key, and the time at which. A file takes five keys.
KINDS = {
    "in one second": [(True, NOW_MS + number) for number in range(8)],
    "over minutes": [(True, NOW_MS + number * 61_234) for number in range(8)],
    "one key in the newest": [(True, NOW_MS + number * 5_678) for number in range(6)],
    "no key in the newest": [(number < 5, NOW_MS + number * 5_678) for number in range(6)],
    "clock put back": [(True, NOW_MS - number * 5_678) for number in range(8)],
}


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_reader, "_LOOK_AGAIN_S", (0.0,))


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "made"
    clock = [NOW_MS]
    with monkeypatch.context() as patched:
        patched.setattr("time.time_ns", lambda: clock[0] * 1_000_000)
        with open_small(path, max_index_num=6, schedule_message_enable=False) as opened:
            for number, (has_key, clock[0]) in enumerate(request.param):
                properties = {"UNIQ_KEY": "k"} if has_key else {}
                opened.put(Message("T", b"%d" % number, properties=properties, queue_id=0))
    assert len(index_files(path)) == 2
    assert findings(path) == []
    return path


def index_files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


def flipped(file: Path, bits: range) -> Iterator[int]:
    """The file with one bit after the other flipped, and as it was at last."""
    with file.open("r+b", buffering=0) as opened:
        for bit in bits:
            opened.seek(bit // 8)
            byte = opened.read(1)
            opened.seek(bit // 8)
            opened.write(bytes([byte[0] ^ 1 << bit % 8]))
            yield bit
            opened.seek(bit // 8)
            opened.write(byte)


def answers(view: StoreView) -> list[list[bytes]]:
    """What is found of all times, and in windows of ten seconds around each message."""
    windows = [(0, LONG_MAX)]
    windows += [(record.store_timestamp_ms - 5_000, record.store_timestamp_ms + 5_000) for record in view.scan()]
    return [[message.body for message in view.query("T", "k", *window).messages] for window in windows]


@pytest.mark.parametrize("number", [0, 1], ids=["full", "newest"])
def test_a_check_finds_every_bit(store: Path, number: int) -> None:
    file = index_files(store)[number]
    sound = layout.decode_header(file.read_bytes())
    for bit in flipped(file, BITS):
        found = findings(store)
        header = layout.decode_header(file.read_bytes())
        if bit in SLOTS_IN_USE and header.hash_slot_count == sound.index_count - 1:
            assert found == []  # some brokers count a slot with every key
        elif header == sound:
            assert header.index_count == 1  # 0 stands for 1 as well
        else:
            assert {one.area for one in found} == {"index"}, bit
            assert {one.path for one in found} & {str(file), str(file.parent)}, bit
    assert findings(store) == []


@pytest.mark.parametrize("number", [0, 1], ids=["full", "newest"])
def test_a_query_answers_in_full_or_not_at_all(store: Path, number: int) -> None:
    with mqstore.inspect(store) as view:
        whole = answers(view)
    refused = 0
    for bit in flipped(index_files(store)[number], BITS):
        with mqstore.inspect(store) as view:
            try:
                got = answers(view)
            except CorruptFileError:
                refused += 1
            else:
                # With a clock put back the original's arithmetic loses what came before the file's begin; so do we, but
                # whoever reads a file that ends before its begin looks at all of it.
                assert all(set(one) >= set(right) for one, right in zip(got, whole, strict=True)), bit
    assert refused > 64


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("number", [0, 1], ids=["full", "newest"])
def test_opening_mends_it(store: Path, tmp_path: Path, number: int, crashed: bool) -> None:
    whole = tree(store / "index")
    for bit in flipped(index_files(store)[number], range(int(crashed), len(BITS), 23)):
        copy = shutil.copytree(store, tmp_path / "copy")
        if crashed:
            mark_crashed(copy)
        open_small(copy, max_index_num=6, schedule_message_enable=False).close()
        if number == 1 or bit not in SLOTS_IN_USE:  # nothing goes by those, and to count them takes a while
            assert tree(copy / "index") == whole, bit
        shutil.rmtree(copy)
