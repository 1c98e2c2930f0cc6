"""The Spark session of a command that has its work done by tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.cli.options import check_master
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_report(report: Path | None, store: Path) -> None:
    """Raise what a job would about the page that is asked for, before Spark is started."""
    from mqstore.spark.jobs.outputs import check_page
    from mqstore.spark.stores import StoreRef

    check_page(report, [StoreRef(os.fspath(store), "")])


@contextmanager
def spark_session(command: str, master: str, store: Path | None = None) -> Iterator[SparkSession]:
    """A session for ``mqstore COMMAND`` that ends with the block.

    A master that cannot be meant, and a ``store`` that is none, are told before Spark is started, which takes seconds
    and prints pages.
    """
    from mqstore import spark

    check_master(master)
    if store is not None:
        StoreView(store).close()
    session = spark.session(master, f"mqstore {command}")
    try:
        yield session
    finally:
        session.stop()
