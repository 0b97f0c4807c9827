"""Operators as text of Spark SQL: what `engine.dataflow.arrow.kernels` does to a table, for a view of Spark.

Nothing here knows Spark. A view holds a table with the columns that reach the operator; static tables are views too,
named by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.dataflow.operators import (
    BucketsSpec,
    FilterSpec,
    JoinSpec,
    MapSpec,
    ParseSpec,
    ProjectSpec,
    StreamJoinSpec,
    WindowSpec,
)
from engine.dataflow.pipeline import Pipeline, PipelineOperator
from engine.dataflow.types import AGENT, WINDOW_START, Columns, Type
from tests.spark.spark_sql_expressions import column, converted, expression, finite, text

__all__ = ["select", "side"]

#: What the JSON of a column's type is called by Spark, and read as.
_HELD = {
    Type.INT64: "{0} = 'BIGINT'",
    Type.FLOAT64: "({0} IN ('BIGINT', 'DOUBLE', 'FLOAT') OR {0} LIKE 'DECIMAL%')",
    Type.STRING: "{0} = 'STRING'",
    Type.BOOL: "{0} = 'BOOLEAN'",
    Type.TIMESTAMP: "{0} = 'STRING'",
}
_READ = {Type.INT64: "bigint", Type.FLOAT64: "double", Type.BOOL: "boolean", Type.STRING: "string"} | {
    Type.TIMESTAMP: "string"
}
_NO_TABLES: Mapping[str, str] = {}


def select(pipeline: Pipeline, index: int, view: str, tables: Mapping[str, str] = _NO_TABLES, other: str = "") -> str:
    """Query for an operator's output on the records of `view`, with the columns of its output schema.

    Parameters
    ----------
    pipeline
        Its operator `index` is no aggregate: what merges partials is pyarrow alone.
    tables
        The view of each static table of the pipeline; a table that is missing is a view of its own name.
    other
        For a join with another stream: the view of what `side` makes of its records. Where records of one agent alone
        match, both views have the column `AGENT`.
    """
    operator = pipeline.operators[index]
    view = _read(operator, view)
    match operator.spec:
        case WindowSpec() as spec:
            return _window(operator, spec, view)
        case FilterSpec(where):
            return f"SELECT {_columns(operator, {})} FROM {view} WHERE {expression(where)}"
        case MapSpec(computed) | ProjectSpec(_, computed):
            return f"SELECT {_columns(operator, {name: expression(node) for name, node in computed})} FROM {view}"
        case StreamJoinSpec() as spec:
            return _stream_join(operator, spec, view, other)
        case JoinSpec() as spec:
            return _join(operator, spec, view, tables)
        case ParseSpec() as spec:
            return _parse(operator, spec, view)
        case BucketsSpec(name, bounds, into):
            number = _bucket(f"CAST({column(name)} AS DOUBLE)", bounds, 0)
            return f"SELECT {_columns(operator, {into: number})} FROM {view}"
    raise ValueError(f"operator {operator.id!r} is an {operator.kind}; allowed: one that keeps no state")


def side(pipeline: Pipeline, view: str) -> str:
    """Records of the joined stream in their windows, as a join takes them; `view` holds them as they were sent."""
    spec = next(operator.spec for operator in pipeline.operators if isinstance(operator.spec, StreamJoinSpec))
    columns = dict(spec.columns)
    agent = [column(AGENT)] if spec.within_agent else []
    kept = [*(column(name) for name in columns), *agent]
    sent = f"(SELECT {', '.join([_sent(columns), *agent])} FROM {view})"
    begin = f"{_begin(spec.window)} AS {column(WINDOW_START)}"
    return f"SELECT {', '.join([*kept, begin])} FROM {sent} WHERE {column(spec.window.time)} IS NOT NULL"


def _read(operator: PipelineOperator, view: str) -> str:
    """Input of the operator: the first one of a pipeline reads what a source sent."""
    if operator.index or Type.FLOAT64 not in operator.columns_in.values():
        return view
    return f"(SELECT {_sent(operator.columns_in)} FROM {view})"


def _sent(columns: Columns) -> str:
    """Columns that a source sent: infinities as null."""
    read = {name: finite(column(name)) if kind == Type.FLOAT64 else column(name) for name, kind in columns.items()}
    return ", ".join(f"{value} AS {column(name)}" for name, value in read.items())


def _columns(operator: PipelineOperator, computed: Mapping[str, str], view: str = "") -> str:
    """The operator's output columns: those computed, the others as they came."""
    place = f"{view}." if view else ""
    return ", ".join(
        f"{computed[name]} AS {column(name)}" if name in computed else f"{place}{column(name)}"
        for name in operator.output_schema.names
    )


def _window(operator: PipelineOperator, spec: WindowSpec, view: str) -> str:
    columns = _columns(operator, {WINDOW_START: _begin(spec)})
    return f"SELECT {columns} FROM {view} WHERE {column(spec.time)} IS NOT NULL"


def _begin(spec: WindowSpec) -> str:
    """The beginning of a record's window; a row for each of several."""
    time = f"unix_micros({column(spec.time)})"
    last = f"{time} - pmod({time}, {spec.slide_us}L)"
    if spec.copies == 1:
        return f"timestamp_micros({last})"
    each = f"_step -> timestamp_micros({last} - _step * {spec.slide_us}L)"
    return f"explode(transform(sequence(0L, {spec.copies - 1}L), {each}))"


def _join(operator: PipelineOperator, spec: JoinSpec, view: str, tables: Mapping[str, str]) -> str:
    assert spec.table is not None
    table = tables.get(spec.table.name, column(spec.table.name))
    taken = {name: f"_table.{column(theirs)}" for name, theirs in spec.take}
    on = " AND ".join(f"_records.{column(mine)} = _table.{column(theirs)}" for mine, theirs in spec.on)
    how = "INNER" if spec.inner else "LEFT"
    selected = _columns(operator, taken, "_records")
    return f"SELECT /*+ BROADCAST(_table) */ {selected} FROM {view} AS _records {how} JOIN {table} AS _table ON {on}"


def _stream_join(operator: PipelineOperator, spec: StreamJoinSpec, view: str, other: str) -> str:
    pairs = [(WINDOW_START, WINDOW_START), *spec.on, *([(AGENT, AGENT)] if spec.within_agent else [])]
    keys = ", ".join(dict.fromkeys(column(theirs) for _, theirs in pairs))
    order = ", ".join(f"{column(name)} ASC NULLS LAST" for name in spec.order)
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {order}) AS _number FROM {other}"
    first = f"SELECT * FROM ({numbered}) WHERE _number <= {spec.most}"
    taken = {name: f"_other.{column(theirs)}" for name, theirs in spec.take}
    on = " AND ".join(f"_records.{column(mine)} = _other.{column(theirs)}" for mine, theirs in pairs)
    how = "INNER" if spec.inner else "LEFT"
    selected = _columns(operator, taken, "_records")
    return f"SELECT {selected} FROM {view} AS _records {how} JOIN ({first}) AS _other ON {on}"


def _bucket(value: str, bounds: Sequence[float], first: int) -> str:
    """The number of bounds at or below the value, found by halving; null for null."""
    if not bounds:
        return f"{first}L"
    middle = len(bounds) // 2
    below, above = _bucket(value, bounds[:middle], first), _bucket(value, bounds[middle + 1 :], first + middle + 1)
    return f"CASE WHEN {value} < {float(bounds[middle])!r}D THEN {below} WHEN {value} IS NOT NULL THEN {above} END"


def _parse(operator: PipelineOperator, spec: ParseSpec, view: str) -> str:
    made, sound = _from_json(spec) if spec.form == "json" else _from_patterns(spec)
    where = f" WHERE {sound}" if spec.drop_faulty else ""
    return f"SELECT {_columns(operator, made)} FROM {view}{where}"


def _from_patterns(spec: ParseSpec) -> tuple[dict[str, str], str]:
    """Every column's value, and whether any pattern is found."""
    line = column(spec.column)
    matches = {pattern: f"{line} RLIKE {text(pattern)}" for pattern, _ in spec.patterns}
    made = {}
    for (name, kind), (pattern, group) in zip(spec.into, spec.patterns, strict=True):
        value = f"(CASE WHEN {matches[pattern]} THEN regexp_extract({line}, {text(pattern)}, {group}) END)"
        made[name] = converted(Type.STRING, kind, value)
    return made, f"({' OR '.join(matches.values())})"


def _from_json(spec: ParseSpec) -> tuple[dict[str, str], str]:
    """Every column's value where the line is an object that holds one of its type, and whether it is an object."""
    line = f"try_parse_json({column(spec.column)})"
    made = {}
    for name, kind in spec.into:
        path = text(f"$.{name}")
        held = f"schema_of_variant(variant_get({line}, {path}))"
        given = f"(CASE WHEN {_HELD[kind].format(held)} THEN try_variant_get({line}, {path}, '{_READ[kind]}') END)"
        if kind == Type.FLOAT64:
            given = finite(given)
        made[name] = converted(Type.STRING, kind, given) if kind == Type.TIMESTAMP else given
    return made, f"(schema_of_variant({line}) LIKE 'OBJECT<%')"
