"""Whether the statistics of an operator are ready to be relied on, and if not, how much more it takes.

Ready: at least 30 events in at least 3 subintervals, and the 90 % intervals of selectivity and of cycles per event are
at most 10 % of them to either side. Errors shrink with the square root of the sample, which gives what is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.measurement.ratios import Ratio, Statistic

__all__ = ["LEAST_EVENTS", "LEAST_SUBINTERVALS", "MOST_RELATIVE", "Evidence", "Readiness", "evidence", "readiness"]

LEAST_EVENTS = 30
LEAST_SUBINTERVALS = 3
MOST_RELATIVE = 0.1


@dataclass(frozen=True, slots=True)
class Readiness:
    """`events` and `seconds` are what is still missing; `seconds` is None where nothing arrives."""

    ready: bool
    events: int
    seconds: float | None
    relative: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What stands behind a statistic: events, span and age in seconds, and subintervals by how they are known.

    `extrapolated` ones hold CPU time that was apportioned and not taken; `missing` ones lie within the span unheard of.
    """

    events: int
    span_s: float
    age_s: float | None
    whole: int
    extrapolated: int
    missing: int


def readiness(found: Statistic, *, span_s: float, width_s: float, unit: str = "subintervals") -> Readiness:
    """Judge a statistic.

    Parameters
    ----------
    span_s : float
        How long the sample took, from which the rate of events follows.
    width_s : float
        Width of a subinterval, or of the block of them that the sample consists of.
    unit : str
        What to call them.
    """
    parts = [found.selectivity, found.cycles_per_event]
    relative = _worst(parts)
    rate_eps = found.events / span_s if span_s > 0.0 else 0.0
    wanted = max(float(LEAST_EVENTS), LEAST_SUBINTERVALS * found.events / max(1, found.subintervals))
    if relative is not None and relative > MOST_RELATIVE:
        wanted = max(wanted, found.events * (relative / MOST_RELATIVE) ** 2)
    missing = max(0, math.ceil(wanted - found.events))
    reason = _reason(found, relative, unit)
    if not reason:
        return Readiness(True, 0, 0.0, relative, "")
    more_s = missing / rate_eps if rate_eps > 0.0 else None
    if more_s is not None:
        more_s = max(more_s, width_s, (LEAST_SUBINTERVALS - found.subintervals) * width_s)
    return Readiness(False, max(1, missing), more_s, relative, reason)


def _worst(parts: list[Ratio]) -> float | None:
    known = [one.relative for one in parts]
    return None if any(value is None for value in known) else max(value for value in known if value is not None)


def _reason(found: Statistic, relative: float | None, unit: str) -> str:
    if found.events < LEAST_EVENTS:
        return f"{found.events:.0f} of {LEAST_EVENTS} events"
    if found.subintervals < LEAST_SUBINTERVALS:
        return f"{found.subintervals} of {LEAST_SUBINTERVALS} {unit}"
    if relative is None:
        return "its error cannot be told yet"
    if relative > MOST_RELATIVE:
        return f"known to ± {100 * relative:.0f} %; wanted: ± {100 * MOST_RELATIVE:.0f} %"
    return ""


def evidence(times_s: list[float], measured: list[bool], *, events: float, width_s: float, now_s: float) -> Evidence:
    """Describe subintervals by their beginnings; `measured` says of which the CPU time was taken by operator."""
    if not times_s:
        return Evidence(0, 0.0, None, 0, 0, 0)
    span_s = max(times_s) - min(times_s) + width_s
    return Evidence(
        events=round(events),
        span_s=span_s,
        age_s=max(0.0, now_s - max(times_s) - width_s),
        whole=sum(measured),
        extrapolated=len(measured) - sum(measured),
        missing=max(0, round(span_s / width_s) - len(times_s)),
    )
