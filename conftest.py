"""What holds for every test: marks by folder, the order, and a loud word on what did not run."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

#: Order of the folders below tests/ in one process: cheap and fundamental first.
FOLDERS = ("layout", "kernels", "files", "store", "kafka", "cli", "project", "interop", "spark")
#: Folders whose tests share something costly, so that one process should run them all; they start first when several
#: processes share the tests, because they take longest.
HEAVY = ("spark", "interop")

NEEDS_REAL_STORE = "needs the real RocketMQ store"

# How long an example takes says nothing on a shared machine.
hypothesis.settings.register_profile("mqstore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("mqstore")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shared = hasattr(config, "workerinput")
    for item in items:
        folder = _folder(item)
        if folder in HEAVY:
            item.add_marker(folder)
        if item.get_closest_marker("xdist_group") is None:
            # One file stays in one process: its fixtures are made once.
            item.add_marker(pytest.mark.xdist_group(folder if folder in HEAVY else item.path.name))
    order = [*HEAVY, *FOLDERS] if shared else FOLDERS
    items.sort(key=lambda item: order.index(_folder(item)) if _folder(item) in order else -1)


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


def _folder(item: pytest.Item) -> str:
    tests = Path(__file__).parent / "tests"
    return item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
