"""Writing records into a mapped log file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mqstore.errors import UsageError
from mqstore.kernels.api import PreparedMessage
from mqstore.kernels.pure.checks import check_range
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import BLANK_SIZE
from mqstore.layout.record import encode_record


def put_message(
    buffer: Any,
    position: int,
    limit: int,
    physical_offset: int,
    queue_offset: int,
    store_timestamp_ms: int,
    topic: bytes,
    body: Buffer,
    properties: bytes,
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    magic: int,
    /,
) -> int:
    """See :meth:`mqstore.kernels.api.Kernels.put_message`."""
    check_range(buffer, position, limit, physical_offset)
    record = encode_record(
        topic=topic,
        body=bytes(body),
        properties=properties,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset + position,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        magic=magic,
    )
    if len(record) + BLANK_SIZE > limit - position:
        return 0
    with memoryview(buffer) as view:
        view[position : position + len(record)] = record
    return len(record)


def put_batch(
    buffer: Any,
    position: int,
    limit: int,
    physical_offset: int,
    store_timestamp_ms: int,
    queue_offsets: Sequence[int],
    messages: Sequence[PreparedMessage],
    start: int = 0,
    /,
) -> list[int]:
    """See :meth:`mqstore.kernels.api.Kernels.put_batch`."""
    check_range(buffer, position, limit, physical_offset)
    if len(queue_offsets) != len(messages) or not 0 <= start <= len(messages):
        raise UsageError(
            "every message needs a queue offset",
            expected=len(messages),
            found=f"{len(queue_offsets)} from {start}",
        )
    sizes: list[int] = []
    for index in range(start, len(messages)):
        size = put_message(
            buffer,
            position,
            limit,
            physical_offset,
            queue_offsets[index],
            store_timestamp_ms,
            *messages[index],
        )
        if size == 0:
            break
        sizes.append(size)
        position += size
    return sizes
