"""Lines that are to go behind what is in a log: made into batches, which wait in a file until all lines are seen."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple

from mqstore import errors
from mqstore.convert.json_lines import Line
from mqstore.convert.partition_writer import codec_of, fits_time
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.store import KafkaStore
from mqstore.kernels.kafka_batch import encode_batch
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.record import Record

_IN_MEMORY_BYTES: Final = 16 << 20
_MAX_RECORDS: Final = 65_536
_RECORD_OVERHEAD_BYTES: Final = 36


class _Waiting(NamedTuple):
    """A batch in the file: where it goes, the lines it is of, and its size."""

    topic: str
    partition: int
    first_line: int
    last_line: int
    size_bytes: int


class LineSpool:
    """Batches of lines' records, in a temporary file. Use as a context manager."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._codec = codec_of(config)
        self._limit = min(config.max_message_bytes, config.segment_bytes)
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  # closed by __exit__
        self._lines: list[Line] = []
        self._bytes = 0

    def add(self, line: Line) -> None:
        """Take one more line.

        Raises:
            MessageIllegalError: the log does not take such a record.
            DiskFullError, StoreIOError: the temporary file could not be written.
        """
        record = self._stamped(line)
        if self._config.is_compacted and record.key is None:
            raise errors.MessageIllegalError(
                f"line {line.number}: a record without a key cannot be put into a compacted topic", found=line.topic
            )
        size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(_RECORD_OVERHEAD_BYTES + len(name) * 4 + len(value or b"") for name, value in record.headers)
        if self._lines and not self._fits(line, record, size):
            self.finish()
        self._lines.append(line._replace(record=record))
        self._bytes += size

    def _stamped(self, line: Line) -> Record:
        now_ms = time.time_ns() // 1_000_000
        if self._config.message_timestamp_type == "LogAppendTime":
            return line.record._replace(timestamp_ms=now_ms, timestamp_type=TimestampType.LOG_APPEND_TIME)
        return line.record if line.has_time else line.record._replace(timestamp_ms=now_ms)

    def _fits(self, line: Line, record: Record, size_bytes: int) -> bool:
        """Whether the line can be in one batch with those that wait."""
        first = self._lines[0]
        return (
            (line.topic, line.partition) == (first.topic, first.partition)
            and self._bytes + size_bytes <= min(self._config.batch_size, self._limit)
            and len(self._lines) < _MAX_RECORDS
            and fits_time(record, first.record)
        )

    def finish(self) -> None:
        """Make a batch of the lines that wait."""
        if not self._lines:
            return
        first, last = self._lines[0], self._lines[-1]
        stamped = first.record.timestamp_type == TimestampType.LOG_APPEND_TIME
        batch = encode_batch(
            [line.record._replace(offset=number) for number, line in enumerate(self._lines)],
            base_offset=0,
            codec=self._codec,
            timestamp_type=TimestampType(first.record.timestamp_type),
            log_append_time_ms=first.record.timestamp_ms if stamped else -1,
        )
        if len(batch) > self._limit:
            where = f"line {first.number}" if first is last else f"lines {first.number} to {last.number}"
            raise errors.MessageIllegalError(
                f"{where}: the batch is too large",
                expected=f"at most {self._limit} bytes",
                found=len(batch),
                hint="raise max_message_bytes and segment_bytes",
            )
        waiting = _Waiting(first.topic, first.partition, first.number, last.number, len(batch))
        try:
            self._file.write(json.dumps(waiting).encode() + b"\n")
            self._file.write(batch)
        except OSError as error:
            raise errors.from_os_error(error, "write", tempfile.gettempdir()) from error
        self._lines, self._bytes = [], 0

    def _batches(self) -> Iterator[tuple[_Waiting, bytes]]:
        try:
            self._file.seek(0)
            while head := self._file.readline():
                waiting = _Waiting(*json.loads(head))
                yield waiting, self._file.read(waiting.size_bytes)
        except OSError as error:
            raise errors.from_os_error(error, "read", tempfile.gettempdir()) from error

    def append_to(self, log: KafkaStore) -> None:
        """Append all batches.

        Raises:
            MqstoreError: what appending raises; its hint tells which lines are in the log.
        """
        done = 0
        for waiting, batch in self._batches():
            try:
                log.append_batch(waiting.topic, waiting.partition, batch)
            except errors.MqstoreError as error:
                told = f"lines 1 to {done} are in the log: go on behind them" if done else "no line is in the log"
                error.hint = told if error.hint is None else f"{told}; {error.hint}"
                raise
            done = waiting.last_line

    def __enter__(self) -> LineSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
