"""Work of what-if jobs: each kind of question answered by the engine. Only workers import it: it loads numba."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.what_ifs.answers import SweepAnswer
from apps.planning.what_ifs.benches import MACE_EVERY, is_quick
from apps.planning.what_ifs.inputs import Inputs
from apps.planning.what_ifs.services import what_if_store
from apps.planning.what_ifs.sweeps import bench_question
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from engine.document.deployment import Deployment
from engine.provisioning.answers.pools import NodeLoss
from engine.provisioning.answers.scenarios import ComparedScenario, ScenarioComparison, ScenarioQuery
from engine.provisioning.changes import apply_changes
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix
from engine.provisioning.pareto import pareto_front
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.question import PoolQuestion
from engine.provisioning.scenario import place_unplaced
from engine.provisioning.smallest_pool import smallest_pool
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import ScenarioOutcome, what_if

__all__ = ["ANSWERS", "answer_what_if"]

Progress = Callable[[float, str], Any]
_MAX_SEARCH_S = 150.0  # of a search for a fleet; then it says what it has found by then
_WALK_CELLS = 100_000_000  # nodes x operators x slices up to which losses are walked


def _compare(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    """Scenarios side by side, each with its worst loss of a node."""
    options = row.options
    outcomes = what_if(
        snapshot.deployment,
        [{name: scenario[name] for name in ("name", "changes", "place")} for scenario in row.scenarios],
        seed=options.get("seed", 0),
        mace_every=MACE_EVERY,
        flow=options.get("flow", True),
        intervals=options.get("intervals", True),
        closed=snapshot.closed_nodes,
        progress=lambda share, step: progress(0.9 * share, step),
    )
    lose_one = options.get("lose_one", True)
    compared = [
        ComparedScenario(**vars(outcome.answer), lost=_worst_loss(outcome) if lose_one else None)
        for outcome in outcomes
    ]
    return ScenarioComparison(tuple(compared)).to_dict()


def _worst_loss(outcome: ScenarioOutcome) -> NodeLoss | None:
    """The worst of losing any one node, by Mace; None where that takes too long or nothing can be placed."""
    deployment = outcome.deployment
    if deployment is None or not deployment.operators or not is_quick(deployment):
        return None
    return PoolCurve(deployment, MACE_EVERY).sweep(1.0, [len(deployment.nodes)])[0].lost


def _sweep(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    """Sweep over numbers of nodes, for clusters too large for the web process."""
    question = bench_question(row.cluster, Inputs.of(row.options), snapshot)
    bench = PoolCurve(question.deployment, MACE_EVERY, closed=snapshot.closed_nodes)
    counts = sorted(row.options.get("sizes") or [question.now])
    factors = question.inputs.factors(question.deployment)
    sizes = bench.sweep(factors, counts, like=question.like, lose_one=True, progress=progress)
    return SweepAnswer(question.now, tuple(sizes), question.lacking, question.is_unproven).to_dict()


def _base_deployment(row: WhatIf, snapshot: Snapshot) -> Deployment:
    """Deployment that a search starts from: the running queries with the scenario's changes, everything placed."""
    scenario = row.scenarios[0]
    changed = apply_changes(snapshot.deployment, scenario["changes"])
    how = scenario["place"] if scenario["changes"] else "keep"
    return place_unplaced(
        changed, how, mace_every=MACE_EVERY, seed=row.options.get("seed", 0), closed=_closed(changed, snapshot)
    )


def _closed(deployment: Deployment, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(node for node in snapshot.closed_nodes if node in deployment.node_index)


def _pool_question(row: WhatIf, base: Deployment, snapshot: Snapshot) -> PoolQuestion:
    """Question of all searches for a fleet."""
    options = row.options
    return PoolQuestion(
        keep_present=options.get("keep_present", True),
        lose=int(options.get("lose_one", True)),
        headroom_s=options.get("headroom_s", 0.0),
        seed=options.get("seed", 0),
        mace_every=MACE_EVERY,
        closed=_closed(base, snapshot),
        leave_out=True,
        budget_s=_MAX_SEARCH_S,
    )


def _smallest_pool(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    base = _base_deployment(row, snapshot)
    question = bench_question(row.cluster, Inputs(pool=row.options.get("pool", "")), snapshot)
    model = question.model
    like: Any = question.like
    if model is not None:
        names = ("capacity_cps", "cores", "price_per_hour", "memory_bytes")
        like = {name: getattr(model, name) for name in names}
        like["cycle_unit"] = model.cycle_unit
    max_nodes = row.options.get("max_nodes", max(64, 2 * len(base.nodes)))
    pool = smallest_pool(base, _pool_question(row, base, snapshot), like=like, most=max_nodes, progress=progress)
    return _without_placement(pool.to_dict())


def _cheapest_mix(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    base = _base_deployment(row, snapshot)
    mix = cheapest_mix(base, row.options["types"], _pool_question(row, base, snapshot), progress=progress)
    return _without_placement(mix.to_dict())


def _pareto(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    base = _base_deployment(row, snapshot)
    return pareto_front(base, row.options["types"], _pool_question(row, base, snapshot), progress=progress).to_dict()


def _survival(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    """Every node lost in turn; by Mace where that many walks would take too long."""
    base = _base_deployment(row, snapshot)
    survival = lose_each(
        base,
        seed=row.options.get("seed", 0),
        mace_every=MACE_EVERY,
        flow=len(base.nodes) * len(base.operators) * base.subintervals <= _WALK_CELLS,
        closed=_closed(base, snapshot),
        progress=progress,
    ).to_dict()
    return survival | {
        "now": _brief_outcome(survival["now"]),
        "losses": [_brief_outcome(loss) for loss in survival["losses"]],
    }


def _growth(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, Any]:
    base = _base_deployment(row, snapshot)
    max_factor = row.options.get("most", 16.0)
    return headroom_by_query(base, most=max_factor, mace_every=MACE_EVERY, progress=progress).to_dict()


def _without_placement(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without its placement: nobody reads thousands of operators, and a placement search finds a better
    one.
    """
    return {name: value for name, value in answer.items() if name != "placement"}


def _brief_outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """An outcome with what a matrix shows of its queries."""
    kept = {name: value for name, value in outcome.items() if name not in {"nodes", "moves", "changes"}}
    queries = outcome.get("queries", {})
    return kept | {"queries": {query: ScenarioQuery.parse(report).to_dict() for query, report in queries.items()}}


ANSWERS: dict[Find, Callable[[WhatIf, Snapshot, Progress], dict[str, Any]]] = {
    Find.COMPARE: _compare,
    Find.SWEEP: _sweep,
    Find.SMALLEST_POOL: _smallest_pool,
    Find.CHEAPEST_MIX: _cheapest_mix,
    Find.PARETO: _pareto,
    Find.SURVIVAL: _survival,
    Find.GROWTH: _growth,
}


def answer_what_if(report: JobReporter) -> JobOutcome:
    """Answer the job's what-if on its cluster as it is now."""
    row = WhatIf.objects.select_related("cluster").get(pk=report.job.params["what_if"])
    report(0.0, "Taking a snapshot")
    snapshot = cluster_snapshot(row.cluster)
    started = time.perf_counter()
    answer = ANSWERS[Find(row.find)](row, snapshot, _scale_progress(report))
    duration_s = time.perf_counter() - started

    def store(job: Job) -> JobOutcome:
        stored = what_if_store(row=row, snapshot=snapshot, answer=answer, duration_s=duration_s)
        page = f"/c/{stored.cluster.slug}/provisioning/what-ifs/{stored.pk}/"
        return JobOutcome({"what_if": str(stored.pk), "find": stored.find}, page, f"/api/v1/what-ifs/{stored.pk}")

    return JobOutcome(store=store)


def _scale_progress(report: JobReporter) -> Callable[[float, str], Any]:
    """The engine's progress from 0 to 1 in the part of the job that is left for it."""
    return lambda share, step: report(0.02 + 0.97 * share, step)
