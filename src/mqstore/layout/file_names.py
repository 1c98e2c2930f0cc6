"""Names of the files of a store (docs/format/directory.md)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_INDEX_NAME: Final = re.compile(r"[0-9]{17}", re.ASCII)
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def index_file_name(created: datetime) -> str:
    """Name of an index file created at this local time: 17 digits down to the millisecond."""
    return f"{created:%Y%m%d%H%M%S}{created.microsecond // 1000:03d}"


def is_index_file_name(name: str) -> bool:
    """Whether an index file can have this name; they are ordered by name."""
    return _INDEX_NAME.fullmatch(name) is not None


def parse_queue_id(name: str) -> int | None:
    """Queue id that a directory below a topic's directory stands for; None when the name is no queue id."""
    return int(name) if _QUEUE_ID.fullmatch(name) else None
