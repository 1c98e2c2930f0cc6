"""Putting the commands together, and what happens around every one of them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import keyword
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

import mqstore
from mqstore import errors, kernels
from mqstore.cli import EXIT_INTERRUPTED, mqadmin
from mqstore.cli.output import Format, Output, TextOutput, make_output

COMMANDS = (
    "demo", "put", "stats", "dump", "get", "query", "tail", "lag", "check", "audit", "export", "compact", "load",
    "rebuild", "truncate", "expire", "adopt",
)  # fmt: skip
"""Every command, in the order of the help; each is a module here with a function ``run``."""

KAFKA_COMMANDS = ("stats", "dump", "dump-log", "import", "check", "compare", "reindex", "recover", "convert")
"""Those for Kafka's layout, behind ``mqstore kafka``; each is a module of :mod:`mqstore.cli.kafka`."""

KAFKA_ALIASES = dict.fromkeys(
    ("kafka-dump-log", "kafka-dump-log.sh", "DumpLogSegments", "kafka.tools.DumpLogSegments"), "dump-log"
)
"""The names that Kafka itself has for one of them; they work with and without ``kafka`` before them."""

BENCH_COMMANDS = ("store", "layouts")
"""The benchmarks, behind ``mqstore bench``; each is a module of :mod:`mqstore.cli.bench`."""

EXIT_FAILURE = 1
EXIT_USAGE = 2


def build_app() -> typer.Typer:
    """The whole command line as a typer application."""
    app = typer.Typer(
        name="mqstore",
        cls=_AnyCase,
        help="Look into, check, rebuild, convert and export message stores of Apache RocketMQ and Apache Kafka.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_common)
    _add_commands(app, "mqstore.cli", COMMANDS)
    _add_group(
        app, "kafka", KAFKA_COMMANDS,
        "The same for data directories of Apache Kafka: no broker is asked, nothing is changed unless told to.",
    )  # fmt: skip
    _add_group(app, "bench", BENCH_COMMANDS, "Measure stores on this machine.")
    for name, own in KAFKA_ALIASES.items():
        app.command(name, hidden=True)(_guarded(_module("mqstore.cli.kafka", own).run, EXIT_FAILURE))
    for name, run in mqadmin.COMMANDS.items():
        app.command(name, hidden=True)(_guarded(run, EXIT_FAILURE))
    group = typer.Typer(
        cls=_AnyCase, no_args_is_help=True, rich_markup_mode=None,
        help="RocketMQ's commands by its own names, over a directory. `mqadmin` itself may be left out.",
    )  # fmt: skip
    group.callback()(lambda: None)
    for name, run in mqadmin.COMMANDS.items():
        group.command(name)(_guarded(run, EXIT_FAILURE))
    app.add_typer(group, name="mqadmin")
    return app


class _AnyCase(TyperGroup):
    """Commands whose names are found in any case."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or the one that differs from it only in case."""
        found = super().get_command(ctx, cmd_name)
        if found is None:
            same = [name for name in self.list_commands(ctx) if name.lower() == cmd_name.lower()]
            found = super().get_command(ctx, same[0]) if same else None
        return found


def _add_group(app: typer.Typer, name: str, commands: Sequence[str], help: str) -> None:
    group = typer.Typer(cls=_AnyCase, help=help, no_args_is_help=True, rich_markup_mode=None)
    # A group of one command is a group, too.
    group.callback()(lambda: None)
    _add_commands(group, f"mqstore.cli.{name}", commands)
    for other, own in KAFKA_ALIASES.items() if name == "kafka" else ():
        group.command(other, hidden=True)(_guarded(_module("mqstore.cli.kafka", own).run, EXIT_FAILURE))
    app.add_typer(group, name=name)


def _add_commands(app: typer.Typer, package: str, names: Sequence[str]) -> None:
    for name in names:
        module = _module(package, name)
        app.command(name)(_guarded(module.run, getattr(module, "EXIT_COULD_NOT_LOOK", EXIT_FAILURE)))


def _module(package: str, command: str) -> Any:
    """The module of a command: no module can be called as a word of the language, or with a dash."""
    name = command.replace("-", "_")
    return importlib.import_module(f"{package}.{name}_" if keyword.iskeyword(name) else f"{package}.{name}")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mqstore {mqstore.__version__}, kernels {kernels.NAME}")
        raise typer.Exit


def _common(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Tell the version."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Tell on standard error what is being done."),
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s")
    # What goes wrong on the way to Java is told by whoever has asked: an interrupt not with all its places as well.
    logging.getLogger().addFilter(_is_no_bridge)


def _is_no_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in os.path.split(os.path.dirname(record.pathname))


def _guarded(run: Callable[..., int], exit_on_error: int) -> Callable[..., None]:
    """``run`` with its errors told in the format asked for and its answer as the exit code."""

    @functools.wraps(run)
    def command(**arguments: Any) -> None:
        try:
            code = _run(run, arguments, exit_on_error)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence_stdout()
            code = 0
        except OSError as error:  # of the output: errors of stores have been told above
            if error.filename is None:
                _silence_stdout()
            path = "standard output" if error.filename is None else os.fsdecode(error.filename)
            TextOutput().error(errors.from_os_error(error, "write the output", path))
            code = exit_on_error
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            code = EXIT_INTERRUPTED
        raise typer.Exit(code)

    # Typer reads the parameters from the signature; the answer is not one of them.
    command.__signature__ = inspect.signature(run, eval_str=True)  # type: ignore[attr-defined]
    return command


def _run(run: Callable[..., int], arguments: dict[str, Any], exit_on_error: int) -> int:
    """Call ``run``; what goes wrong is told, and its exit code returned."""
    output = make_output(arguments.get("format", Format.text))
    not_text = _not_text(arguments)
    try:
        if not_text is not None and arguments.get("master") is not None:
            raise not_text  # Spark takes nothing else, not even in paths, and says so in pages
        return run(**arguments)
    except UnicodeEncodeError:
        if not_text is None:
            raise
        output.error(not_text)
        return EXIT_USAGE
    except errors.MqstoreError as error:
        output.error(error)
        return EXIT_USAGE if isinstance(error, errors.UsageError) else exit_on_error
    except MemoryError:
        output.error(errors.StoreIOError("not enough memory", hint="raise the limit (ulimit -v), or ask for less"))
        return exit_on_error


def _not_text(arguments: Mapping[str, Any]) -> errors.UsageError | None:
    """The error for an argument whose bytes are no text; a path may be such, and what is stored as it came."""
    for value in arguments.values():
        for one in value if isinstance(value, list | tuple) else (value,):
            try:
                str(one).encode()
            except UnicodeEncodeError:
                return errors.UsageError("an argument is not text", expected="UTF-8", found=ascii(str(one))[:80])
    return None


def _silence_stdout() -> None:
    """Nothing more can be told: what is still in the buffer must not fail again at the end of the process."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line with the arguments of this process."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    build_app()()


__all__ = ["BENCH_COMMANDS", "COMMANDS", "KAFKA_ALIASES", "KAFKA_COMMANDS", "Output", "build_app", "main"]
