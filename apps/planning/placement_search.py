"""Placement searches: requested, followed, stopped, and the proposal stored. Applying it is in `placement_moves`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

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
from apps.planning.placement_parameters import check_parameters, objective_default
from apps.queries.choices import QueryState
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, Snapshot
from apps.queries.snapshots.parts import snapshot_take
from engine.document.deployment import Deployment
from engine.document.elements import Constraints
from engine.placement.answer import BestSoFar, MoveAnswer, PlacementAnswer, QueryChange
from engine.records import Record

__all__ = [
    "MIN_MOVE_GAIN",
    "PLACEMENT",
    "LiveSearch",
    "PlacementFacts",
    "PlacementProposal",
    "SearchFollower",
    "TightestQuery",
    "live_topic",
    "move_rows",
    "placement_live",
    "placement_request_again",
    "placement_started",
    "placement_stop",
    "stored_facts",
    "stored_proposal",
]

MIN_MOVE_GAIN = 0.01  # share of the value that moves must gain, all that are left out together
_LIVE_EVERY_S = 0.5
_TRACE = 120  # points of the live curve
_AT_A_TIME = 256  # operators whose series are in memory together


_KEPT = ("objective", "value_before", "value_after", "mace_before_s", "mace_after_s", "flow_before_s", "flow_after_s")
_KEPT += ("bound_s", "bound_kind", "gap", "stopped", "elapsed_s", "rounds")


@dataclass(frozen=True)
class PlacementProposal(PlacementAnswer):
    """A proposal as it is kept, with mean cycles/s of every operator and capacities of the nodes."""

    loads: dict[str, float]
    capacities: dict[str, float | None]


@dataclass(frozen=True)
class TightestQuery(Record):
    """The query whose latency is the largest share of its objective."""

    query: str
    share: float


@dataclass(frozen=True)
class PlacementFacts(Record):
    """Figures of a proposal for lists."""

    objective: str
    value_before: float | None
    value_after: float
    mace_before_s: float | None
    mace_after_s: float
    flow_before_s: float | None
    flow_after_s: float | None
    bound_s: float
    bound_kind: str
    gap: float | None
    stopped: str
    elapsed_s: float
    rounds: int
    moves: int
    queries: int
    operators: int
    duration_s: float
    breached_before: int
    tightest_before: TightestQuery | None
    breached_after: int
    tightest_after: TightestQuery | None


@dataclass(frozen=True)
class LiveSearch(BestSoFar):
    """Best so far of a search, with the values that it went through."""

    trace: tuple[tuple[float, float], ...]


def stored_proposal(run: PlacementRun) -> PlacementProposal | None:
    """The proposal of a run; None while there is none."""
    return PlacementProposal.parse(run.result) if run.result else None


def stored_facts(run: PlacementRun) -> PlacementFacts | None:
    """Figures of the proposal of a run; None while there is none."""
    return PlacementFacts.parse(run.facts) if run.facts else None


_BRIEF_S = 2.0  # as an evacuation under way and the preview of a remedy search


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

    def is_brief(self, run: PlacementRun) -> bool:
        return run.budget_s <= _BRIEF_S

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
        fixed: Sequence[str] = (),
        parent: PlacementRun | None = None,
    ) -> PlacementRun:
        """Write a search without a job.

        Parameters
        ----------
        objective : str, optional
            What is made small; without it what `objective_default` says.
        fixed : sequence of str
            Operators that stay where they are, on draining nodes too, which are emptied otherwise.

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
        return PlacementRun.objects.create(
            cluster=cluster, requested_by=user, parent=parent, fixed=list(fixed), **asked
        )

    def answer(self, run: PlacementRun, report: JobReporter) -> None:
        from engine.placement.proposal import place  # SciPy with it: only a worker that searches pays for it

        report(0.0, "Taking a snapshot")
        snapshot = snapshot_take(run.cluster)
        placement_started(run=run, snapshot=snapshot)
        deployment = replace(snapshot.deployment, constraints=Constraints.parse(run.constraints))
        fixed = [name for name in run.fixed if name in deployment.operator_index]
        follow = SearchFollower(run, report)
        proposal = place(
            deployment,
            algorithm=run.algorithm,
            budget_s=run.budget_s,
            seed=run.seed,
            closed=snapshot.closed_nodes,
            objective=run.objective,
            fixed=fixed,
            mace_every=SLICES_PER_SUBINTERVAL,
            tolerance=MIN_MOVE_GAIN if run.algorithm == PlacementAlgorithm.SEARCH else 0.0,
            progress=follow,
            stop=follow.is_stopped,
        )
        capacities = {node.id: node.capacity_cps for node in snapshot.deployment.nodes}
        loads = _mean_loads(snapshot.deployment)
        answer = PlacementProposal(**vars(proposal.report), loads=loads, capacities=capacities)
        run.result, run.facts, run.live = answer.to_dict(), _facts_of(answer).to_dict(), {}

    def keep(self, run: PlacementRun, answer: None, job: Job) -> PlacementRun:
        """Store the proposal and its moves."""
        self.store(run)
        run.moves.all().delete()
        PlacementMove.objects.bulk_create(move_rows(run, PlacementProposal.parse(run.result).moves), batch_size=500)
        return run

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
    asked = {
        name: getattr(run, name) for name in ("algorithm", "objective", "budget_s", "seed", "constraints", "fixed")
    }
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


def placement_live(*, run: PlacementRun, best: LiveSearch) -> bool:
    """Store the best so far for the page; returns whether the search is to stop and keep it."""
    PlacementRun.objects.filter(pk=run.pk).update(live=best.to_dict())
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


def _facts_of(answer: PlacementProposal) -> PlacementFacts:
    return PlacementFacts(
        **{name: getattr(answer, name) for name in _KEPT},
        moves=len(answer.moves),
        queries=len(answer.queries),
        operators=len(answer.placement),
        duration_s=sum(move.duration_s for move in answer.moves),
        breached_before=sum(query.before_state == "breached" for query in answer.queries),
        tightest_before=_tightest((query, query.before_s) for query in answer.queries),
        breached_after=sum(query.after_state == "breached" for query in answer.queries),
        tightest_after=_tightest((query, query.after_s) for query in answer.queries),
    )


def _tightest(latencies_s: Iterable[tuple[QueryChange, float | None]]) -> TightestQuery | None:
    """The query whose latency is the largest share of its objective, priorities left out; None without any."""
    shares = {
        query.query: latency_s / query.bound_s
        for query, latency_s in latencies_s
        if query.bound_s and latency_s is not None
    }
    name = max(shares, key=lambda query: shares[query], default=None)
    return None if name is None else TightestQuery(name, shares[name])


def move_rows(run: PlacementRun, moves: Sequence[MoveAnswer]) -> list[PlacementMove]:
    """One unsaved row per move, in order."""
    return [
        PlacementMove(
            run=run,
            number=number,
            operator=move.operator,
            query=move.query or move.operator.partition("/")[0],
            before=[asdict(replica) for replica in move.before],
            after=[asdict(replica) for replica in move.after],
            kind=move.kind,
            why=str(move.why)[:300],
            state_bytes=move.state_bytes,
            duration_s=move.duration_s,
            bump_s=move.bump_s or 0.0,
            bump_query=move.bump_query or "",
        )
        for number, move in enumerate(moves, start=1)
    ]


class SearchFollower:
    """Progress of a search: stores the best so far, and knows whether the search is to stop."""

    def __init__(self, run: PlacementRun, report: JobReporter) -> None:
        self.run, self.report = run, report
        self._next, self._stop = 0.0, False
        self._trace: list[tuple[float, float]] = []

    def __call__(self, share: float, step: str, state: BestSoFar) -> None:
        self.report(share, step)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LIVE_EVERY_S
            self._stop = placement_live(run=self.run, best=self._best(state)) or self._stop

    def is_stopped(self) -> bool:
        return self._stop

    def _best(self, state: BestSoFar) -> LiveSearch:
        if state.value_s is not None:
            self._trace.append((round(state.elapsed_s, 3), state.value_s))
        every = -(-len(self._trace) // _TRACE)
        return LiveSearch(**vars(state), trace=tuple(self._trace[:: every or 1] + self._trace[-1:]))


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
