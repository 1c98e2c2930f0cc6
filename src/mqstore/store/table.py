"""Messages from an Arrow table into the log: columns in, and no object for any message."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mqstore import errors
from mqstore.kernels.store_api import RowColumns, TextColumn
from mqstore.layout.properties import java_map_order
from mqstore.status import PutMessageStatus
from mqstore.store.message import Message
from mqstore.store.paths import is_legal_topic

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("topic", "body", "tags", "keys", "queueId")


class PutTableResult(NamedTuple):
    """Where a table was stored: behind ``physical_offset`` and before ``end_offset``, among what others put meanwhile.

    ``messages`` is how many it had, ``size_bytes`` what their records take.
    """

    status: PutMessageStatus
    messages: int
    size_bytes: int
    physical_offset: int
    end_offset: int


class MessageTable:
    """A table of messages, checked for its columns and types.

    Attributes:
        topics: the topics in it, each once.
        has_good_topics: whether there are any, and producers may use all of them.
        columns: the same for the kernels.
        most_queue_id: the highest queue that is named, -1 when none is.
    """

    def __init__(self, table: pa.Table | pa.RecordBatch) -> None:
        """Raises UsageError for a table that is none of messages."""
        self._table = _as_table(table)
        names = self._table.column_names
        topics = self._column("topic").dictionary_encode()
        self.topics: list[str] = topics.dictionary.to_pylist()
        self.has_good_topics = topics.null_count == 0 and bool(self.topics) and all(map(is_legal_topic, self.topics))
        queues = self._queues()
        self.most_queue_id: int = max(queues, default=-1)
        self.columns = RowColumns(
            self._table.num_rows,
            _text_column(topics.dictionary),
            _numbers(topics.indices),
            queues,
            _text_column(self._column("body")),
            _text_column(self._column("tags")) if "tags" in names else None,
            _text_column(self._joined_keys()) if "keys" in names else None,
            java_map_order(("TAGS", "KEYS")) == ["KEYS", "TAGS"],
        )

    def messages(self) -> Iterator[Message]:
        """The rows one by one, for what is out of the ordinary."""
        for row in self._table.to_pylist():
            keys = row.get("keys")
            yield Message(
                row["topic"],
                row["body"],
                tags=row.get("tags"),
                keys=[key for key in keys.split(" ") if key] if isinstance(keys, str) else keys or (),
                queue_id=row.get("queueId"),
            )

    def _column(self, name: str) -> Any:
        import pyarrow as pa

        column = self._table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        is_binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if not (is_text or (is_binary and name == "body")):
            raise errors.UsageError(
                f"column {name} has the wrong type",
                expected="binary or string" if name == "body" else "string",
                found=str(column.type),
                hint=f"cast it: table.set_column(..., table[{name!r}].cast(...))",
            )
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def _joined_keys(self) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._table.column("keys")
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            return self._column("keys")
        if not pa.types.is_string(column.type.value_type) and not pa.types.is_large_string(column.type.value_type):
            raise errors.UsageError(
                "column keys has the wrong type", expected="string or list<string>", found=str(column.type),
                hint="keys are text",
            )  # fmt: skip
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        joined = pc.binary_join(column, " ")
        if pc.any(pc.equal(joined, "")).as_py():
            joined = pc.if_else(pc.equal(pc.list_value_length(column), 0), None, joined)  # no keys are no property
        parts = pc.list_flatten(column)
        if pc.any(pc.match_substring(parts, " ")).as_py() or pc.any(pc.equal(parts, "")).as_py():
            # One of them is no key: an empty text in its place sends the table to the path that says so.
            return pa.array([""] * self._table.num_rows, pa.large_string())
        return joined

    def _queues(self) -> array[int]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if "queueId" not in self._table.column_names:
            return array("i", [-1] * self._table.num_rows)
        column = self._table.column("queueId")
        if not pa.types.is_integer(column.type):
            raise errors.UsageError(
                "column queueId has the wrong type", expected="an integer", found=str(column.type), hint="cast it"
            )
        lowest = pc.min(column).as_py()
        if lowest is not None and lowest < 0:
            raise errors.MessageIllegalError("queue_id is out of range", expected="0 or more", found=lowest)
        try:
            column = pc.fill_null(column.cast(pa.int32()), -1)
        except pa.ArrowInvalid:
            raise errors.MessageIllegalError("queue_id is out of range", found=pc.max(column).as_py()) from None
        numbers: memoryview = _numbers(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
        return array("i", numbers.tobytes())


def _as_table(given: object) -> pa.Table:
    import pyarrow as pa

    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if not isinstance(given, pa.Table):
        raise errors.UsageError(
            "not an Arrow table", expected="pyarrow.Table or RecordBatch", found=type(given).__name__,
            hint="pyarrow.table({...}), or pyarrow.Table.from_pandas(...)",
        )  # fmt: skip
    names = given.column_names
    unknown = [name for name in names if name not in _COLUMNS or names.count(name) > 1]
    missing = [name for name in _COLUMNS[:2] if name not in names]
    if unknown or missing:
        raise errors.UsageError(
            "the table's columns are not those of messages",
            expected="topic, body; tags, keys, queueId may be missing",
            found=f"unknown or twice: {unknown}, missing: {missing}",
            hint="select or rename columns: table.select([...])",
        )
    return given


def _text_column(values: Any) -> TextColumn:
    import pyarrow as pa

    is_binary = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
    values = values.cast(pa.large_binary() if is_binary else pa.large_string())
    if values.offset:
        values = pa.concat_arrays([values, values.slice(0, 0)])  # begins at its buffers' first byte
    validity, offsets, data = values.buffers()
    return (
        bytes(8) if offsets is None or not offsets.size else offsets,
        b"" if data is None else data,
        validity if values.null_count else None,
    )


def _numbers(values: Any) -> memoryview:
    return memoryview(values.buffers()[1]).cast("B")[4 * values.offset : 4 * (values.offset + len(values))]
