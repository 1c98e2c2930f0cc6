"""The body in which a client sends several messages at once (docs/format/batch-message.md).

The store never keeps this form: each element becomes a record of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqstore.errors import DamageError, MessageIllegalError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX
from mqstore.layout.properties import check_size

BATCH_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
MIN_ELEMENT_SIZE: Final = BATCH_HEAD.size + _PROPERTIES_LENGTH.size
"""22: an element with neither body nor properties."""


class BatchElement(NamedTuple):
    """One message of a batch; topic, queue, hosts and the rest are those of the batch."""

    flag: int
    body: bytes
    properties_raw: bytes


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """The body of a batch of these messages.

    Raises MessageIllegalError when body or properties exceed their length fields, UsageError when a flag is
    no signed 32-bit integer.
    """
    return b"".join(map(_encode_element, elements))


def _encode_element(element: BatchElement) -> bytes:
    properties = check_size(element.properties_raw)
    size = MIN_ELEMENT_SIZE + len(element.body) + len(properties)
    if size > INT_MAX:
        raise MessageIllegalError("the message is too large for a batch", found=size)
    try:
        head = BATCH_HEAD.pack(size, 0, 0, element.flag, len(element.body))
    except struct.error as error:
        raise UsageError("the flag is no signed 32-bit integer", found=element.flag) from error
    return head + element.body + _PROPERTIES_LENGTH.pack(len(properties)) + properties


def decode_batch(buffer: Buffer) -> list[BatchElement]:
    """The messages of a batch; an empty body holds none.

    Magic and checksum of an element are written as 0 and not looked at. Raises DamageError, with the offset
    in the body, when an element's lengths contradict each other or the body's end.
    """
    elements: list[BatchElement] = []
    position = 0
    while position < len(buffer):
        element, position = _decode_element(buffer, position)
        elements.append(element)
    return elements


def _decode_element(buffer: Buffer, position: int) -> tuple[BatchElement, int]:
    left = len(buffer) - position
    if left < MIN_ELEMENT_SIZE:
        raise DamageError("a batch ends inside an element", offset=position, expected=MIN_ELEMENT_SIZE, found=left)
    size, _, _, flag, body_size = BATCH_HEAD.unpack_from(buffer, position)
    if not MIN_ELEMENT_SIZE <= size <= left:
        raise DamageError("an element's size is wrong", offset=position, expected=f"22..{left}", found=size)
    body_start = position + BATCH_HEAD.size
    if not 0 <= body_size <= size - MIN_ELEMENT_SIZE:
        raise DamageError("an element's body is wrong", offset=position, expected=f"at most {size}", found=body_size)
    body_end = body_start + body_size
    (properties_size,) = _PROPERTIES_LENGTH.unpack_from(buffer, body_end)
    properties_start, end = body_end + _PROPERTIES_LENGTH.size, position + size
    if properties_size != end - properties_start:
        raise DamageError(
            "an element's parts do not add up to its size",
            offset=position,
            expected=end - properties_start,
            found=properties_size,
        )
    return BatchElement(flag, bytes(buffer[body_start:body_end]), bytes(buffer[properties_start:end])), end
