"""The aborted transactions of a segment, ``.txnindex`` (docs/format/kafka-txn-index.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError
from mqstore.layout.buffers import Buffer

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted.

    ``first_offset`` is that of its first record, ``last_offset`` that of its abort marker. ``last_stable_offset`` was
    the partition's when the marker was written: no transaction that began before it and was still open then.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def decode_txn_index(buffer: Buffer) -> list[AbortedTransaction]:
    """The entries of a whole file, in the order of their markers.

    Raises CorruptFileError for a length that is no number of entries, an unknown version, or entries out of order.
    """
    if len(buffer) % ENTRY_SIZE:
        raise CorruptFileError(
            "the transaction index ends inside an entry", expected=f"a multiple of {ENTRY_SIZE}", found=len(buffer)
        )
    entries: list[AbortedTransaction] = []
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(memoryview(buffer))):
        entry = AbortedTransaction._make(fields)
        if version != VERSION:
            raise CorruptFileError(
                "unknown version of a transaction index entry",
                offset=number * ENTRY_SIZE, expected=VERSION, found=version,
            )  # fmt: skip
        if entry.first_offset > entry.last_offset or (entries and entries[-1].last_offset >= entry.last_offset):
            raise CorruptFileError(
                "transaction index entries are out of order", offset=number * ENTRY_SIZE, found=str(tuple(entry))
            )
        entries.append(entry)
    return entries


def encode_txn_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of ``entries``."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
