"""Marks of changed rows, written by the database itself: by them a snapshot is brought forward instead of read anew.

Triggers write them in the transaction of the change, whoever makes it: a service, a bulk statement, a cascade, a
person at the database. They are made anew after each `migrate` (`triggers_create`), which also begins a new epoch:
nothing that was read before it counts any more.

A position is the point up to which marks were seen. SQLite has one writer, so the key of the last mark will do. In
PostgreSQL transactions end in another order than they begin: the position is the oldest that had not ended, and marks
of that one and of later ones are looked at again, those seen before left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.models import Max, Model

from apps.fleet.models import Cluster, Link, Node, NodePool
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion, RowChange

__all__ = ["FLEET", "QUERY", "SOURCE", "RowChanges", "row_changes", "triggers_create"]

QUERY, SOURCE, FLEET = "query", "source", "fleet"  #: kinds of marks; their keys: a query, arrivals, a cluster
_EPOCH = "epoch"
_QUERIES, _VERSIONS, _OPERATORS = (model._meta.db_table for model in (Query, QueryVersion, Operator))
_HEAD = "SELECT '{}' AS kind, {} AS \"key\", {} AS cluster FROM {{changed}} c"
_OF_VERSION = f" JOIN {_QUERIES} q ON q.id = v.query_id"
_OF_OPERATOR = (
    _HEAD.format(QUERY, "q.id", "q.cluster_id")
    + f" JOIN {_OPERATORS} o ON o.id = c.operator_id JOIN {_VERSIONS} v ON v.id = o.version_id{_OF_VERSION}"
)
_OF_FLEET = _HEAD.format(FLEET, "c.cluster_id", "c.cluster_id")
#: What a changed row of a table marks: kind, key and cluster of the mark.
_MARKS: Mapping[type[Model], str] = {
    Query: _HEAD.format(QUERY, "c.id", "c.cluster_id"),
    Operator: _HEAD.format(QUERY, "q.id", "q.cluster_id") + f" JOIN {_VERSIONS} v ON v.id = c.version_id{_OF_VERSION}",
    OperatorInput: _OF_OPERATOR,
    Placement: _OF_OPERATOR,
    ArrivalSeries: _HEAD.format(SOURCE, "c.id", "c.cluster_id"),
    Node: _OF_FLEET,
    NodePool: _OF_FLEET,
    Link: _OF_FLEET,
}
_COLUMNS = ("id", "version_id", "operator_id", "cluster_id")


@dataclass(frozen=True)
class RowChanges:
    """Marks since a position: keys by kind, the epoch, and the position to ask from next time.

    `seen` are the marks that the next question leaves out. `is_own` says whether the present transaction wrote some: it
    may write them again.
    """

    epoch: frozenset[int]
    position: int
    keys: Mapping[str, frozenset[int]]
    seen: frozenset[int] = frozenset()
    is_own: bool = False


def row_changes(cluster: Cluster, position: int | None, seen: frozenset[int] = frozenset()) -> RowChanges:
    """Marks of a cluster's rows since a position; from now on without one."""
    epoch = frozenset(RowChange.objects.filter(kind=_EPOCH).values_list("key", flat=True))
    rows = RowChange.objects.filter(cluster=cluster.pk)
    if connection.vendor != "postgresql":
        keys: dict[str, set[int]] = {}
        if position is None:
            return RowChanges(epoch, rows.aggregate(last=Max("pk"))["last"] or 0, {})
        last = position
        for pk, kind, key in rows.filter(pk__gt=position).values_list("pk", "kind", "key"):  # of one moment
            keys.setdefault(kind, set()).add(key)
            last = max(last, pk)
        return RowChanges(epoch, last, _frozen(keys))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,"
            " coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0)"
        )
        now, own = cursor.fetchone()
    keys, again, is_own = {}, set(), False
    for pk, kind, key, writer in rows.filter(writer__gte=now if position is None else position).values_list(
        "pk", "kind", "key", "writer"
    ):
        if position is not None and (pk not in seen or writer == own):
            keys.setdefault(kind, set()).add(key)
        if writer == own:
            is_own = True
        elif writer >= now:
            again.add(pk)
    return RowChanges(epoch, now, _frozen(keys), frozenset(again), is_own)


def _frozen(keys: Mapping[str, set[int]]) -> dict[str, frozenset[int]]:
    return {kind: frozenset(those) for kind, those in keys.items()}


@transaction.atomic
def triggers_create() -> None:
    """Make the triggers anew, of all tables that are there, and begin an epoch."""
    tables = set(connection.introspection.table_names())
    if RowChange._meta.db_table not in tables:
        return
    statements = _postgresql if connection.vendor == "postgresql" else _sqlite
    with connection.cursor() as cursor:
        for model, marks in _MARKS.items():
            if model._meta.db_table in tables:
                for statement in statements(model._meta.db_table, marks):
                    cursor.execute(statement)
    RowChange.objects.all().delete()  # everything is read anew in another epoch
    RowChange.objects.create(kind=_EPOCH, key=secrets.randbits(62), cluster=0)


@transaction.atomic
def triggers_drop() -> None:
    """Take the triggers away, for a migration: SQLite reads each anew where a table that it names is remade."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for model in _MARKS:
                cursor.execute(f"DROP FUNCTION IF EXISTS {model._meta.db_table}_mark() CASCADE")
            return
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ours = tuple(f"{model._meta.db_table}_marks_" for model in _MARKS)
        for (name,) in cursor.fetchall():
            if name.startswith(ours):
                cursor.execute(f"DROP TRIGGER {name}")


def _sqlite(table: str, marks: str) -> Iterator[str]:
    """Triggers by row: a mark takes the place of the one before it, with a higher key.

    It is deleted first: `INSERT OR REPLACE` becomes `OR IGNORE` where the statement that fires the trigger says so.
    """
    columns = [name for name in _COLUMNS if f"c.{name}" in marks]
    marked = RowChange._meta.db_table
    for event, sides in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
        rows = " UNION ".join(f"SELECT {', '.join(f'{side}.{name} AS {name}' for name in columns)}" for side in sides)
        those = marks.format(changed=f"({rows})")
        name = f"{table}_marks_{event.lower()}"
        yield f"DROP TRIGGER IF EXISTS {name}"
        yield (
            f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN"
            f' DELETE FROM {marked} WHERE (kind, "key") IN (SELECT kind, "key" FROM ({those}));'
            f' INSERT INTO {marked} (kind, "key", cluster, writer) SELECT m.*, 0 FROM ({those}) m; END'
        )


def _postgresql(table: str, marks: str) -> Iterator[str]:
    """Triggers by statement: marks of ended transactions go where a newer one comes, unless another removes them."""
    marked, those = RowChange._meta.db_table, marks.format(changed="changed")
    yield f"""
        CREATE OR REPLACE FUNCTION {table}_mark() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE mine bigint := pg_current_xact_id()::text::bigint;
        BEGIN
            DELETE FROM {marked} WHERE id IN (
                SELECT r.id FROM {marked} r
                JOIN ({those}) m ON m.kind = r.kind AND m.key = r.key
                WHERE r.writer < mine FOR UPDATE OF r SKIP LOCKED);
            INSERT INTO {marked} (kind, key, cluster, writer)
            SELECT DISTINCT m.kind, m.key, m.cluster, mine FROM ({those}) m ON CONFLICT DO NOTHING;
            RETURN NULL;
        END $$"""
    for event, side in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("UPDATE", "OLD"), ("DELETE", "OLD")):
        name = f"{table}_marks_{event.lower()}_{side.lower()}"
        yield f"DROP TRIGGER IF EXISTS {name} ON {table}"
        yield (
            f"CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {side} TABLE AS changed"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {table}_mark()"
        )
