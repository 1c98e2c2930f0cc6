"""The answers that are no errors, under RocketMQ's names, for both layouts."""

from __future__ import annotations

import enum


class PutMessageStatus(str, enum.Enum):
    """What became of a put. All of these mean that the message *is stored*; a refused message is an exception."""

    PUT_OK = "PUT_OK"
    """Stored, and as safe as the flush mode promises."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the sync it waits for did not end in time; a retry would make a duplicate."""


class GetMessageStatus(str, enum.Enum):
    """Why a get gave what it gave; each comes with the offset to go on from."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """Units were looked at and none passed the filter: go on at the next offset."""
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """The records behind the units looked at are gone with their expired files: go on at the next offset."""
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    """RocketMQ's answer where a file in the middle of the queue is missing; here that is a CorruptFileError."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    """The offset is past the end of the queue."""
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is the end of the queue: nothing new yet."""
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    """The offset lies below what is still stored."""
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """There is no such topic or queue."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    """The queue exists and has never held a message."""


class BoundaryType(str, enum.Enum):
    """Which offset a look-up by time means where times repeat or leave gaps."""

    LOWER = "lower"
    """The first message stored at or after the time; the end of the queue if there is none."""
    UPPER = "upper"
    """The last message stored at or before the time; one less than the minimum offset if there is none."""
