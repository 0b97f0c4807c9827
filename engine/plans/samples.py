"""A test whether older statistics of a plan still hold, by a newer sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import computed_field

from engine.document.elements import Batch
from engine.records import Record
from engine.solvers import solving

__all__ = [
    "ALPHA",
    "EVENTS",
    "Drift",
    "StatisticChange",
    "drift",
]


EVENTS = 500  # of each source


ALPHA = 0.01  # chance of a false alarm, per check of all inputs of a query
_MIN_BATCHES = 2


@dataclass(frozen=True)
class StatisticChange(Record):
    """One number of one input: what it was, what it is, the test's p, and p after Holm's correction."""

    operator: str
    input: str
    what: str
    before: float
    after: float
    p: float
    adjusted_p: float
    significant: bool


@dataclass(frozen=True)
class Drift(Record):
    """The outcome of one check: tests by their p, and the inputs that have no batches on one of the sides."""

    alpha: float
    changes: tuple[StatisticChange, ...]
    untested: tuple[tuple[str, str], ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def significant(self) -> bool:
        return any(change.significant for change in self.changes)


def drift(
    old: Mapping[tuple[str, str], Sequence[Batch]],
    new: Mapping[tuple[str, str], Sequence[Batch]],
    *,
    alpha: float = ALPHA,
) -> Drift:
    """Test every input that both samples know.

    Parameters
    ----------
    old, new : mapping
        Batches by (operator, input).
    alpha : float
        Chance that a check of statistics that have not changed at all says they have.

    Returns
    -------
    Drift
        The same batches on both sides are no second sample: they count as unchanged, with p = 1.
    """
    solving()
    tests: list[tuple[float, str, str, str, float, float]] = []
    untested = []
    for key in [key for key in new if key in old]:
        if min(_batches_with_events(old[key]), _batches_with_events(new[key])) < _MIN_BATCHES:
            untested.append(key)
            continue
        for what, name in (("selectivity", "outputs"), ("cycles_per_event", "cycles")):
            before, after, p = _test(old[key], new[key], name)
            tests.append((p, *key, what, before, after))
    tests.sort(key=lambda test: test[0])
    changes, worst = [], 0.0
    for k, (p, operator, source, what, before, after) in enumerate(tests):
        worst = max(worst, min(1.0, p * (len(tests) - k)))
        changes.append(StatisticChange(operator, source, what, before, after, p, worst, worst < alpha))
    return Drift(alpha, tuple(changes), tuple(untested))


def _batches_with_events(batches: Sequence[Batch]) -> int:
    """Batches that saw an event: one alone has no spread, and any difference would count as significant."""
    return sum(batch.events > 0 for batch in batches)


def _events(batches: Sequence[Batch]) -> float:
    return sum(batch.events for batch in batches)


def _test(old: Sequence[Batch], new: Sequence[Batch], name: str) -> tuple[float, float, float]:
    """The two ratios and the p of their difference."""
    (before, error0, freedom0), (after, error1, freedom1) = (_ratio(batches, name) for batches in (old, new))
    if list(old) == list(new) or before == after:
        return before, after, 1.0
    variance = error0 + error1
    freedom = variance**2 / (error0**2 / freedom0 + error1**2 / freedom1) if variance else 1.0
    if name == "outputs" and max(before, after) <= 1.0:
        n0, n1 = _events(old), _events(new)
        pooled = (before * n0 + after * n1) / (n0 + n1)
        counting = pooled * (1 - pooled) * (1 / n0 + 1 / n1)
        variance = max(variance, counting)
    if not variance:
        return before, after, 0.0
    return before, after, _two_sided(abs(after - before) / math.sqrt(variance), freedom)


def _ratio(batches: Sequence[Batch], name: str) -> tuple[float, float, float]:
    """A ratio over batches, the variance of its error, and its degrees of freedom."""
    kept = [batch for batch in batches if batch.events]
    events = _events(kept)
    ratio = sum(getattr(batch, name) for batch in kept) / events
    freedom = max(1, len(kept) - 1)
    squares = sum((getattr(batch, name) - ratio * batch.events) ** 2 for batch in kept)
    return ratio, len(kept) / freedom * squares / events**2, float(freedom)


def _two_sided(t: float, freedom: float) -> float:
    """P(|T| >= t) of Student's distribution."""
    from scipy.special import stdtr  # loaded where it is needed: pages read results and need none of it

    return float(2.0 * stdtr(freedom, -t))
