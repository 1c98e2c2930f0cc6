"""Option ``where``: a tag expression, or an SQL92 condition over the properties of messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from mqstore.layout.sql92 import SqlExpression
from mqstore.layout.tags import TagExpression

_TAG: Final = re.compile(r"[^\s=<>'()]+")


@dataclass(frozen=True)
class Condition:
    """Which messages pass: those with one of some tags, those that an SQL92 condition holds for, or all.

    Text is a tag expression when it is one word, or words with ``||`` between them; else it is SQL92. So a tag with a
    blank or an ``=`` in it takes SQL92 to ask for: ``TAGS = 'a=b'``.
    """

    tags: frozenset[str] = frozenset()
    sql: SqlExpression | None = None

    @classmethod
    def parse(cls, text: str | None) -> Condition:
        """Compile what the option says; None is all messages. Raises UsageError for text that is neither."""
        return _parse(text)

    @property
    def columns(self) -> list[str]:
        """The columns that :meth:`mask` looks at; none when all messages pass."""
        return ["properties"] if self.sql is not None else ["tags"] if self.tags else []

    def mask(self, batch: Any) -> Any:
        """Which rows of a record batch pass, as an Arrow array of booleans."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.sql is None:
            return pc.is_in(batch["tags"], pa.array(self.tags, pa.string()))
        matches = self.sql.matches
        return pa.array((matches(dict(pairs)) for pairs in batch["properties"].to_pylist()), pa.bool_())


@lru_cache(maxsize=32)
def _parse(text: str | None) -> Condition:
    words = (text or "").split("||")
    if not any(word.strip() for word in words) or all(_TAG.fullmatch(word.strip()) for word in words if word.strip()):
        return Condition(TagExpression.parse(text).tags)
    return Condition(sql=SqlExpression.parse(text or ""))
