"""Copies of the last run's rows in the run that follows it, where figures are as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db import connection
from django.db.models import F

from apps.estimates.bases import base_changes
from apps.estimates.calibration import queries_calibrated
from apps.estimates.models import EstimateRun, NodeEstimate, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.queries.choices import QueryState

if TYPE_CHECKING:
    from engine.estimation.base import EstimateBase

__all__ = ["RowCopies", "copies_of"]

_ROWS = 500  # named in one statement


@dataclass(frozen=True)
class RowCopies:
    """Rows of a run that stand in the next one as well: keys by query and by server. Without a run there is none."""

    before: EstimateRun | None = None
    queries: Mapping[str, int] = field(default_factory=dict)
    servers: Mapping[str, int] = field(default_factory=dict)

    def write(self, run: EstimateRun) -> None:
        """Write them for a run; the rows do not leave the database."""
        _copy(QueryEstimate, self.queries, run)
        _copy(NodeEstimate, self.servers, run)


def copies_of(run: EstimateRun, base: EstimateBase) -> RowCopies:
    """Rows that a run takes over of the cluster's newest one, where the base knows what differs since.

    A query of another version than was estimated has none, nor has one whose interval may be scaled otherwise by now.
    """
    before = run_latest(run.cluster)
    change = None if before is None else base_changes(run.cluster, base, (before.base or {}).get("digest", ""))
    if before is None or change is None or before.slices != run.slices or before.subinterval_s != run.subinterval_s:
        return RowCopies()
    rows = before.queries.filter(query__state=QueryState.RUNNING, version=F("query__running_version"), trust="")
    rows = rows.exclude(query__in=queries_calibrated(run.cluster)).order_by()
    same = base.estimate.queries.keys() - change.queries
    queries = {name: pk for pk, name in rows.values_list("pk", "query__name") if name in same}
    present = {server.name for server in base.estimate.deployment.servers} - change.servers
    servers = {name: pk for pk, name in before.nodes.order_by().values_list("pk", "server") if name in present}
    return RowCopies(before, queries, servers)


def _copy(model: type[QueryEstimate] | type[NodeEstimate], keys: Mapping[str, int], run: EstimateRun) -> None:
    quote, meta = connection.ops.quote_name, model._meta
    columns = [item.column for item in meta.concrete_fields if not item.primary_key and item.name != "run"]
    listed = ", ".join(quote(column) for column in columns)
    table, of_run = quote(meta.db_table), quote(meta.get_field("run").column)
    with connection.cursor() as cursor:
        listed_keys = list(keys.values())
        for i in range(0, len(listed_keys), _ROWS):
            some = listed_keys[i : i + _ROWS]
            marks = ", ".join(["%s"] * len(some))
            cursor.execute(
                f"INSERT INTO {table} ({of_run}, {listed}) SELECT %s, {listed} FROM {table} WHERE id IN ({marks})",
                [run.pk, *some],
            )
