"""Sums of how costs and arrivals vary at this agent, taken once in an epoch."""

from __future__ import annotations

from dataclasses import astuple

from engine.measurement.variation import ARRIVAL_STEPS_S, CountSums, add_counts, pair_sums

__all__ = ["RunCosts", "StepCounts"]

_WARM_UP_RUNS = 8  # of an operator: they load what later ones find
_LONGEST = 1.5  # of a step's width: a step that is longer is none of its kind


class RunCosts:
    """Sums over an operator's runs, without its first few."""

    def __init__(self) -> None:
        self._warming = _WARM_UP_RUNS
        self._sums = [0.0] * 6

    def add(self, records: int, cpu_ns: int) -> None:
        """It ran."""
        if self._warming:
            self._warming -= 1
            return
        t = cpu_ns / 1e9
        for i, more in enumerate((1, records, t, records * records, records * t, t * t)):
            self._sums[i] += more

    def take(self) -> list[float]:
        """Sums since the last call, those of `agent.wire.COST_SUMS`; empty without runs."""
        sums, self._sums = self._sums, [0.0] * 6
        return sums if sums[0] else []


class StepCounts:
    """Sums over pairs of neighbouring steps of a source, counted by the times at which it was polled.

    A step begins and ends with a poll that emptied the source; one that did not tells how much was taken, not how much
    came, and neither does the next one.
    """

    def __init__(self) -> None:
        self._polled_us: int | None = None  # the last time, if that emptied it
        self._scales = [_Scale(width_s) for width_s in ARRIVAL_STEPS_S]

    def count(self, now_us: int, records: int, *, emptied: bool) -> None:
        """A poll gave so many records."""
        before_us, self._polled_us = self._polled_us, now_us if emptied else None
        for scale in self._scales:
            if before_us is None or not emptied:
                scale.begin(now_us)
            else:
                scale.count(now_us, records, (now_us - before_us) / 1e6)

    def take(self) -> list[float]:
        """Sums since the last call, those of `agent.wire.ARRIVAL_SUMS`; empty without pairs."""
        sums = [value for scale in self._scales for value in astuple(scale.take())]
        return sums if any(sums) else []


class _Scale:
    """Steps of about one width."""

    def __init__(self, width_s: float) -> None:
        self._width_s, self._sums = width_s, CountSums()
        self.begin(0)

    def begin(self, now_us: int) -> None:
        """Begin anew: what was before is no neighbour."""
        self._since_us, self._records = now_us, 0
        self._before: tuple[int, float] | None = None

    def count(self, now_us: int, records: int, poll_s: float) -> None:
        self._records += records
        length_s = (now_us - self._since_us) / 1e6
        if length_s + poll_s / 2 < self._width_s:
            return
        step = self._records, length_s
        if not 0.0 < length_s <= _LONGEST * self._width_s:
            self.begin(now_us)
            return
        if self._before is not None:
            self._sums = add_counts([self._sums, pair_sums(*self._before, *step)])
        self._since_us, self._records, self._before = now_us, 0, step

    def take(self) -> CountSums:
        sums, self._sums = self._sums, CountSums()
        return sums
