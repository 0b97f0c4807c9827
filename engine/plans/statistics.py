"""Statistics of rewritten operators, derived batch by batch so that intervals and differences stay those of one sample.

Each derived batch is what the same events would have given. Where the inputs have equally many batches, the g-th of one
belongs to the g-th of the other; else the other's totals are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from engine.elements import Batch, Evidence, Input, Operator

__all__ = ["fused_input", "scaled_outputs", "weakest"]

_RANKS = {"assumed": 0, "predicted": 1, "measured": 2}


def scaled_outputs(entry: Input, by: Input) -> Input:
    """The input with its outputs times the selectivity of another."""
    shares = _per_batch(by, entry.batches, "outputs")
    return replace(
        entry,
        selectivity=entry.selectivity * by.selectivity,
        batches=tuple(
            replace(batch, outputs=batch.outputs * share) for batch, share in zip(entry.batches, shares, strict=True)
        ),
    )


def fused_input(first: Input, second: Input, saved_cycles: float) -> Input:
    """One input for two operators in a row: `saved_cycles` less for each event that no longer passes a queue."""
    saved = min(saved_cycles, second.cycles_per_event)
    outputs = _per_batch(second, first.batches, "outputs")
    cycles = _per_batch(second, first.batches, "cycles")
    batches = tuple(
        Batch(one.events, one.outputs * share, one.cycles + one.outputs * max(0.0, cost - saved))
        for one, share, cost in zip(first.batches, outputs, cycles, strict=True)
    )
    return replace(
        first,
        selectivity=first.selectivity * second.selectivity,
        cycles_per_event=first.cycles_per_event + first.selectivity * (second.cycles_per_event - saved),
        batches=batches,
    )


def _per_batch(entry: Input, batches: Sequence[Batch], name: Literal["outputs", "cycles"]) -> list[float]:
    """Outputs or cycles per event of `entry` in each of its batches, as many as `batches` has."""
    given = entry.selectivity if name == "outputs" else entry.cycles_per_event
    if len(entry.batches) != len(batches):
        return [given] * len(batches)
    events = sum(batch.events for batch in entry.batches)
    mean = sum(getattr(batch, name) for batch in entry.batches) / events if events else given
    # as in the intervals: the sample says how batches differ, the given number where they lie
    scale = given / mean if mean else 1.0
    return [scale * getattr(b, name) / b.events if b.events else given for b in entry.batches]


def weakest(*operators: Operator) -> Evidence | None:
    """The evidence of several operators taken together: that of the least known."""
    known = [operator.evidence for operator in operators]
    if any(evidence is None for evidence in known):
        return None
    return min((e for e in known if e is not None), key=lambda e: (_RANKS[e.kind], e.events))
