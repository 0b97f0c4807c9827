"""Contenders of the benchmark of predictions: flat baselines and networks, trained on the same traces, and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.costream.network import CostNetwork
from engine.costream.prediction import COSTS, Ensemble
from engine.costream.weights import Member
from lab.benchmarks.costream_baselines import FlatModel
from lab.training.costream import fit_members
from lab.training.dataset import TraceSet
from lab.training.evaluation import cost_errors, evaluate_networks
from lab.training.fit import FitSettings

__all__ = ["Contender", "Sizes", "ensemble_contender", "flat_contenders", "network_contender", "print_errors"]

Outputs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmark; traces where nothing else is said.

    `contested` counts queries of each type, `attempts` those that are drawn for them.
    """

    training: int
    validation: int
    test: int
    floor: int
    unseen: int
    restricted: int
    tuning: tuple[int, ...]
    epochs: int
    short_epochs: int
    seeds: tuple[int, ...]
    contested: int
    attempts: int
    startup: int


@dataclass(frozen=True)
class Contender:
    """A trained model: members' outputs (m, n, 11) of n traces; the parameters of its networks, where it has any."""

    name: str
    outputs: Callable[[TraceSet], Outputs]
    members: tuple[Member, ...] = ()
    scale: Mapping[str, float] | None = None

    def errors(self, traces: TraceSet) -> dict[str, Any]:
        """Errors on labelled traces (`training.evaluation.cost_errors`)."""
        return cost_errors(self.outputs(traces), traces, self.scale)


def flat_contenders(kinds: Sequence[str], training: TraceSet) -> list[Contender]:
    """Flat baselines."""
    return [Contender(f"flat, {kind}", FlatModel(kind, training).outputs) for kind in kinds]


def network_contender(
    name: str,
    training: TraceSet,
    validation: TraceSet,
    settings: FitSettings,
    seeds: Sequence[int],
    processes: int,
) -> Contender:
    """Networks of the given seeds, as one ensemble."""
    jobs = [(settings, seed) for seed in seeds]
    members = tuple(dict(fit.parameters) for fit in fit_members(training, validation, jobs, processes=processes))
    return members_contender(name, members, settings.form)


def members_contender(
    name: str, members: Sequence[Member], form: str, scale: Mapping[str, float] | None = None
) -> Contender:
    """An ensemble of given parameters."""
    networks = [CostNetwork(member, form) for member in members]
    return Contender(name, lambda traces: evaluate_networks(networks, traces, form), tuple(members), scale)


def ensemble_contender(name: str, ensemble: Ensemble) -> Contender:
    """An ensemble with its card."""
    return members_contender(name, ensemble.members, ensemble.card.form, ensemble.card.interval_scale)


def print_errors(title: str, rows: Sequence[tuple[str, Mapping[str, Any]]], *, hard: bool = False) -> None:
    """A table of errors: q0.5/q0.95 per cost, and balanced accuracies in per cent; of the hard traces with `hard`."""
    columns = "".join(f"{cost:>17}" for cost in COSTS)
    print(f"\n{title}\n  {'':34}{columns}" + ("" if hard else f"{'RO':>8}{'S':>8}"))
    for name, errors in rows:
        parts = [errors[cost]["hard"] if hard else errors[cost] for cost in COSTS]
        cells = "".join(f"{_pair(part):>17}" for part in parts)
        votes = "" if hard else "".join(f"{100 * errors[vote]['balanced_accuracy']:8.1f}" for vote in ("RO", "S"))
        print(f"  {name:34}{cells}{votes}", flush=True)


def _pair(part: Mapping[str, Any]) -> str:
    if part["q50"] is None:
        return "too few"
    return f"{part['q50']:.3f}/{part['q95']:.2f}" if part["q95"] < 1e4 else f"{part['q50']:.3f}/{part['q95']:.0e}"
