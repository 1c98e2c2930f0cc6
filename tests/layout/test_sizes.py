"""Sizes and codes that the format fixes."""

from __future__ import annotations

import pytest

from mqstore.layout import (
    batch,
    batch_queue_unit,
    checkpoint,
    constants,
    hosts,
    index,
    queue_ext,
    queue_unit,
    record,
)


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (record.PREFIX, 8),
        (record.HEADS[0], 88),
        (record.HEADS[1], 100),
        (record.HEADS[2], 100),
        (record.HEADS[3], 112),
        (queue_unit.QUEUE_UNIT, 20),
        (index.INDEX_HEADER, 40),
        (index.INDEX_SLOT, 4),
        (index.INDEX_ENTRY, 20),
        (checkpoint.CHECKPOINT, 40),
        (queue_ext.EXT_HEAD, 20),
        (batch_queue_unit.BATCH_QUEUE_UNIT, 46),
        (batch.BATCH_HEAD, 20),
        (hosts.HOST_V4, 8),
        (hosts.HOST_V6, 20),
    ],
)
def test_sizes(layout, size):
    assert layout.size == size
    assert layout.format.startswith(">")


def test_default_file_sizes():
    assert constants.DEFAULT_QUEUE_FILE_SIZE == 6_000_000
    assert index.file_size(constants.DEFAULT_HASH_SLOTS, constants.DEFAULT_INDEX_ENTRIES) == 420_000_040
    assert batch_queue_unit.UNITS_PER_FILE * batch_queue_unit.BATCH_QUEUE_UNIT_SIZE == 13_800_000


def test_magic_codes():
    for code, value in (
        (constants.MAGIC_V1, 0xDAA320A7),
        (constants.MAGIC_V2, 0xDAA320AB),
        (constants.MAGIC_BLANK, 0xCBD43194),
    ):
        assert code & 0xFFFFFFFF == value
