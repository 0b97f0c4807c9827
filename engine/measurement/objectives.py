"""State of a query's objective, from what was measured of it and from its estimate.

References: the rule and its reasons are in docs/models/measurement.md, "State of an objective".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.latency_state import LatencyStanding, bound_state
from engine.solvers import solving

__all__ = [
    "ESTIMATE",
    "MAX_PERIOD_S",
    "MEASUREMENT",
    "MIN_FRESH_S",
    "MIN_RESULTS",
    "NOTHING",
    "PERIOD_S",
    "JudgedObjective",
    "LatencyResult",
    "MeasuredLatency",
    "judge_objective",
    "measure_latency",
    "results_needed",
    "statistic_of",
]

PERIOD_S = 600.0  #: results so young are measured
MAX_PERIOD_S = 3600.0  #: how far the period reaches back where that is too few of them
MIN_RESULTS = 3  #: fewer are an accident
MIN_FRESH_S = 120.0  #: a newest result older than this, and than three steps between results, says nothing of now
_FRESH_STEPS = 3.0

#: Evidence that decides a state; nothing where a chain cannot be observed, and the estimate alone says that it holds.
MEASUREMENT, ESTIMATE, NOTHING = "measurement", "estimate", "nothing"


class LatencyResult(NamedTuple):
    """A result with its latency: when it came (seconds since 1970), how late, and how many results it stands for.

    One that counts for nothing, because the stream processor was not at work, is `disturbed`.
    """

    at_s: float
    latency_s: float
    results: int = 1
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredLatency:
    """The statistic of an objective over the recent past; `lacking` says why it does not count, empty where it does.

    `lacking` is ``none`` (nothing was measured), ``disturbed`` (only while the stream processor was not at work),
    ``few`` (fewer results than `needed`) or ``stale`` (the newest came at `newest_at_s`).
    """

    value_s: float | None
    results: int
    needed: int
    span_s: float
    newest_at_s: float | None
    left_out: int
    lacking: str

    @property
    def counts(self) -> bool:
        return not self.lacking


@dataclass(frozen=True, slots=True)
class JudgedObjective:
    """State of an objective: holds, at_risk, breached, unknown or none; which evidence decided, and the latency it is
    held against: the larger of both where both are known.
    """

    state: str
    decided_by: str
    value_s: float | None

    def headroom_share(self, bound_s: float | None) -> float | None:
        """(bound - value) / bound; None without an objective, and where the value is no latency or only grows."""
        if not bound_s or self.value_s is None:
            return None
        share = (bound_s - self.value_s) / bound_s
        return None if share >= 0.0 and self.state in ("unknown", "breached") else share


def results_needed(statistic: str) -> int:
    """Results that a statistic takes: a quantile of fewer than 1 / (1 - q) is no more than their worst.

    Examples
    --------
    >>> results_needed("worst"), results_needed("q0.95"), results_needed("q0.99")
    (3, 20, 100)
    """
    if not statistic.startswith("q"):
        return MIN_RESULTS
    return max(MIN_RESULTS, math.ceil(1.0 / (1.0 - float(statistic[1:])) - 1e-6))


def statistic_of(results: Sequence[LatencyResult], statistic: str) -> float:
    """A statistic of at least one result: worst, mean, or a quantile by nearest rank. Each weighs `results`.

    Examples
    --------
    >>> few = [LatencyResult(0.0, 1.0), LatencyResult(1.0, 4.0), LatencyResult(2.0, 2.0, results=2)]
    >>> statistic_of(few, "worst"), statistic_of(few, "mean"), statistic_of(few, "q0.5")
    (4.0, 2.25, 2.0)
    """
    total = sum(result.results for result in results)
    if statistic == "mean":
        return math.fsum(result.latency_s * result.results for result in results) / total
    rank = max(1, math.ceil((float(statistic[1:]) if statistic.startswith("q") else 1.0) * total - 1e-9))
    for result in sorted(results, key=lambda result: result.latency_s):
        rank -= result.results
        if rank <= 0:
            return result.latency_s
    raise ValueError("there is no result")


def measure_latency(results: Sequence[LatencyResult], statistic: str, now_s: float) -> MeasuredLatency:
    """The statistic over the last `PERIOD_S`, or over as much more, up to `MAX_PERIOD_S`, as it takes results.

    Parameters
    ----------
    results : sequence of LatencyResult
        In any order; those older than `MAX_PERIOD_S` or later than now are ignored.
    statistic : str
        worst, mean or a quantile such as q0.99.
    now_s : float
        Seconds since 1970.

    Examples
    --------
    >>> late = [LatencyResult(1000.0 + 10.0 * i, 70.0 + i) for i in range(9)]
    >>> found = measure_latency(late, "worst", now_s=1090.0)
    >>> found.value_s, found.results, found.span_s, found.counts
    (78.0, 9, 600.0, True)
    >>> measure_latency(late, "worst", now_s=1400.0).lacking, measure_latency(late, "q0.95", now_s=1090.0).lacking
    ('stale', 'few')
    """
    solving()
    recent = sorted((result for result in results if 0.0 <= now_s - result.at_s <= MAX_PERIOD_S), reverse=True)
    usable = [result for result in recent if not result.disturbed]
    needed = results_needed(statistic)
    taken, total = [], 0
    for result in usable:
        if now_s - result.at_s > PERIOD_S and total >= needed:
            break
        taken.append(result)
        total += result.results
    left_out = sum(result.disturbed and now_s - result.at_s <= PERIOD_S for result in recent)
    if not taken:
        return MeasuredLatency(None, 0, needed, PERIOD_S, None, left_out, "disturbed" if left_out else "none")
    newest_at_s, span_s = taken[0].at_s, max(PERIOD_S, now_s - taken[-1].at_s)
    step_s = (taken[0].at_s - taken[-1].at_s) / (len(taken) - 1) if len(taken) > 1 else 0.0
    lacking = ""
    if now_s - newest_at_s > max(MIN_FRESH_S, _FRESH_STEPS * step_s):
        lacking = "stale"
    elif total < needed:
        lacking = "few"
    return MeasuredLatency(statistic_of(taken, statistic), total, needed, span_s, newest_at_s, left_out, lacking)


def judge_objective(
    bound_s: float | None,
    estimate_s: float | None,
    high_s: float | None,
    standing: LatencyStanding,
    measured: MeasuredLatency,
    *,
    is_observed: bool = True,
) -> JudgedObjective | None:
    """State of an objective, measurement first; None where neither evidence speaks of it.

    A measurement beyond the objective is a breach, whatever was estimated. One within it does not prove that the
    horizon will hold: an estimate beyond the objective is then a risk, as is an upper end beyond it, and a load that it
    never catches up with. Where an estimate knows no latency, since nothing comes out, or no upper end, since nobody
    knows how much higher it ends under the policies of the nodes (`high_s` is infinite), what is measured decides;
    where nothing that counts was measured, the state is unknown.

    Where the chain cannot be observed (`is_observed` is False) and no measurement counts, an estimate does not say that
    an objective holds, since what it assumes to be at work may not be: the state is unknown. That it expects a breach
    or a risk stays so.

    Examples
    --------
    >>> from engine.latency_state import KNOWN
    >>> late = MeasuredLatency(78.7, 60, 3, 600.0, 4.0, 0, "")
    >>> judge_objective(15.0, 12.0, 16.0, KNOWN, late)
    JudgedObjective(state='breached', decided_by='measurement', value_s=78.7)
    >>> judge_objective(15.0, 12.0, 16.0, KNOWN, MeasuredLatency(78.7, 60, 3, 600.0, 400.0, 0, "stale"))
    JudgedObjective(state='at_risk', decided_by='estimate', value_s=12.0)
    >>> judge_objective(15.0, 2.0, 3.0, KNOWN, MeasuredLatency(1.9, 60, 3, 600.0, 400.0, 0, "stale"), is_observed=False)
    JudgedObjective(state='unknown', decided_by='nothing', value_s=2.0)
    >>> judge_objective(15.0, 2.0, math.inf, KNOWN, MeasuredLatency(1.9, 60, 3, 600.0, 4.0, 0, ""))
    JudgedObjective(state='holds', decided_by='measurement', value_s=2.0)
    """
    value_s = measured.value_s if measured.counts else None
    known = [value for value in (value_s, estimate_s) if value is not None]
    if not known:
        return None
    largest = max(known)
    if bound_s is None:
        return JudgedObjective("none", ESTIMATE if value_s is None else MEASUREMENT, largest)
    if value_s is not None and value_s > bound_s:
        return JudgedObjective("breached", MEASUREMENT, largest)
    if estimate_s is None:
        return JudgedObjective("holds", MEASUREMENT, value_s)
    state = bound_state(bound_s, estimate_s, high_s, standing)
    if state == "at_risk" and high_s == math.inf:
        state = "unknown"
    if value_s is None:
        if state == "holds" and not is_observed:
            return JudgedObjective("unknown", NOTHING, estimate_s)
        return JudgedObjective(state, ESTIMATE, estimate_s)
    if state in ("holds", "unknown"):
        return JudgedObjective("holds", MEASUREMENT, value_s if not standing.is_known else largest)
    return JudgedObjective("at_risk", ESTIMATE, largest)
