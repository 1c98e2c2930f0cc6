"""What holds for every test: marks by folder, the order, and a loud word on what did not run."""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import pytest

#: Order of the folders below tests/ in one process: cheap and fundamental first.
FOLDERS = ("layout", "kernels", "files", "store", "kafka_log", "crash", "cli", "project", "interop", "spark")
#: Folders whose tests share something costly, so that one process should run them all; they start first when several
#: processes share the tests, because they take longest.
HEAVY = ("spark", "interop")

#: Any test of such a folder may be the one that waits for what it shares: the start of a cluster, Maven's downloads.
SHARED_TIMEOUT_S = 900

NEEDS_REAL_STORE = "needs the real RocketMQ store"

# How long an example takes, to make or to try, says nothing on a shared machine. Where nobody is at the keyboard the
# examples are the same each time: what is new is looked for by `make test` elsewhere, and by `make fuzz`.
hypothesis.settings.register_profile(
    "mqstore", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)  # fmt: skip
hypothesis.settings.load_profile("mqstore")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shared = hasattr(config, "workerinput")
    order = [*HEAVY, *FOLDERS] if shared else FOLDERS
    for item in items:
        folder = _folder(item.nodeid)
        if folder in HEAVY:
            item.add_marker(folder)
            if config.getoption("timeout") is None and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SHARED_TIMEOUT_S))
    items.sort(key=lambda item: order.index(_folder(item.nodeid)) if _folder(item.nodeid) in order else -1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        """Gives each process whole files, so that their fixtures are made once, and heavy folders whole."""

        def _split_scope(self, nodeid: str) -> str:
            folder = _folder(nodeid)
            return folder if folder in HEAVY else nodeid.split("::", maxsplit=1)[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)]
    reasons = [report.longrepr[2] for report in skipped if NEEDS_REAL_STORE in report.longrepr[2]]
    if reasons:
        terminalreporter.write_sep("!", "INTEROP TESTS DID NOT RUN", red=True, bold=True)
        for reason in sorted(set(reasons)):
            count = reasons.count(reason)
            terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}", red=True)
        terminalreporter.write_line(
            "Nothing here was held against the real broker store. Install java, javac and mvn, with a way to Maven's "
            "central repository, and run again.",
            red=True,
        )


def _folder(nodeid: str) -> str:
    parts = nodeid.split("/")
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else ""
