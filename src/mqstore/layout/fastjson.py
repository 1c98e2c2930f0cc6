"""The JSON dialect of a broker's settings files (docs/format/config-json.md).

It differs from JSON in one thing: number keys of maps stand without quotes. The writer lays text out as the
original does, so that a file read and written again is the same byte for byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from mqstore.errors import CorruptConfigError, UsageError
from mqstore.layout.constants import LONG_MAX, LONG_MIN

JsonValue: TypeAlias = "dict[str | int, JsonValue] | list[JsonValue] | str | int | float | bool | None"

MAX_DEPTH: Final = 64
"""Containers inside containers; settings files need seven."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?![0-9.eE])", re.ASCII)
_FLOAT: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?(?![0-9.eE])", re.ASCII)
_HEX: Final = re.compile(r"[0-9A-Fa-f]{4}", re.ASCII)
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
_SHORT_ESCAPES: Final = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    '"': '"',
    "\\": "\\",
    "/": "/",
}
_BYTE_ORDER_MARK: Final = "\ufeff"


def loads(data: bytes | str) -> JsonValue:
    """Parse one value; number keys without quotes become ints, all other keys stay text.

    Raises CorruptConfigError, with the offset in bytes (in characters, for text), for anything that is no
    JSON with that one extension: also for a name that occurs twice in one map, more than 64 levels, whole
    numbers beyond 64 bits, and text behind the value, which a torn write leaves.
    """
    if isinstance(data, bytes):
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise CorruptConfigError("settings text is no UTF-8", offset=error.start) from error
    else:
        text = data
    try:
        return _Reader(text).whole()
    except CorruptConfigError as error:
        if isinstance(data, bytes) and error.offset is not None:
            error.offset = len(text[: error.offset].encode())
        raise


class _Reader:
    """A recursive-descent parser; its depth is bounded by MAX_DEPTH."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith(_BYTE_ORDER_MARK) else 0

    def whole(self) -> JsonValue:
        value = self._value(0)
        self._skip_space()
        if self._at != len(self._text):
            self._fail("the end of the text", hint="a shorter text was written over a longer one?")
        return value

    def _value(self, depth: int) -> JsonValue:
        start = self._peek()
        if start == "{":
            return self._map(self._deeper(depth))
        if start == "[":
            return self._list(self._deeper(depth))
        if start == '"':
            return self._string()
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        return self._number()

    def _deeper(self, depth: int) -> int:
        if depth == MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} levels")
        return depth + 1

    def _map(self, depth: int) -> JsonValue:
        found: dict[str | int, JsonValue] = {}
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            return found
        while True:
            start = self._at
            key = self._key()
            if key in found:
                self._at = start
                self._fail("each name once")
            self._expect(":")
            found[key] = self._value(depth)
            if self._separator("}"):
                return found

    def _key(self) -> str | int:
        if self._peek() == '"':
            return self._string()
        match = _INTEGER.match(self._text, self._at)
        if match is None:
            self._fail("a name")
        return self._integer(match)

    def _list(self, depth: int) -> JsonValue:
        found: list[JsonValue] = []
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return found
        while True:
            found.append(self._value(depth))
            if self._separator("]"):
                return found

    def _separator(self, closing: str) -> bool:
        """Consume a comma (False) or the closing bracket (True)."""
        found = self._peek()
        if found not in (",", closing):
            self._fail(f"a comma or {closing}")
        self._at += 1
        if found == ",":
            self._peek()
        return found == closing

    def _string(self) -> str:
        parts: list[str] = []
        self._at += 1
        while True:
            match = _PLAIN.match(self._text, self._at)
            assert match is not None  # the pattern also matches nothing
            parts.append(match[0])
            self._at = match.end()
            if self._text.startswith('"', self._at):
                self._at += 1
                return _joined_surrogates("".join(parts))
            parts.append(self._escape())

    def _escape(self) -> str:
        if not self._text.startswith("\\", self._at):
            self._fail("the end of a string")
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in _SHORT_ESCAPES:
            self._at += 2
            return _SHORT_ESCAPES[letter]
        match = _HEX.match(self._text, self._at + 2)
        if letter != "u" or match is None:
            self._fail("an escape")
        self._at = match.end()
        return chr(int(match[0], 16))

    def _number(self) -> int | float:
        if (match := _INTEGER.match(self._text, self._at)) is not None:
            return self._integer(match)
        match = _FLOAT.match(self._text, self._at)
        if match is None or not math.isfinite(float(match[0])):
            self._fail("a value")
        if match[0].lstrip("-").isdigit():
            self._fail("a whole number of 64 bits")
        self._at = match.end()
        return float(match[0])

    def _integer(self, match: re.Match[str]) -> int:
        value = int(match[0])
        if not LONG_MIN <= value <= LONG_MAX:
            self._fail("a whole number of 64 bits")
        self._at = match.end()
        return value

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            self._fail(mark)
        self._at += 1

    def _peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        self._skip_space()
        return self._text[self._at : self._at + 1]

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None  # the pattern also matches nothing
        self._at = match.end()

    def _fail(self, expected: str, hint: str | None = None) -> NoReturn:
        found = self._text[self._at : self._at + 20]
        raise CorruptConfigError(
            "settings text is malformed",
            offset=self._at,
            expected=expected,
            found=repr(found) if found else "the end",
            hint=hint,
        )


def _joined_surrogates(text: str) -> str:
    """Two escapes that together stand for one character become that character; half a pair becomes U+FFFD."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def dumps(value: JsonValue) -> str:
    """Lay ``value`` out as the original does, without a newline at the end; members keep their order.

    Maps with text keys and lists take one line a member, indented by tabs; maps with int keys and lists of
    numbers stay on one line. Members whose value is None are left out. Raises UsageError for values that have
    no JSON form and beyond 64 levels.
    """
    parts: list[str] = []
    _write(value, parts, 0)
    return "".join(parts)


def _write(value: JsonValue, parts: list[str], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UsageError("the settings are nested too deep", expected=f"at most {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        _write_map(value, parts, depth)
    elif isinstance(value, list | tuple):
        _write_list(value, parts, depth)
    else:
        parts.append(_scalar(value))


def _write_map(value: Mapping[str | int, JsonValue], parts: list[str], depth: int) -> None:
    members = [(key, member) for key, member in value.items() if member is not None]
    separator = "{"
    for key, member in members:
        parts.append(separator)
        if isinstance(key, str):
            parts.append(_line(depth + 1))
            parts.append(_quoted(key))
        else:
            parts.append(_scalar(key))
        parts.append(":")
        _write(member, parts, depth + 1)
        separator = ","
    parts.append(_line(depth) + "}" if members else "{}")


def _write_list(value: Sequence[JsonValue], parts: list[str], depth: int) -> None:
    if all(isinstance(member, int | float) for member in value):
        parts.append("[" + ",".join(map(_scalar, value)) + "]")
        return
    separator = "["
    for member in value:
        parts.append(separator + _line(depth + 1))
        _write(member, parts, depth + 1)
        separator = ","
    parts.append(_line(depth) + "]")


def _line(depth: int) -> str:
    return "\n" + "\t" * depth


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and LONG_MIN <= value <= LONG_MAX:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    raise UsageError("this value has no place in settings", found=repr(value)[:80])


_ESCAPES: Final = (
    {code: f"\\u{code:04X}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
    | {ord(character): f"\\{letter}" for letter, character in _SHORT_ESCAPES.items() if letter != "/"}
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
