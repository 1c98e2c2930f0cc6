"""Records at given places: both versions agree, and nothing that a place says makes them look outside the buffer."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import BASE, LOGS, contents, damaged_logs, log_files, make_log, message
from mqstore.kernels import PLACE, LogColumns

Place = tuple[int, int, int, int, int]
Queues = list[tuple[bytes, int]]

LOG = make_log(message(), message(topic=b"other", queue_offset=6), message(body=b"x" * 300, queue_offset=7))


def places_of(columns: LogColumns, log: bytes) -> tuple[list[Place], Queues]:
    """What would lead to the records that a scan has found."""
    queues: Queues = []
    places = []
    for row in range(columns.count):
        begin, size = columns.topic_position[row], columns.topic_size[row]
        queue = log[begin : begin + size], columns.queue_id[row]
        if queue not in queues:
            queues.append(queue)
        at = columns.position[row]
        places.append((BASE + at, columns.size[row], columns.queue_offset[row], queues.index(queue), at))
    return places, queues


def found_at(kernels: Any, log: Any, places: list[Place], queues: Queues, **options: Any) -> tuple[Any, list[int]]:
    columns, found = kernels.scan_at(log, b"".join(PLACE.pack(*one) for one in places), queues, **options)
    assert columns.count == sum(found)
    return contents(columns), list(found)


def in_both(native: Any, pure: Any, *arguments: Any, **options: Any) -> tuple[dict[str, Any], list[int]]:
    told = found_at(native, *arguments, **options)
    assert told == found_at(pure, *arguments, **options)
    return told


@pytest.mark.parametrize("name", ["basic", "v5-basic", "broker"])
def test_golden_logs(kernels: Any, golden: Path, name: str) -> None:
    for base, log in log_files(golden / name):
        columns = kernels.scan(log, 0, len(log), base)
        places, queues = places_of(columns, log)
        places = [(begin - BASE + base, *rest) for begin, *rest in places]  # type: ignore[misc]
        told, found = found_at(kernels, log, places, queues)
        assert found == [1] * columns.count
        for column in LogColumns.COLUMN_NAMES:
            assert told[column] == getattr(columns, column).tolist()


def test_bytes_from_all_over_the_log_in_any_order(kernels: Any) -> None:
    columns = kernels.scan(LOG, 0, len(LOG), BASE)
    places, queues = places_of(columns, LOG)
    parts = [LOG[place[4] : place[4] + place[1]] for place in places]
    buffer = b"--" + parts[2] + b"-" + parts[0]
    moved = [(*places[0][:4], 3 + len(parts[2])), (*places[2][:4], 2), (*places[0][:4], 3 + len(parts[2]))]
    told, found = found_at(kernels, buffer, moved, queues)
    assert found == [1, 1, 1]
    assert told["own_offset"] == [places[0][0], places[2][0], places[0][0]]
    assert told["position"] == [place[4] for place in moved]
    assert (told["physical_offset"], told["next_position"]) == (-1, len(buffer))
    columns, _ = kernels.scan_at(buffer, b"".join(PLACE.pack(*one) for one in moved), queues)
    ids = kernels.msg_id_text(buffer, columns, 0, 3)
    assert bytes(ids.data)[16:32] == b"%016X" % places[0][0]
    runs = kernels.queue_runs(buffer, columns, 0, 3, [])
    assert [struct.unpack(">q", run.units[:8])[0] for run in runs] == told["own_offset"]


@pytest.mark.parametrize("number", [-(2**63), -(2**31), -1, 0, 1, 90, 91, 2**31 - 1, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("field", range(5))
def test_a_place_that_says_anything_else(native: Any, pure: Any, field: int, number: int) -> None:
    places, queues = places_of(native.scan(LOG, 0, len(LOG), BASE), LOG)
    changed = list(places[0])
    changed[field] = number
    if tuple(changed) == places[0]:
        return
    told, found = in_both(native, pure, LOG, [places[2], tuple(changed), places[1]], queues)
    assert found == [1, 0, 1]
    assert told["queue_offset"] == [7, 6]


def test_positions_and_sizes_that_together_pass_all_numbers(native: Any, pure: Any) -> None:
    big = 2**63 - 1
    for position, size in ((big, big), (big, 1), (1, big), (len(LOG), 1), (len(LOG) - 1, 2), (-big, big), (0, 0)):
        assert in_both(native, pure, LOG, [(BASE, size, 5, 0, position)], [(b"TopicTest", 1)])[1] == [0]
        assert in_both(native, pure, b"", [(BASE, size, 5, 0, position)], [(b"TopicTest", 1)])[1] == [0]
    assert in_both(native, pure, LOG, [(BASE, 100, 5, 0, 0)], [])[1] == [0]


def test_no_record_may_lie_at_a_place_that_the_log_cannot_have(native: Any, pure: Any) -> None:
    for base in (-8, 2**62 + 1):
        log = bytearray(make_log(message()))
        struct.pack_into(">q", log, 28, base)
        assert in_both(native, pure, bytes(log), [(base, len(log), 5, 0, 0)], [(b"TopicTest", 1)])[1] == [0]


def test_checksums_are_looked_at_when_asked_for(native: Any, pure: Any) -> None:
    log = bytearray(LOG)
    places, queues = places_of(native.scan(LOG, 0, len(LOG), BASE), LOG)
    log[places[2][4] + 100] ^= 1  # in its body
    assert in_both(native, pure, bytes(log), places, queues)[1] == [1, 1, 0]
    assert in_both(native, pure, bytes(log), places, queues, check_crc=False)[1] == [1, 1, 1]


def test_nothing_outside_the_place_is_looked_at(kernels: Any) -> None:
    size = len(make_log(message()))
    place = (BASE, size - 1, 5, 0, 0)
    assert found_at(kernels, LOG, [place], [(b"TopicTest", 1)])[1] == [0]


def test_bytes_behind_the_last_whole_place_are_ignored(kernels: Any) -> None:
    places, queues = places_of(kernels.scan(LOG, 0, len(LOG), BASE), LOG)
    packed = b"".join(PLACE.pack(*one) for one in places)
    for cut in (0, 1, 39):
        assert bytes(kernels.scan_at(LOG, packed[: 40 + cut], queues)[1]) == b"\1"
    columns, found = kernels.scan_at(memoryview(bytearray(b"-" + LOG))[1:], memoryview(b"-" + packed)[1:], queues)
    assert (columns.count, bytes(found)) == (3, b"\1\1\1")
    columns, found = kernels.scan_at(b"", b"", [])
    assert (columns.count, bytes(found)) == (0, b"")


def test_what_makes_no_sense_is_refused(kernels: Any, native: Any) -> None:
    place = PLACE.pack(BASE, 100, 5, 0, 0)
    for arguments in (("text", place, []), (LOG, "text", [])):
        with pytest.raises(TypeError):
            kernels.scan_at(*arguments)
    for queues in ([("TopicTest", 1)], [3], [(b"TopicTest",)], [(b"TopicTest", 1 << 70)], None):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            native.scan_at(LOG, place, queues)


NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-10, 1500), st.integers(BASE - 10, BASE + 1500))


@settings(max_examples=300)
@given(st.one_of(LOGS, damaged_logs(), st.binary(max_size=200)), st.booleans(), st.data())
def test_any_bytes_and_places_are_judged_alike(
    native: Any, pure: Any, log: bytes, check_crc: bool, data: st.DataObject
) -> None:
    sound = data.draw(LOGS) if data.draw(st.booleans()) else log
    places, queues = places_of(native.scan(sound, 0, len(sound), BASE), sound)
    if queues and data.draw(st.booleans()):
        queues.pop()
    for _ in range(data.draw(st.integers(0, 3)) if places else 0):
        row = data.draw(st.integers(0, len(places) - 1))
        changed = list(places[row])
        changed[data.draw(st.integers(0, 4))] = data.draw(NUMBERS)
        places[row] = tuple(changed)  # type: ignore[assignment]
    places += data.draw(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(-1, 3), NUMBERS), max_size=3))
    _, found = in_both(native, pure, log, places, queues, check_crc=check_crc)
    # What counts is what a scan of those bytes alone would find there.
    for place, is_found in zip(places, found, strict=True):
        if is_found:
            begin, size, _, _, at = place
            alone = native.scan(log[at : at + size], 0, size, begin, check_crc=check_crc)
            assert (alone.count, alone.next_position) == (1, size)
