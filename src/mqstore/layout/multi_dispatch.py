"""Records that are messages of further queues beside their own (docs/format/properties.md, further queues).

``INNER_MULTI_DISPATCH`` names the queues, ``INNER_MULTI_QUEUE_OFFSET`` the record's number in each. Names that begin
with ``%LMQ%`` are light queues: there is no topic behind them, and each is one queue with id 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mqstore.layout import constants as c
from mqstore.layout.record import Record
from mqstore.layout.text import whole

_SEPARATOR = ","


def further_names(properties: Mapping[str, str]) -> list[str]:
    """The names in ``INNER_MULTI_DISPATCH`` as Java splits them: without empty ones at the end."""
    return _split(properties.get(c.PROPERTY_INNER_MULTI_DISPATCH, ""))


def further_places(properties: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Name and queue offset of each further queue; none where the two lists do not fit each other."""
    names = further_names(properties)
    offsets = [whole(text) for text in _split(properties.get(c.PROPERTY_INNER_MULTI_QUEUE_OFFSET, ""))]
    places = [(name, offset) for name, offset in zip(names, offsets, strict=False) if offset is not None]
    if len(places) == len(names) == len(offsets):
        yield from places


def _split(text: str) -> list[str]:
    return text.rstrip(_SEPARATOR).split(_SEPARATOR) if text.strip() and text.strip(_SEPARATOR) else []


def join_offsets(offsets: list[int]) -> str:
    """The value of ``INNER_MULTI_QUEUE_OFFSET``."""
    return _SEPARATOR.join(map(str, offsets))


def offset_in(record: Record, topic: str, queue_id: int) -> int | None:
    """Which message of this queue ``record`` is, be it the record's own or a further one; None for no message of it."""
    if (record.topic, record.queue_id) == (topic, queue_id):
        return record.queue_offset
    is_light = queue_id == 0 and topic.startswith(c.LMQ_PREFIX)
    if queue_id != record.queue_id and not is_light:
        return None
    return next((offset for name, offset in further_places(record.properties) if name == topic), None)
