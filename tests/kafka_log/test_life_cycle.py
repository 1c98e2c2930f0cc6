"""Opening and closing, settings, topics, syncs, processes, many partitions."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    fill,
    message,
    open_small,
    partition_of,
    read_all,
    tree,
)
from mqstore.errors import (
    NotAStoreError,
    StoreClosedError,
    StoreLockedError,
    UsageError,
)
from mqstore.kafka import KafkaMessage
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import decode_offsets


def offsets_in(path: Path, name: str) -> int | None:
    return decode_offsets((path / name).read_bytes()).get((TOPIC, 0))


class TestLifeCycle:
    def test_files_of_a_clean_stop(self, tmp_path: Path) -> None:
        fill(tmp_path, 30)
        assert offsets_in(tmp_path, names.RECOVERY_POINTS) == 30
        assert offsets_in(tmp_path, names.HIGH_WATERMARKS) == 30
        assert (tmp_path / names.CLEAN_SHUTDOWN).exists()
        assert (partition_of(tmp_path) / "00000000000000000030.snapshot").exists()
        assert (partition_of(tmp_path) / names.LEADER_EPOCHS).read_text() == "0\n1\n0 0\n"
        with kafka.inspect(tmp_path) as view:
            assert view.partition(TOPIC).topic_id is not None
            assert view.meta_properties["version"] == "1"

    def test_the_marker_is_gone_while_running(self, tmp_path: Path) -> None:
        fill(tmp_path, 3)
        with open_small(tmp_path):
            assert not (tmp_path / names.CLEAN_SHUTDOWN).exists()
        assert (tmp_path / names.CLEAN_SHUTDOWN).exists()

    def test_opening_and_closing_changes_nothing(self, tmp_path: Path) -> None:
        fill(tmp_path, 90)
        before = tree(tmp_path)
        with open_small(tmp_path) as store:
            assert all(not report.rebuilt for report in store.reports)
        assert tree(tmp_path) == before

    def test_one_writer(self, tmp_path: Path) -> None:
        with open_small(tmp_path), pytest.raises(StoreLockedError):
            open_small(tmp_path)

    def test_after_close(self, tmp_path: Path) -> None:
        store = open_small(tmp_path)
        store.put(message(0))
        store.close()
        store.close()
        for call in (lambda: store.put(message(1)), lambda: store.get(TOPIC), store.flush, store.stats):
            with pytest.raises(StoreClosedError):
                call()

    def test_settings(self, tmp_path: Path) -> None:
        for wrong in (
            {"segment_byte": 5}, {"segment_bytes": 0}, {"segment_bytes": True}, {"cleanup_policy": "forget"},
            {"cleanup_policy": ""}, {"compression_type": "brotli"}, {"flush_messages": 0}, {"retention_ms": -2},
            {"message_timestamp_type": "x"}, {"min_cleanable_dirty_ratio": 2}, {"auto_create_topics_enable": 1},
        ):  # fmt: skip
            with pytest.raises(UsageError):
                kafka.open(tmp_path / "new", **wrong)
        assert not (tmp_path / "new").exists()
        with pytest.raises(UsageError) as caught:
            kafka.open(tmp_path / "new", segment_byte=5)
        assert "segment_bytes" in caught.value.hint
        (tmp_path / "file").touch()
        with pytest.raises(NotAStoreError):
            kafka.open(tmp_path / "file")

    def test_topic_ids_are_one_per_topic(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.create_topic("a", 2)
            store.create_topic("b")
            store.create_topic("a", 3)
            assert store.topics() == {"a": [0, 1, 2], "b": [0]}
        with kafka.inspect(tmp_path) as view:
            ids = {(one.topic, one.topic_id) for one in view.partitions()}
        assert len(ids) == 2

    def test_many_topics_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are what single ones are, for two syncs a partition and one of the data directory."""
        synced: list[Path] = []
        for name in ("fsync", "fdatasync"):
            real = getattr(os, name)
            monkeypatch.setattr(
                os, name, lambda fd, real=real: (synced.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), real(fd))
            )
        with open_small(tmp_path / "many") as store:
            synced.clear()
            store.create_topics({"a": 3, "b": None, "c": 1})
            directories = {tmp_path / "many" / name for name in ("a-0", "a-1", "a-2", "b-0", "c-0")}
            assert len(synced) == 11
            assert {*directories, tmp_path / "many"} <= set(synced)
            assert {path.parent for path in synced} >= directories
            with pytest.raises(UsageError):
                store.create_topics({"d": 1, "e/": 1})
            for topics in (None, ["d"], "d", 1, {("d", 1)}):
                with pytest.raises(UsageError):
                    store.create_topics(topics)  # type: ignore[arg-type]
            assert store.topics() == {"a": [0, 1, 2], "b": [0], "c": [0]}
            store.put_batch([KafkaMessage("a", b"x", partition=2), KafkaMessage("c", b"y")])
            assert [record.value for record in store.get("c").messages] == [b"y"]
        with open_small(tmp_path / "one") as store:
            for topic, partition in (("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0)):
                store.create_topic(topic, partition + 1)
            store.put_batch([KafkaMessage("a", b"x", partition=2), KafkaMessage("c", b"y")])
        for path in directories:
            names = {one.name for one in path.iterdir()}
            assert names == {one.name for one in (tmp_path / "one" / path.name).iterdir()}
        with kafka.inspect(tmp_path / "many") as view:
            assert view.check() == []
            assert len({one.topic_id for one in view.partitions()}) == 3

    def test_a_partition_that_nothing_came_into_costs_no_sync(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_small(tmp_path) as store:
            store.create_topics({"quiet": 3, "busy": 1})
            store.put_batch([KafkaMessage("busy", b"x"), KafkaMessage("quiet", b"y", partition=1)])
        synced: list[str] = []
        for name in ("fsync", "fdatasync"):
            real = getattr(os, name)
            monkeypatch.setattr(
                os, name, lambda fd, real=real: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))
            )
        with open_small(tmp_path) as store:
            store.put(KafkaMessage("busy", b"x"))
        assert not any("quiet" in path for path in synced)
        assert sum("busy" in path for path in synced) >= 5
        with kafka.inspect(tmp_path) as view:
            assert view.check() == []

    def test_a_directory_that_is_there_keeps_its_log(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            fill(tmp_path / "other", 3)
            shutil.copytree(tmp_path / "other" / f"{TOPIC}-0", tmp_path / "late-0")
            store.create_topics({"late": 2})
            assert [store.max_offset("late", number) for number in range(2)] == [3, 0]

    def test_deleted_partitions_are_removed(self, tmp_path: Path) -> None:
        fill(tmp_path, 3)
        gone = tmp_path / f"old-0.{'0' * 32}-delete"
        gone.mkdir()
        stray = tmp_path / f"old-1.{'0' * 32}-stray"
        stray.mkdir()
        with open_small(tmp_path) as store:
            assert store.topics() == {TOPIC: [0]}
        assert not gone.exists()
        assert stray.exists()

    def test_flush_ms(self, tmp_path: Path) -> None:
        with open_small(tmp_path, flush_ms=1) as store:
            store.put(message(0))
            log = store.partition(TOPIC)
            deadline = time.monotonic() + 60
            while log.recovery_point < 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert log.recovery_point == 1

    def test_flush_messages(self, tmp_path: Path) -> None:
        with open_small(tmp_path, flush_messages=3) as store:
            points = []
            for number in range(7):
                store.put(message(number))
                points.append(store.partition(TOPIC).recovery_point)
            assert points == [0, 0, 3, 3, 3, 6, 6]

    def test_a_fork_does_not_own_it(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put(message(0))
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    store.put(message(1))
                except StoreClosedError:
                    os.write(writer, b"refused")
                os._exit(0)
            os.waitpid(child, 0)
            os.close(writer)
            with os.fdopen(reader, "rb") as answer:
                assert answer.read() == b"refused"
            assert len(read_all(store)) == 1


MANY = """
import os, resource, sys
import mqstore.kafka as kafka
from mqstore.kafka import KafkaMessage
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
os.fsync = os.fdatasync = lambda fd: None
path, count = sys.argv[1], int(sys.argv[2])
with kafka.open(path, segment_index_bytes=4096) as store:
    store.create_topic("many", count)
    for round in range(2):
        for partition in range(count):
            store.put(KafkaMessage("many", b"%d" % partition, partition=partition))
    assert all(len(store.get("many", partition).messages) == 2 for partition in range(count))
for partition in range(0, count, 2):  # as a broker deletes
    name = os.path.join(path, "many-%d" % partition)
    os.rename(name, name + "." + "0" * 32 + "-delete")
with kafka.open(path, segment_index_bytes=4096, file_delete_delay_ms=0) as store:
    assert store.topics() == {"many": list(range(1, count, 2))}
    store.create_topic("many", count)
    for partition in range(count):
        store.put(KafkaMessage("many", b"again", partition=partition))
with kafka.inspect(path) as view:
    assert [one.log_end_offset for one in view.partitions()] == [1, 3] * (count // 2)
    assert [one for one in view.check() if one.severity != "note"] == []
assert not [name for name in os.listdir(path) if name.endswith("-delete")]
directories = [one for one in os.scandir(path) if one.is_dir()]
size_bytes = sum(entry.stat().st_size for one in directories for entry in os.scandir(one))
assert size_bytes < count * 2000  # nothing is made in full length
"""


def test_hundreds_of_partitions_with_few_descriptors(tmp_path: Path) -> None:
    """Made, written, half of them deleted and made again, with 256 open files."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 256
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path), "500"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
