"""``mqstore audit``: queues and index held against the log, by Spark tasks."""

from __future__ import annotations

import dataclasses

from mqstore.cli.check import finding_lines, summary_line
from mqstore.cli.options import FormatOption, MasterOption, StorePath, check_master
from mqstore.cli.output import Format, make_output, step_bar
from mqstore.store.view import StoreView

EXIT_COULD_NOT_LOOK = 2


def run(store: StorePath, master: MasterOption = "local[2]", format: FormatOption = Format.text) -> int:
    """Find what `mqstore check` finds, on a Spark cluster.

    Exit codes: 0 nothing found, 1 findings, 2 could not look.
    """
    from mqstore import spark as mqspark

    StoreView(store).close()  # a path that is no store is told before Spark is started
    session = mqspark.session(check_master(master), "mqstore audit")
    try:
        with step_bar("auditing") as on_progress:
            result = mqspark.jobs.audit(session, store.absolute(), on_progress=on_progress)
    finally:
        session.stop()
    document = dataclasses.asdict(result)
    document["findings"] = [finding.as_dict() for finding in result.findings]
    lines = [line for finding in result.findings for line in finding_lines(finding)]
    make_output(format).document(document, [*lines, summary_line(result.summary)])
    return 0 if result.ok else 1
