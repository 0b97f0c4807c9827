"""All there is to say about the plans of one query: entered ones, those the rules find, ranked, with a finding."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engine.deployment import Deployment
from engine.export import operator_document
from engine.plans.dataflow import Dataflow, Operators, shape_of
from engine.plans.differences import Difference
from engine.plans.meaning import Refusal
from engine.plans.ranking import OneNode, Plan, Progress, Ranking, rank
from engine.plans.rewriting import CAP, Rewrite, Rewriting, rewrite

__all__ = ["Finding", "compare", "finding_of"]

_MOST_PLANS = 12  # each costs nine runs of Flow
_REWRITING_SHARE = 0.05  # of the work, for the progress


@dataclass(frozen=True)
class Finding:
    """What a comparison comes down to.

    `kind` is ``better`` (`key` is faster than what runs), ``best`` (what runs is the fastest, or nothing runs and `key`
    is), ``unclear`` (`key` may be faster; `more_events` of the sample would tell), ``equal`` (differences are below the
    resolution), ``alone`` (one plan, nothing to compare it with). `seconds` is the difference to what runs, or between
    the first two plans.
    """

    kind: str
    key: str
    seconds: float = 0.0
    more_events: int | None = None

    @property
    def words(self) -> str:
        by = f"{abs(self.seconds):.3g} s"
        return {
            "better": f"{self.key} would be {by} faster than what runs.",
            "best": f"{self.key} is the fastest.",
            "unclear": f"{self.key} may be {by} faster, but cannot be told apart yet: {self.more_events} more events.",
            "equal": f"{self.key} is as good as any other: the differences are below the resolution.",
            "alone": f"There is no plan to compare {self.key} with.",
        }[self.kind]


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
    cap: int = CAP,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Rewrite every entered plan, rank all of them, and say what that comes down to.

    Parameters
    ----------
    entered : mapping
        Operators of each plan by its key; rewritten ones get the keys r1, r2, …
    cap : int
        Plans that the rules may look at, for each entered plan.

    The others are those of `engine.plans.ranking.rank` and `engine.plans.rewriting.rewrite`.

    Returns
    -------
    dict
        The ranking, with `origin`, `base`, `steps`, `operators` and `title` of each plan; `rewriting` by entered plan;
        `finding`. Rewritten plans whose shape is that of another plan are left out.
    """
    tell = progress or (lambda share, step: None)
    tell(0.0, "Rewriting by rules")
    horizon_s = deployment.subintervals * deployment.subinterval_s
    rates = {source.id: float(source.arrivals.sum()) / horizon_s for source in deployment.sources}
    readers = _readers_elsewhere(deployment, query)
    found = {key: _rewritten(plan, rates, readers, hop_cycles, cap) for key, plan in entered.items()}
    rewritten = _distinct(entered, found)
    plans = [Plan(key, plan) for key, plan in entered.items()]
    plans += [Plan(key, one.operators, one.assumed) for key, (_, one) in rewritten.items()]
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
    finding = finding_of(ranking)
    answer = ranking.to_dict() | {"finding": asdict(finding) | {"words": finding.words}, "hop_cycles": hop_cycles}
    answer["setting"] = {"capacity_cps": node.capacity_cps} if node else {"places": places}
    answer["rewriting"] = {key: _rewriting_document(one) for key, one in found.items()}
    for plan in answer["plans"]:
        plan |= _facts(plan["key"], entered, rewritten)
    return answer


def _readers_elsewhere(deployment: Deployment, query: str) -> dict[str, str]:
    """What operators outside of the query read, and one that reads it."""
    others = (op for op in deployment.operators if op.query != query)
    return {entry.source: op.id for op in others for entry in op.inputs}


def _rewritten(
    plan: Operators, rates: Mapping[str, float], readers: Mapping[str, str], hop_cycles: float, cap: int
) -> Rewriting:
    """What the rules find; nothing where others read the plan's streams, which must stay as they are."""
    read = next((op.id for op in plan if op.id in readers), None)
    if read is None:
        return rewrite(plan, rates, hop_cycles=hop_cycles, cap=cap)
    refusal = Refusal("", "", "", f"{readers[read]}, which is no part of the query, reads {read}")
    return Rewriting((), (refusal,), 0, cap, False, Dataflow(plan).cost(rates))


def _distinct(entered: Mapping[str, Operators], found: Mapping[str, Rewriting]) -> dict[str, tuple[str, Rewrite]]:
    """Rewritten plans under keys of their own, as many as there is room for beside those entered."""
    shapes = {shape_of(plan) for plan in entered.values()}
    kept: dict[str, tuple[str, Rewrite]] = {}
    for base, rewriting in found.items():
        for one in rewriting.plans:
            shape = shape_of(one.operators)
            if shape not in shapes and len(entered) + len(kept) < _MOST_PLANS:
                shapes.add(shape)
                kept[_free_key(len(kept) + 1, entered)] = (base, one)
    return kept


def _free_key(number: int, taken: Collection[str]) -> str:
    key = f"r{number}"
    while key in taken:
        key += "'"
    return key


def _facts(key: str, entered: Mapping[str, Operators], rewritten: Mapping[str, tuple[str, Rewrite]]) -> dict[str, Any]:
    if key in entered:
        plan: Operators = entered[key]
        return {"origin": "entered", "base": None, "steps": [], "operators": [operator_document(op) for op in plan]}
    base, one = rewritten[key]
    return {
        "origin": "rewritten",
        "base": base,
        "steps": [asdict(step) for step in one.steps],
        "operators": [operator_document(op) for op in one.operators],
    }


def _rewriting_document(one: Rewriting) -> dict[str, Any]:
    return {
        "examined": one.examined,
        "cap": one.cap,
        "capped": one.capped,
        "cost_cps": one.cost_cps,
        "refused": [asdict(refusal) | {"words": refusal.words} for refusal in one.refused],
    }


def finding_of(ranking: Ranking) -> Finding:
    """What the ranking comes down to."""
    first = ranking.plans[0]
    if len(ranking.plans) == 1:
        return Finding("alone", first.key)
    if ranking.running is None:
        return _of_pair(first.key, ranking.against_best[ranking.plans[1].key], "best")
    if (key := ranking.recommended) is not None:
        return Finding("better", key, ranking.against_running[key].seconds)
    if first.key == ranking.running:
        return _of_pair(first.key, ranking.against_best[ranking.plans[1].key], "best")
    return _of_pair(first.key, ranking.against_running[first.key], "better")


def _of_pair(key: str, apart: Difference, kind: str) -> Finding:
    if apart.equal:
        return Finding("equal", key, apart.seconds)
    if not apart.told_apart:
        return Finding("unclear", key, apart.seconds, apart.more_events)
    return Finding(kind, key, apart.seconds)
