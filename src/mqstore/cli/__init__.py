"""The command line: ``mqstore <command>``, one file per command.

Exit codes: 0 all well, 1 findings or failure, 2 the call cannot be meant. ``check`` tells more: 1 is findings, 2 that
it could not look. With ``--format json`` everything on standard output is JSON, errors as well.
"""

from mqstore.cli.app import main

__all__ = ["main"]
