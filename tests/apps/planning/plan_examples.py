"""Plans small enough to reckon with: what tests of comparisons build on."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["batches", "entry", "plan"]


def batches(selectivity: float, cycles: float, seed: int, spread: float = 0.01) -> list[dict[str, float]]:
    draw = np.random.default_rng(seed).normal(1.0, spread, (8, 2)).tolist()
    return [{"events": 500, "outputs": 500 * selectivity * a, "cycles": 500 * cycles * b} for a, b in draw]


def entry(source: str, selectivity: float, cycles: float, seed: int = 0, spread: float = 0.01) -> dict[str, Any]:
    statistics = {"from": source, "selectivity": selectivity, "cycles_per_event": cycles}
    return statistics | ({"batches": batches(selectivity, cycles, seed, spread)} if seed else {})


def plan(**changes: Any) -> dict[str, Any]:
    """A dear map before a filter that does not need it; 100 events/s load a node of 1,000 cycles/s to 1.2."""
    measured = {"kind": "measured", "events": 4000}
    parse = {"id": "parse", "kind": "map", "stateless": True, "reads": ["a"], "writes": ["b"], "evidence": measured}
    hot = {"id": "hot", "kind": "filter", "stateless": True, "reads": ["a"], "writes": [], "evidence": measured}
    parse |= {"inputs": [entry("clicks", 1.0, 10.0, 1)]} | changes
    return {"operators": [parse, hot | {"inputs": [entry("parse", 0.2, 2.0, 2)]}]}
