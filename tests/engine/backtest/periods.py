"""A period of four segments that can be worked out by hand.

Source ``a`` brings 10 thousand events a second for 8 s. Query ``p`` spends 5 cycles on each thousand, on ``n1`` with
100 cycles/s. The record says 10, 10, 20 and 10 thousand events a second: ``p`` takes half of the node, and all of it in
the third segment, where nothing waits either. A candidate that spends 6 cycles more takes 1.1 of the node: 10 cycles
are left over every second, 80 after 8 s, so the last slice waits 0.8 s; in the third segment it is 2.2 of the node, and
9.6 s. Neither costs nor arrivals are random, unless a test makes them so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backtest.period import RecordedDecision, RecordedPeriod, RecordedRequest, RecordedStop, SourceRecord
from engine.document.deployment import Deployment
from tests.engine.admission.stories import MEASURED, batches

SINCE_S = 1_000_000.0
HOUR_S = 3600.0
EVENTS = 1000.0  # of one thousand


def operator(name: str, cost: float, cv2: float = 0.0, spread: float | None = None, **more: Any) -> dict[str, Any]:
    read = {"from": "a", "selectivity": 1.0, "cycles_per_event": cost / EVENTS, "cost_cv2": cv2}
    if spread is not None:
        read["batches"] = batches(cost / EVENTS, spread)
    return {"id": name, "inputs": [read], "evidence": MEASURED, **more}


def ran(nodes: tuple[str, ...], arrivals: list[float], cv2: float) -> Deployment:
    source = {
        "id": "a",
        "arrivals": [EVENTS * value for value in arrivals],
        "dispersion": 0.0,
        "dispersion_step_s": 1.0,
    }
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [source],
            "nodes": [{"id": name, "capacity_cps": 100.0} for name in nodes],
            "operators": [operator("p/op", 5.0, cv2, node="n1", query="p")],
            "objectives": [{"query": "p", "statistic": "worst", "bound_s": 1.5}],
        }
    )


def asks(
    cost: float = 6.0, at: float = 0.5, outcome: str = "rejected", bound_s: float = 1.5, **more: Any
) -> RecordedRequest:
    """Query ``c`` asks in the middle of the first segment; its record is `outcome`."""
    place = {"node": "n1"} if more.pop("placed", True) else {}
    candidate = {
        "query": "c",
        "operators": [operator("c/op", cost, spread=more.pop("spread", None), **place)],
        "objective": {"statistic": "worst", "bound_s": bound_s},
    }
    started_s = SINCE_S + at * HOUR_S if outcome == "admitted" else None
    decided = RecordedDecision(outcome, "as it was", started_s)
    return RecordedRequest(SINCE_S + at * HOUR_S, candidate, decided, **more)


def recorded_period(
    *requests: RecordedRequest,
    rates: tuple[float, ...] = (10.0, 10.0, 20.0, 10.0),
    nodes: tuple[str, ...] = ("n1",),
    stops: tuple[RecordedStop, ...] = (),
    arrivals: list[float] | None = None,
    cv2: float = 0.0,
    **more: Any,
) -> RecordedPeriod:
    events = arrivals or [10.0] * 8
    record = SourceRecord(EVENTS * np.array(rates), measured=1, arrivals_eps=EVENTS * sum(events) / 8)
    fields: dict[str, Any] = {"sources": {"a": record}, **more}
    return RecordedPeriod(
        ran(nodes, events, cv2), SINCE_S, HOUR_S, len(rates), requests=requests, stops=stops, **fields
    )
