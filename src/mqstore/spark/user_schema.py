"""A schema that a user gives to a read: which of a source's columns it may name, and as what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from mqstore.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_schema(known: Any, schema: StructType) -> None:
    """Refuse names, types or NOT NULL that a source's columns do not have.

    Spark itself would say so in a task only, in words that name neither the source nor the reason.

    Args:
        known: the columns that there are, as an Arrow schema.
        schema: those asked for.

    Raises:
        UsageError: one of them is not there, under that spelling, or is of another type.
    """
    columns = {field.name.lower(): field for field in from_arrow_schema(known)}
    for field in schema:
        column = columns.get(field.name.lower())
        if column is None:
            raise UsageError("no such column", expected=", ".join(known.names), found=field.name)
        if (field.name, field.dataType, field.nullable) == (column.name, column.dataType, column.nullable):
            continue
        expected, found = (f"{one.name} {one.dataType.simpleString()}" for one in (column, field))
        raise UsageError(
            f"column {field.name} of the schema does not fit",
            expected=expected,
            found=f"{found} NOT NULL" if expected == found else found,
            hint="leave NOT NULL out, of elements and values as well" if expected == found else None,
        )
