"""Are two plans different? Judged on the samples they share, with the number of events that would tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from engine.elements import FloatArray
from engine.intervals import Z, standard_error
from engine.plans.sampling import EVENTS

__all__ = ["Difference", "Judged", "difference_of"]


class Judged(Protocol):
    """What is needed of a plan here: its estimate, the events of its sample, its estimate without each group."""

    @property
    def estimate_s(self) -> float: ...
    @property
    def sample_events(self) -> float: ...
    @property
    def replicates(self) -> FloatArray: ...


@dataclass(frozen=True)
class Difference:
    """One plan against another: `seconds` above 0 means the plan is slower.

    `error_s` is the standard error on common samples, None where neither plan has a sample. `more_events` of the sample
    would tell the two apart, if the difference is what it seems; None where they are told apart, or no sample would.
    """

    seconds: float
    error_s: float | None
    told_apart: bool
    equal: bool
    more_events: int | None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def difference_of(plan: Judged, other: Judged, floor_s: float) -> Difference:
    """Compare two plans; `floor_s` is what the width of a slice leaves open.

    The standard error of a sample of n events falls as 1 / sqrt(n). With |D| - floor left to be seen by Z errors, a
    sample (Z error / (|D| - floor))^2 times as large tells the plans apart, should the difference stay as it is.
    """
    seconds = plan.estimate_s - other.estimate_s
    room = abs(seconds) - floor_s
    error = _error(plan.replicates, other.replicates)
    if room <= 0.0:
        return Difference(seconds, error, False, True, None)
    if error is None:
        return Difference(seconds, None, False, False, EVENTS)
    if Z * error < room:
        return Difference(seconds, error, True, False, None)
    events = max(plan.sample_events, other.sample_events)
    return Difference(seconds, error, False, False, _rounded_up(events * ((Z * error / room) ** 2 - 1.0)))


def _error(one: FloatArray, other: FloatArray) -> float | None:
    """Standard error of the difference: paired where both have the same groups, else as of independent samples."""
    if not len(one) and not len(other):
        return None
    if len(one) == len(other):
        return float(standard_error(one - other))
    parts = [float(standard_error(values)) for values in (one, other) if len(values)]
    return math.hypot(*parts)


def _rounded_up(events: float) -> int:
    """At least 1, to two digits: the figure is no more certain than that."""
    if events < 1.0:
        return 1
    step = 10 ** max(0, math.floor(math.log10(events)) - 1)
    return int(math.ceil(events / step) * step)
