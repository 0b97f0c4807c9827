"""The condition of an alert rule on the columns that name a group, in the SQL of pipelines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from apps.core.errors import Fault, Malformed
from apps.results.columns import WINDOW
from engine.dataflow import Pipeline
from engine.dataflow.arrow import row_kernel
from engine.errors import DocumentError

__all__ = ["condition_check", "rows_where"]

_TYPES = (
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int64"),
    (pa.types.is_floating, "float64"),
)


#: The window's beginning under a name that a stream may have.
_AT = "window_at"


def rows_where(table: pa.Table, where: str) -> pa.Table:
    """The rows that meet a condition; all of them where it is empty."""
    if not where or not table.num_rows:
        return table
    pipeline = _pipeline(table.schema, where)
    schema = pipeline.source.schema  # in the order of the alphabet
    renamed = table.rename_columns([_AT if name == WINDOW else name for name in table.column_names])
    found = row_kernel(pipeline, 0).run(renamed.select(schema.names).cast(schema))
    return found.rename_columns([WINDOW if name == _AT else name for name in found.column_names])


def condition_check(schema: pa.Schema, where: str) -> None:
    """Refuse what is no condition on these columns.

    Raises
    ------
    Malformed
        With the fault at `where`.
    """
    if not where:
        return
    try:
        _pipeline(schema, where)
    except DocumentError as error:
        said = error.faults[0].message if error.faults else error.message
        raise Malformed(f"where: {said}", [Fault("where", said)]) from None


def _pipeline(schema: pa.Schema, where: str) -> Pipeline:
    """A pipeline of one filter over a result's columns."""
    columns = {_AT if field.name == WINDOW else field.name: _type_name(field.type) for field in schema}
    document: dict[str, Any] = {
        "source": {"id": "result", "time": _AT, "columns": columns},
        "operators": [{"id": "where", "kind": "filter", "expression": {"op": "filter", "where": where}}],
    }
    return Pipeline.parse(document)


def _type_name(kind: pa.DataType) -> str:
    return next((name for test, name in _TYPES if test(kind)), "string")
