"""StepWise-Adapt as published: a linear program first, then one load factor after the other by binary search.

To compare with: a controller finds these methods by their names once this module is imported. What is added is an end:
the published search need not settle, as a step may jump the tolerance.

References
----------
Jarvis, sections IV-C and VI-D; corrections in docs/models/adaptation.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil, log2

from engine.jarvis.adaptation.control import EpochState, Phase
from engine.jarvis.adaptation.controllers import ADAPTING
from engine.jarvis.adaptation.method import MethodEpoch, MethodStep, keep_load_factors, moves_in_words, use_in_words
from engine.jarvis.adaptation.operator_models import MIN_RECORDS
from engine.jarvis.partition import Frontier

__all__ = ["DETECT_EPOCHS", "STEPWISE_METHODS", "RuntimeMachine", "StepWiseMethod"]

DETECT_EPOCHS = 3  # unstable ones in a row, before the paper's runtime profiles: fewer may be scheduling noise
_LEVELS = 100
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 256  # epochs without adapting, after it came to nothing
_SEARCHES = 3  # of each operator, in one go


class RuntimeMachine:
    """The phases of a runtime that profiles: what one epoch was decides what the next one is."""

    def __init__(self) -> None:
        self.phase = Phase.STARTUP
        self._unstable = 0

    def after(self, state: EpochState) -> Phase:
        """Advance by an epoch that ended in this state; returns the phase of the next."""
        if self.phase is Phase.PROFILE:
            self.phase = Phase.ADAPT
        elif self.phase is Phase.STARTUP or (self.phase is Phase.ADAPT and state is EpochState.STABLE):
            self.phase, self._unstable = Phase.PROBE, 0
        elif self.phase is Phase.PROBE:
            self._unstable = 0 if state is EpochState.STABLE else self._unstable + 1
            if self._unstable >= DETECT_EPOCHS:
                self.phase, self._unstable = Phase.PROFILE, 0
        return self.phase

    def give_up(self) -> None:
        """Return to watching, since adaptation reached no stable plan."""
        self.phase, self._unstable = Phase.PROBE, 0


class _StepSearch:
    """Binary search for the highest uncongested level of one load factor."""

    def __init__(self, k: int, low: int, high: int) -> None:
        self.k, self.low, self.high = k, low, high

    @property
    def middle(self) -> int:
        return (self.low + self.high + 1) // 2

    @property
    def over(self) -> bool:
        return self.low >= self.high

    def learn(self, state: EpochState) -> None:
        if state is EpochState.CONGESTED:
            self.high = max(self.middle - 1, self.low)
        else:
            self.low = self.middle


class StepWiseMethod:
    """Methods ``stepwise-lp``, ``stepwise`` (starts from all 0) and ``lp`` (does not fine-tune)."""

    z: float | None = None

    def __init__(self, *, program: bool, tune: bool, levels: int = _LEVELS) -> None:
        self._program, self._tune, self._levels = program, tune, levels  # steps of a load factor
        self._machine = RuntimeMachine()
        self._relay: list[float] = []
        self._search: _StepSearch | None = None
        self._done: set[int] = set()
        self._seen: list[tuple[bool, float, tuple[float, ...]]] = []  # congested, bytes a record, load factors
        self._pause, self._paused_until, self._moves = _FIRST_PAUSE, 0, 0

    def step(self, epoch: MethodEpoch) -> MethodStep:
        """Step by the machine's phase: watch, profile, plan, tune."""
        if not epoch.observation.n_records:
            return keep_load_factors(epoch, EpochState.STABLE, "no records came")
        if epoch.number < self._paused_until:
            left = self._paused_until - epoch.number
            return keep_load_factors(
                epoch, epoch.state, f"adapting did not settle, the best plan seen is held for {left} epochs yet"
            )
        before = self._machine.phase
        phase = self._machine.after(epoch.state)
        if before is Phase.ADAPT and phase is Phase.PROBE:
            self._pause = _FIRST_PAUSE
        if before is Phase.PROFILE:
            return self._plan(epoch)
        if phase is Phase.PROFILE:
            ones = (1.0,) * len(epoch.load_factors)
            words = f"{use_in_words(epoch.observation)}; an epoch of all operators, to see what they cost"
            return MethodStep(ones, phase, epoch.state, words)
        if phase is Phase.ADAPT:
            return self._fine_tune(epoch)
        return keep_load_factors(epoch, epoch.state)

    def _plan(self, epoch: MethodEpoch) -> MethodStep:
        """Plan after the profiling epoch, whose plain ratios count as the operators' costs."""
        relay, cost, sizes = _profiled(epoch)
        self._relay, self._search, self._done, self._seen, self._moves = relay, None, set(), [], 0
        factors: tuple[float, ...] = (0.0,) * len(relay)
        words = "starts from nothing"
        if self._program:
            counted = sizes if epoch.settings.objective == "bytes" else None
            budget_s = epoch.settings.margin * epoch.observation.budget_s
            plan = Frontier.of(relay, cost, counted).at(budget_s, float(epoch.observation.n_records))
            factors, words = _stepped(plan.load_factors, self._levels), "planned by the linear program"
        return MethodStep(factors, Phase.ADAPT, epoch.state, f"profiled; {words}")

    def _fine_tune(self, epoch: MethodEpoch) -> MethodStep:
        congested = epoch.state is EpochState.CONGESTED
        self._seen.append((congested, epoch.model.sent_per_record(epoch.observation), epoch.load_factors))
        most = _SEARCHES * len(epoch.load_factors) * ceil(log2(self._levels))
        if not self._tune or self._moves >= most:
            return self._give_up(epoch)
        search = self._search
        if search is not None:
            search.learn(epoch.state)
            if search.over:
                self._done.add(search.k)
                self._search = None
                level = search.low
                if level != self._level(epoch, search.k):
                    return self._set(epoch, search.k, level)
        if self._search is None:
            self._search = self._next(epoch, congested=congested)
        if self._search is None:
            return self._give_up(epoch)
        return self._set(epoch, self._search.k, self._search.middle)

    def _next(self, epoch: MethodEpoch, *, congested: bool) -> _StepSearch | None:
        """Next operator to tune: the lowest relay ratio that can be raised, or the highest that can be lowered."""
        levels, factors = self._levels, epoch.load_factors
        order = sorted(range(len(factors)), key=lambda k: self._relay[k], reverse=congested)
        for k in order:
            level = self._level(epoch, k)
            if k not in self._done and (level > 0 if congested else level < levels):
                return _StepSearch(k, 0, level - 1) if congested else _StepSearch(k, level, levels)
        return None

    def _level(self, epoch: MethodEpoch, k: int) -> int:
        return round(epoch.load_factors[k] * self._levels)

    def _set(self, epoch: MethodEpoch, k: int, level: int) -> MethodStep:
        old = epoch.load_factors
        new = (*old[:k], level / self._levels, *old[k + 1 :])
        self._moves += 1
        names = [operator.operator.id for operator in epoch.model.operators]
        words = f"{use_in_words(epoch.observation)}; {moves_in_words(names, old, new)}"
        return MethodStep(new, Phase.ADAPT, epoch.state, words)

    def _give_up(self, epoch: MethodEpoch) -> MethodStep:
        """Hold the best plan seen, longer each time."""
        self._machine.give_up()
        best = min(self._seen)[2]
        self._paused_until = epoch.number + self._pause
        words = f"not stable after {self._moves} moves, the best plan seen is held for {self._pause} epochs"
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return MethodStep(best, Phase.PROBE, epoch.state, f"{use_in_words(epoch.observation)}; {words}")


def _profiled(epoch: MethodEpoch) -> tuple[list[float], list[float], list[float]]:
    """Relay, cost and sizes as the profiling epoch showed them; of an operator it did not reach, as known before."""
    relay, cost, sizes = epoch.model.inputs(epoch.observation.n_records)
    for k, (operator, model) in enumerate(zip(epoch.observation.operators, epoch.model.operators, strict=True)):
        if operator.processed >= MIN_RECORDS:
            relay[k] = model.rows(operator.processed, epoch.model.epoch_s) / operator.processed
            cost[k] = operator.cpu_s / operator.processed
    return relay, cost, sizes


def _stepped(factors: Sequence[float], levels: int) -> tuple[float, ...]:
    return tuple(int(p * levels + 1e-9) / levels for p in factors)


#: What settings call them.
STEPWISE_METHODS = {
    "stepwise-lp": partial(StepWiseMethod, program=True, tune=True),
    "stepwise": partial(StepWiseMethod, program=False, tune=True),
    "lp": partial(StepWiseMethod, program=True, tune=False),
}
ADAPTING.update(STEPWISE_METHODS)
