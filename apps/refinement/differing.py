"""Whether what was learned differs enough from what an agent was given to be worth a configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.refinement.predicting import Known
from engine.jarvis.settings import Settings

__all__ = ["Difference", "difference", "watermarks_difference"]

LEAST_GAIN = 0.05  # of the bytes of an epoch
LEAST_CHANGE = 0.20  # of a figure
LEAST_CPU = 0.01  # of the budget, that a cost has to move: what costs next to nothing differs from hour to hour
LEAST_RECORDS = 1000  # behind every figure
LEAST_DELAY_S = 0.01  # watermarks are seen once in a tenth of an epoch
_Z = 1.645  # standard errors that chance may do


@dataclass(frozen=True)
class Difference:
    """What is new, and how much of it: a share of the bytes, or the change of a figure."""

    words: str
    size: float


def difference(
    known: Known, before: Known | None, *, running: Sequence[float], budget_s: float, n_records: float
) -> Difference | None:
    """What makes the figures of `known` worth telling, or None.

    Parameters
    ----------
    before
        What the agent, or an earlier proposal, holds; None where it holds none.
    running
        The load factors that it runs with; they stand for what it knows where `before` is None.
    budget_s, n_records
        CPU seconds and records of an epoch, of late.
    """
    if any(one.records < LEAST_RECORDS for one in known.operators):
        return None
    gain = _gain(known, before, running, budget_s, n_records)
    changed = _changed(known, before, budget_s, n_records)
    if gain is not None and gain > LEAST_GAIN:
        return Difference(f"{100 * gain:.2g} % fewer bytes predicted", gain)
    if changed is not None and changed.size > LEAST_CHANGE:
        return changed
    return Difference("first figures of its operators", 0.0) if before is None else None


def watermarks_difference(known: Sequence[Mapping[str, Any]], before: Mapping[str, Any] | None) -> Difference | None:
    """What makes `watermarks` of a refined document worth telling, against those of the document `before`; or None.

    A period that is another one, a mean that moved by more than a deviation, a variance twice or half of what it was,
    or that they are known now where they were not.
    """
    had = {one["stream"]: one for one in (before or {}).get("watermarks") or ()}
    found = (_delay_differs(one, had.get(one["stream"])) for one in known)
    return next((one for one in found if one is not None), None)


def _delay_differs(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> Difference | None:
    if old is not None and not math.isclose(new["period_s"], old["period_s"], rel_tol=1e-6):
        return Difference(f"period of {new['stream']} {old['period_s']:.4g} → {new['period_s']:.4g} s", 0.0)
    if new["mean_s"] is None:
        return None
    deviation_s = math.sqrt(new["variance_s2"])
    told = f"{new['mean_s']:.2g} ± {deviation_s:.2g} s"
    if old is None or old.get("mean_s") is None:
        return Difference(f"watermarks of {new['stream']} come after {told}", 0.0)
    had_s = math.sqrt(old["variance_s2"])
    moved = abs(new["mean_s"] - old["mean_s"]) > max(had_s, LEAST_DELAY_S)
    low, high = sorted((max(deviation_s, LEAST_DELAY_S), max(had_s, LEAST_DELAY_S)))
    if moved or high**2 > 2 * low**2:
        return Difference(f"watermarks of {new['stream']} {old['mean_s']:.2g} ± {had_s:.2g} → {told}", 0.0)
    return None


def _changed(known: Known, before: Known | None, budget_s: float, n_records: float) -> Difference | None:
    """The figure that changed most, for certain; costs that are felt in the budget."""
    if before is None:
        return None
    found, records = [], n_records
    for new, old in zip(known.operators, before.operators, strict=True):
        for name, label, scale, unit in (("cost_s", "cost", 1e6, " µs"), ("relay", "relay ratio", 1, "")):
            after, was = getattr(new, name), getattr(old, name)
            chance = _Z * math.hypot(new.standard_error or 0.0, old.standard_error or 0.0) if name == "cost_s" else 0.0
            felt = name != "cost_s" or abs(after - was) * records > LEAST_CPU * budget_s
            if max(after, was) > 0 and felt:
                words = f"{label} of {new.id} {was * scale:.3g} → {after * scale:.3g}{unit}"
                found.append(Difference(words, abs(after - was) / (was or after) - chance))
        records *= new.relay
    return max(found, key=lambda one: one.size, default=None)


def _gain(
    known: Known, before: Known | None, running: Sequence[float], budget_s: float, n_records: float
) -> float | None:
    """Share of the bytes of an epoch that a plan by the new figures saves against one by the old."""
    operators = len(known.operators)
    if n_records <= 0 or budget_s <= 0 or (before is None and len(running) != operators):
        return None
    settings, chain = Settings(), known.at(n_records)
    factors = before.at(n_records).settled(settings, budget_s, n_records) if before else running
    now, best = (chain.epoch(p, budget_s, n_records) for p in (factors, chain.settled(settings, budget_s, n_records)))
    return 1.0 - best.bytes_sent / now.bytes_sent if now.bytes_sent > 0 else None
