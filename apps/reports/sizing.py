"""Search for the purchases of a report: more load and the loss of any one node, and losses that the fleet survives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from apps.fleet.models import Cluster
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, Snapshot
from apps.reports.sections.purchases import (
    CurvePoint,
    NoPurchases,
    PurchaseChoice,
    ReportLoss,
    ReportPurchases,
    load_words,
    purchase_finding,
)
from apps.ui.numbers import as_float
from engine.document.deployment import Deployment
from engine.errors import EngineError
from engine.provisioning.answers.pools import MixAnswer, PoolAnswer, PoolSize
from engine.provisioning.mix import cheapest_mix
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.survival import Survival, lose_each
from engine.words import counted

__all__ = ["purchase_facts"]

_MAX_NODE_TYPES = 4
_MAX_NODES_PER_TYPE = 24
_MAX_MIXES_TRIED = 30  # mixes that are placed; a bound refutes most others at once
_MAX_LOSSES_TRIED = 40  # nodes whose loss is looked at, the busiest first
_MAX_LOSSES_WALKED = 16  # of them, with random costs and arrivals: those nearest to an objective
_BELOW, _ABOVE = 4, 8  # sizes of the curve around the answer
#: Where no purchase helps at the growth asked for, these shares of it are tried.
_SHARES = (1.0, 0.5, 0.25, 0.0)

_GRACE = 2.0  # a search whose time is over still confirms what it has found
_NO_TIME = "no size was found within the time of a report"
_TOTAL_TIME_S = 180.0  # after which no further search begins
_TIME_LIMITS_S = {"pool": 60.0, "mix": 45.0, "losses": 25.0}  # a report that takes hours helps nobody

Progress = Callable[[float, str], None]


class _TimeUp(Exception):
    """A search has used up its share of the report's time."""


def purchase_facts(
    cluster: Cluster, snapshot: Snapshot, growth: float, progress: Progress
) -> ReportPurchases | NoPurchases:
    """The cheapest purchase found, why nothing smaller is enough, the curve around it, and the losses survived."""
    deployment = snapshot.deployment
    if not deployment.nodes or not deployment.operators or not deployment.objectives:
        return NoPurchases(False, "Nothing to size yet: it takes nodes, a running query and an objective.", growth)
    try:
        return _Sizing(cluster, snapshot, growth, progress).purchases()
    except EngineError as error:
        return NoPurchases(False, f"The engine refuses to size this: {error.message}.", growth)


class _Sizing:
    """Pools of each type first: their answer bounds the search for a cheaper mix."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot, growth: float, progress: Progress) -> None:
        self.cluster, self.deployment, self.growth, self.tell = cluster, snapshot.deployment, growth, progress
        self.question = PoolQuestion(
            lose=1, mace_every=SLICES_PER_SUBINTERVAL, closed=snapshot.closed_nodes, leave_out=True
        )
        used = {node.pool: node.id for node in reversed(self.deployment.nodes) if node.pool}
        pools = [pool for pool in cluster.pools.order_by("-cores", "name") if pool.name in used]
        self.pools = pools[:_MAX_NODE_TYPES]
        self.like = {pool.name: used[pool.name] for pool in self.pools}
        self.until = time.monotonic() + _TOTAL_TIME_S

    def purchases(self) -> ReportPurchases:
        refusal, answers, answered = "", {}, None
        for share in _SHARES:
            growth = round(self.growth * share, 4)
            answers = self._pools(growth)
            if any(answer.nodes is not None for answer in answers.values()):
                answered = growth
                break
            first = next(iter(answers.values()), None)
            refusal = refusal or (first.message if first is not None else _NO_TIME)
            if self.growth == 0 or self._is_late:
                break
        choices, curve = ([], []) if answered is None else self._choices(answered, answers)
        self.tell(0.85, "Losing each node")
        losses = _losses(self.deployment, self.question.closed, self.tell)
        nodes = len(self.deployment.nodes)
        return ReportPurchases(
            available=True,
            growth=self.growth,
            answered_growth=answered,
            refusal=refusal,
            currency=self.cluster.currency,
            choices=choices,
            curve=curve,
            finding=purchase_finding(self.growth, answered, choices, self.cluster.currency),
            losses=losses,
            losses_of=f"{counted(len(losses), 'node')} of {nodes}" if len(losses) < nodes else "",
            by_mace=sum(loss.by_mace for loss in losses),
        )

    def _pools(self, growth: float) -> dict[str, PoolAnswer]:
        answers = {}
        present = len(self.deployment.nodes)
        max_nodes = present + max(_MAX_NODES_PER_TYPE, present)
        for index, (name, node) in enumerate(self.like.items()):
            if self._is_late:
                break
            self.tell(0.1 + 0.1 * index, f"Sizing pool {name} at {load_words(growth)}")
            with suppress(_TimeUp):
                question = replace(self.question, factor=1 + growth, budget_s=_TIME_LIMITS_S["pool"])
                answers[name] = smallest_pool(
                    self.deployment, question, like=node, most=max_nodes, progress=self._limit("pool")
                )
        return answers

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self.until

    def _limit(self, what: str) -> Progress:
        """Progress that ends a search long past its time, and lets a cancelled job end it as well."""
        return _limited(what, lambda step: self.tell(0.1, step), _GRACE)

    def _choices(self, growth: float, answers: dict[str, PoolAnswer]) -> tuple[list[PurchaseChoice], list[CurvePoint]]:
        """Choices that are enough, the best first, and the curve of the pool that costs least."""
        sized = {name: answer for name, answer in answers.items() if answer.nodes is not None}
        choices = [_pool_choice(name, answer) for name, answer in sized.items()]
        mix = self._mix(growth, answers)
        if mix is not None and mix.counts is not None and sum(count > 0 for count in mix.counts.values()) > 1:
            choices.append(_mix_choice(mix))
        choices.sort(key=lambda choice: choice.rank)
        if not choices[0].nodes:
            choices = choices[:1]  # every type would say so
        cheapest = min(sized, key=lambda pool: _extra_cost(sized[pool]))
        self.tell(0.7, "Drawing cost against latency")
        return choices, self._curve(growth, cheapest, sized[cheapest])

    def _mix(self, growth: float, answers: dict[str, PoolAnswer]) -> MixAnswer | None:
        """A mix of priced types that may be cheaper than any single one; limited to what would cost less."""
        priced = [pool for pool in self.pools if pool.price_per_hour]
        if len(priced) < 2 or any(pool.price_per_hour is None for pool in self.pools) or self._is_late:
            return None
        max_cost = min(_extra_cost(answer) for answer in answers.values())
        types = [
            {
                "name": pool.name,
                "capacity_cps": pool.capacity_cps,
                "cores": pool.cores,
                "price_per_hour": float(pool.price_per_hour or 0),
                "memory_bytes": None if pool.memory_bytes is None else float(pool.memory_bytes),
                "max": min(_MAX_NODES_PER_TYPE, int(max_cost / float(pool.price_per_hour or 1) + 1e-9)),
            }
            for pool in priced
        ]
        if not max_cost or math.isinf(max_cost) or not any(type_["max"] for type_ in types):
            return None
        self.tell(0.45, f"Mixing types at {load_words(growth)}")
        with suppress(_TimeUp):
            question = replace(self.question, factor=1 + growth, budget_s=_TIME_LIMITS_S["mix"])
            return cheapest_mix(
                self.deployment, types, question, most_tried=_MAX_MIXES_TRIED, progress=self._limit("mix")
            )
        return None

    def _curve(self, growth: float, name: str, answer: PoolAnswer) -> list[CurvePoint]:
        """Quick placements of each size, or what the search for the answer found where that is better."""
        nodes = answer.nodes or 0
        sizes = range(max(1, nodes - _BELOW), nodes + _ABOVE + 1)
        bench = PoolCurve(self.deployment, SLICES_PER_SUBINTERVAL, closed=self.question.closed)
        searched = {size.nodes: size for size in answer.sizes}
        points: list[CurvePoint] = []
        best: PoolSize | None = None
        for quick in bench.sweep(1 + growth, sizes, like=self.like[name]):
            answers = [answer for answer in (quick, searched.get(quick.nodes), best) if answer is not None]
            best = min(answers, key=_badness)
            points.append(replace(_point(best, name), nodes=quick.nodes, cost_per_hour=quick.cost_per_hour))
        return points


def _extra_cost(answer: PoolAnswer) -> float:
    """Cost of the new nodes per hour; infinite where there is no answer, their number where there is no price."""
    if answer.added is None:
        return math.inf
    price = answer.type.price_per_hour
    return answer.added * (1.0 if price is None else price)


def _pool_choice(name: str, answer: PoolAnswer) -> PurchaseChoice:
    price, added, proof = answer.type.price_per_hour, max(answer.added or 0, 0), answer.proof
    return PurchaseChoice(
        kind="pool",
        counts={name: added},
        nodes=added,
        whole=answer.nodes or 0,
        cost_per_hour=None if price is None else added * price,
        proven=proof is not None and proof.refutation is not None,
        less=proof.message if proof is not None else "",
        why_not=answer.miss.message if answer.miss is not None else "",
        **_realised(answer),
    )


def _mix_choice(mix: MixAnswer) -> PurchaseChoice:
    counts = {name: count for name, count in (mix.counts or {}).items() if count}
    added = sum(counts.values())
    return PurchaseChoice(
        kind="mix",
        counts=counts,
        nodes=added,
        whole=mix.present + added,
        cost_per_hour=mix.cost_per_hour,
        proven=mix.proven,
        less=mix.proofs[0].message if mix.proofs else "",
        why_not="",
        **_realised(mix),
    )


def _realised(answer: PoolAnswer | MixAnswer) -> dict[str, Any]:
    """Fields that pools and mixes have alike."""
    return {
        "confirmed": answer.confirmed,
        "beyond": len(answer.beyond),
        "splits": answer.splits,
        "reservation": answer.reservation,
        "notes": list(answer.notes),
        "at_risk": list(answer.at_risk),
        "assumed": list(answer.assumed),
    }


def _badness(size: PoolSize) -> tuple[float, float]:
    """Share of the objectives that a placement uses, with a node lost and without; less is better."""
    lost = size.lost.over_bound if size.lost is not None else 0.0
    return max(size.over_bound, lost), size.over_bound


def _point(size: PoolSize, name: str) -> CurvePoint:
    shown = PoolSize.parse(size.to_dict())  # without ranks
    lost = shown.lost
    return CurvePoint(
        pool=name,
        nodes=size.nodes,
        cost_per_hour=size.cost_per_hour,
        over_bound=as_float(shown.over_bound),
        lost_over_bound=as_float(lost and lost.over_bound),
        lost_node=lost and lost.node,
        worst_s=as_float(shown.worst_s),
        lost_worst_s=as_float(lost and lost.worst_s),
        endless=list(size.endless),
        lost_endless=list(lost.endless) if lost else [],
    )


def _limited(what: str, tell: Callable[[str], None], grace: float = 1.0) -> Progress:
    until = time.monotonic() + _TIME_LIMITS_S[what] * grace

    def progress(share: float, step: str = "") -> None:
        tell(step)
        if time.monotonic() > until:
            raise _TimeUp(what)

    return progress


def _losses(deployment: Deployment, closed: Sequence[str], tell: Progress) -> list[ReportLoss]:
    """Losses of each node; on a large fleet, of those that carry the most."""
    weight = {node.id: 0 for node in deployment.nodes}
    for operator in deployment.operators:
        for replica in operator.replicas:
            weight[replica.node] += 1
    names = sorted(weight, key=lambda name: (-weight[name], name))[:_MAX_LOSSES_TRIED]
    lose = partial(lose_each, deployment, mace_every=SLICES_PER_SUBINTERVAL, rounds=0, closed=closed)
    losses: list[ReportLoss] = []
    with suppress(_TimeUp):
        progress = _limited("losses", lambda step: tell(0.86, step))
        survival = lose(nodes=names, flows=_MAX_LOSSES_WALKED, progress=progress)
        losses = [_loss(survival, name) for name in names]
    if not losses:  # with mean costs alone, as many as there is time for
        progress = _limited("losses", lambda step: tell(0.88, step))
        with suppress(_TimeUp):
            for name in names:
                progress(0.0, f"Losing {name}")
                losses.append(_loss(lose(nodes=[name], flow=False), name))
    return losses


def _loss(survival: Survival, name: str) -> ReportLoss:
    outcome = survival.losses[name]
    return ReportLoss(
        node=name,
        broken=list(survival.breaks(name)),
        at_risk=list(survival.risks(name)),
        by_mace=name in survival.by_mace,
        why=outcome.refusal.message if outcome.refusal is not None else "",
        worst_s=None if outcome.mace is None else outcome.mace.worst,
    )
