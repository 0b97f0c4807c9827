"""Changes to sources, and to the static tables that queries join with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q, QuerySet

from agent.config import AgentConfig
from apps.core.errors import Conflict, Fault
from apps.core.events import announce
from apps.core.limits import MAX_TABLE_COLUMNS, MAX_TABLE_ROWS
from apps.fleet.models import Cluster
from apps.fleet.validation import check_row
from apps.ledger.recorder import recorded
from apps.telemetry.configs import configs_renew, lives_executed
from apps.telemetry.live_services import live_refresh
from apps.telemetry.models import COLUMN_TYPES, PRODUCER, Agent, LiveQuery, StaticTable, TelemetrySource
from engine.dataflow.documents import NAME_PATTERN, StaticTableRecord, read_table
from engine.errors import DocumentError

__all__ = ["options_faults", "source_delete", "source_upsert", "table_delete", "table_upsert"]

_NAME = re.compile(NAME_PATTERN + r"\Z")


@recorded()
def source_upsert(*, cluster: Cluster, source_id: str, create: bool = False, **fields: Any) -> TelemetrySource:
    """Create a source, or change what is given of one; with `create` there must be none yet.

    Raises
    ------
    Malformed
        Unknown kinds, options, columns and types, each named.
    Conflict
        Its columns or event time change while a live query reads it; there is one already.
    """
    source = TelemetrySource.objects.select_for_update().filter(cluster=cluster, source_id=source_id).first()
    if create and source is not None:
        raise Conflict(f"There is a source {source_id!r} already.", [("source_id", "is taken")])
    before = None if source is None else (source.time, source.columns)
    source = source or TelemetrySource(cluster=cluster, source_id=source_id)
    for name, value in fields.items():
        setattr(source, name, value)
    check_row(source, [*_column_faults(source.columns), *_source_faults(source)])
    readers = _readers(lives_executed(), source) if source.pk else []
    if readers and before != (source.time, source.columns):
        message = f"{', '.join(readers)} read it; stop them first, then change its columns"
        raise Conflict(f"columns: {message}.", [("columns", message)])
    source.save()
    collecting = Q(assignments__live__source=source) | Q(assignments__live__joined=source)
    configs_renew(Agent.objects.filter(collecting).values_list("pk", flat=True))
    announce(f"telemetry:{cluster.slug}")
    return source


@recorded()
def source_delete(*, source: TelemetrySource) -> None:
    """Delete a source that no query on live telemetry reads, or has read."""
    readers = _readers(LiveQuery.with_trials.all(), source)
    if readers:
        raise Conflict(
            f"The source {source.source_id!r} is read by {', '.join(readers)}. Delete their live runs first."
        )
    source.delete()
    announce(f"telemetry:{source.cluster.slug}")


def _readers(lives: QuerySet[LiveQuery], source: TelemetrySource) -> list[str]:
    """Names of queries that read the source, as their own or to join with it."""
    return list(lives.filter(Q(source=source) | Q(joined=source)).values_list("query__name", flat=True))


@recorded()
def table_upsert(
    *,
    cluster: Cluster,
    name: str,
    columns: Mapping[str, str] | None = None,
    order: Sequence[str] | None = None,
    rows: Sequence[Any] | None = None,
    create: bool = False,
) -> StaticTable:
    """Create a table, or replace the given fields of one. Live queries that join with it go on with the new rows.

    Parameters
    ----------
    order : sequence, optional
        Columns in the order of a row's cells; that of `columns` unless given.

    Raises
    ------
    Malformed
        Unknown types, rows of another length, cells of another type: the first of them, and how many there are.
    Conflict
        With the new columns a live query cannot be executed; with `create`, there is one already.
    """
    table = StaticTable.objects.select_for_update().filter(cluster=cluster, name=name).first()
    if create and table is not None:
        raise Conflict(f"There is a table {name!r} already.", [("name", "is taken")])
    table = table or StaticTable(cluster=cluster, name=name)
    if columns is not None:
        table.columns, table.order = columns, list(columns) if order is None and isinstance(columns, dict) else order
    elif order is not None:
        table.order = order
    table.rows = table.rows if rows is None else rows
    text = json.dumps([table.columns, table.order, table.rows], sort_keys=True, default=str)
    table.digest = hashlib.sha256(text.encode()).hexdigest()
    check_row(table, [*_column_faults(table.columns), *_table_faults(table)])
    table.save()
    for live in _joining(table):
        if faults := live_refresh(live=live):
            raise Conflict(f"{live} joins with it and could no longer be executed: {faults[0].message}.", faults)
    announce(f"telemetry:{cluster.slug}")
    return table


@recorded()
def table_delete(*, table: StaticTable) -> None:
    """Delete a table that no live query joins with."""
    if joining := [str(live) for live in _joining(table)]:
        raise Conflict(f"The table {table.name!r} is joined with by {', '.join(joining)}. Stop them first.")
    table.delete()
    announce(f"telemetry:{table.cluster.slug}")


def _joining(table: StaticTable) -> list[Any]:
    lives = lives_executed().filter(query__cluster=table.cluster_id).select_related("query__cluster", "version")
    return [live for live in lives if table.name in live.pipeline.get("tables", {})]


def _column_faults(columns: Any) -> list[Fault]:
    if not isinstance(columns, dict) or not 1 <= len(columns) <= MAX_TABLE_COLUMNS:
        return [
            Fault("columns", f'columns are 1 to {MAX_TABLE_COLUMNS} names with a type each, such as {{"ip": "string"}}')
        ]
    faults = []
    for name, kind in columns.items():
        if not _NAME.match(name):
            faults.append(Fault(f"columns.{name}", f"{name!r} is no name; allowed: letters, digits and underscores"))
        if kind not in COLUMN_TYPES:
            faults.append(Fault(f"columns.{name}", f"{name} is {kind!r}; allowed: {', '.join(COLUMN_TYPES)}"))
    return faults


def _source_faults(source: TelemetrySource) -> list[Fault]:
    if source.kind != PRODUCER:
        return options_faults(source, source.options)
    faults = []
    if isinstance(source.columns, dict) and source.columns.get(source.time) != "timestamp":
        faults.append(Fault("time", f"time is {source.time!r}; allowed: a column of type timestamp"))
    if source.options:
        faults.append(Fault("options", "a producer's source has no options"))
    return faults


def options_faults(source: TelemetrySource, options: Any, path: str = "options") -> list[Fault]:
    """Faults of a source under these options, by the rules that agents apply."""
    content = {"kind": source.kind, "options": options, "time": source.time, "columns": source.columns}
    document = {"version": 1, "agent": "a", "cluster": "c", "sources": {"s": content}, "queries": []}
    try:
        AgentConfig.parse(document)
    except DocumentError as error:
        return [Fault(_field(fault.path, path), fault.message) for fault in error.faults]
    return []


def _field(path: str, options: str) -> str:
    """`sources.s.options.path` as the request knows it."""
    name = path.removeprefix("sources.s").lstrip(".")
    return options + name.removeprefix("options") if name.startswith("options") else name


def _table_faults(table: StaticTable) -> list[Fault]:
    """Faults of the table in a pipeline, by the engine's rules."""
    if not isinstance(table.rows, (list, tuple)):
        return [Fault("rows", "rows is no list; allowed: a list of rows, each a list of cells")]
    if len(table.rows) > MAX_TABLE_ROWS:
        return [Fault("rows", f"there are {len(table.rows):,} rows; allowed: {MAX_TABLE_ROWS:,}")]
    document = {"columns": table.columns, "order": table.order, "rows": table.rows}
    faults: list[Fault] = []
    record = StaticTableRecord.read(document, "", "", faults)
    if record is not None:
        read_table("t", record, "", faults)
    return [Fault(fault.path, fault.message) for fault in faults[:50]]
