"""Pipelines: the executable form of a query's version, for agents and stream processor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from apps.core.errors import Fault, Missing
from apps.fleet.models import Cluster
from apps.queries.bodies import with_operators
from apps.queries.models import Operator, QueryVersion
from apps.telemetry.models import PRODUCER, KnownPlan, TelemetrySource
from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import partial_schema
from engine.dataflow.types import ExpressionDocument, PipelineOperatorDocument, TableDocument
from engine.errors import DocumentError
from engine.words import counted

__all__ = ["Executable", "executable_of", "partials_schema", "pipeline_by_digest", "records_schema"]


@dataclass(frozen=True)
class Executable:
    """Executable form of a version: a pipeline and its source, or the faults that prevent it.

    There may be both: a pipeline whose operators can be judged, and why it cannot be live. `joined` is the other stream
    that it reads, where it joins one.
    """

    pipeline: Pipeline | None
    source: TelemetrySource | None
    faults: tuple[Fault, ...] = ()
    joined: TelemetrySource | None = None


def executable_of(version: QueryVersion) -> Executable:
    """The pipeline of a version whose operators form a chain and carry expressions. A "no" names the operators."""
    version_rows = with_operators(QueryVersion.objects.filter(pk=version.pk).select_related("query__cluster")).get()
    cluster = version_rows.query.cluster
    faults: list[Fault] = []
    chain = _chain(list(version_rows.operators.all()), faults)
    source = _source(cluster, chain, faults)
    operators = _operators(chain, faults)
    joined = _joined(cluster, source, operators, faults)
    tables = _tables(cluster, operators, faults)
    if faults or source is None:
        return Executable(None, source, tuple(faults))
    document = {
        "source": {"id": source.source_id, "time": source.time, "columns": source.columns},
        "tables": tables,
        "operators": operators,
    }
    try:
        pipeline = Pipeline.parse(document)
    except DocumentError as error:
        return Executable(None, source, error.faults)
    return Executable(pipeline, source, pipeline.not_live, joined)


def _chain(operators: list[Operator], faults: list[Fault]) -> list[Operator]:
    """The operators in the order of the data; each reads the one before it, the first reads a source.

    One that joins another stream reads that, too.
    """
    chain: list[Operator] = []
    read = {operator.pk: _read(operator, faults) for operator in operators}
    if faults:
        return []
    after = {read[operator.pk]: operator for operator in operators}
    if len(after) < len(operators):
        faults.append(Fault("operators", "several operators read the same one; allowed: a chain"))
        return []
    at = after.get(None)
    while at is not None:
        chain.append(at)
        at = after.get(at.pk)
    return chain


def _read(operator: Operator, faults: list[Fault]) -> int | None:
    """Key of the operator that another one reads; None for a source."""
    stream, inputs = _stream_of(operator.extra.get("expression")), list(operator.inputs.all())
    main = inputs
    if stream is not None:
        other = next((row for row in reversed(inputs) if row.upstream_id is None and row.source_id == stream), None)
        main = [row for row in inputs if row is not other]
        if other is None:
            message = (
                f"operator {operator.name!r} joins the stream {stream!r} and does not read it; "
                f"allowed: a second input from {stream!r}"
            )
            faults.append(Fault(operator.name, message))
    if len(main) != 1:
        message = f"operator {operator.name!r} has {counted(len(inputs), 'input')}; allowed: one"
        if stream is not None:
            message = f"{message}, and one from {stream!r}"
        faults.append(Fault(operator.name, message))
        return None
    return main[0].upstream_id


def _stream_of(expression: Any) -> str | None:
    """The stream that an operator joins; one of two inputs is fused with none."""
    stream = expression.get("stream") if isinstance(expression, dict) and expression.get("op") == "join" else None
    return stream if isinstance(stream, str) else None


def _joined(
    cluster: Cluster, main: TelemetrySource | None, operators: list[PipelineOperatorDocument], faults: list[Fault]
) -> TelemetrySource | None:
    """The joined stream. Its time column and needed columns may be left out: the source defines them."""
    row = next((operator for operator in operators if _stream_of(operator["expression"]) is not None), None)
    if row is None:
        return None
    document = row["expression"]
    source = cluster.telemetry_sources.filter(source_id=document["stream"]).first()
    if source is None:
        sources = ", ".join(cluster.telemetry_sources.values_list("source_id", flat=True)[:10]) or "none exists yet"
        message = f"operator {row['id']!r} joins the stream {document['stream']!r}, which no agent collects"
        faults.append(Fault(row["id"], f"{message}; allowed: {sources}"))
        return None
    if main is not None and (main.kind == PRODUCER) != (source.kind == PRODUCER):
        message = f"operator {row['id']!r} joins {main.source_id!r} with {source.source_id!r}"
        faults.append(Fault(row["id"], f"{message}; allowed: both collected by agents, or both sent by programs"))
    faults.extend(_differing(row["id"], document, source))
    row["expression"] = {**document, "time": source.time, "columns": _needed(document, source)}
    return source


def _differing(name: str, document: ExpressionDocument, source: TelemetrySource) -> Iterator[Fault]:
    """Faults where an operator contradicts its source."""
    if document.get("time", source.time) != source.time:
        message = f"operator {name!r} takes {document['time']!r} for the time of the stream {source.source_id!r}"
        yield Fault(name, f"{message}; allowed: {source.time}")
    columns = document.get("columns")
    for column, kind in columns.items() if isinstance(columns, dict) else ():
        if source.columns.get(column) != kind:
            message = f"operator {name!r} takes {column} of the stream {source.source_id!r} as {kind}"
            yield Fault(name, f"{message}; allowed: {source.columns.get(column) or ', '.join(source.columns)}")


def _needed(document: ExpressionDocument, source: TelemetrySource) -> dict[str, str]:
    """Columns of the source that the join reads; all of them if it reads an unknown one."""
    pairs = [mapping for mapping in (document.get("on"), document.get("take")) if isinstance(mapping, dict)]
    columns = {source.time, *(str(theirs) for pair in pairs for theirs in pair.values())}
    return (
        source.columns if columns - source.columns.keys() else {name: source.columns[name] for name in sorted(columns)}
    )


def _source(cluster: Cluster, chain: list[Operator], faults: list[Fault]) -> TelemetrySource | None:
    if not chain:
        return None
    stream = _stream_of(chain[0].extra.get("expression"))
    inputs = [row.source_id for row in chain[0].inputs.all() if row.source_id]
    name = next((row for row in inputs if row != stream), inputs[0])
    source = cluster.telemetry_sources.filter(source_id=name).first()
    if source is None:
        sources = ", ".join(cluster.telemetry_sources.values_list("source_id", flat=True)[:10]) or "none exists yet"
        faults.append(
            Fault(
                chain[0].name, f"operator {chain[0].name!r} reads {name!r}, which no agent collects; allowed: {sources}"
            )
        )
    return source


def _operators(chain: list[Operator], faults: list[Fault]) -> list[PipelineOperatorDocument]:
    """Operators with their expressions; fused ones are expanded."""
    documents: list[PipelineOperatorDocument] = []
    for operator in chain:
        expression = operator.extra.get("expression")
        parts: Iterable[Any] = [{"id": operator.name, "expression": expression}]
        if isinstance(expression, dict) and set(expression) == {"fused"}:
            parts = expression["fused"]
        for part in parts:
            document = part.get("expression")
            if isinstance(document, dict) and isinstance(document.get("op"), str):
                documents.append(
                    {"id": part["id"], "kind": document["op"], "expression": cast(ExpressionDocument, document)}
                )
            else:
                message = f"operator {part['id']!r} has no expression that can be executed"
                faults.append(Fault(operator.name, f'{message}; allowed: such as {{"op": "filter", "where": …}}'))
    return documents


def _tables(
    cluster: Cluster, operators: list[PipelineOperatorDocument], faults: list[Fault]
) -> dict[str, TableDocument]:
    names = {
        row["expression"]["table"]: row["id"] for row in operators if isinstance(row["expression"].get("table"), str)
    }
    tables = {table.name: table for table in cluster.static_tables.filter(name__in=names)}
    for name in sorted(set(names) - set(tables)):
        table_names = ", ".join(cluster.static_tables.values_list("name", flat=True)[:10]) or "none exists yet"
        faults.append(
            Fault(
                names[name],
                f"operator {names[name]!r} joins the table {name!r}, which does not exist; allowed: {table_names}",
            )
        )
    return {
        name: {"columns": table.columns, "order": table.order, "rows": table.rows}
        for name, table in sorted(tables.items())
    }


@lru_cache(maxsize=256)
def pipeline_by_digest(digest: str) -> Pipeline:
    """A pipeline that runs, or once ran, by its digest."""
    document = KnownPlan.objects.filter(digest=digest).values_list("pipeline", flat=True).first()
    if document is None:  # an exception is not remembered: it may be known later
        raise Missing(f"No query has, or had, the plan {digest!r}.", [("plan", "is not known")])
    return Pipeline.parse(document)


def records_schema(pipeline: Pipeline, entry: int) -> pa.Schema | None:
    """Columns of records that enter at an operator; None where records may not enter."""
    if entry == pipeline.other_entry:
        return pipeline.other_schema
    last = (
        pipeline.source_operators if pipeline.aggregate is None else min(pipeline.source_operators, pipeline.aggregate)
    )
    return pipeline.operators[entry].input_schema if 0 <= entry <= last else None


def partials_schema(pipeline: Pipeline, entry: int) -> pa.Schema | None:
    """Columns of partial aggregates of an operator; None where it is not the aggregate, or none are made elsewhere."""
    return partial_schema(pipeline) if entry == pipeline.aggregate and pipeline.stream_join is None else None
