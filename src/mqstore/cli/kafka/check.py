"""``mqstore kafka check``: everything that is wrong with a Kafka log."""

from __future__ import annotations

from mqstore.cli.check import finding_lines
from mqstore.cli.kafka.options import LogPath
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output
from mqstore.findings import Severity
from mqstore.kafka.view import KafkaView

EXIT_COULD_NOT_LOOK = 2


def run(path: LogPath, format: FormatOption = Format.text) -> int:
    """Read all segments and list every finding, with place, what was expected, what was found and what mends it.

    Checksums, offsets, timestamps, sequence numbers, epochs, and whether indexes, snapshots and checkpoints agree with
    the log. Exit codes: 0 nothing found, 1 findings, 2 could not look. Notes are listed and do not count.
    """
    with KafkaView(path) as view:
        findings = view.check()
        partitions = len(view.partitions())
    count = sum(finding.severity is not Severity.NOTE for finding in findings)
    make_output(format).document(
        {
            "findings": findings,
            "summary": {"findings": count, "partitions": partitions},
        },
        [
            *(line for finding in findings for line in finding_lines(finding)),
            f"{count} findings in {partitions} partitions" if count else f"nothing wrong: {partitions} partitions",
        ],
    )
    return 1 if count else 0
