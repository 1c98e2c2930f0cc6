"""The command line: ``mqstore <command>``, one file per command.

Exit codes: 0 all well, 1 findings or failure, 2 the call cannot be meant. ``check`` tells more: 1 is findings, 2 that
it could not look. With ``--format json`` everything on standard output is JSON, errors as well.
"""

import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line with the arguments of this process."""
    try:
        from mqstore.cli import app

        app.main()
    except KeyboardInterrupt:  # while the commands were loaded; in a command it is told by that
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


__all__ = ["EXIT_INTERRUPTED", "main"]
