"""Batches that a generator gives, one after another, as a stream of Arrow."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from ._errors import DataError


def _is_empty_list(batch: Any) -> bool:
    return isinstance(batch, list | tuple) and not batch


class Iterated:
    """A reader of pyarrow over what an iterator gives, which is asked as rows are read.

    All batches have the columns of the first. Python's own objects may be of fewer types in a later
    one: nulls alone, or whole numbers among floats, become the type of the first if none changes.
    What the iterator raises is kept: through Arrow's interface it arrives as a text.
    """

    def __init__(
        self, batches: Iterator[Any], table_of: Callable[[int, Any], Any], name: str
    ) -> None:
        self._pa: Any = importlib.import_module("pyarrow")
        self.raised: BaseException | None = None
        self._table_of, self._name = table_of, name
        # A filter may leave nothing of a list of rows.
        batches = (batch for batch in batches if not _is_empty_list(batch))
        tables = (table_of(number, batch) for number, batch in enumerate(batches, 1))
        table = next(tables, None)
        if table is None:
            raise DataError(f"{name} gave no batch, so that there are no columns")
        self.reader = self._pa.RecordBatchReader.from_batches(
            table.schema, self._checked(table.schema, chain([table], tables))
        )

    def _checked(self, schema: Any, tables: Iterable[Any]) -> Iterator[Any]:
        try:
            for number, table in enumerate(tables, 1):
                table = self._alike(table, schema)
                if not table.schema.equals(schema):
                    raise DataError(self._differ(number, table.schema, schema))
                yield from table.to_batches()
        except (Exception, KeyboardInterrupt) as error:
            self.raised = error
            raise

    def _alike(self, table: Any, schema: Any) -> Any:
        """The same with types of the first batch, where Python's objects can have them."""
        if table.schema.equals(schema) or table.schema.names != schema.names:
            return table
        for place, (field, wanted) in enumerate(zip(table.schema, schema, strict=True)):
            kinds = self._pa.types
            is_float = kinds.is_integer(field.type) and kinds.is_floating(wanted.type)
            if kinds.is_null(field.type) or is_float:
                try:
                    column = table.column(place).cast(wanted.type)
                except self._pa.ArrowInvalid:
                    # A whole number that is no float.
                    return table
                table = table.set_column(place, wanted, column)
        return table

    def _differ(self, number: int, schema: Any, first: Any) -> str:
        if schema.names != first.names:
            has = f"the columns {', '.join(schema.names)}, and the first {', '.join(first.names)}"
        else:
            pairs = zip(schema, first, strict=True)
            field, other = next((a, b) for a, b in pairs if not a.equals(b))
            has = f"'{field.name}' as {field.type}, and the first as {other.type}"
        return (
            f"{self._name}: batch {number} has {has}: give all batches the same columns, as "
            "tables of pyarrow with a schema if Python's objects do not show them"
        )
