"""Definitions of queries: versions, objectives and statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, Malformed, fault_count
from apps.core.events import announce
from apps.core.limits import MAX_DESCRIPTION
from apps.fleet.models import Cluster
from apps.fleet.validation import check_free, check_row
from apps.queries.backlogs import backlogs_state
from apps.queries.bodies import COST_NOISE_NAMES, body_parse, latest_version, operators_store
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, Query, QueryVersion
from engine.document.elements import Operator as EngineOperator
from engine.document.tables import POSITIVE, STATISTIC
from engine.errors import Fault as EngineFault
from engine.fields import BAD, FieldKind

__all__ = ["query_announce", "query_create", "query_delete", "query_update", "query_version_create"]

_STATISTICS = ("selectivity", "cycles_per_event", "model", "evidence", "events", "measured_at", "batches")
_STATISTICS += ("cycle_unit", *COST_NOISE_NAMES)


def query_announce(query: Query) -> None:
    """Tell open pages that something of the query changed."""
    announce(f"query:{query.cluster.slug}/{query.name}")
    announce(f"cluster:{query.cluster.slug}")


@transaction.atomic
def query_create(
    *,
    cluster: Cluster,
    name: str,
    body: Any,
    objective: Mapping[str, Any] | None = None,
    team: str = "",
    description: str = "",
    priority: int = 0,
    note: str = "",
    user: User | None = None,
    path: str = "",
) -> Query:
    """Create a query, a draft, with its first version.

    Parameters
    ----------
    body : mapping
        `{"operators": [...]}` as in the deployment document, nodes optional; `from` names another operator of the query
        or a source of the cluster.
    objective : mapping, optional
        `{"statistic": "worst" | "mean" | "q0.99", "bound_s": 10.0}`.
    path : str
        Where the body stands in the request, for the paths of its faults.

    Raises
    ------
    Malformed
        With every fault of the fields, the objective and the body.
    Conflict
        The name is taken.
    """
    query = Query(cluster=cluster, name=name, team=team, description=description, priority=priority)
    faults: list[Fault] = []
    operators = _collected(faults, lambda: body_parse(cluster, body, query=name, path=path))
    _collected(faults, lambda: _set_objective(query, objective))
    _collected(faults, lambda: check_row(query, _long(query)))
    if faults or operators is None:
        raise _malformed(faults)
    check_free(cluster.queries.all(), query, name=name)
    query.save()
    _store_version(query, operators, 1, note, user)
    query_announce(query)
    return query


@transaction.atomic
def query_version_create(
    *,
    query: Query,
    body: Any,
    note: str = "",
    user: User | None = None,
    carry_statistics: bool = False,
    path: str = "",
) -> QueryVersion:
    """Add a version. What runs stays as it is until the version is admitted.

    With `carry_statistics`, an input of an operator that the newest version has too (same names, same `from`) keeps the
    statistics known there, whatever the body says.
    """
    query = Query.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=query.pk)
    operators = body_parse(query.cluster, body, query=query.name, path=path)
    newest = latest_version(query)
    version = _store_version(query, operators, newest.number + 1 if newest else 1, note, user)
    if carry_statistics and newest:
        _carry(newest, version)
    query_announce(query)
    return version


@transaction.atomic
def query_update(*, query: Query, objective: Any = ..., **fields: Any) -> Query:
    """Change name, team, description, priority or objective (None: no objective). A running query keeps its name."""
    _refresh_locked(query)
    if fields.get("name", query.name) != query.name and query.state in {QueryState.RUNNING, QueryState.QUEUED}:
        message = f"query {query.name!r} is {query.state}; allowed: to rename it when it is stopped"
        raise Conflict(f"name: {message}.", [("name", message)])
    faults: list[Fault] = []
    for name, value in fields.items():
        setattr(query, name, value)
    if objective is not ...:
        _collected(faults, lambda: _set_objective(query, objective))
    _collected(faults, lambda: check_row(query, _long(query)))
    if faults:
        raise _malformed(faults)
    check_free(query.cluster.queries.all(), query, name=query.name)
    query.save()
    query_announce(query)
    return query


@transaction.atomic
def query_delete(*, query: Query) -> None:
    """Delete a query that neither runs nor waits, with its versions and history."""
    _refresh_locked(query)
    if query.state in {QueryState.RUNNING, QueryState.QUEUED}:
        raise Conflict(f"Query {query.name!r} is {query.state}. Stop it first.")
    query_announce(query)
    query.running_version = None
    query.save()
    query.delete()


def _refresh_locked(query: Query) -> None:
    """As it is now, and held: it may have been admitted or stopped since it was read, and a save writes all of it."""
    query.refresh_from_db(from_queryset=Query.objects.select_for_update())


def _store_version(
    query: Query, operators: tuple[EngineOperator, ...], number: int, note: str, user: User | None
) -> QueryVersion:
    version = QueryVersion(query=query, number=number, note=note, created_by=user)
    check_row(version)
    version.save()
    operators_store(version, operators)
    backlogs_state(query, operators, timezone.now())
    return version


def _long(query: Query) -> list[Fault]:
    length = len(query.description)
    message = f"description has {length} characters; allowed: {MAX_DESCRIPTION}"
    return [Fault("description", message)] if length > MAX_DESCRIPTION else []


def _carry(old: QueryVersion, new: QueryVersion) -> None:
    old_inputs = dict(_inputs_by_name(old))
    changed = []
    for key, entry in _inputs_by_name(new):
        if key in old_inputs and old_inputs[key].cycles_per_event is not None:
            for name in _STATISTICS:
                setattr(entry, name, getattr(old_inputs[key], name))
            changed.append(entry)
    OperatorInput.objects.bulk_update(changed, _STATISTICS)


def _inputs_by_name(version: QueryVersion) -> list[tuple[tuple[str, str, int], OperatorInput]]:
    """Inputs by operator, what they read, and how often the operator has read the same before."""
    by_name: list[tuple[tuple[str, str, int], OperatorInput]] = []
    rows = OperatorInput.objects.filter(operator__version=version).select_related("operator", "upstream")
    for entry in rows.order_by("operator__position", "position"):
        name = entry.operator.name, entry.upstream.name if entry.upstream else entry.source_id
        by_name.append(((*name, sum(key[:2] == name for key, _ in by_name)), entry))
    return by_name


def _set_objective(query: Query, objective: Any) -> None:
    if objective is None:
        query.objective_statistic, query.objective_bound_s = "", None
        return
    if not isinstance(objective, Mapping):
        message = 'allowed: an object such as {"statistic": "q0.99", "bound_s": 2.0}, or null'
        raise Malformed(f"objective: {message}.", [("objective", message)])
    allowed: dict[str, FieldKind] = {"statistic": STATISTIC, "bound_s": POSITIVE}
    unknown = [name for name in objective if name not in allowed]
    faults = [EngineFault(f"objective.{name}", f"unknown field; allowed are {', '.join(allowed)}") for name in unknown]
    values = {name: kind.read(objective.get(name), "objective", name, faults) for name, kind in allowed.items()}
    if values["statistic"] is not BAD and len(values["statistic"]) > 8:
        faults.append(
            EngineFault("objective.statistic", "statistic is too long; allowed: 8 characters, such as q0.9999")
        )
    if faults:
        raise Malformed(f"{faults[0]}.", [(fault.path, fault.message) for fault in faults])
    query.objective_statistic, query.objective_bound_s = values["statistic"], values["bound_s"]


def _collected(faults: list[Fault], check: Callable[[], Any]) -> Any:
    """The check's result; its faults are kept for later, so that all of them are told at once."""
    try:
        return check()
    except Malformed as error:
        faults += error.faults
        return None


def _malformed(faults: list[Fault]) -> Malformed:
    return Malformed(f"The query has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)
