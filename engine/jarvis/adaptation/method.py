"""Method of adaptation: the epoch it is given, the step it answers with, and the words of its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.jarvis.adaptation.control import EpochObservation, EpochState, Phase
from engine.jarvis.adaptation.operator_models import PipelineModel
from engine.jarvis.settings import AdaptationSettings

__all__ = ["Method", "MethodEpoch", "MethodStep", "keep_load_factors", "moves_in_words", "use_in_words"]

_NAMED = 2  # load factors that a sentence names


@dataclass(frozen=True, slots=True)
class MethodEpoch:
    """An epoch that has ended, as a method sees it: records came, and CPU time could be had."""

    number: int  #: epochs before it
    observation: EpochObservation
    state: EpochState
    model: PipelineModel  #: which has learned from it
    settings: AdaptationSettings
    load_factors: tuple[float, ...]  #: that it ran with


@dataclass(frozen=True, slots=True)
class MethodStep:
    """Step of a method: load factors, phase and state of the next epoch."""

    load_factors: tuple[float, ...]
    phase: Phase
    state: EpochState
    reason: str


class Method(Protocol):
    """Method of adaptation."""

    z: float | None  #: effective budget over budget, where it has one

    def step(self, epoch: MethodEpoch) -> MethodStep:
        """Answer an epoch with records and CPU time."""


def moves_in_words(names: Sequence[str], old: Sequence[float], new: Sequence[float]) -> str:
    """Words for changed load factors: two by name, the others by their number.

    Examples
    --------
    >>> moves_in_words(["filter", "join"], [1.0, 0.6], [1.0, 0.71])
    'load factor of join raised from 0.60 to 0.71'
    >>> moves_in_words(["a", "b", "c", "d"], [0, 0, 0, 0], [1, 1, 1, 1])
    'load factor of a raised from 0 to 1, of b raised from 0 to 1 and 2 more'
    """
    words = [
        _move_words(name, before, after) for name, before, after in zip(names, old, new, strict=True) if before != after
    ]
    if not words:
        return "load factors stay"
    if len(words) > _NAMED:
        return f"load factor {', '.join(words[:_NAMED])} and {len(words) - _NAMED} more"
    return f"load factor {', '.join(words)}"


def _move_words(name: str, before: float, after: float) -> str:
    precision = ".3g" if min(before, after) < 0.1 else ".2f"
    if after > before:
        return f"of {name} raised from {before:{precision}} to {after:{precision}}"
    return f"of {name} lowered from {before:{precision}} to {after:{precision}}"


def use_in_words(observation: EpochObservation) -> str:
    """Words for the used share of the budget, and for overflow.

    Examples
    --------
    >>> use_in_words(EpochObservation(0, 1.0, (), budget_s=0.2, used_s=0.184))
    'used 92 % of 0.20 cores'
    >>> use_in_words(EpochObservation(0, 1.0, (), budget_s=0.003, used_s=0.0042))
    'used 140 % of 0.003 cores'
    """
    cores = observation.budget_s / observation.epoch_s
    used = observation.used_s / observation.budget_s if observation.budget_s > 0 else 0.0
    words = f"used {used:.0%} of {cores:.{2 if cores >= 0.1 else 3}f} cores".replace("%", " %")
    if observation.overflow and observation.n_records:
        share = observation.overflow / observation.n_records
        words += f", {share:.1%} of the records overflowed".replace("%", " %")
    return words


def keep_load_factors(epoch: MethodEpoch, state: EpochState, why: str = "") -> MethodStep:
    """Step that keeps the load factors."""
    words = use_in_words(epoch.observation)
    return MethodStep(epoch.load_factors, Phase.PROBE, state, f"{words}; {why}" if why else words)
