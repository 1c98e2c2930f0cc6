"""``mqstore audit``: queues and index held against the log, by Spark tasks."""

from __future__ import annotations

from mqstore.cli.check import finding_lines, summary_line
from mqstore.cli.options import FormatOption, MasterOption, StorePath
from mqstore.cli.output import Format, make_output, step_bar
from mqstore.cli.spark_session import spark_session

EXIT_COULD_NOT_LOOK = 2


def run(store: StorePath, master: MasterOption = "local[2]", format: FormatOption = Format.text) -> int:
    """Find what `mqstore check` finds, on a Spark cluster.

    Exit codes: 0 nothing found, 1 findings, 2 could not look.
    """
    from mqstore.spark import jobs

    with spark_session("audit", master, store) as session, step_bar("auditing") as on_progress:
        result = jobs.audit(session, store.absolute(), on_progress=on_progress)
    lines = [line for finding in result.findings for line in finding_lines(finding)]
    make_output(format).document(result, [*lines, summary_line(result.summary)])
    return 0 if result.ok else 1
