"""The end of a commit log, for the plain path alone."""

from __future__ import annotations

from typing import Any

from mqstore.errors import UsageError
from mqstore.kernels.store_api import LogTail
from mqstore.layout.constants import HOST_V4_SIZE, HOST_V6_SIZE


class PlainTail:
    """See :class:`mqstore.kernels.store_api.LogTail`. This one leaves every message to the plain path."""

    def __init__(self, max_body: int) -> None:
        self.end_offset = 0
        self.last_timestamp_ms = 0
        self.last_record_offset = -1
        self.is_open = False
        self.max_body = max_body
        self.plain_property: str | None = None
        self.queue_counts: dict[str, int] = {}
        self.next_offsets: dict[str, list[int]] = {}
        self.turns: dict[str, int] = {}
        self._window: tuple[int, int] | None = None

    def attach(self, buffer: Any, start: int) -> None:
        """See :meth:`mqstore.kernels.store_api.LogTail.attach`."""
        if start < 0:
            raise UsageError("no place in a log", offset=start)
        self._window = (start, start + len(buffer))

    def allow(self, writable_to: int) -> None:
        """See :meth:`mqstore.kernels.store_api.LogTail.allow`."""
        if self._window is None or not self._window[0] <= writable_to <= self._window[1]:
            raise UsageError("outside the window", offset=writable_to, found=self._window)

    def detach(self) -> None:
        """See :meth:`mqstore.kernels.store_api.LogTail.detach`."""
        self._window = None

    def put(self, message: Any) -> Any:
        """None: the plain path writes it."""
        return None

    def put_batch(self, messages: list[Any]) -> list[Any] | None:
        """None: the plain path writes them."""
        return None


def log_tail(message_type: type, result_type: type, put_ok: object, store_host: bytes, max_body: int, /) -> LogTail:
    """See :meth:`mqstore.kernels.api.Kernels.log_tail`."""
    if len(store_host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
        raise UsageError("a host field has 8 or 20 bytes", expected="8 or 20", found=len(store_host))
    return PlainTail(max_body)
