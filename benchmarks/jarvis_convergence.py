"""Epochs until load factors fit again after the paper's six changes (figures 13 to 15), simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.jarvis.controllers import controller
from engine.jarvis.settings import Settings
from engine.jarvis.simulation import (
    CHANGES,
    LAWS,
    Change,
    Query,
    Run,
    Stretch,
    least_bytes,
    simulate,
)

__all__ = ["DEFAULT", "METHODS", "MOST_OVER_LEAST", "PERCENT", "convergence", "margins", "run_under", "verdict"]

METHODS = ("scalar", "stepwise-lp", "stepwise", "lp")
DEFAULT = "scalar"
_MOST_EPOCHS, _MOST_EPOCHS_OF = 2.0, {"T2T 10 to 100 %": 3.0}  # medians, detection included
MOST_OVER_LEAST = 1.15
_MARGINS, _MOST_OVER_LEAST_AT_98 = (0.90, 0.95, 0.98), 1.10
PERCENT = "15 % over the least"
_STEADY = 20  # last epochs of a change, over which bytes count


@dataclass(frozen=True)
class _Outcome:
    """A method after a change, over all seeds."""

    epochs: tuple[int | None, ...]  #: until three stable ones begin; None: never
    over_least: float  #: bytes, the median
    moves: float  #: the median

    @property
    def median(self) -> float:
        return float(np.median([np.inf if one is None else one for one in self.epochs]))

    def __str__(self) -> str:
        settled = [one for one in self.epochs if one is not None]
        never = len(self.epochs) - len(settled)
        median = f"{self.median:g}" if np.isfinite(self.median) else "never"
        most = f"{never} never" if never else f"{max(settled)}"
        return f"{median}, {most}; x{self.over_least:.2f}, {self.moves:g}"


def convergence(seeds: int) -> bool:
    """Print all methods after all changes; False where the default misses a target."""
    missed: list[str] = []
    for law in LAWS:
        print(f"\nconvergence, simulated, {law} cost law, {seeds} seeds: epochs from the change to three stable ones")
        print("(median, maximum); bytes over the least possible, load factors moved (medians)")
        print(f"  {'change':20}" + "".join(f"{method:>24}" for method in METHODS))
        for change in CHANGES:
            found = {method: _after(change, method, law, seeds) for method in METHODS}
            print(f"  {change.name:20}" + "".join(f"{found[method]!s:>24}" for method in METHODS))
            missed += [f"{law}, {change.name}: {what}" for what in _missed(change, found[DEFAULT])]
    print(f"  {DEFAULT}: medians of 2 epochs (T2T 10 to 100 %: 3), {PERCENT}: {verdict(missed)}")
    return not missed


def _missed(change: Change, found: _Outcome) -> list[str]:
    epochs = [f"{found.median:g} epochs"] if found.median > _MOST_EPOCHS_OF.get(change.name, _MOST_EPOCHS) else []
    return epochs + ([f"x{found.over_least:.2f}"] if found.over_least > MOST_OVER_LEAST else [])


def verdict(missed: Sequence[str]) -> str:
    return f"MISSED by {'; '.join(missed)}" if missed else "met"


def _after(change: Change, method: str, law: str, seeds: int) -> _Outcome:
    runs = [run_under(change.query, change.schedule, Settings(method=method), seed, law) for seed in range(seeds)]
    return _Outcome(
        epochs=tuple(run.epochs_to_stable(change.at) for run in runs),
        over_least=float(np.median([run.over_least(-_STEADY) for run in runs])),
        moves=float(np.median([run.moved[change.at :].sum() for run in runs])),
    )


def run_under(
    query: Query, schedule: Sequence[Stretch], settings: Settings, seed: int, law: str, *, dips: float = 0.0
) -> Run:
    return simulate(query, controller(settings, query.source_operators(), None), schedule, seed, law, dips)


def margins(seeds: int) -> bool:
    """Print what the default's margin costs in bytes after each change; False where 0.98 misses its target."""
    print(
        f"\nbytes over the least possible after each change by margin, {DEFAULT}, simulated, {seeds} seeds (medians);"
    )
    print("in brackets the least possible with so much of the budget: what the margin alone costs")
    print(f"  {'change':20}" + "".join(f"{margin:>16}" for margin in _MARGINS))
    worst = 1.0
    for change in CHANGES:
        over = [_over_least(change, Settings(margin=margin), seeds) for margin in _MARGINS]
        worst = max(worst, over[-1])
        cells = [f"x{one:.2f} (x{_alone(change, margin):.2f})" for one, margin in zip(over, _MARGINS, strict=True)]
        print(f"  {change.name:20}" + "".join(f"{cell:>16}" for cell in cells))
    met = worst <= _MOST_OVER_LEAST_AT_98
    print(f"  margin {_MARGINS[-1]}: {'meets' if met else 'MISSES'} 10 % over the least (x{worst:.2f})")
    return met


def _over_least(change: Change, settings: Settings, seeds: int) -> float:
    runs = [run_under(change.query, change.schedule, settings, seed, LAWS[0]) for seed in range(seeds)]
    return float(np.median([run.over_least(-_STEADY) for run in runs]))


def _alone(change: Change, margin: float) -> float:
    """Least bytes with this share of the budget after a change, over those with all of it."""
    true, records_s = change.after.at(change.query)
    cores = change.after.cores
    return least_bytes(true, records_s, margin * cores) / least_bytes(true, records_s, cores)
