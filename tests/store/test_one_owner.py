"""Who may open a store, and with what: one writer, no child of a fork, a path and settings that can be meant."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

import mqstore
from mqstore import (
    FlushDiskType,
    Message,
    Store,
    StoreClosedError,
    StoreConfig,
    StoreIOError,
    StoreLockedError,
    UsageError,
)
from mqstore.files.lock import is_locked
from store.support import bodies, body_of, fill, open_small


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with open_small(tmp_path / "store", mapped_file_size_commit_log=1 << 20) as opened:
        yield opened


def test_a_second_writer_is_kept_out_and_told_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "store"
    script = f"import mqstore, sys; s = mqstore.open({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreLockedError) as caught:
            mqstore.open(path)
        assert f"process {other.pid}" in str(caught.value)
        assert mqstore.inspect(path).queues() == []
        other.communicate()
    with mqstore.open(path), pytest.raises(StoreLockedError, match="this one"):
        mqstore.open(path)


def test_the_child_of_a_fork_cannot_use_the_store(store: Store) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            store.put(Message("t", b""))
        except StoreClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.put(Message("t", b""))


def test_the_child_of_a_fork_opens_the_store_when_its_parent_has_closed_it(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    refused, closed = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(StoreLockedError, match=f"process {os.getppid()}"):
                open_small(tmp_path / "store")
            os.write(refused[1], b"x")
            os.read(closed[0], 1)
            with open_small(tmp_path / "store") as own:
                store.close()  # which is its parent's, and must not take the child's own lock along
                assert is_locked(tmp_path / "store" / "lock")
                own.put(Message("T", b"of the child", queue_id=0))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(refused[1])  # so that a child that dies is no wait for ever
    assert os.read(refused[0], 1) == b"x"
    store.close()
    os.write(closed[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bodies(tmp_path / "store") == [b"of the child"]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.put(Message("t", b""))


def test_a_directory_without_permission() -> None:
    """Tried in a child process that gives up root's rights, which go past all permissions."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        fill(path, 1)
        Path(directory).chmod(0o755)
        path.chmod(0o555)
        pid = os.fork()
        if pid == 0:
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                open_small(path)
            except StoreIOError as error:
                os._exit(0 if "permission" in str(error) and str(path) in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert bodies(path) == [body_of(0)]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"flush_disk_typ": "SYNC_FLUSH"}, "did you mean flush_disk_type"),
        ({"flush_disk_type": "FAST"}, "SYNC_FLUSH or ASYNC_FLUSH"),
        ({"mapped_file_size_commit_log": 0}, "above 0"),
        ({"max_index_num": 1}, "at least 2"),
        ({"message_delay_level": "1x"}, "1x"),
        ({"broker_ip1": "here"}, "numeric address"),
        ({"flush_interval_commit_log": "x"}, "a whole number"),
    ],
)
def test_settings_that_cannot_be_meant(tmp_path: Path, settings: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        mqstore.open(tmp_path / "store", **settings)
    assert problem in f"{caught.value} {caught.value.hint}"
    assert not (tmp_path / "store").exists()


def test_a_broker_conf_is_read(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerClusterName = DefaultCluster\nbrokerName=broker-a\n# comment\nflushDiskType=SYNC_FLUSH\n"
        "mappedFileSizeCommitLog=4096\nmessageIndexEnable = false\nbrokerIP1=10.0.0.9\n"
    )
    config = StoreConfig.from_broker_conf(conf)
    assert (config.broker_name, config.flush_disk_type, config.mapped_file_size_commit_log) == (
        "broker-a", FlushDiskType.SYNC_FLUSH, 4096,
    )  # fmt: skip
    assert config.message_index_enable is False
    conf.write_text("flushDiskTyp=SYNC_FLUSH\n")
    with pytest.raises(UsageError, match="flushDiskTyp"):
        StoreConfig.from_broker_conf(conf)


@pytest.mark.parametrize("path", ["", None])
def test_a_path_that_names_nothing(path: str | None) -> None:
    with pytest.raises(UsageError):
        mqstore.open(path)  # type: ignore[arg-type]
