"""Columns of scanned records in Arrow's memory layout."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mqstore.errors import UsageError
from mqstore.kernels.api import Allocate, Column, LogColumns, StringLists, StringMaps, Strings
from mqstore.kernels.pure.checks import check_rows, optional_part, part, properties_text, text_of
from mqstore.kernels.pure.scan import find_values
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import HOST_V4_SIZE, HOST_V6_SIZE, INT_MAX, LONG_MAX, LONG_MIN, SysFlag
from mqstore.layout.hosts import decode_host
from mqstore.layout.message_id import encode_message_id
from mqstore.layout.properties import parse
from mqstore.layout.properties import split_keys as split_key_text
from mqstore.layout.text import decode_text

_TOO_LARGE: Final = "the column would hold 2 GiB or more: take fewer rows"


def find_property(
    buffer: Buffer, columns: LogColumns, name: bytes, start: int, stop: int
) -> tuple[memoryview, memoryview]:
    """See :meth:`mqstore.kernels.api.Kernels.find_property`."""
    check_rows(columns.count, start, stop)
    if not name:
        raise UsageError("a property has a name")
    positions, sizes = array("q"), array("i")
    with memoryview(buffer) as view:
        for row in range(start, stop):
            base = columns.properties_position[row]
            place, size = find_values(part(view, base, columns.properties_size[row]), [name])[0]
            positions.append(base + place if size >= 0 else 0)
            sizes.append(size)
    return memoryview(positions), memoryview(sizes)


def gather(
    buffer: Buffer,
    positions: Column,
    sizes: Column,
    start: int,
    stop: int,
    *,
    utf8: bool = False,
    allocate: Allocate | None = None,
) -> Strings:
    """See :meth:`mqstore.kernels.api.Kernels.gather`."""
    check_rows(min(len(positions), len(sizes)), start, stop)
    # Replacing malformed bytes never makes text shorter, so this can be told before anything is copied.
    if sum(size for size in sizes[start:stop] if size > 0) > INT_MAX:
        raise OverflowError(_TOO_LARGE)
    with memoryview(buffer) as view:
        values = [optional_part(view, positions[row], sizes[row]) for row in range(start, stop)]
    if utf8:
        values = [None if value is None else decode_text(value).encode() for value in values]
    return strings_of(values, allocate)


def split_keys(
    buffer: Buffer, columns: LogColumns, start: int, stop: int, *, allocate: Allocate | None = None
) -> StringLists:
    """See :meth:`mqstore.kernels.api.Kernels.split_keys`."""
    check_rows(columns.count, start, stop)
    with memoryview(buffer) as view:
        texts = [text_of(view, columns.keys_position[row], columns.keys_size[row]) for row in range(start, stop)]
    lists = [split_key_text(text) for text in texts]
    strings = strings_of([key.encode() for keys in lists for key in keys], allocate)
    return StringLists(offsets_of(map(len, lists), allocate), strings.offsets, strings.data, _validity(texts, allocate))


def properties_map(
    buffer: Buffer, columns: LogColumns, start: int, stop: int, *, allocate: Allocate | None = None
) -> StringMaps:
    """See :meth:`mqstore.kernels.api.Kernels.properties_map`."""
    check_rows(columns.count, start, stop)
    with memoryview(buffer) as view:
        maps = [parse(properties_text(view, columns, row)) for row in range(start, stop)]
    names = strings_of([name.encode() for pairs in maps for name in pairs], allocate)
    values = strings_of([value.encode() for pairs in maps for value in pairs.values()], allocate)
    return StringMaps(offsets_of(map(len, maps), allocate), names.offsets, names.data, values.offsets, values.data)


def host_text(
    buffer: Buffer,
    columns: LogColumns,
    start: int,
    stop: int,
    *,
    store: bool = False,
    allocate: Allocate | None = None,
) -> Strings:
    """See :meth:`mqstore.kernels.api.Kernels.host_text`."""
    check_rows(columns.count, start, stop)
    with memoryview(buffer) as view:
        hosts = [_host(view, columns, row, store) for row in range(start, stop)]
    return strings_of([decode_host(host).encode() for host in hosts], allocate)


def _host(view: memoryview, columns: LogColumns, row: int, store: bool) -> bytes:
    place = columns.store_host_position if store else columns.born_host_position
    bit = SysFlag.STORE_HOST_V6 if store else SysFlag.BORN_HOST_V6
    return part(view, place[row], HOST_V6_SIZE if columns.sys_flag[row] & bit else HOST_V4_SIZE)


def msg_id_text(
    buffer: Buffer, columns: LogColumns, start: int, stop: int, *, allocate: Allocate | None = None
) -> Strings:
    """See :meth:`mqstore.kernels.api.Kernels.msg_id_text`."""
    check_rows(columns.count, start, stop)
    with memoryview(buffer) as view:
        texts = [
            encode_message_id(_host(view, columns, row, True), columns.own_offset[row]) for row in range(start, stop)
        ]
    return strings_of([text.encode() for text in texts], allocate)


def ms_to_us(column: Column, start: int, stop: int, *, allocate: Allocate | None = None) -> Any:
    """See :meth:`mqstore.kernels.api.Kernels.ms_to_us`."""
    check_rows(len(column), start, stop)
    return _numbers([min(max(1000 * time, LONG_MIN), LONG_MAX) for time in column[start:stop]], allocate)


def _filled(data: bytes, allocate: Allocate | None) -> Any:
    """A buffer from ``allocate`` that holds ``data``."""
    if allocate is None:
        return bytearray(data)
    buffer = allocate(len(data))
    if data:
        memoryview(buffer).cast("B")[:] = data
    return buffer


def _numbers(values: list[int], allocate: Allocate | None) -> Any:
    return _filled(array("q", values).tobytes(), allocate)


def offsets_of(sizes: Iterable[int], allocate: Allocate | None) -> Any:
    """Arrow's offsets of values of these sizes. Raises OverflowError for 2 GiB or more."""
    total = 0
    offsets = array("i", [0])
    for size in sizes:
        total += size
        if total > INT_MAX:
            raise OverflowError(_TOO_LARGE)
        offsets.append(total)
    return _filled(offsets.tobytes(), allocate)


def _validity(values: Sequence[object], allocate: Allocate | None) -> Any:
    if all(value is not None for value in values):
        return None
    bits = bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        bits[row >> 3] |= (value is not None) << (row & 7)
    return _filled(bytes(bits), allocate)


def strings_of(values: Sequence[bytes | None], allocate: Allocate | None) -> Strings:
    """The values as one column; None is null."""
    offsets = offsets_of((len(value or b"") for value in values), allocate)
    data = _filled(b"".join(value for value in values if value), allocate)
    return Strings(offsets, data, _validity(values, allocate))
