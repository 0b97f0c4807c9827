"""Joins of events with the results of their windows: both wait for the window's end."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.reports import QueryReport


def _report(kind: str, statistic: str) -> QueryReport:
    """Bids, and the highest of each ten seconds, meet in an operator of a kind."""
    document: dict[str, Any] = {
        "format": "sluice/deployment",
        "version": 1,
        "subinterval_s": 0.5,
        "subintervals": 240,
        "sources": [{"id": "bids", "arrivals": [50.0] * 240}],
        "nodes": [{"id": "n1", "cores": 1, "capacity_cps": 1e9}],
        "operators": [
            {
                "id": "highest",
                "query": "q",
                "kind": "aggregate",
                "inputs": [{"from": "bids", "selectivity": 0.001, "cycles_per_event": 1e5}],
                "window": {"policy": "time", "type": "tumbling", "size": 10.0, "watermark_delay_s": 2.0},
                "node": "n1",
            },
            {
                "id": "meet",
                "query": "q",
                "kind": kind,
                "inputs": [
                    {"from": "bids", "selectivity": 1.0, "cycles_per_event": 1e5},
                    {"from": "highest", "selectivity": 1.0, "cycles_per_event": 1e5},
                ],
                "node": "n1",
            },
        ],
        "objectives": [{"query": "q", "statistic": statistic, "bound_s": 5.0}],
    }
    return estimate(Deployment.parse(document)).queries["q"]


def test_event_that_is_joined_with_its_window_waits_for_the_windows_end() -> None:
    assert _report("join", "mean").estimate_s == pytest.approx(10.0 / 2 + 2.0, rel=0.05)
    assert _report("join", "q0.99").state == "breached"


def test_events_that_are_put_beside_results_of_windows_do_not_wait() -> None:
    assert _report("map", "mean").estimate_s < 0.5
