"""The hot paths: put a message into a buffer, scan a log into columns, dispatch, index, gather into Arrow.

Every function exists twice with the same name and the same results: compiled, and in plain Python. The
compiled ones are used when they were built at installation, unless the environment has ``MQSTORE_PURE=1``.
What each function does is told in :class:`mqstore.kernels.api.Kernels`.

A compiled module that was built from other sources than those beside it is refused with an ImportError that names the
command to build it anew: it may misread what the Python around it means, and plain Python would be slow in silence.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from mqstore.kernels.api import (
    COLUMN_NAMES,
    INDEX_KEY,
    PLACE,
    IndexSlots,
    Kernels,
    LogColumns,
    PreparedMessage,
    QueueRun,
    Stop,
    StringLists,
    StringMaps,
    Strings,
)
from mqstore.kernels.kafka_api import (
    BatchColumns,
    BatchStop,
    HeaderLists,
    IndexRun,
    IndexState,
    RecordColumns,
    RecordStop,
)
from mqstore.kernels.sources import mark
from mqstore.kernels.store_api import LogTail, RowColumns, TextColumn


def _pure() -> Kernels:
    from mqstore.kernels import pure

    return pure


def _choose() -> Kernels:
    if os.environ.get("MQSTORE_PURE", "") not in ("", "0"):
        return _pure()
    try:
        module = importlib.import_module("._native", __name__)
    except ImportError:
        return _pure()
    _refuse_stale(module)
    return cast(Kernels, module)


def _refuse_stale(module: ModuleType) -> None:
    directory = Path(__file__).parent
    wanted = mark(directory)
    found = getattr(module, "BUILT_FROM", "unmarked ones")
    if wanted in (None, found):
        return
    build = directory.parents[2] / "setup.py"
    command = f"cd {build.parent} && {sys.executable} setup.py build_ext -i"
    raise ImportError(
        f"the compiled kernels {module.__file__} were built from other sources ({found}) than those beside them "
        f"({wanted}); build them anew: {command if build.exists() else 'install mqstore again'}; "
        "MQSTORE_PURE=1 in the environment goes without them",
        name=module.__name__,
        path=module.__file__,
    )


_chosen: Final = _choose()

NAME: Final = _chosen.NAME
"""``"native"`` or ``"pure"``: which of the two is in use."""

if TYPE_CHECKING:
    from mqstore.kernels.pure.message import MessageFields
else:
    MessageFields = _chosen.MessageFields

crc32 = _chosen.crc32
crc32c = _chosen.crc32c
find_property = _chosen.find_property
gather = _chosen.gather
host_text = _chosen.host_text
index_entries = _chosen.index_entries
index_find = _chosen.index_find
index_keys = _chosen.index_keys
index_put = _chosen.index_put
index_slots = _chosen.index_slots
kafka_batch_records = _chosen.kafka_batch_records
kafka_batches = _chosen.kafka_batches
kafka_encode = _chosen.kafka_encode
kafka_headers = _chosen.kafka_headers
kafka_index = _chosen.kafka_index
kafka_records = _chosen.kafka_records
key_hash = _chosen.key_hash
log_tail = _chosen.log_tail
measure_rows = _chosen.measure_rows
ms_to_us = _chosen.ms_to_us
msg_id_text = _chosen.msg_id_text
properties_map = _chosen.properties_map
put_batch = _chosen.put_batch
put_message = _chosen.put_message
put_rows = _chosen.put_rows
queue_runs = _chosen.queue_runs
record_with_key = _chosen.record_with_key
resync = _chosen.resync
scan = _chosen.scan
scan_at = _chosen.scan_at
scan_units = _chosen.scan_units
select_units = _chosen.select_units
split_keys = _chosen.split_keys
take_messages = _chosen.take_messages
unit_span = _chosen.unit_span

__all__ = [
    "COLUMN_NAMES",
    "INDEX_KEY",
    "NAME",
    "PLACE",
    "BatchColumns",
    "BatchStop",
    "HeaderLists",
    "IndexRun",
    "IndexSlots",
    "IndexState",
    "Kernels",
    "LogColumns",
    "LogTail",
    "MessageFields",
    "PreparedMessage",
    "QueueRun",
    "RecordColumns",
    "RecordStop",
    "RowColumns",
    "Stop",
    "StringLists",
    "StringMaps",
    "Strings",
    "TextColumn",
    "crc32",
    "crc32c",
    "find_property",
    "gather",
    "host_text",
    "index_entries",
    "index_find",
    "index_keys",
    "index_put",
    "index_slots",
    "kafka_batch_records",
    "kafka_batches",
    "kafka_encode",
    "kafka_headers",
    "kafka_index",
    "kafka_records",
    "key_hash",
    "log_tail",
    "measure_rows",
    "ms_to_us",
    "msg_id_text",
    "properties_map",
    "put_batch",
    "put_message",
    "put_rows",
    "queue_runs",
    "record_with_key",
    "resync",
    "scan",
    "scan_at",
    "scan_units",
    "select_units",
    "split_keys",
    "take_messages",
    "unit_span",
]
