"""What a check finds."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

REOPEN = "opening the store with mqstore.open mends it"


class Severity(str, enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Messages are lost, cannot be read, or are served wrongly."""
    WARNING = "warning"
    """Harmless now; another program, or the next crash, may stumble over it."""
    NOTE = "note"
    """Worth knowing; nothing is wrong with the store."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        severity: how bad it is.
        area: ``log``, ``queue``, ``index``, ``checkpoint`` or ``config``; of a Kafka log also ``transactions`` and
            ``producers``.
        path: the file or directory.
        offset: physical offset or position in the file (log), queue offset (queue), entry number (index), or None.
        message: what is wrong, one sentence.
        expected: what should be there, or None.
        found: what is there, or None.
        repair: what mends it.
    """

    severity: Severity
    area: str
    path: str
    offset: int | None
    message: str
    expected: object = None
    found: object = None
    repair: str = "mqstore rebuild STORE --output NEW"

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON values; what is None is left out."""
        values = {
            "severity": self.severity.value,
            "area": self.area,
            "path": self.path,
            "offset": self.offset,
            "message": self.message,
            "expected": self.expected,
            "found": self.found,
            "repair": self.repair,
        }
        plain = (int, float, str, type(None))
        return {k: v if isinstance(v, plain) else str(v) for k, v in values.items() if v is not None}
