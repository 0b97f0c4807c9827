"""Strategies and adapting on real agents' runtimes with real CPU budgets, on this machine."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jarvis_source import LINES_S, Agent
from engine.jarvis.settings import Settings

__all__ = ["real"]

_STRATEGIES = ("all-sp", "filter-src", "best-op", "all-src", "stepwise-lp", "scalar")
_ADAPTING = ("stepwise-lp", "scalar", "best-op")
_SHARES = (0.6, 0.8)  # budgets, of what the process takes that runs everything
_CHANGES = ((0.5, 0.9), (0.9, 0.6))
_WARM, _ADAPTS, _LOOKED_AT = 2, 8, 4  # epochs
_CHANGE_EPOCHS = 12
_OVERFLOW = 0.05  # share of records from which on a query is congested, as DrainedThres
_NEAR = 0.05  # of the input, by which what gets through to an operator may differ from the end's
_SETTLED = 3  # epochs in a row
_TIE = 1.05  # between bytes of strategies


@dataclass(frozen=True)
class _Seen:
    """What a strategy did over some epochs, shares of 1."""

    sent: float  #: bytes, of those that came
    overflow: float  #: records, of those that came
    used: float  #: CPU time of operators, of what they could have had


def real(repeats: int, *, quick: bool = False) -> bool:
    """Print what strategies send and how a source follows its budget; False where the order is not the simulation's."""
    shares = _SHARES[:1] if quick else _SHARES
    whole = statistics.median(_whole_cores() for _ in range(repeats))
    print(
        f"\nreal agents on this machine: LogAnalytics, {LINES_S:,} lines/s; running everything takes {whole:.3f} cores"
    )
    print(f"  medians of {repeats}: bytes sent of those that came; records that overflowed; CPU used")
    met = [_compare(share, share * whole, repeats, quick) for share in shares]
    for before, after in _CHANGES[: len(shares)]:
        _follow(before, after, whole, repeats)
    return all(met)


def _whole_cores() -> float:
    """CPU that a process takes which runs everything."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        agent = Agent(Path(name), Settings(method="all-src"), 1.0)
        agent.run(_WARM)
        before_s = time.process_time()
        agent.run(_LOOKED_AT)
        cores = (time.process_time() - before_s) / _LOOKED_AT
        agent.close()
    return cores


def _compare(share: float, cores: float, repeats: int, quick: bool) -> bool:
    """The table of one budget; strategies take turns."""
    found: dict[str, list[_Seen]] = {strategy: [] for strategy in _STRATEGIES}
    for _ in range(repeats):
        for strategy in _STRATEGIES:
            found[strategy].append(_watch(strategy, cores, quick))
    print(f"  budget {100 * share:.0f} % of that, {cores:.3f} cores")
    middle = {strategy: _median(seen) for strategy, seen in found.items()}
    for strategy, seen in middle.items():
        print(
            f"    {strategy:12} sent {100 * seen.sent:5.1f} %   overflow {100 * seen.overflow:5.1f} %   "
            f"CPU used {100 * seen.used:5.1f} %"
        )
    held = {strategy: seen.sent for strategy, seen in middle.items() if seen.overflow <= _OVERFLOW}
    least = min(held, key=lambda strategy: held[strategy])
    met = "scalar" in held and held["scalar"] <= _TIE * held[least]
    print(f"    least bytes without congestion: {least}; scalar {'is' if met else 'is NOT'} within 5 % of that")
    return met


def _watch(strategy: str, cores: float, quick: bool) -> _Seen:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        agent = Agent(Path(name), Settings(method=strategy), cores)
        agent.run(_ADAPTS if strategy in _ADAPTING and not quick else _WARM)
        seen = _seen(agent.run(_LOOKED_AT))
        agent.close()
    return seen


def _seen(rows: Sequence[dict[str, Any]]) -> _Seen:
    records = sum(row["n"] for row in rows)
    return _Seen(
        sent=sum(row["bs"] for row in rows) / sum(row["bi"] for row in rows),
        overflow=sum(row["o"] for row in rows) / records,
        used=sum(row["u"] for row in rows) / max(sum(row["b"] for row in rows), 1e-9),
    )


def _median(seen: Sequence[_Seen]) -> _Seen:
    return _Seen(*(statistics.median(getattr(one, name) for one in seen) for name in ("sent", "overflow", "used")))


def _follow(before: float, after: float, whole: float, repeats: int) -> None:
    """Epochs, one second each, until load factors fit a budget that has changed."""
    epochs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
            agent = Agent(Path(name), Settings(), before * whole)
            agent.run(_ADAPTS)
            agent.grant(after * whole)
            epochs.append(_settling(agent.run(_CHANGE_EPOCHS)))
            agent.close()
    said = ", ".join("never" if one is None else str(one) for one in epochs)
    print(f"  scalar, budget from {100 * before:.0f} to {100 * after:.0f} %: epochs of 1 s until it settled: {said}")


def _settling(rows: Sequence[dict[str, Any]]) -> int | None:
    """Epochs until three in a row run as the last ones do, without congestion."""
    effective = np.cumprod([row["p"] for row in rows], axis=1)
    away = np.abs(effective - np.median(effective[-_LOOKED_AT:], axis=0)).max(axis=1)
    fits = [off <= _NEAR and row["o"] <= _OVERFLOW * row["n"] for off, row in zip(away, rows, strict=True)]
    begins = range(len(fits) - _SETTLED + 1)
    return next((begin for begin in begins if all(fits[begin : begin + _SETTLED])), None)
