"""The work of placement jobs: search and propose, apply and undo batch by batch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from apps.core.clock import shared_now
from apps.core.errors import Stale
from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.choices import MoveState, PlacementAlgorithm, RunState
from apps.planning.models import PlacementRun
from apps.planning.placements.moves import BatchDone, batch_apply, moves_finish
from apps.planning.placements.parameters import engine_constraints
from apps.planning.placements.services import placement_live, placement_started, placement_store
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.document.deployment import Deployment
from engine.estimation.loads import loads_of

__all__ = ["MIN_MOVE_GAIN", "SLICES_PER_SUBINTERVAL", "apply_moves", "search_placement"]

MIN_MOVE_GAIN = 0.01  # share of the value that moves must gain, all that are left out together
SLICES_PER_SUBINTERVAL = 4  # snapshots are at a quarter of a subinterval
_LIVE_EVERY_S = 0.5
_TRACE = 120  # points of the live curve
_LOOK_EVERY_S = 0.5
_AT_A_TIME = 256  # operators whose series are in memory together


def search_placement(report: JobReporter) -> JobOutcome:
    """Look for a better placement of what runs in the run's cluster, as it is when the search begins."""
    run = PlacementRun.objects.select_related("cluster").get(pk=report.job.params["placement"])
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

    def store(job: Job) -> JobOutcome:
        return _outcome(placement_store(run=run, answer=answer))

    return JobOutcome(store=store)


def apply_moves(report: JobReporter) -> JobOutcome:
    """Apply the run's batches, one transaction each, with a pause after each so that a person can watch and abort.

    Done again after its worker was lost, it goes on with the batch that comes next.
    """
    run = PlacementRun.objects.select_related("cluster").get(pk=report.job.params["placement"])
    is_back = run.state == RunState.UNDOING
    _pause(run, report, is_back)
    while (outcome := batch_apply(run=run, job=report.job)) is not None:
        if not isinstance(outcome, BatchDone):
            message = PlacementRun.objects.values_list("message", flat=True).get(pk=run.pk)
            raise Stale(message, [("snapshot", change) for change in outcome], data={"changed": outcome})
        _pause(run, report, is_back)

    def store(job: Job) -> JobOutcome:
        return _outcome(moves_finish(run=run, state=RunState.UNDONE if is_back else RunState.APPLIED))

    return JobOutcome(store=store)


def _outcome(run: PlacementRun) -> JobOutcome:
    facts = {"placement": str(run.pk), "state": run.state, "moves": run.facts.get("moves", 0)}
    return JobOutcome(facts, f"/c/{run.cluster.slug}/placement/{run.pk}/", f"/api/v1/placements/{run.pk}")


def _pause(run: PlacementRun, report: JobReporter, is_back: bool) -> None:
    """Wait until the next batch is due; raises when the job is cancelled."""
    run.refresh_from_db(fields=["resume_at", "batches", "state"])
    moves = list(run.moves.values_list("state", "batch"))
    done = {batch for state, batch in moves if state == MoveState.DONE}
    count = run.batches - len(done) if is_back else len(done)
    words = f"Batch {count} of {run.batches} is moved back" if is_back else f"Batch {count} of {run.batches} is made"
    if not count:
        words = "Begins to move"
    while True:
        report(count / max(run.batches, 1), words)
        left_s = (run.resume_at - shared_now()).total_seconds() if run.resume_at else 0.0
        if left_s <= 0 or count >= run.batches:
            return
        time.sleep(min(left_s, _LOOK_EVERY_S))


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
    loads, width_s = loads_of(deployment), deployment.subinterval_s
    by_operator: dict[str, float] = {}
    for first in range(0, len(deployment.operators), _AT_A_TIME):
        part = np.arange(first, min(first + _AT_A_TIME, len(deployment.operators)))
        means = loads.operator(part).load.mean(axis=1) / width_s
        by_operator |= {deployment.operators[i].id: float(f"{mean:.4g}") for i, mean in zip(part, means, strict=True)}
    return by_operator
