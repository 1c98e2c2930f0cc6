"""Names of the files of a store (docs/format/directory.md)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.constants import LONG_MAX

_OFFSET_NAME: Final = re.compile(r"[0-9]{20}", re.ASCII)
_INDEX_NAME: Final = re.compile(r"[0-9]{17}", re.ASCII)
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def offset_file_name(start_offset: int) -> str:
    """Name of a log or queue file: the offset of its first byte, in 20 digits.

    Raises UsageError for negative offsets and those above 2**63 - 1.
    """
    if not 0 <= start_offset <= LONG_MAX:
        raise UsageError("a file cannot start at this offset", expected=f"0..{LONG_MAX}", found=start_offset)
    return f"{start_offset:020d}"


def parse_offset_file_name(name: str) -> int | None:
    """Offset of the first byte of the file of this name; None when the name is no such offset."""
    if _OFFSET_NAME.fullmatch(name) is None or (offset := int(name)) > LONG_MAX:
        return None
    return offset


def index_file_name(created: datetime) -> str:
    """Name of an index file created at this local time: 17 digits down to the millisecond."""
    return f"{created:%Y%m%d%H%M%S}{created.microsecond // 1000:03d}"


def is_index_file_name(name: str) -> bool:
    """Whether an index file can have this name; they are ordered by name."""
    return _INDEX_NAME.fullmatch(name) is not None


def parse_queue_id(name: str) -> int | None:
    """Queue id that a directory below a topic's directory stands for; None when the name is no queue id."""
    return int(name) if _QUEUE_ID.fullmatch(name) else None
