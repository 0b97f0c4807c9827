"""Adapting one number: the effective budget along the envelope of operator-level plans.

Costs are learned from ordinary epochs. Where an epoch took more or less than planned, the next plan is made for z times
the budget, z being what was expected over what it took (docs/models/adaptation.md).
"""

from __future__ import annotations

import math

from engine.jarvis.controlling import Phase, QueryState
from engine.jarvis.guards import Failing, Restraint, Volume
from engine.jarvis.observation import EpochObservation
from engine.jarvis.planning import Plan, best_plan, floor_within
from engine.jarvis.stepping import Epoch, Step, moves_in_words, use_in_words

__all__ = ["Scalar"]

_LARGE = 2.0  # times IdleThres: a deviation that is acted on at once
_SMALL_EPOCHS = 2  # that a small deviation lasts before it is acted on
_POLISH_EPOCHS = 4
_GAIN = 0.02  # of the bytes, that a plan must save to be worth a move
_FAR = 0.10  # of z, from which on it is believed at once
_TRIED_RECORDS = 500  # of an operator that is not known, in its first epoch
_TRIED_LEAST, _TRIED_MOST = 0.01, 0.5  # shares of what comes to it
_TRIED_BUDGET = 0.8  # of the budget for what is known, while something is tried
_REVERSAL_EPOCHS = 3


class Scalar:
    """The method ``scalar``."""

    def __init__(self) -> None:
        self.z: float | None = 1.0
        self._volume, self._failing, self._restraint = Volume(), Failing(), Restraint()
        self._odd = 0  # epochs in a row with a small deviation
        self._settled: list[float] = []  # CPU seconds of the stable epochs since the last move
        self._tries = 1.0
        self._last = (0, 0, 0.0, 0.0)  # epoch and direction of the last move, budget and volume of it
        self._vain = (-_POLISH_EPOCHS, 0.0, 0.0)  # epoch, budget and volume when more CPU time was of no use

    def step(self, epoch: Epoch) -> Step:
        """After an epoch with CPU time to be had."""
        self._volume.add(epoch.observation.n_records)
        if not epoch.observation.n_records:
            return Step(epoch.load_factors, Phase.PROBE, QueryState.STABLE, "no records came; what is known is kept")
        self._failing.watch(epoch)
        self._restraint.watch(epoch)
        operators, usable = len(epoch.load_factors), self._usable(epoch)
        if usable == operators:
            self._tries = 1.0
        resting = self._failing.resting(usable, epoch.number) if usable < operators else 0
        if usable < operators and not resting:
            return self._try_out(epoch, usable)
        step = self._adapt(epoch, usable)
        if not resting:
            return step
        name = epoch.model.operators[usable].operator.id
        why = f"{name} left its records though there was CPU time, it rests for {resting} epochs; {step.reason}"
        return Step(step.load_factors, step.phase, step.state, why)

    def _usable(self, epoch: Epoch) -> int:
        """How many operators, from the first on, are known and do not fail."""
        operators = len(epoch.load_factors)
        unknown = next((k for k, one in enumerate(epoch.model.operators) if not one.known), operators)
        return min(unknown, self._failing.first(operators))

    # What is not known yet

    def _try_out(self, epoch: Epoch, k: int) -> Step:
        """Operator `k` gets a small share of what comes to it, the ones before it what they are known to be worth."""
        model, volume = epoch.model, self._volume.planned
        if epoch.load_factors[k] > 0:
            self._tries *= 0.5 if epoch.state is QueryState.CONGESTED else 2.0
        plan = self._plan(epoch, k, _TRIED_BUDGET * epoch.settings.margin * epoch.observation.budget_s)
        comes = volume
        for p, one in zip(plan.load_factors[:k], model.operators, strict=False):
            comes = one.rows(comes * p, model.epoch_s)
        share = min(max(self._tries * _TRIED_RECORDS / max(comes, 1.0), _TRIED_LEAST), _TRIED_MOST)
        after = [1.0] * (len(plan.load_factors) - k - 1)
        for j in range(len(after)):
            if self._failing.resting(k + 1 + j, epoch.number):
                after[j:] = [0.0] * (len(after) - j)
                break
        factors = (*plan.load_factors[:k], share, *after)
        name = model.operators[k].operator.id
        why = f"what {name} costs is not known yet; it is tried with {share:.1%} of its records".replace("%", " %")
        return Step(factors, Phase.PROBE, epoch.state, f"{use_in_words(epoch.observation)}; {why}")

    def _plan(self, epoch: Epoch, usable: int, budget_s: float) -> Plan:
        volume, settings = self._volume.planned, epoch.settings
        floor = floor_within(epoch.model, settings.floor, epoch.observation.budget_s, volume, usable)
        return best_plan(epoch.model, volume, budget_s, floor=floor, objective=settings.objective, usable=usable)

    # What is

    def _adapt(self, epoch: Epoch, usable: int) -> Step:
        observation = epoch.observation
        demand_s = _demand(observation)
        self._correct(epoch, demand_s)
        due = self._due(epoch)
        if held := self._restraint.held(epoch.number):
            return _stay(epoch, epoch.state, f"its plan moved too often and is held for {held} epochs yet")
        if not due:
            return _stay(epoch, QueryState.STABLE if self._in_vain(epoch) else epoch.state)
        if epoch.state is QueryState.STABLE and self._settled:
            demand_s = sum(self._settled) / len(self._settled)
            self._correct(epoch, demand_s)
        plan = self._candidate(epoch, usable)
        now = epoch.model.forecast(self._volume.planned, epoch.load_factors, epoch.settings.objective)
        gain = 1 - plan.sent / now.sent if now.sent > 0 else 0.0
        if epoch.state is QueryState.CONGESTED or observation.overflow or gain >= _GAIN:
            return self._move(epoch, plan, now.cpu_s)
        self._odd = 0
        if epoch.state is QueryState.IDLE:
            self._vain = (epoch.number, observation.budget_s, self._volume.planned)
            return _stay(epoch, QueryState.STABLE, "more CPU time would save hardly any bytes")
        return _stay(epoch, QueryState.STABLE)

    def _correct(self, epoch: Epoch, demand_s: float) -> None:
        """z: what was expected of this epoch over what it took; a small difference is believed by half."""
        observation, settings = epoch.observation, epoch.settings
        expected_s = epoch.model.forecast(observation.n_records, epoch.load_factors).cpu_s
        if expected_s <= 0 or demand_s <= 0:
            return
        z, ratio = self.z or 1.0, expected_s / demand_s
        if abs(ratio / z - 1) <= _FAR:
            ratio = math.sqrt(ratio * z)
        self.z = min(max(ratio, settings.z_least), settings.z_most)

    def _due(self, epoch: Epoch) -> bool:
        """Is it time to look for a better plan: at once, after two epochs, or after four stable ones?"""
        observation, idle_thres = epoch.observation, epoch.settings.idle_thres
        if epoch.state is QueryState.CONGESTED:
            return True
        idle = epoch.state is QueryState.IDLE and observation.n_records >= self._volume.planned / Volume.BURST
        if idle and self._in_vain(epoch):
            return False
        if idle or observation.overflow:
            self._odd += 1
            return self._odd >= _SMALL_EPOCHS or observation.idle_s > _LARGE * idle_thres * observation.budget_s
        self._odd = 0
        self._settled.append(observation.used_s)
        return len(self._settled) % _POLISH_EPOCHS == 0

    def _in_vain(self, epoch: Epoch) -> bool:
        """More CPU time was found to be of no use lately, and nothing has changed since."""
        number, budget_s, volume = self._vain
        alike = _alike(budget_s, epoch.observation.budget_s) and _alike(volume, self._volume.planned)
        return alike and epoch.number - number < _POLISH_EPOCHS

    def _candidate(self, epoch: Epoch, usable: int) -> Plan:
        budget_s = (self.z or 1.0) * epoch.settings.margin * epoch.observation.budget_s
        return self._plan(epoch, usable, budget_s)

    def _move(self, epoch: Epoch, plan: Plan, now_s: float) -> Step:
        """To a better plan; half the way where the last move went the other way under the same conditions."""
        observation = epoch.observation
        number, way, budget_s, volume = self._last
        up = 1 if plan.cpu_s > now_s else -1
        same = _alike(budget_s, observation.budget_s) and _alike(volume, self._volume.planned)
        if way == -up and same and epoch.number - number <= _REVERSAL_EPOCHS and plan.cpu_s > 0 and now_s > 0:
            plan = self._plan(epoch, self._usable(epoch), math.sqrt(plan.cpu_s * now_s))
        self._last = (epoch.number, up, observation.budget_s, self._volume.planned)
        self._odd, self._settled = 0, []
        if plan.load_factors == epoch.load_factors:
            return _stay(epoch, epoch.state)
        self._restraint.moved(epoch.number)
        if (best := self._restraint.hold(epoch.number)) is not None:
            held = self._restraint.held(epoch.number)
            why = (
                f"its plan moved {Restraint.MOVES} times in {Restraint.WITHIN} epochs; the best one is held for {held}"
            )
            return Step(best, Phase.PROBE, epoch.state, f"{use_in_words(observation)}; {why}")
        names = [one.operator.id for one in epoch.model.operators]
        words = moves_in_words(names, epoch.load_factors, plan.load_factors)
        bursts = f"; records come in bursts, planned for {self._volume.planned:,.0f}" if self._volume.bursts else ""
        return Step(plan.load_factors, Phase.ADAPT, epoch.state, f"{use_in_words(observation)}; {words}{bursts}")


def _demand(observation: EpochObservation) -> float:
    """CPU seconds that the epoch would have taken with nothing left over."""
    passed = 1.0
    for one in observation.operators:
        if one.overflow:
            passed *= one.processed / (one.processed + one.overflow)
    return observation.used_s / passed if passed > 0 else observation.used_s


def _alike(before: float, now: float) -> bool:
    return abs(now - before) <= _FAR * max(before, now)


def _stay(epoch: Epoch, state: QueryState, why: str = "") -> Step:
    words = use_in_words(epoch.observation)
    return Step(epoch.load_factors, Phase.PROBE, state, f"{words}; {why}" if why else words)
