"""The demo's queries: plans as they might be written down by the teams that own them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Plan", "Step", "operators_of"]

BATCHES = 8
SAMPLE_AGE_S = 1200.0  # how long ago the demo's samples were taken
STATE_BYTES = {"window": 420e6, "join": 650e6, "aggregate": 90e6}  # what an operator carries when it moves


@dataclass(frozen=True)
class Step:
    """One operator. `reads` maps what it reads to (selectivity, thousand cycles per event).

    `looks_at` and `writes` are fields of an event; None: not stated.
    """

    name: str
    kind: str
    reads: Mapping[str, tuple[float, float]]
    at: str = ""
    size_bytes: int = 120
    window: Mapping[str, Any] | None = None
    looks_at: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Plan:
    """A query. `spread` is how far its batches lie from their mean; 0: nothing was measured yet."""

    name: str
    team: str
    description: str
    steps: Sequence[Step]
    objective: tuple[str, float] | None = None
    priority: int = 0
    evidence: str = "measured"
    events: int = 200_000
    spread: float = 0.01
    assumed: frozenset[str] = field(default_factory=frozenset)


def operators_of(plan: Plan) -> list[dict[str, Any]]:
    """The plan as the `operators` of a query's body. Batches are drawn with a seed of the plan's name."""
    draw = random.Random(plan.name)
    return [_operator(plan, step, draw) for step in plan.steps]


def _operator(plan: Plan, step: Step, draw: random.Random) -> dict[str, Any]:
    is_assumed = step.name in plan.assumed or not plan.spread
    kind = "assumed" if is_assumed else plan.evidence
    body: dict[str, Any] = {
        "id": step.name,
        "kind": step.kind,
        "stateless": step.kind in {"source", "filter", "map", "sink"},
        "bytes_per_event": step.size_bytes,
        "evidence": {"kind": kind} if is_assumed else {"kind": kind, "events": plan.events, "age_s": SAMPLE_AGE_S},
        "inputs": [
            _input(name, selectivity, cost * 1e3, 0.0 if is_assumed else plan.spread, plan.events, draw)
            for name, (selectivity, cost) in step.reads.items()
        ],
    }
    if step.kind in STATE_BYTES:
        body["state_bytes"] = STATE_BYTES[step.kind]
    fields = {"reads": step.looks_at, "writes": step.writes}
    body |= {name: list(names) for name, names in fields.items() if names is not None}
    if step.window:
        body["window"] = dict(step.window)
    if step.at:
        node, _, core = step.at.partition("#")
        body |= {"node": node, "core": int(core or 0)}
    return body


def _input(
    name: str, selectivity: float, cycles: float, spread: float, events: int, draw: random.Random
) -> dict[str, Any]:
    entry: dict[str, Any] = {"from": name, "selectivity": selectivity, "cycles_per_event": cycles}
    if spread:
        size = events // BATCHES
        entry["batches"] = [
            {
                "events": size,
                "outputs": round(size * selectivity * draw.gauss(1.0, spread), 1),
                "cycles": round(size * cycles * draw.gauss(1.0, spread)),
            }
            for _ in range(BATCHES)
        ]
    return entry
