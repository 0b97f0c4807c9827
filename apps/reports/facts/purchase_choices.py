"""Answers of the engine about pools and mixes, as the facts of a report hold them."""

from __future__ import annotations

import math
from typing import Any

from apps.reports.money import money
from apps.ui.numbers import percent
from engine.provisioning.bench import PoolSize
from engine.provisioning.sizing import MixAnswer, PoolAnswer

__all__ = ["badness", "curve_point", "extra_cost", "finding", "mix_choice", "plus", "pool_choice"]


def extra_cost(answer: PoolAnswer) -> float:
    """What the new nodes cost per hour; infinite where there is no answer, their number where there is no price."""
    if answer.added is None:
        return math.inf
    price = answer.model.price_per_hour
    return answer.added * (1.0 if price is None else price)


def pool_choice(name: str, answer: PoolAnswer) -> dict[str, Any]:
    """A pool of one type that is enough."""
    price, added = answer.model.price_per_hour, max(answer.added or 0, 0)
    return {
        "kind": "pool",
        "counts": {name: added},
        "nodes": added,
        "whole": answer.nodes,
        "cost_per_hour": None if price is None else added * price,
        "confirmed": answer.confirmed,
        "proven": answer.proof is not None and answer.proof.refutation is not None,
        "less": answer.proof.message if answer.proof is not None else "",
        "beyond": len(answer.beyond),
        "splits": answer.splits,
    }


def mix_choice(mix: MixAnswer) -> dict[str, Any]:
    """A mix of types that is enough."""
    counts = {name: count for name, count in (mix.counts or {}).items() if count}
    return {
        "kind": "mix",
        "counts": counts,
        "nodes": sum(counts.values()),
        "whole": mix.present + sum(counts.values()),
        "cost_per_hour": mix.cost_per_hour,
        "confirmed": mix.confirmed,
        "proven": mix.proven,
        "less": mix.proofs[0].message if mix.proofs else "",
        "beyond": len(mix.beyond),
        "splits": mix.splits,
    }


def badness(size: PoolSize) -> tuple[float, float]:
    """How far a placement exhausts the objectives, with a node lost and without; less is better."""
    lost = size.lost.over_bound if size.lost is not None else 0.0
    return max(size.over_bound, lost), size.over_bound


def curve_point(size: PoolSize, name: str) -> dict[str, Any]:
    """One number of nodes on the curve of cost against latency."""
    plain = size.to_dict()
    lost = plain["lost"] or {}
    return {
        "pool": name,
        "nodes": size.nodes,
        "cost_per_hour": plain["cost_per_hour"],
        "over_bound": plain["over_bound"],
        "lost_over_bound": lost.get("over_bound"),
        "lost_node": lost.get("node"),
        "worst_s": plain["worst_s"],
        "lost_worst_s": lost.get("worst_s"),
    }


def finding(found: dict[str, Any]) -> str:
    """What to buy, in a sentence."""
    asked, growth = plus(found["growth"]), found["answered_growth"]
    if growth is None:
        return f"At {asked} load no purchase keeps every objective if a node is lost."
    best = found["choices"][0]
    load = f"{plus(growth)} load with any one node lost"
    every = f"all but {best['beyond']} objectives" if best["beyond"] else "every objective"
    said = f"The present nodes keep {every} at {load} once operators are placed anew: buy none."
    if best["nodes"]:
        hour = best["cost_per_hour"]
        price = "" if hour is None else f" for {money(hour, found['currency'])} more per hour"
        words = " and ".join(f"{count} {name}" for name, count in best["counts"].items() if count)
        verb = "node{} keeps" if best["nodes"] == 1 else "nodes{} keep"
        said = f"{words} {verb.format(price)} {every} at {load}, with operators placed anew."
    if growth == found["growth"]:
        return said
    return f"At {asked} load no number of nodes is enough. {said[0].upper()}{said[1:]}"


def plus(growth: float) -> str:
    """`+60%`."""
    return f"+{percent(growth)}" if growth else "the present"
