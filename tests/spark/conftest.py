"""Fixtures ``spark`` (a local session) and ``cluster`` (a master, two workers), each started when first asked for.

For all that plan reads there is a store, made once, and a copy of it for each test.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore.spark
from mqstore.spark import kafka_source, stream
from spark.cluster import Cluster
from spark.planned import counted_reads, make_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this process, shared by all tests."""
    session = mqstore.spark.session("local[2]", **{"spark.sql.shuffle.partitions": 4})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real cluster of separate processes; jobs go to it through :meth:`Cluster.run`."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    # Also when the tests are interrupted where no fixture is torn down any more.
    atexit.register(cluster.stop)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of :func:`spark.planned.make_store`, made once; read only."""
    return make_store(tmp_path_factory.mktemp("made") / "broker-a")


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of ``made``, whichever the test's module has by that name, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "broker-a"))


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Gives how many bytes of files were read since it was last asked."""
    return counted_reads(monkeypatch)


@pytest.fixture(autouse=True)
def stopped_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the readers of streams that a test has made: Java cannot be spoken to with more than 1024 open files."""
    made: list[Any] = []
    for kind in (stream.StreamReader, kafka_source.StreamReader):

        def begin(self: Any, *arguments: Any, real: Any = kind.__init__) -> None:
            made.append(self)
            real(self, *arguments)

        monkeypatch.setattr(kind, "__init__", begin)
    yield
    for reader in made:
        reader.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cluster: Any = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        report.sections += cluster.logs()
    return report
