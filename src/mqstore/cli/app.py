"""Putting the commands together, and what happens around every one of them."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from mqstore import errors
from mqstore.cli.output import Format, Output, make_output

COMMANDS = ("demo", "stats", "dump", "get", "query", "tail", "check", "export", "rebuild")
"""Every command, in the order of the help; each is a module here with a function ``run``."""

EXIT_FAILURE = 1
EXIT_USAGE = 2


def build_app() -> typer.Typer:
    """The whole command line as a typer application."""
    app = typer.Typer(
        name="mqstore",
        help="Look into, check, rebuild and export message stores in the format of Apache RocketMQ.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_common)
    for name in COMMANDS:
        module = importlib.import_module(f"mqstore.cli.{name}")
        app.command(name)(_guarded(module.run, getattr(module, "EXIT_COULD_NOT_LOOK", EXIT_FAILURE)))
    return app


def _common(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Tell on standard error what is being done."),
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s")


def _guarded(run: Callable[..., int], exit_on_error: int) -> Callable[..., None]:
    """``run`` with its errors told in the format asked for and its answer as the exit code."""

    @functools.wraps(run)
    def command(**arguments: Any) -> None:
        output = make_output(arguments.get("format", Format.text))
        try:
            code = run(**arguments)
        except errors.MqstoreError as error:
            output.error(error)
            code = EXIT_USAGE if isinstance(error, errors.UsageError) else exit_on_error
        except BrokenPipeError:
            _silence_stdout()
            code = 0
        except KeyboardInterrupt:
            code = 130
        raise typer.Exit(code)

    # Typer reads the parameters from the signature; the answer is not one of them.
    command.__signature__ = inspect.signature(run, eval_str=True)  # type: ignore[attr-defined]
    return command


def _silence_stdout() -> None:
    """The reader of a pipe has gone: nothing more can be told, which is no failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line with the arguments of this process."""
    build_app()()


__all__ = ["COMMANDS", "Output", "build_app", "main"]
