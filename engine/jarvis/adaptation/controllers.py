"""Controller of one query at one source, whatever the method: what is learned outlives a change of method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from engine.jarvis.adaptation.control import (
    AdaptationDecision,
    ChangeHistory,
    Controller,
    EpochObservation,
    EpochState,
    OperatorEpoch,
    Phase,
    SourceOperator,
    epoch_state,
)
from engine.jarvis.adaptation.method import Method, MethodEpoch, MethodStep, use_in_words
from engine.jarvis.adaptation.operator_models import PipelineModel
from engine.jarvis.adaptation.scalar import LoadFactorPlan, ScalarMethod
from engine.jarvis.baselines import best_op, filter_cut
from engine.jarvis.partition import Frontier
from engine.jarvis.refined_config import RefinedAdaptation
from engine.jarvis.settings import AdaptationSettings

__all__ = ["ADAPTING", "make_controller"]

_WORDS = {
    "fixed": "load factors are set by hand",
    "all-sp": "everything runs at the stream processor",
    "all-src": "everything that may runs at the source",
    "filter-src": "the source filters and nothing else",
}

_MIN_EPOCH_S = 1e-3
_MIN_BUDGET_S = 1e-9  # clocks count no less
_MAX_VALUE = 1e12  # records, bytes or seconds of an epoch that can be


def static_factors(settings: AdaptationSettings, operators: Sequence[SourceOperator]) -> tuple[float, ...]:
    """Load factors of a method that keeps them."""
    count = len(operators)
    if settings.method == "all-src":
        return (1.0,) * count
    if settings.method == "filter-src":
        cut = filter_cut([field.kind for field in operators])
        return (1.0,) * cut + (0.0,) * (count - cut)
    given = settings.load_factors[:count] if settings.method == "fixed" else ()
    return tuple(given) + (0.0,) * (count - len(given))


class StaticMethod:
    """Method that keeps its load factors."""

    z: float | None = None

    def __init__(self, load_factors: tuple[float, ...] = ()) -> None:
        self._load_factors = load_factors

    def step(self, epoch: MethodEpoch) -> MethodStep:
        """Report the state of the epoch; load factors stay."""
        words = f"{use_in_words(epoch.observation)}; {_WORDS[epoch.settings.method]}"
        return MethodStep(self._load_factors, Phase.PROBE, epoch.state, words)


class BestOpMethod(ScalarMethod):
    """Method ``best-op``: learns like `ScalarMethod`, but an operator gets all of its input or nothing."""

    def _plan(self, epoch: MethodEpoch, usable: int, budget_s: float) -> LoadFactorPlan:
        volume, objective = self._volume.planned, epoch.settings.objective
        relay, cost, sizes = epoch.model.inputs(volume)
        counted = sizes[: usable + 1] if objective == "bytes" else None
        cut = best_op(Frontier.of(relay[:usable], cost[:usable], counted), volume, budget_s)
        factors = cut.load_factors + (0.0,) * (len(epoch.load_factors) - usable)
        forecast = epoch.model.forecast(volume, factors, objective)
        return LoadFactorPlan(factors, forecast.cpu_s, forecast.sent, (cut.lo, cut.hi))


#: Methods that change load factors, by the names that settings have for them.
ADAPTING: dict[str, Callable[[], Method]] = {"scalar": ScalarMethod, "best-op": BestOpMethod}


def make_controller(
    settings: AdaptationSettings, operators: Sequence[SourceOperator], prior: RefinedAdaptation | None
) -> Controller:
    """Make the controller of a query; without a prior an adapting one begins at All-SP, which is always correct."""
    return _Adapter(settings, tuple(operators), prior)


class _Adapter:
    """Controller with the model, the history and the method in force."""

    def __init__(
        self, settings: AdaptationSettings, operators: tuple[SourceOperator, ...], prior: RefinedAdaptation | None
    ) -> None:
        self._operators = operators
        self._model, self._history = PipelineModel(operators), ChangeHistory()
        self._number = 0
        self._factors = (0.0,) * len(operators)
        self._phase, self._state, self._reason = Phase.STARTUP, EpochState.STABLE, "no epoch has ended yet"
        self._method: Method = StaticMethod()
        self._settings, self._prior = settings, prior
        self._begin(fresh=True)

    @property
    def load_factors(self) -> tuple[float, ...]:
        return self._factors

    def decide(self, observation: EpochObservation) -> AdaptationDecision:
        """Decide like `Controller.decide`; odd figures of an observation count as nothing."""
        seen = _sane(observation, len(self._operators))
        old = self._factors
        self._model.observe(seen)
        step = self._step(seen, old)
        self._factors = tuple(min(max(p, 0.0), 1.0) for p in step.load_factors)
        self._phase, self._state, self._reason = step.phase, step.state, step.reason
        sent = self._model.sent_per_record(seen)
        self._history.add(seen, step.state, step.reason, old, self._factors, sent)
        self._number += 1
        return AdaptationDecision(self._factors, step.phase, step.state, step.reason, old != self._factors)

    def adopt(self, settings: AdaptationSettings, prior: RefinedAdaptation | None) -> None:
        fresh = settings.method != self._settings.method
        self._settings, self._prior = settings, prior
        self._begin(fresh=fresh)

    def report(self) -> dict[str, Any]:
        return {
            "phase": self._phase.value,
            "state": self._state.value,
            "z": self._method.z,
            "reason": self._reason,
            "stable_epochs": self._history.stable_epochs,
            "moves": self._history.moves,
            "changes": [dict(field) for field in self._history.changes],
        }

    def _begin(self, *, fresh: bool) -> None:
        """Begin with the settings and the prior in force."""
        first = self._number == 0
        if self._prior is not None:
            self._model.seed(self._prior)
        adapting = ADAPTING.get(self._settings.method)
        if adapting is None:
            self._factors = static_factors(self._settings, self._operators)
            self._method = StaticMethod(self._factors)
            return
        if fresh:
            self._method = adapting()
        plan = self._prior.plan_prior if self._prior is not None else None
        if first and plan is not None and len(plan.load_factors) == len(self._operators):
            self._factors = plan.load_factors

    def _step(self, seen: EpochObservation, old: tuple[float, ...]) -> MethodStep:
        state = epoch_state(seen, self._settings)
        if not self._operators:
            return MethodStep((), Phase.PROBE, state, "no operator of this query may run here")
        epoch = MethodEpoch(self._number, seen, state, self._model, self._settings, old)
        if seen.budget_s < _MIN_BUDGET_S and self._settings.method in ADAPTING:
            why = "no CPU time is granted; everything runs at the stream processor"
            return MethodStep((0.0,) * len(old), Phase.PROBE, state, why)
        return self._method.step(epoch)


_NUMBERS = tuple(field.name for field in fields(OperatorEpoch) if field.name != "load_factor")


def _sane(observation: EpochObservation, operators: int) -> EpochObservation:
    """Mend an observation: impossible numbers become 0, and one of another pipeline has no records."""
    seen = observation.operators
    if len(seen) != operators:
        seen = (OperatorEpoch(*(0.0, *(0,) * 9, 0.0)),) * operators
    if any(not _possible(field) for field in seen):
        seen = tuple(_mended(field) for field in seen)
    epoch_s = observation.epoch_s if _MIN_EPOCH_S <= observation.epoch_s < math.inf else 1.0
    return replace(
        observation,
        operators=seen,
        epoch_s=epoch_s,
        budget_s=_number(observation.budget_s),
        used_s=_number(observation.used_s),
    )


def _number(value: float) -> float:
    return value if 0 <= value <= _MAX_VALUE else 0.0


def _possible(epoch: OperatorEpoch) -> bool:
    counts = (epoch.records_in, epoch.processed, epoch.drained, epoch.overflow, epoch.records_out, epoch.groups)
    numbers = (*counts, epoch.bytes_in, epoch.bytes_out, epoch.bytes_drained, epoch.cpu_s)
    return all(0 <= number <= _MAX_VALUE for number in numbers)


def _mended(epoch: OperatorEpoch) -> OperatorEpoch:
    numbers: dict[str, Any] = {name: _number(getattr(epoch, name)) for name in _NUMBERS}
    return replace(epoch, **numbers)
