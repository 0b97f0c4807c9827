"""Placement searches: requested, followed, stopped, and the proposal stored. Applying it is in `placement_moves`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible
from apps.core.events import announce
from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.planning.choices import ENDED_STATES, PlacementAlgorithm, RunState
from apps.planning.models import PlacementMove, PlacementRun
from apps.planning.placement_parameters import check_parameters, engine_constraints, objective_default
from apps.queries.choices import QueryState
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from engine.document.deployment import Deployment

__all__ = [
    "MIN_MOVE_GAIN",
    "PLACEMENT",
    "SLICES_PER_SUBINTERVAL",
    "SearchFollower",
    "live_topic",
    "move_rows",
    "placement_facts",
    "placement_live",
    "placement_request_again",
    "placement_started",
    "placement_stop",
]

MIN_MOVE_GAIN = 0.01  # share of the value that moves must gain, all that are left out together
SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval
_LIVE_EVERY_S = 0.5
_TRACE = 120  # points of the live curve
_AT_A_TIME = 256  # operators whose series are in memory together


class PlacementKind(RunKind[PlacementRun]):
    """Search for a better placement of everything that runs in a cluster, as it is when the search begins."""

    model, job, name, path = PlacementRun, JobKind.PLACEMENT, "placement", "placements"
    topics = ("placement", "placements")
    asked, answered, cancelled = RunState.SEARCHING, RunState.PROPOSED, RunState.ABORTED
    stamp = "proposed_at"
    columns, emptied = ("result", "facts", "live"), ("live",)
    related = ("cluster", "job", "moves_job", "requested_by", "applied_by")
    bulk = ("snapshot_parts", "expected_parts", "result", "live")
    retention, old = timedelta(days=90), Q(state__in=ENDED_STATES)

    def title(self, run: PlacementRun) -> str:
        return f"Search a placement of {run.cluster.slug}"

    def page(self, run: PlacementRun) -> str:
        return f"/c/{run.cluster.slug}/placement/{run.pk}/"

    def create(
        self,
        *,
        cluster: Cluster,
        user: User | None,
        algorithm: str = PlacementAlgorithm.SEARCH,
        objective: str | None = None,
        budget_s: float = 5.0,
        seed: int = 0,
        constraints: Mapping[str, object] | None = None,
        parent: PlacementRun | None = None,
    ) -> PlacementRun:
        """Write a search without a job.

        Parameters
        ----------
        objective : str, optional
            What is made small; without it what `objective_default` says.

        Raises
        ------
        Impossible
            There is nothing to place, or nowhere to place it.
        Malformed
            With every fault of what was asked.
        """
        _require_placeable(cluster)
        asked = check_parameters(
            cluster=cluster,
            algorithm=algorithm,
            objective=objective or objective_default(cluster),
            budget_s=budget_s,
            seed=seed,
            constraints=constraints or {},
        )
        return PlacementRun.objects.create(cluster=cluster, requested_by=user, parent=parent, **asked)

    def answer(self, run: PlacementRun, report: JobReporter) -> None:
        from engine.placement.proposal import place  # SciPy with it: only a worker that searches pays for it

        report(0.0, "Taking a snapshot")
        snapshot = cluster_snapshot(run.cluster)
        placement_started(run=run, snapshot=snapshot)
        deployment = replace(snapshot.deployment, constraints=engine_constraints(run.constraints))
        follow = SearchFollower(run, report)
        proposal = place(
            deployment,
            algorithm=run.algorithm,
            budget_s=run.budget_s,
            seed=run.seed,
            closed=snapshot.closed_nodes,
            objective=run.objective,
            mace_every=SLICES_PER_SUBINTERVAL,
            tolerance=MIN_MOVE_GAIN if run.algorithm == PlacementAlgorithm.SEARCH else 0.0,
            progress=follow,
            stop=follow.is_stopped,
        )
        capacities = {node.id: node.capacity_cps for node in snapshot.deployment.nodes}
        answer = {**proposal.to_dict(), "loads": _mean_loads(snapshot.deployment), "capacities": capacities}
        run.result, run.facts, run.live = answer, placement_facts(answer), {}

    def follow(self, run: PlacementRun, job: Job) -> None:
        """Write the proposal's moves."""
        run.moves.all().delete()
        PlacementMove.objects.bulk_create(move_rows(run, run.result), batch_size=500)

    def facts(self, run: PlacementRun) -> Mapping[str, object]:
        return {"placement": str(run.pk), "state": run.state, "moves": run.facts.get("moves", 0)}

    @transaction.atomic
    def delete(self, *, run: PlacementRun) -> None:
        """Delete a run with its moves; what it moved stays where it is."""
        run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
        if run.state not in ENDED_STATES:
            state = run.get_state_display().lower()
            raise Conflict(f"The run is {state}; stop it before it is deleted.", code="wrong_state")
        announce(f"cluster:{run.cluster.slug}")
        run.delete()


PLACEMENT = register(PlacementKind())


def placement_request_again(*, run: PlacementRun, user: User | None) -> tuple[PlacementRun, Job | None]:
    """Repeat a search on the present cluster."""
    asked = {name: getattr(run, name) for name in ("algorithm", "objective", "budget_s", "seed", "constraints")}
    return PLACEMENT.request(cluster=run.cluster, user=user, parent=run, **asked)


@transaction.atomic
def placement_stop(*, run: PlacementRun) -> PlacementRun:
    """Stop a search and keep the best so far as its proposal. Cancelling its job instead keeps nothing."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster", "job").get(pk=run.pk)
    if run.state != RunState.SEARCHING:
        state = run.get_state_display().lower()
        raise Conflict(f"The run is {state}; only a search can be stopped.", code="wrong_state")
    run.stop_requested = True
    run.save(update_fields=["stop_requested", "updated_at"])
    PLACEMENT.announce(run)
    return run


def placement_started(*, run: PlacementRun, snapshot: Snapshot) -> None:
    """Store the snapshot of a search that begins; what an earlier attempt left is dropped."""
    PlacementRun.objects.filter(pk=run.pk).update(
        snapshot=snapshot.digest, snapshot_parts=snapshot.parts, started_at=timezone.now(), live={}
    )
    PLACEMENT.announce(run)


def placement_live(*, run: PlacementRun, best: Mapping[str, object]) -> bool:
    """Store the best so far for the page; returns whether the search is to stop and keep it."""
    PlacementRun.objects.filter(pk=run.pk).update(live=dict(best))
    announce(live_topic(run))
    return PlacementRun.objects.filter(pk=run.pk, stop_requested=True).exists()


def live_topic(run: PlacementRun) -> str:
    """Topic of a running search, announced at most twice a second; the run's own topic tells changes of its state."""
    return f"placement-live:{run.pk}"


def _require_placeable(cluster: Cluster) -> None:
    if not cluster.nodes.exclude(state=NodeState.OFFLINE).exists():
        message = f"Cluster {cluster.slug} has no node that could take an operator; register one or bring one online."
        raise Impossible(message, [("cluster", f"{cluster.slug} has no nodes")])
    if not cluster.queries.filter(state=QueryState.RUNNING).exists():
        message = f"Nothing runs in cluster {cluster.slug}; admit a query first."
        raise Impossible(message, [("cluster", f"nothing runs in {cluster.slug}")])


def placement_facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of a proposal for lists."""
    kept = ("objective", "value_before", "value_after", "mace_before_s", "mace_after_s", "flow_before_s")
    kept += ("flow_after_s", "bound_s", "bound_kind", "gap", "stopped", "elapsed_s", "rounds")
    facts = {name: answer.get(name) for name in kept}
    facts["moves"] = len(answer["moves"])
    facts["queries"], facts["operators"] = len(answer["queries"]), len(answer["placement"])
    facts["duration_s"] = sum(move["duration_s"] or 0.0 for move in answer["moves"])
    for moment in ("before", "after"):
        states = [query[f"{moment}_state"] for query in answer["queries"]]
        facts[f"breached_{moment}"] = states.count("breached")
        facts[f"tightest_{moment}"] = _tightest(answer["queries"], f"{moment}_s")
    return facts


def _tightest(queries: Sequence[Mapping[str, Any]], moment: str) -> dict[str, Any] | None:
    """The query whose latency is the largest share of its objective, priorities left out; None without any."""
    shares = {q["query"]: q[moment] / q["bound_s"] for q in queries if q["bound_s"] and q[moment] is not None}
    name = max(shares, key=lambda query: shares[query], default=None)
    return None if name is None else {"query": name, "share": shares[name]}


def move_rows(run: PlacementRun, answer: Mapping[str, Any]) -> list[PlacementMove]:
    """One unsaved row per move, in order."""
    return [_row(run, number, move) for number, move in enumerate(answer["moves"], start=1)]


def _row(run: PlacementRun, number: int, move: Mapping[str, Any]) -> PlacementMove:
    return PlacementMove(
        run=run,
        number=number,
        operator=move["operator"],
        query=move["query"] or move["operator"].partition("/")[0],
        before=_replicas(move["from"]),
        after=_replicas(move["to"]),
        kind=move["kind"],
        why=str(move.get("why") or "")[:300],
        state_bytes=move.get("state_bytes"),
        duration_s=move.get("duration_s") or 0.0,
        bump_s=move.get("bump_s") or 0.0,
        bump_query=move.get("bump_query") or "",
    )


def _replicas(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"node": part["node"], "core": part.get("core", 0), "fraction": part.get("fraction", 1.0)} for part in parts
    ]


class SearchFollower:
    """Progress of a search: stores the best so far, and knows whether the search is to stop."""

    def __init__(self, run: PlacementRun, report: JobReporter) -> None:
        self.run, self.report = run, report
        self._next, self._stop = 0.0, False
        self._trace: list[list[float]] = []

    def __call__(self, share: float, step: str = "", detail: Mapping[str, Any] | None = None) -> None:
        self.report(share, step)
        now = time.monotonic()
        if detail and now >= self._next:
            self._next = now + _LIVE_EVERY_S
            self._stop = placement_live(run=self.run, best=self._best(detail)) or self._stop

    def is_stopped(self) -> bool:
        return self._stop

    def _best(self, detail: Mapping[str, Any]) -> dict[str, Any]:
        best = {key: value for key, value in detail.items() if key != "trace"}
        if best.get("value_s") is not None:
            self._trace.append([round(float(best.get("elapsed_s") or 0.0), 3), float(best["value_s"])])
        every = -(-len(self._trace) // _TRACE)
        return {**best, "trace": self._trace[:: every or 1] + self._trace[-1:]}


def _mean_loads(deployment: Deployment) -> dict[str, float]:
    """Mean cycles per second of every operator: the width of its block."""
    from engine.estimation.loads import loads_of  # numba with it, which only workers load

    loads, width_s = loads_of(deployment), deployment.subinterval_s
    by_operator: dict[str, float] = {}
    for first in range(0, len(deployment.operators), _AT_A_TIME):
        part = np.arange(first, min(first + _AT_A_TIME, len(deployment.operators)))
        means = loads.operator(part).load.mean(axis=1) / width_s
        by_operator |= {deployment.operators[i].id: float(f"{mean:.4g}") for i, mean in zip(part, means, strict=True)}
    return by_operator
