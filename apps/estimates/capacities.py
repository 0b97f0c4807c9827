"""Capacities of a cluster and its queries, computed with an estimate and kept with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Impossible, Unavailable
from apps.core.events import announce
from apps.estimates.bases import base_changes, cluster_base
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.estimates.summary import work_biases
from apps.fleet.models import Cluster
from apps.jobs.models import FINISHED, Job, JobKind
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_submit
from apps.queries.models import Query
from apps.queries.snapshots.parts import snapshot_take
from engine.capacity.answer import ClusterCapacity, QueryCapacity

if TYPE_CHECKING:
    from engine.estimation.base import EstimateBase

__all__ = [
    "ClusterCapacities",
    "capacities_begin",
    "capacities_of",
    "capacities_refresh",
    "capacity_job",
    "capacity_request",
    "complete_capacities",
]

#: Of queries whose objectives are tried with an estimate: at most so many, those with the least headroom. A job of the
#: background tries the others (`complete_capacities`), and looks at the cluster as a whole where it has more operators.
MAX_TRIED, MAX_TRIED_BY_TELEMETRY, MAX_OPERATORS = 12, 3, 500
_MAX_S = 10.0  # and no further one is begun after so long: of overloaded clusters each takes seconds
_REST = timedelta(minutes=10)  # between two jobs that nobody asked for: estimates by telemetry come every minute


@dataclass(frozen=True)
class ClusterCapacities:
    """Capacity of a cluster, and of its queries by name; None where it could not be computed.

    `fresh` are queries whose capacity is not as it was kept: their other figures may be.
    """

    cluster: ClusterCapacity | None = None
    queries: Mapping[str, QueryCapacity] = field(default_factory=dict)
    fresh: frozenset[str] = frozenset()


def capacities_of(
    cluster: Cluster, base: EstimateBase, *, by_telemetry: bool, report: Callable[[float, str], None]
) -> ClusterCapacities:
    """Capacities by the base of a cluster's estimate; as they were kept where nothing around a query differs since."""
    from engine.capacity.objectives import with_first_objective
    from engine.capacity.saturation import ClusterSaturation  # numba with it, which only workers load

    deployment = base.estimate.deployment
    if not deployment.operators:
        return ClusterCapacities()
    report(1.0, "Capacity")
    saturation, kept = ClusterSaturation(deployment, biases=work_biases(cluster)), _kept(cluster, base)
    queries = {query: kept.queries.get(query) or saturation.of_query(query) for query in deployment.queries}
    whole = kept.cluster or saturation.of_cluster()
    if _is_open(whole) and not by_telemetry and len(deployment.operators) <= MAX_OPERATORS:
        whole = with_first_objective(base, whole)
    most = MAX_TRIED_BY_TELEMETRY if by_telemetry else MAX_TRIED
    done = _with_objectives(base, queries, most)
    fresh = frozenset(query for query, capacity in done.items() if kept.queries.get(query) is not capacity)
    return ClusterCapacities(whole, done, fresh)


def capacities_refresh(run: EstimateRun, capacities: ClusterCapacities, copied: Collection[str]) -> None:
    """Write fresh capacities into rows that were copied from the run before."""
    for query in sorted(capacities.fresh & {*copied}):
        _keep(run, query, capacities.queries[query])


def capacities_begin(run: EstimateRun, capacities: ClusterCapacities) -> None:
    """Have a job look for the rates of a new run that were not looked for with it, in the background."""
    if capacities.cluster is None or not any(map(_is_open, [capacities.cluster, *capacities.queries.values()])):
        return
    key = f"capacities:{run.cluster_id}"
    if run.by_telemetry:
        rested = timezone.now() - _REST
        jobs = Job.objects.filter(kind=JobKind.CAPACITIES, cluster=run.cluster, dedupe_key=key)
        if jobs.filter(~Q(state__in=FINISHED) | Q(finished_at__gt=rested)).exists():
            return
    title = f"Capacities of {run.cluster.slug}"
    with suppress(Unavailable):  # without a broker the estimate is kept all the same; the next one asks again
        job_submit(JobKind.CAPACITIES, title, {}, cluster=run.cluster, dedupe_key=key)


def capacity_request(*, query: Query, user: User | None) -> Job:
    """Look for the rate at which a query's objective breaks, and the first of those beside it, now."""
    title, key = f"Capacity of {query.name}", _key_of(query)
    params = {"query": query.name}
    return job_submit(JobKind.CAPACITIES, title, params, cluster=query.cluster, user=user, dedupe_key=key)


def capacity_job(query: Query) -> Job | None:
    """The newest job that somebody asked for a query's capacity, of whatever state."""
    jobs = Job.objects.filter(kind=JobKind.CAPACITIES, cluster=query.cluster, dedupe_key=_key_of(query))
    return jobs.order_by("-created_at").first()


def _key_of(query: Query) -> str:
    return f"capacity:{query.pk}"


def complete_capacities(report: JobReporter) -> JobOutcome:
    """The work of the job: rates that the newest run lacks, each kept as it is found, least headroom first.

    It ends where the cluster has moved: the estimate of that begins another. One that somebody asked for says so.
    """
    from engine.capacity.objectives import with_first_objective, with_objectives

    cluster, asked = report.job.cluster, report.job.params.get("query")
    assert cluster is not None
    report(0.0, "Taking a snapshot")
    running = snapshot_take(cluster).deployment
    base = cluster_base(cluster, running, lambda share, step: report(0.2 * share, step))
    run, found, left = run_latest(cluster), 0, 0
    outcome_page = f"/c/{cluster.slug}/queries/{asked}/" if asked else f"/c/{cluster.slug}/queries/"
    is_current = run is not None and (run.base or {}).get("digest") == running.digest
    if asked is not None and not is_current:
        message = f"The cluster has changed since {asked} was estimated; the next estimate looks anew."
        raise Impossible(message, [("query", "the cluster has changed since its estimate")])
    if run is not None and is_current:
        rows = run.queries.order_by().values_list("query__name", "result__capacity")
        kept = {name: QueryCapacity.parse(capacity) for name, capacity in rows if capacity and asked in (None, name)}
        queries = [name for name in _in_turn(kept) if name in running.query_index]
        whole = run.facts.capacity
        if asked is None and whole is not None and _is_open(whole):
            report(0.2, "Capacity of the cluster")
            _keep_whole(run, with_first_objective(base, whole))
        for i, query in enumerate(queries):
            newest = run_latest(cluster)
            if newest is None or newest.pk != run.pk:
                left = len(queries) - i
                break
            report(0.2 + 0.8 * i / len(queries), f"Capacity of {query}, {i + 1} of {len(queries)}")
            _keep(run, query, with_objectives(base, query, kept[query]))
            found += 1
        announce(f"cluster:{cluster.slug}")
    return JobOutcome({"found": found, "left": left}, outcome_page, "")


@transaction.atomic
def _keep(run: EstimateRun, query: str, capacity: QueryCapacity) -> None:
    row = QueryEstimate.objects.select_for_update().filter(run=run, query__name=query).first()
    if row is not None:
        row.result = row.result | {"capacity": capacity.to_dict()}
        row.save(update_fields=["result"])


@transaction.atomic
def _keep_whole(run: EstimateRun, capacity: ClusterCapacity) -> None:
    row = EstimateRun.objects.select_for_update().filter(pk=run.pk).first()
    if row is not None:
        row.result = row.result | {"capacity": capacity.to_dict()}
        row.save(update_fields=["result"])


def _is_open(capacity: QueryCapacity | ClusterCapacity) -> bool:
    """Whether nobody has looked yet when objectives break."""
    return capacity.factor is not None and not capacity.objectives_known


def _in_turn(capacities: Mapping[str, QueryCapacity]) -> list[str]:
    """Queries of which nobody has looked yet, least headroom first."""
    open_ = {query: capacity.factor or 0.0 for query, capacity in capacities.items() if _is_open(capacity)}
    return sorted(open_, key=lambda query: (open_[query], query))


def _kept(cluster: Cluster, base: EstimateBase) -> ClusterCapacities:
    """Capacities in the newest run, of what has the same surroundings since: the same servers, loads and objectives.

    A query's own figures are not enough: the objective of another beside it may be new, and break at another rate.
    """
    newest = run_latest(cluster)
    change = None if newest is None else base_changes(cluster, base, (newest.base or {}).get("digest", ""))
    if newest is None or change is None:
        return ClusterCapacities()
    deployment, surroundings = base.estimate.deployment, base.surroundings
    moved = {*change.servers}
    for query in change.queries & {*deployment.queries}:
        moved |= surroundings.servers_of(query) | surroundings.servers_loaded_by(query)
    rows = newest.queries.order_by().values_list("query__name", "result__capacity")
    queries = {
        name: QueryCapacity.parse(capacity)
        for name, capacity in rows
        if capacity and name in deployment.query_index and name not in change.queries
        if moved.isdisjoint(surroundings.servers_loaded_by(name))
    }
    is_same = not moved and len(queries) == len(deployment.queries)
    return ClusterCapacities(newest.facts.capacity if is_same else None, queries)


def _with_objectives(
    base: EstimateBase, queries: Mapping[str, QueryCapacity], most: int
) -> Mapping[str, QueryCapacity]:
    """Capacities with the rates at which objectives break, of so many queries that lack them."""
    from engine.capacity.objectives import with_objectives

    done, until = dict(queries), time.monotonic() + _MAX_S
    for query in _in_turn(queries)[:most]:
        if time.monotonic() > until:
            break
        done[query] = with_objectives(base, query, queries[query])
    return done
