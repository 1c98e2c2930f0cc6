"""The commands that write: put, expire; and lag, which tells what expiry would cost."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import mqstore
from cli.test_commands import COMMAND, run
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS
from store.support import findings, open_small, tree


def test_put_from_arguments_and_from_a_pipe(tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = run("put", store, "orders", "héllo", "--tags", "paid", "-k", "o-1", "-k", "o-2", "-p", "a=b=c", "-q", "0")
    assert result.exit_code == 0, result.output
    done = subprocess.run(
        [*COMMAND, "put", str(store), "orders", "-q", "0", "--format", "json"],
        input=b"one\ntwo\r\n\n\xff\xfe",
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == {
        "messages": 4, "lastMsgId": json.loads(done.stdout)["lastMsgId"], "lastQueue": 0, "lastQueueOffset": 4,
    }  # fmt: skip
    with mqstore.inspect(store) as view:
        messages = view.get("orders", 0).messages
        assert [message.body for message in messages] == ["héllo".encode(), b"one", b"two", b"", b"\xff\xfe"]
        assert messages[0].keys == ["o-1", "o-2"]
        assert (messages[0].tags, messages[0].properties["a"]) == ("paid", "b=c")
    assert findings(store) == []


@pytest.mark.parametrize(
    "arguments",
    [("t", "x", "-p", "novalue"), ("no such letter é", "x"), ("t", "x", "-q", "-1"), ("t", "x", "-k", "a b")],
)
def test_put_refuses_what_cannot_be(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run("put", tmp_path / "store", *arguments)
    assert result.exit_code in (1, 2)


def test_a_body_is_stored_as_it_came_and_all_else_must_be_text(tmp_path: Path) -> None:
    store = tmp_path / "s"
    odd = os.fsdecode(b"\xff")
    assert run("put", store, "t", odd, "-q", "0").exit_code == 0
    with mqstore.inspect(store) as view:
        assert view.get("t", 0).messages[0].body == b"\xff"
    for arguments in (
        ("put", store, odd, "x"),
        ("put", store, "t", "x", "--tags", odd),
        ("put", store, "t", "x", "-p", f"a={odd}"),
        ("put", store, "t", "x", "-k", odd),
        ("query", store, "t", "--key", odd),
        ("export", store, "--output", tmp_path / odd),
        ("load", odd, "--output", tmp_path / "new"),
    ):
        result = run(*arguments)
        assert result.exit_code in (1, 2), arguments
    assert findings(store) == []


@pytest.mark.parametrize("command", [("put", "{}", "t"), ("kafka", "import", "-", "--output", "{}", "-t", "t")])
def test_a_closed_standard_input_is_told(tmp_path: Path, command: tuple[str, ...]) -> None:
    call = [*COMMAND, *(one.format(tmp_path / "new") for one in command)]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *call], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input is closed" in done.stderr
    assert b"Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_put_beside_another_writer_says_so(tmp_path: Path) -> None:
    with open_small(tmp_path / "s"):
        result = run("put", tmp_path / "s", "t", "x")
        assert result.exit_code == 1
        assert "open" in result.output


def test_lag_and_its_alert(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        for _ in range(10):
            store.put(mqstore.Message("t", b"", queue_id=0))
        store.wait_dispatched()
        store.commit_offset("g", "t", 0, 4)
        store.commit_offset("other", "t", 0, 10)
    assert "g: 6 messages behind" in run("lag", tmp_path / "s").output
    assert json.loads(run("lag", tmp_path / "s", "--format", "json", "-g", "g").output)["lag"] == {"g": 6}
    assert run("lag", tmp_path / "s", "--alert", "6").exit_code == 0
    assert run("lag", tmp_path / "s", "--alert", "5").exit_code == 1
    assert run("lag", tmp_path / "nowhere").exit_code == 1


@pytest.mark.parametrize("where", [(), ("--master", "local[2]"), ("--report", "page.html")])
@pytest.mark.parametrize("names", [("-g", "bilung"), ("-t", "tt"), ("-g", "billing", "-t", "tt")])
def test_an_alert_for_what_is_not_there_is_an_error(
    tmp_path: Path, names: tuple[str, ...], where: tuple[str, ...]
) -> None:
    with open_small(tmp_path / "s") as store:
        store.put(mqstore.Message("t", b"", queue_id=0))
        store.wait_dispatched()
        store.commit_offset("billing", "t", 0, 0)
    result = run("lag", tmp_path / "s", *names, *where, "--alert", "5")
    assert result.exit_code == 2
    assert names[1] in result.stderr
    assert "billing in t" in result.stderr
    if not where:
        assert run("lag", tmp_path / "s", *names).exit_code == 0


def test_expire_tells_first_and_does_it_when_told(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        for _ in range(100):
            store.put(mqstore.Message("t", bytes(100), queue_id=0))
    files = sorted((tmp_path / "s" / "commitlog").iterdir())
    old = time.time() - 100 * 3600
    for path in files[:2]:
        os.utime(path, (old, old))
    told = json.loads(run("expire", tmp_path / "s", "--format", "json").output)
    assert told == {"removed": [], "files": [str(path) for path in files[:2]]}
    assert sorted((tmp_path / "s" / "commitlog").iterdir()) == files
    done = json.loads(run("expire", tmp_path / "s", "--in-place", "--format", "json").output)
    assert done["removed"] == [str(path) for path in files[:2]]
    assert sorted((tmp_path / "s" / "commitlog").iterdir()) == files[2:]
    assert findings(tmp_path / "s") == []
    assert run("expire", tmp_path / "nowhere", "--in-place").exit_code == 1
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("count", [1, 7, 29])
def test_truncate_gives_the_store_as_it_was(tmp_path: Path, count: int) -> None:
    """Everything derived goes back with the log: as if what came later had never been put."""
    source, output = tmp_path / "s", tmp_path / "cut"
    with open_small(source) as store:
        ends = []
        for number in range(30):
            result = store.put(mqstore.Message(f"t{number % 3}", b"%d" % number, keys=[f"k{number}"], queue_id=0))
            ends.append(result.physical_offset + result.size_bytes)
        store.wait_dispatched()
        store.commit_offset("g", "t0", 0, 10)
    before = tree(source)
    refused = run("truncate", source, "--at", ends[count - 1] - 1, "--output", output)
    assert refused.exit_code == 2
    assert str(ends[count - 2] if count > 1 else 0) in refused.output
    for at in (-1, 0, 1 << 40):
        assert run("truncate", source, "--at", at, "--output", output).exit_code == 2
    assert not output.exists()
    result = run("truncate", source, "--at", ends[count - 1], "--output", output, "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["units"] == count
    assert tree(source) == before
    assert findings(output) == []
    with mqstore.open(output) as store:
        assert store.log_end == ends[count - 1]
        assert [store.max_offset(f"t{number}", 0) for number in range(3)] == [
            len(range(number, count, 3)) for number in range(3)
        ]
        assert [bool(store.query(f"t{number % 3}", f"k{number}").messages) for number in range(30)] == [
            number < count for number in range(30)
        ]
        assert store.committed_offset("g", "t0", 0) == min(10, store.max_offset("t0", 0))
        assert store.put(mqstore.Message("t0", b"on", queue_id=0)).physical_offset >= ends[count - 1]
    assert findings(output) == []


def as_a_broker_left_it(root: Path) -> tuple[Path, Path]:
    """A store whose log lies elsewhere, in two directories, and which does not say so."""
    logs = (root / "disk1" / "log", root / "disk2" / "log")
    with open_small(
        root / "s", store_path_commit_log=",".join(map(str, logs)), enable_multi_dispatch=True, enable_lmq=True
    ) as store:
        for number in range(70):
            message = mqstore.Message("t", bytes(100), keys=[f"k{number}"], queue_id=0)
            message.properties = {"INNER_MULTI_DISPATCH": "mirror"}
            store.put(message)
    for path in (root / "s").glob("mqstore-*.json"):
        path.unlink()
    return logs


@pytest.mark.parametrize("way", ["broker.conf", "options"])
def test_a_brokers_store_is_adopted_once_and_then_found_by_every_command(tmp_path: Path, way: str) -> None:
    logs = as_a_broker_left_it(tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerClusterName=c\nnewInSomeRelease=1\nstorePathCommitLog={logs[0]},{logs[1]}\n"
        "enableMultiDispatch=true\nenableLmq=false\nmessageDelayLevel=1s 1h\n"
    )
    options: list[object] = ["--broker-conf", conf]
    if way == "options":
        options = ["--commit-log", logs[0], "--read-only-commit-log", logs[1]]
    assert len(json.loads(run("dump", tmp_path / "s", "--format", "json").output or "[]")) == 0
    before = tree(tmp_path)
    told = run("adopt", tmp_path / "s", *options)
    assert told.exit_code == 0, told.output
    assert f"the log lies in {logs[0]}" in told.output
    assert "--in-place" in told.output
    assert tree(tmp_path) == before
    done = json.loads(run("adopt", tmp_path / "s", *options, "--in-place", "--format", "json").output)
    assert done == {
        "storePathCommitLog": [str(log) for log in (logs if way == "broker.conf" else logs[:1])],
        "readOnlyCommitLogStorePaths": [] if way == "broker.conf" else [str(logs[1])],
        "enableMultiDispatch": way == "broker.conf",
        "enableLmq": False,
        "messageDelayLevel": "1s 1h" if way == "broker.conf" else DEFAULT_DELAY_LEVELS,
        "noted": True,
    }
    assert {name for name in tree(tmp_path) if name not in before} <= {
        "s/mqstore-commitlog.json", "s/mqstore-multi-dispatch.json", "s/mqstore-delay-levels.json"
    }  # fmt: skip
    lines = run("dump", tmp_path / "s", "--format", "json").output.splitlines()
    assert len(lines) == 70
    assert "70" in run("stats", tmp_path / "s").output
    assert json.loads(run("query", tmp_path / "s", "-t", "t", "-k", "k3", "--format", "json").output)["messages"]
    if way == "broker.conf":
        assert run("check", tmp_path / "s").exit_code == 0
        assert run("rebuild", tmp_path / "s", "--output", tmp_path / "new").exit_code == 0
        assert run("check", tmp_path / "new").exit_code == 0
        assert tree(tmp_path / "new" / "consumequeue") == tree(tmp_path / "s" / "consumequeue")


def test_what_cannot_be_adopted_is_refused(tmp_path: Path) -> None:
    logs = as_a_broker_left_it(tmp_path)
    (tmp_path / "bad.conf").write_text(f"storePathCommitLog={logs[0]},{logs[1]}\nenableLmq=yes\n")
    for options, problem in [
        ((), "nothing to note"),
        (("--commit-log", tmp_path / "nowhere"), "directory of the commit log is missing"),
        (("--commit-log", f"{logs[0]},{logs[0]}"), "names one directory twice"),
        (("--broker-conf", tmp_path / "nowhere.conf"), "no such broker configuration"),
        (("--broker-conf", tmp_path / "bad.conf"), "enableLmq has a value that cannot be meant"),
    ]:
        refused = run("adopt", tmp_path / "s", *options, "--in-place")
        assert refused.exit_code in (1, 2)
        assert problem in refused.output
    assert run("adopt", tmp_path / "disk1", "--commit-log", logs[0], "--in-place").exit_code == 1
    assert list(tmp_path.rglob("mqstore-*.json")) == []
