"""Comparison of the plans of one query: entered ones and those the rules find, ranked, with a finding."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from engine.command_options import PlansOptions
from engine.document.deployment import Deployment
from engine.document.export import operator_document
from engine.errors import OptionError
from engine.plans.answer import (
    OneNode,
    PlanDifference,
    PlanFinding,
    PlanPlaces,
    PlanRanking,
    RankedPlan,
    Ranking,
    RewriteRefusal,
    RewritingSummary,
)
from engine.plans.ranking import Progress, QueryPlan, rank
from engine.plans.rewrites import MAX_PLANS, Rewrite, Rewriting, rewrite
from engine.plans.rules import Dataflow, Operators, shape_of
from engine.records import Fact
from engine.solvers import solving

__all__ = ["command", "compare", "finding_of"]


_MAX_PLANS = 12  # each costs nine runs of Flow
_REWRITING_SHARE = 0.05  # of the work, for the progress


def compare(
    deployment: Deployment,
    query: str,
    entered: Mapping[str, Operators],
    *,
    running: str | None = None,
    node: OneNode | None = None,
    hop_cycles: float = 0.0,
    places: str = "keep",
    closed: Collection[str] = (),
    mace_every: int = 1,
    cap: int = MAX_PLANS,
    progress: Progress | None = None,
) -> PlanRanking:
    """Rewrite every entered plan, rank all of them, and state the finding.

    Parameters
    ----------
    entered : mapping
        Operators of each plan by its key; rewritten ones get the keys r1, r2, …
    cap : int
        Plans that the rules may look at, for each entered plan.

    The others are those of `engine.plans.ranking.rank` and `engine.plans.rewrites.rewrite`.

    Rewritten plans whose shape is that of another plan are left out.
    """
    solving()
    tell = progress or (lambda share, step: None)
    tell(0.0, "Rewriting by rules")
    horizon_s = deployment.subintervals * deployment.subinterval_s
    rates = {source.id: float(source.arrivals.sum()) / horizon_s for source in deployment.sources}
    readers = _readers_elsewhere(deployment, query)
    rewritings = {key: _rewrite_plan(plan, rates, readers, hop_cycles, cap) for key, plan in entered.items()}
    rewritten = _distinct(entered, rewritings)
    plans = [QueryPlan(key, plan) for key, plan in entered.items()]
    plans += [QueryPlan(key, rewriting.operators, rewriting.assumed) for key, (_, rewriting) in rewritten.items()]
    ranking = rank(
        deployment,
        query,
        plans,
        running=running,
        node=node,
        places=places,
        closed=closed,
        mace_every=mace_every,
        progress=lambda share, step: tell(_REWRITING_SHARE + (1 - _REWRITING_SHARE) * share, step),
    )
    return PlanRanking(
        **(vars(ranking) | {"plans": tuple(_with_origin(plan, entered, rewritten) for plan in ranking.plans)}),
        finding=finding_of(ranking),
        hop_cycles=hop_cycles,
        setting=node or PlanPlaces(places),
        rewriting={
            key: RewritingSummary(found.examined, found.cap, found.capped, found.cost_cps, found.refused)
            for key, found in rewritings.items()
        },
    )


def _readers_elsewhere(deployment: Deployment, query: str) -> dict[str, str]:
    """Streams of the query that outside operators read, each with one reader."""
    others = (op for op in deployment.operators if op.query != query)
    return {entry.source: op.id for op in others for entry in op.inputs}


def _rewrite_plan(
    plan: Operators, rates: Mapping[str, float], readers: Mapping[str, str], hop_cycles: float, cap: int
) -> Rewriting:
    """Rewritten plans; none where others read the plan's streams, which must stay as they are."""
    read = next((op.id for op in plan if op.id in readers), None)
    if read is None:
        return rewrite(plan, rates, hop_cycles=hop_cycles, cap=cap)
    refusal = RewriteRefusal("", "", "", Fact("plans.outside_reader", readers[read], read))
    return Rewriting((), (refusal,), 0, cap, False, Dataflow(plan).cost(rates))


def _distinct(entered: Mapping[str, Operators], rewritings: Mapping[str, Rewriting]) -> dict[str, tuple[str, Rewrite]]:
    """Rewritten plans under keys of their own, as many as there is room for beside those entered."""
    shapes = {shape_of(plan) for plan in entered.values()}
    kept: dict[str, tuple[str, Rewrite]] = {}
    for base, rewriting in rewritings.items():
        for plan in rewriting.plans:
            shape = shape_of(plan.operators)
            if shape not in shapes and len(entered) + len(kept) < _MAX_PLANS:
                shapes.add(shape)
                kept[_free_key(len(kept) + 1, entered)] = (base, plan)
    return kept


def _free_key(number: int, taken: Collection[str]) -> str:
    key = f"r{number}"
    while key in taken:
        key += "'"
    return key


def _with_origin(
    plan: RankedPlan, entered: Mapping[str, Operators], rewritten: Mapping[str, tuple[str, Rewrite]]
) -> RankedPlan:
    if plan.key in entered:
        return replace(plan, operators=tuple(operator_document(op) for op in entered[plan.key]))
    base, variant = rewritten[plan.key]
    operators = tuple(operator_document(op) for op in variant.operators)
    return replace(plan, origin="rewritten", base=base, steps=variant.steps, operators=operators)


def finding_of(ranking: Ranking) -> PlanFinding:
    """Finding of a ranking."""
    first = ranking.plans[0]
    if len(ranking.plans) == 1:
        return PlanFinding("alone", first.key)
    if ranking.running is None:
        return _of_pair(first.key, ranking.against_best[ranking.plans[1].key], "best")
    if (key := ranking.recommended) is not None:
        return PlanFinding("better", key, ranking.against_running[key].seconds)
    if first.key == ranking.running:
        return _of_pair(first.key, ranking.against_best[ranking.plans[1].key], "best")
    return _of_pair(first.key, ranking.against_running[first.key], "better")


def _of_pair(key: str, apart: PlanDifference, kind: str) -> PlanFinding:
    if apart.equal:
        return PlanFinding("equal", key, apart.seconds)
    if not apart.told_apart:
        return PlanFinding("unclear", key, apart.seconds, apart.more_events)
    return PlanFinding(kind, key, apart.seconds)


def command(document: Any, options: PlansOptions) -> dict[str, PlanRanking]:
    """Rank what runs of each query against its plans in `plans` and what the rules find.

    A query without `plans` is compared with what the rules find.
    """
    deployment = Deployment.parse(document)
    queries = list(dict.fromkeys((*deployment.queries, *deployment.plans)))
    if (wanted := options.query) is not None:
        if wanted not in queries:
            raise OptionError(f"query is {wanted!r}; allowed: {', '.join(queries) or 'none, no operator names one'}")
        queries = [wanted]
    return {query: _compared(deployment, query, options) for query in queries}


def _compared(deployment: Deployment, query: str, options: PlansOptions) -> PlanRanking:
    entered: dict[str, Operators] = {}
    runs = query in deployment.queries
    if runs:
        entered["running"] = tuple(deployment.operators[i] for i in deployment.operators_of(query))
    entered |= {f"plan{i}": plan for i, plan in enumerate(deployment.plans.get(query, ()), 1)}
    return compare(
        deployment,
        query,
        entered,
        running="running" if runs else None,
        node=OneNode(options.capacity_cps) if options.capacity_cps else None,
        hop_cycles=options.hop_cycles,
        places=options.places,
        mace_every=options.mace_every,
    )
