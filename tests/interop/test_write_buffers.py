"""What goes through write buffers and into files made ahead, the real store reads, also after the writer was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mqstore
from interop.ours import MANY, comparable, questions_about
from interop.real_store import RealStore
from interop.writer import JAVA_SIZES

PROGRAM = """
import os, sys
import mqstore
from interop.writer import SIZES, put
store = mqstore.open(sys.argv[1], transient_store_pool_enable=True, warm_maped_file_enable=True, **SIZES)
put(store, 1, 800)
store.flush()
put(store, 2, 50)
os._exit(9)
"""


def test_a_writer_with_buffers_is_killed(real_store: RealStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    child = subprocess.run([sys.executable, "-c", PROGRAM, str(store)], cwd=Path(__file__).parents[1], check=False)
    assert child.returncode == 9
    with mqstore.inspect(store) as view:
        written = [record.physical_offset for record in view.scan()]
        questions = questions_about(view)
    assert 800 <= len(written) <= 875  # the rest was in a buffer
    real = comparable(real_store.read(store, questions, **JAVA_SIZES, maxMsgsNumBatch=MANY))
    assert real.whole["problems"] == []
    assert [row["commitLogOffset"] for row in real.records] == written
    queues = {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in real.whole["queues"]}
    with mqstore.open(store, schedule_message_enable=False) as opened:
        assert opened.check() == []
        assert {(one.topic, one.queue_id): one.max_offset for one in opened.queues()} == queues
