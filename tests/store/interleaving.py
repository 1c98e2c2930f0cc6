"""Having one thread do something at an exact point of another one's work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE_S = 60


class ToldLock:
    """A lock that tells when somebody has to wait for it; ``lock`` is what it stands for."""

    def __init__(self, lock: Any, has_to_wait: threading.Event) -> None:
        self._lock = lock
        self._has_to_wait = has_to_wait

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._has_to_wait.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Beside:
    """``action`` done by another thread: :meth:`begin` returns when it is done, or has to wait for ``holder.name``."""

    def __init__(self, action: Callable[[], object], holder: object, name: str) -> None:
        self._has_gone_on = threading.Event()
        self._action = action
        self._thread = threading.Thread(target=self._run)
        setattr(holder, name, ToldLock(getattr(holder, name), self._has_gone_on))

    def begin(self) -> None:
        """Begin, and return as soon as it has got as far as it can."""
        self._thread.start()
        assert self._has_gone_on.wait(PATIENCE_S)

    def end(self) -> None:
        """Wait until it is done; it must have been begun."""
        self._thread.join(PATIENCE_S)
        assert self._thread.ident is not None
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._action()
        finally:
            self._has_gone_on.set()


def before_setting(
    monkeypatch: pytest.MonkeyPatch, target: object, name: str, action: Callable[[object, object], None]
) -> None:
    """Have ``action(old, new)`` called whenever attribute ``name`` of ``target`` is about to get a new value."""

    def get(holder: Any) -> Any:
        return holder.__dict__[name]

    def put(holder: Any, value: object) -> None:
        action(holder.__dict__[name], value)
        holder.__dict__[name] = value

    kind = type(target)
    monkeypatch.setattr(target, "__class__", type(kind.__name__, (kind,), {name: property(get, put)}))
