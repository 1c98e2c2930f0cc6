"""Fixtures of this folder."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs return at once: these tests end processes at most, and never lose what was written.

    What would be lost at a power cut is asked in tests/crash, which looks at what was synced.
    """
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
