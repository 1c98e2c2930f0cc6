"""Threads that cannot be started, and waits for their end that are broken off."""

from __future__ import annotations

import threading

import pytest


def ours() -> list[str]:
    """Names of the threads of stores that run now."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("mqstore-"))


def refuse_to_start(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What the system does that has no more threads to give, for thread ``name``."""
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)


def interrupt_join(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Ctrl-C where the end of thread ``name`` is about to be waited for, once."""
    is_alive, todo = threading.Thread.is_alive, [name]

    def interrupted(thread: threading.Thread) -> bool:
        if thread.name in todo:
            todo.remove(thread.name)
            raise KeyboardInterrupt
        return is_alive(thread)

    monkeypatch.setattr(threading.Thread, "is_alive", interrupted)
