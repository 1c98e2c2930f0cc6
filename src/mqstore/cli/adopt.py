"""``mqstore adopt``: tell a broker's store where its log lies, for all other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.options import FormatOption, StorePath, parse_path
from mqstore.cli.output import Format, make_output
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS
from mqstore.store.adopting import adopt, read_broker_conf


def run(
    store: StorePath,
    broker_conf: Annotated[
        Path | None,
        typer.Option("--broker-conf", "-c", metavar="FILE", help="The configuration of its broker.", parser=parse_path),
    ] = None,
    commit_log: Annotated[
        str | None,
        typer.Option("--commit-log", metavar="DIR[,DIR...]", help="Directories of its log, as storePathCommitLog."),
    ] = None,
    read_only_commit_log: Annotated[
        str | None,
        typer.Option("--read-only-commit-log", metavar="DIR[,DIR...]", help="Those that get no new files."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Do it; without, only tell what would be noted.")
    ] = False,
    format: FormatOption = Format.text,
) -> int:
    """Note in a broker's store what only its configuration says: where its log lies, its delay levels, light queues.

    After that every command, mqstore.inspect and Spark find all of it. Only notes of mqstore's own are written; brokers
    ignore them.
    """
    settings = {} if broker_conf is None else read_broker_conf(broker_conf)
    given = {"storePathCommitLog": commit_log, "readOnlyCommitLogStorePaths": read_only_commit_log}
    settings |= {name: text for name, text in given.items() if text is not None}
    if not settings:
        raise errors.UsageError("nothing to note", hint="give --broker-conf FILE, or --commit-log DIR,DIR")
    found = adopt(store, settings, in_place=in_place)
    paths = [str(path) for path in found.places.paths]
    read_only = [str(path) for path in found.places.read_only]
    document = {
        "storePathCommitLog": paths,
        "readOnlyCommitLogStorePaths": read_only,
        "enableMultiDispatch": found.multi_dispatch.enabled,
        "enableLmq": found.multi_dispatch.lmq,
        "messageDelayLevel": found.delay_levels,
        "noted": in_place,
    }
    lines = [f"the log lies in {path}" for path in paths]
    lines += [f"and, read only, in {path}" for path in read_only]
    lines += ["records go to further queues"] if found.multi_dispatch.enabled else []
    lines += [f"delay levels are {found.delay_levels}"] if found.delay_levels != DEFAULT_DELAY_LEVELS else []
    make_output(format).document(document, [*lines, "noted" if in_place else "not noted: --in-place does it"])
    return 0
