"""Calibration: cycles per second of one core of this machine, in the unit the models count in.

A cycle here is one cycle of the core at the clock it really runs at under load. It is measured by a chain of dependent
integer additions and exclusive-ors: every step has to wait for the one before, and such a step takes one cycle on the
processors of the last decades (x86-64 and 64-bit ARM), whatever their width. Steps per second of CPU time are therefore
cycles per second, without privileged counters and without trusting the nominal frequency. CPU time, not wall time, is
the base, so other processes on the machine do not lower the figure.

Limits: it says nothing about memory or vector units, and where a hypervisor throttles a virtual core its CPU time is
stretched with it. Costs measured as CPU seconds per event times this figure are consistent with it by construction.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from engine.compiler import compiled
from engine.solvers import solving

__all__ = ["Calibration", "calibrate", "nominal_cps"]

_STEPS_PER_ROUND = 8  # dependent one-cycle steps in a round of `_chain`
_MIN_S, _MAX_S = 0.05, 60.0


@dataclass(frozen=True)
class Calibration:
    """A measured capacity: cycles/s of one core, the cores this process may use, how, and for how many seconds."""

    capacity_cps: float
    cores: int
    method: str
    seconds: float


def calibrate(seconds: float = 2.0) -> Calibration:
    """Measure one core for about `seconds` of CPU time.

    Parameters
    ----------
    seconds : float
        From 0.05 to 60.

    Returns
    -------
    Calibration
        `capacity_cps` is the median over about twenty equal parts of the measurement.

    Raises
    ------
    ValueError
        If `seconds` is outside its range.
    """
    solving()
    if not _MIN_S <= seconds <= _MAX_S:
        raise ValueError(f"seconds is {seconds:g}; allowed: {_MIN_S:g} to {_MAX_S:g}")
    rounds = _rounds_for(seconds / 20)
    rates: list[float] = []
    spent = 0.0
    while spent < seconds:
        taken = _timed(rounds)
        spent += taken
        rates.append(rounds * _STEPS_PER_ROUND / taken)
    nominal = nominal_cps()
    said = f"; the system states {nominal / 1e9:.2f} GHz" if nominal else ""
    method = f"chain of dependent integer steps, one cycle each, per second of CPU time, median of {len(rates)}{said}"
    return Calibration(statistics.median(rates), _cores(), method, spent)


def nominal_cps() -> float | None:
    """The clock that /proc/cpuinfo states, in cycles/s, where there is one."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    values = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return 1e6 * statistics.median(values) if values else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rounds_for(seconds: float) -> int:
    """Rounds that take about `seconds`; also compiles and warms up."""
    _timed(1000)
    rounds = 100_000
    while (taken := _timed(rounds)) < seconds / 4:
        rounds *= 2
    return max(1, int(rounds * seconds / taken))


def _timed(rounds: int) -> float:
    start = time.process_time()
    _chain(rounds, 1)
    return max(time.process_time() - start, 1e-9)


@compiled
def _chain(rounds: int, value: int) -> int:
    """Eight steps a round; additions and exclusive-ors alternate so that no compiler can merge them."""
    for i in range(rounds):
        value = (value + i) ^ 0x5BD1
        value = (value + i) ^ 0x1B87
        value = (value + i) ^ 0x2545
        value = (value + i) ^ 0x4F6C
    return value
