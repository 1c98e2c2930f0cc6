"""A thread that works now and then: failures are told once and tried again, and its end is waited for."""

from __future__ import annotations

import logging
import threading

import pytest

from mqstore.periodic import PeriodicThread

PATIENCE_S = 60
LOG = logging.getLogger("periodic-test")


def test_a_failure_is_told_once_and_again_after_a_success(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([OSError("one"), OSError("two"), None, OSError("three"), None])
    done = threading.Event()

    def work() -> None:
        outcome = next(outcomes, done)
        if outcome is done:
            done.set()
        elif isinstance(outcome, OSError):
            raise outcome

    thread = PeriodicThread("mqstore-test", 0.001, work, LOG, "working failed")
    thread.start()
    assert done.wait(PATIENCE_S)
    thread.stop()
    assert [record.getMessage() for record in caplog.records] == ["working failed: one", "working failed: three"]


def test_after_a_failure_the_pause_is_another_one() -> None:
    failed = threading.Event()

    def work() -> None:
        assert not failed.is_set(), "a second round"
        failed.set()
        raise OSError("no more for an hour")

    thread = PeriodicThread("mqstore-test", 0.001, work, LOG, "working failed", retry_s=3600)
    thread.start()
    assert failed.wait(PATIENCE_S)
    thread.stop()  # in the middle of the pause


def test_stopping_waits_for_the_work_at_hand_and_can_be_done_again() -> None:
    begun, go_on, finished = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        finished.set()

    thread = PeriodicThread("mqstore-test", 0.001, work, LOG, "working failed")
    thread.start()
    assert begun.wait(PATIENCE_S)
    stopper = threading.Thread(target=thread.stop)
    stopper.start()
    assert not finished.is_set()
    go_on.set()
    stopper.join(PATIENCE_S)
    assert finished.is_set()
    thread.stop()


def test_one_that_never_began_can_be_stopped() -> None:
    PeriodicThread("mqstore-test", 0.001, lambda: None, LOG, "working failed").stop()
