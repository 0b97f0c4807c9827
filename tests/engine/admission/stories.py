"""A fleet small enough to work out by hand, and the candidates that want to join it.

Source ``a`` brings 10 events a second and 40 in the second one, evenly. Query ``p`` spends 5 cycles on each, always the
same, on ``n1`` with 100 cycles/s: its burst of 200 cycles is done a second late, so its worst case is 1.05 s with the
event's own service. A candidate that spends 2 cycles per event on ``n1`` adds 80 cycles to the burst: both are served
by stimulus time, so both are 0.8 s later, p 1.85 s and the candidate 1.82 s. Nothing is left to chance but the error of
the model: 3 % of what is steady, more of what only the walk sees.
"""

from __future__ import annotations

from typing import Any

from engine.admission.answer import AdmissionDecision, QueryEffect
from engine.admission.decision import decide
from engine.document.deployment import Deployment

ARRIVALS = [10.0, 40.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]
MEASURED = {"kind": "measured", "events": 5000.0}


def batches(cost: float, spread: float) -> list[dict[str, float]]:
    """A sample of eight batches whose mean is `cost` and which differ by `spread`."""
    return [{"events": 100.0, "outputs": 100.0, "cycles": 100.0 * cost * (1.0 + spread * (-1) ** k)} for k in range(8)]


def operator(name: str, cost: float, source: str = "a", *, spread: float | None = None, **more: Any) -> dict[str, Any]:
    read: dict[str, Any] = {"from": source, "selectivity": 1.0, "cycles_per_event": cost, "cost_cv2": 0.0}
    if spread is not None:
        read["batches"] = batches(cost, spread)
    return {"id": name, "inputs": [read], "evidence": MEASURED, **more}


def running(
    bound_s: float | None = 2.2, nodes: tuple[str, ...] = ("n1", "n2"), spread: float | None = None, **more: Any
) -> Deployment:
    document: dict[str, Any] = {
        "subinterval_s": 1.0,
        "sources": [{"id": "a", "arrivals": ARRIVALS, "dispersion": 0.0, "dispersion_step_s": 1.0}],
        "nodes": [{"id": name, "capacity_cps": 100.0} for name in nodes],
        "operators": [operator("p/op", 5.0, node="n1", query="p", spread=spread)],
    }
    if bound_s is not None:
        document["objectives"] = [{"query": "p", "statistic": "worst", "bound_s": bound_s}]
    return Deployment.parse(document | more)


def candidate(bound_s: float | None = 2.0, cost: float = 2.0, node: str | None = "n1", **more: Any) -> dict[str, Any]:
    spread = more.pop("spread", None)
    place = {"node": node} if node else {}
    document: dict[str, Any] = {"query": "c", "operators": [operator("c/op", cost, spread=spread, **place)]}
    if bound_s is not None:
        document["objective"] = {"statistic": "worst", "bound_s": bound_s}
    return document | more


def codes(decision: AdmissionDecision, severity: str | None = None) -> list[str]:
    return [reason.code for reason in decision.reasons if severity in (None, reason.severity)]


def effect(decision: AdmissionDecision, query: str) -> QueryEffect:
    return next(effect for effect in decision.effects if effect.query == query)


def alternatives(decision: AdmissionDecision) -> dict[str, Any]:
    return {alternative.id: alternative for alternative in decision.alternatives}


def again(
    decision: AdmissionDecision, name: str, deployment: Deployment, document: Any, **options: Any
) -> AdmissionDecision:
    """Decide once more with the changes of a alternative."""
    return decide(deployment, document, changes=alternatives(decision)[name].changes, **options)
