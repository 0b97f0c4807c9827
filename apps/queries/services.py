"""Queries: their definitions and versions; started, moved and stopped. Admission decides whether they may start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from apps.accounts.models import Team, User
from apps.accounts.teams import team_named
from apps.core.errors import Conflict, Fault, Impossible, Malformed, fault_count, join_path
from apps.core.events import announce
from apps.core.labels import label_faults
from apps.core.limits import MAX_DESCRIPTION
from apps.core.reach import check_owner, check_reach_kept
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_changed
from apps.fleet.validation import check_free, check_row
from apps.ledger.recorder import recorded
from apps.queries.backlogs import set_backlogs
from apps.queries.bodies import COST_NOISE_NAMES, Surroundings, body_parse, latest_version, operators_store
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion
from apps.queries.placements import PlacementGround, placement_ground, placement_part, placement_rows
from engine.document.elements import Operator as EngineOperator
from engine.document.kinds import POSITIVE, STATISTIC
from engine.errors import Fault as EngineFault
from engine.kinds import FieldKind
from engine.records import BAD

__all__ = [
    "NewQuery",
    "QueryReading",
    "placement_move",
    "queries_store",
    "query_announce",
    "query_create",
    "query_delete",
    "query_read",
    "query_revived",
    "query_start",
    "query_stop",
    "query_update",
    "query_version_create",
]

_BATCH = 2000  # rows of one statement
_STATISTICS = ("selectivity", "cycles_per_event", "model", "evidence", "events", "measured_at", "batches")
_STATISTICS += ("cycle_unit", *COST_NOISE_NAMES)


def query_announce(query: Query) -> None:
    """Tell open pages that something of the query changed."""
    announce(f"query:{query.cluster.slug}/{query.name}")
    announce(f"cluster:{query.cluster.slug}")


@recorded()
def query_create(
    *,
    cluster: Cluster,
    name: str,
    body: Any,
    objective: Mapping[str, object] | None = None,
    team: str = "",
    labels: Any = None,
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
    query = Query(cluster=cluster, name=name, description=description, priority=priority)
    operators = _read_query(query, body, objective, path, team=team, labels={} if labels is None else labels)
    check_free(cluster.queries.all(), query, name=name)
    query.save()
    _store_version(query, operators, 1, note, user)
    query_announce(query)
    return query


def _read_query(
    query: Query,
    body: Any,
    objective: Mapping[str, object] | None,
    path: str,
    known: Surroundings | None = None,
    team: str = "",
    labels: Any = ...,
) -> tuple[EngineOperator, ...]:
    """Operators of a new query's body, its objective set, and all of it checked."""
    faults: list[Fault] = []
    parse = lambda: body_parse(query.cluster, body, query=query.name, path=path, surroundings=known)  # noqa: E731
    operators = _collected(faults, parse)
    _collected(faults, lambda: _set_objective(query, objective))
    _collected(faults, lambda: _set_owner(query, team, labels))
    _collected(faults, lambda: check_row(query, _long(query)))
    if faults or operators is None:
        raise _malformed(faults)
    return operators  # type: ignore[no-any-return]


@dataclass(frozen=True)
class NewQuery:
    """A query that is not stored; objective and body as of `query_create`."""

    name: str
    body: Any
    objective: Mapping[str, object] | None = None
    priority: int = 0


@dataclass(frozen=True)
class QueryReading:
    """A new query and its first version, read and checked but not stored."""

    query: Query
    version: QueryVersion
    operators: tuple[EngineOperator, ...]


def query_read(cluster: Cluster, new: NewQuery, known: Surroundings) -> QueryReading:
    """Read a new query among the sources and nodes that its body may name.

    Raises
    ------
    Malformed
        With every fault; the paths begin with `queries.<name>`.
    """
    query = Query(cluster=cluster, name=new.name, priority=new.priority)
    try:
        operators = _read_query(query, new.body, new.objective, "", known)
    except Malformed as error:
        path = f"queries.{new.name}"
        raise _malformed([Fault(join_path(path, fault.path), fault.message) for fault in error.faults]) from None
    set_backlogs(query, operators, timezone.now())
    return QueryReading(query, QueryVersion(query=query, number=1), operators)


@recorded()
def queries_store(
    *,
    cluster: Cluster,
    readings: Sequence[QueryReading],
    user: User | None = None,
    start: bool = False,
) -> list[Query]:
    """Create queries that were read, drafts with their first versions; statements do not grow with their number.

    With `start` they run where their bodies place them, past admission.

    Raises
    ------
    Malformed
        With every fault; the paths begin with `queries.<name>`. None is created then.
    """
    faults: list[Fault] = []
    taken = set(cluster.queries.values_list("name", flat=True))
    for reading in readings:
        name = reading.query.name
        if name in taken:
            faults.append(Fault(f"queries.{name}.name", f"{name!r} is taken by another query"))
        taken.add(name)
        reading.version.created_by = user
    if faults:
        raise _malformed(faults)
    Query.objects.bulk_create([reading.query for reading in readings], batch_size=_BATCH)
    QueryVersion.objects.bulk_create([reading.version for reading in readings], batch_size=_BATCH)
    stored = operators_store([(reading.version, reading.operators) for reading in readings])
    if start:
        _start_new(cluster, [(r.query, r.version, rows) for r, rows in zip(readings, stored, strict=True)])
    cluster_changed.send(Query, cluster=cluster)
    announce(f"cluster:{cluster.slug}")
    return [reading.query for reading in readings]


def _start_new(cluster: Cluster, queries: Sequence[tuple[Query, QueryVersion, list[Operator]]]) -> None:
    """Let new queries run where their bodies place them."""
    inputs = OperatorInput.objects.filter(operator__version__query__cluster=cluster, cycles_per_event__isnull=False)
    nodes = {node.name: node for node in cluster.nodes.all()}
    places = PlacementGround(nodes, frozenset(), dict(inputs.values_list("operator_id", "cycle_unit")))
    faults: list[Fault] = []
    placements: list[Placement] = []
    for query, version, operators in queries:
        try:
            placements += placement_rows(query, operators, {row.name: row.requested for row in operators}, places)
        except (Malformed, Conflict) as error:
            faults += [Fault(f"queries.{query.name}.{fault.path}", fault.message) for fault in error.faults]
        query.state, query.running_version = QueryState.RUNNING, version
    if faults:
        raise _malformed(faults)
    Placement.objects.bulk_create(placements, batch_size=_BATCH)
    newest = QueryVersion.objects.filter(query=OuterRef("pk")).order_by("-number").values("pk")[:1]
    for i in range(0, len(queries), _BATCH):
        started = Query.objects.filter(pk__in=[query.pk for query, _, _ in queries[i : i + _BATCH]])
        started.update(state=QueryState.RUNNING, running_version=Subquery(newest))


@recorded()
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


@recorded()
def query_update(
    *,
    query: Query,
    objective: Any = ...,
    team: Team | str | None = ...,  # type: ignore[assignment]
    labels: Any = ...,
    **fields: Any,
) -> Query:
    """Change name, team, labels, description, priority or objective (None: none). A running query keeps its name.

    A team that is named is made where there is none of that name; labels take the place of all that it has.
    """
    _refresh_locked(query)
    if fields.get("name", query.name) != query.name and query.state in {QueryState.RUNNING, QueryState.QUEUED}:
        message = f"query {query.name!r} is {query.state}; allowed: to rename it when it is stopped"
        raise Conflict(f"name: {message}.", [("name", message)])
    faults: list[Fault] = []
    for name, value in fields.items():
        setattr(query, name, value)
    if objective is not ...:
        _collected(faults, lambda: _set_objective(query, objective))
    _collected(faults, lambda: _set_owner(query, team, labels))
    _collected(faults, lambda: check_row(query, _long(query)))
    if faults:
        raise _malformed(faults)
    check_free(query.cluster.queries.all(), query, name=query.name)
    query.save()
    query_announce(query)
    return query


@recorded()
def query_delete(*, query: Query) -> None:
    """Delete a query that neither runs nor waits, with its versions and history."""
    _refresh_locked(query)
    if query.state in {QueryState.RUNNING, QueryState.QUEUED}:
        raise Conflict(f"Query {query.name!r} is {query.state}. Stop it first.")
    query_announce(query)
    query.running_version = None
    query.save()
    query.delete()


def query_revived(*, query: Query) -> None:
    """Tell of a query that has come back. It did not run when it was deleted, and runs when it is admitted."""
    cluster_changed.send(Query, cluster=query.cluster)
    query_announce(query)


def _refresh_locked(query: Query) -> None:
    """As it is now, and held: it may have been admitted or stopped since it was read, and a save writes all of it."""
    query.refresh_from_db(from_queryset=Query.objects.select_for_update())


def _store_version(
    query: Query, operators: tuple[EngineOperator, ...], number: int, note: str, user: User | None
) -> QueryVersion:
    version = QueryVersion(query=query, number=number, note=note, created_by=user)
    check_row(version)
    version.save()
    operators_store([(version, operators)])
    if set_backlogs(query, operators, timezone.now()):
        query.save(update_fields=["backlogs"])
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


def _set_owner(query: Query, team: Any, labels: Any) -> None:
    """Its team and its labels, each as it is unless given: they decide whose part of the cluster it belongs to."""
    owner, before, faults = query.team, query.labels, list[Fault]()
    if team is not ...:
        query.team = _collected(faults, lambda: team_named(team)) if isinstance(team, str) else team
    if labels is not ...:
        faults += label_faults(labels)
        query.labels = before if faults else labels
    if faults:
        raise _malformed(faults)
    if query.pk is None or query.team != owner or query.labels != before:
        check_owner(query.cluster, query.team, query.labels)
    if query.pk is not None:
        check_reach_kept(query.cluster, (owner, before), (query.team, query.labels))


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


@recorded()
def query_start(
    *,
    version: QueryVersion,
    placement: Mapping[str, object],
    rate_share: float | None = None,
) -> Query:
    """Let a version run on the given nodes, in the place of the version that may be running.

    Parameters
    ----------
    placement : mapping
        For every operator, by its name or `{query}/{name}`: a node's name, `{"node", "core"}`, or a list of replicas
        `{"node", "core", "fraction"}`.
    rate_share : float, optional
        Share of its sources' events it is planned with; what the query says unless given. Nothing here holds the rest
        back: that is its sources' part.

    Raises
    ------
    Malformed, Conflict
        Operators without a place, unknown nodes and cores, fractions that do not add up; nodes that take nothing new.
    Impossible
        A source it reads has no arrivals.
    """
    query = _locked(version.query)
    share = query.rate_share if rate_share is None else rate_share
    if not (math.isfinite(share) and 0 < share <= 1):
        raise Malformed(
            f"rate_share is {share}; allowed: above 0 and up to 1.", [("rate_share", "above 0 and up to 1")]
        )
    operators = list(version.operators.all())
    _check_sources(version)
    rows = placement_rows(query, operators, placement, placement_ground(query, operators, placement))
    if query.running_version_id:
        Placement.objects.filter(operator__version=query.running_version_id).delete()
    Placement.objects.filter(operator__version=version).delete()
    Placement.objects.bulk_create(rows)
    query.state, query.running_version = QueryState.RUNNING, version
    query.rate_share = share
    query.save()
    query_announce(query)
    return query


@recorded()
def placement_move(*, query: Query, placement: Mapping[str, object]) -> Query:
    """Move operators of a running query; those not named stay."""
    query = _locked(query)
    if query.running_version is None:
        raise Conflict(f"Query {query.name!r} does not run; only what runs can be moved.")
    operators = list(query.running_version.operators.all())
    rows = placement_part(query, operators, placement, placement_ground(query, operators, placement))
    Placement.objects.filter(operator__in={row.operator_id for row in rows}).delete()
    Placement.objects.bulk_create(rows)
    query.save()
    query_announce(query)
    return query


@recorded()
def query_stop(*, query: Query) -> Query:
    """Stop a running or waiting query: it takes no part in estimates any more, and its nodes are free."""
    query = _locked(query)
    if query.state not in {QueryState.RUNNING, QueryState.QUEUED}:
        raise Conflict(
            f"Query {query.name!r} is {query.get_state_display().lower()}; only a running or queued one stops."
        )
    ran = query.running_version_id is not None
    Placement.objects.filter(operator__version__query=query).delete()
    query.state = QueryState.STOPPED if ran else QueryState.DRAFT
    query.running_version, query.rate_share = None, 1.0
    query.save()
    query_announce(query)
    return query


def _locked(query: Query) -> Query:
    rows = Query.objects.select_for_update(of=("self",)).select_related("cluster", "running_version")
    locked = rows.get(pk=query.pk)
    Query.ledger_touch(locked.pk)  # before its placement is changed
    return locked


def _check_sources(version: QueryVersion) -> None:
    inputs = OperatorInput.objects.filter(operator__version=version).exclude(source_id="")
    read = set(inputs.values_list("source_id", flat=True))
    known = ArrivalSeries.objects.filter(cluster=version.query.cluster, source_id__in=read)
    missing = sorted(read - set(known.values_list("source_id", flat=True)))
    if missing:
        faults = [("", f"source {name!r} has no arrivals") for name in missing]
        raise Impossible(f"There are no arrivals of {', '.join(missing)}. Upload or generate them first.", faults)
