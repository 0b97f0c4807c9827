"""Answers of what-ifs: each kind of question put to the engine. Only workers import it: it loads numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.planning.benches import MACE_EVERY, is_quick
from apps.planning.choices import Find
from apps.planning.models import WhatIf
from apps.planning.sweeps import bench_question
from apps.planning.what_if_options import Inputs, read_options
from apps.planning.what_ifs import SweepAnswer
from apps.queries.snapshots.cluster import Snapshot
from engine.document.deployment import Deployment
from engine.provisioning.answers.pools import NodeLoss
from engine.provisioning.answers.scenarios import ComparedScenario, ScenarioComparison, ScenarioQuery
from engine.provisioning.changes import apply_changes
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion, watch_work
from engine.provisioning.scenario import place_unplaced
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import ScenarioOutcome, what_if

__all__ = ["find_answer"]

Progress = Callable[[float, str], Any]
_MAX_SEARCH_S = 150.0  # of a search for a fleet; then it says what it has found by then
_WALK_CELLS = 100_000_000  # nodes x operators x slices up to which losses are walked


def _compare(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    """Scenarios side by side, each with its worst loss of a node."""
    options = read_options(Find.COMPARE, row.options)
    scenarios = [{name: scenario[name] for name in ("name", "changes", "place")} for scenario in row.scenarios]

    def compared(tell: Progress) -> ScenarioComparison:
        outcomes = what_if(
            snapshot.deployment,
            scenarios,
            seed=options.seed,
            mace_every=MACE_EVERY,
            flow=options.flow,
            intervals=options.intervals,
            closed=snapshot.closed_nodes,
            progress=lambda share, step: tell(0.9 * share, step),
        )
        answers = []
        for outcome in outcomes:
            tell(0.9, "Losing each node")
            lost = _worst_loss(outcome) if options.lose_one else None
            answers.append(ComparedScenario(**vars(outcome.answer), lost=lost))
        return ScenarioComparison(tuple(answers))

    return watch_work(compared, progress)


def _worst_loss(outcome: ScenarioOutcome) -> NodeLoss | None:
    """The worst of losing any one node, by Mace; None where that takes too long or nothing can be placed."""
    deployment = outcome.deployment
    if deployment is None or not deployment.operators or not is_quick(deployment):
        return None
    return PoolCurve(deployment, MACE_EVERY).sweep(1.0, [len(deployment.nodes)])[0].lost


def _sweep(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    """Sweep over numbers of nodes, for clusters too large for the web process."""
    question = bench_question(row.cluster, Inputs(**vars(read_options(Find.SWEEP, row.options))), snapshot)
    bench = PoolCurve(question.deployment, MACE_EVERY, closed=snapshot.closed_nodes)
    counts = sorted(question.inputs.sizes or [question.now])
    factors = question.inputs.factors(question.deployment)
    sizes = watch_work(
        lambda tell: bench.sweep(factors, counts, like=question.like, lose_one=True, progress=tell), progress
    )
    return SweepAnswer(question.now, tuple(sizes), question.lacking, question.is_unproven)


def _base_deployment(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Deployment:
    """Deployment that a search starts from: the running queries with the scenario's changes, everything placed."""
    scenario = row.scenarios[0]
    changed = apply_changes(snapshot.deployment, scenario["changes"])
    how = scenario["place"] if scenario["changes"] else "keep"
    seed = read_options(row.find, row.options).seed
    closed = _closed(changed, snapshot)

    def placed(tell: Progress) -> Deployment:
        tell(0.0, "Placing what has no place")
        return place_unplaced(changed, how, mace_every=MACE_EVERY, seed=seed, closed=closed)

    return watch_work(placed, progress)


def _closed(deployment: Deployment, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(node for node in snapshot.closed_nodes if node in deployment.node_index)


def _pool_question(row: WhatIf, base: Deployment, snapshot: Snapshot) -> PoolQuestion:
    """Question of all searches for a fleet."""
    options = read_options(row.find, row.options)
    return PoolQuestion(
        keep_present=options.keep_present,
        lose=int(options.lose_one),
        headroom_s=options.headroom_s,
        seed=options.seed,
        mace_every=MACE_EVERY,
        closed=_closed(base, snapshot),
        leave_out=True,
        budget_s=_MAX_SEARCH_S,
    )


def _smallest_pool(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    base, options = _base_deployment(row, snapshot, progress), read_options(Find.SMALLEST_POOL, row.options)
    question = bench_question(row.cluster, Inputs(pool=options.pool), snapshot)
    model = question.model
    like: Any = question.like
    if model is not None:
        names = ("capacity_cps", "cores", "price_per_hour", "memory_bytes")
        like = {name: getattr(model, name) for name in names}
        like["cycle_unit"] = model.cycle_unit
    max_nodes = options.max_nodes or max(64, 2 * len(base.nodes))
    asked = _pool_question(row, base, snapshot)
    return watch_work(lambda tell: smallest_pool(base, asked, like=like, most=max_nodes, progress=tell), progress)


def _cheapest_mix(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    base = _base_deployment(row, snapshot, progress)
    types, asked = row.options["types"], _pool_question(row, base, snapshot)
    return watch_work(lambda tell: cheapest_mix(base, types, asked, progress=tell), progress)


def _pareto(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    base = _base_deployment(row, snapshot, progress)
    types, asked = row.options["types"], _pool_question(row, base, snapshot)
    return watch_work(lambda tell: pareto_front(base, types, asked, progress=tell), progress)


def _survival(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    """Every node lost in turn; by Mace where that many walks would take too long."""
    base = _base_deployment(row, snapshot, progress)
    options, closed = read_options(Find.SURVIVAL, row.options), _closed(base, snapshot)
    walks = len(base.nodes) * len(base.operators) * base.subintervals <= _WALK_CELLS
    return watch_work(
        lambda tell: lose_each(
            base,
            domain=options.domain,
            seed=options.seed,
            mace_every=MACE_EVERY,
            flow=walks,
            closed=closed,
            progress=tell,
        ),
        progress,
    ).answer


def _growth(row: WhatIf, snapshot: Snapshot, progress: Progress) -> Any:
    base = _base_deployment(row, snapshot, progress)
    most = read_options(Find.GROWTH, row.options).most
    return watch_work(
        lambda tell: headroom_by_query(base, most=most, mace_every=MACE_EVERY, budget_s=_MAX_SEARCH_S, progress=tell),
        progress,
    )


_ANSWERS: dict[Find, Callable[[WhatIf, Snapshot, Progress], Any]] = {
    Find.COMPARE: _compare,
    Find.SWEEP: _sweep,
    Find.SMALLEST_POOL: _smallest_pool,
    Find.CHEAPEST_MIX: _cheapest_mix,
    Find.PARETO: _pareto,
    Find.SURVIVAL: _survival,
    Find.GROWTH: _growth,
}


def find_answer(row: WhatIf, snapshot: Snapshot, progress: Progress) -> dict[str, object]:
    """The answer as it is stored: without the placement of a fleet, which nobody reads and a placement search betters,
    and of the loss of nodes what a matrix shows.
    """
    answer = _ANSWERS[Find(row.find)](row, snapshot, progress).to_dict()
    answer.pop("placement", None)
    if row.find == Find.SURVIVAL:
        answer |= {"now": _brief_outcome(answer["now"]), "losses": [_brief_outcome(loss) for loss in answer["losses"]]}
    return answer


def _brief_outcome(outcome: Any) -> Any:
    """An outcome with what a matrix shows of its queries."""
    kept = {name: value for name, value in outcome.items() if name not in {"nodes", "moves", "changes"}}
    queries = outcome.get("queries", {})
    return kept | {"queries": {query: ScenarioQuery.parse(report).to_dict() for query, report in queries.items()}}
