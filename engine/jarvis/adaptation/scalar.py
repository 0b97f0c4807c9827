"""Adaptation of one number: the effective budget along the envelope of operator-level plans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine.jarvis.adaptation.control import EpochState, Phase
from engine.jarvis.adaptation.guards import (
    Conditions,
    FailingOperators,
    ObtainableBudget,
    Polish,
    Restraint,
    Swings,
    Volume,
)
from engine.jarvis.adaptation.method import (
    MethodEpoch,
    MethodStep,
    keep_load_factors,
    moves_in_words,
    use_in_words,
)
from engine.jarvis.adaptation.operator_models import MIN_RECORDS, PipelineModel
from engine.jarvis.partition import Frontier, shares
from engine.words import counted

__all__ = ["LoadFactorPlan", "ScalarMethod"]

_FLOOR_SHARE = 0.05  # of the budget that the floor may cost
_ROUNDS = 2  # groups law: costs depend on the load, and the load on the costs
_HALVINGS = 12
_NEAR = 1e-3  # of the budget
_OVER = 0.01  # of the budget, that a plan may cost more and still be kept

_LARGE = 2.0  # times IdleThres: a deviation that is acted on at once
_LOW = 0.4  # of IdleThres below the margin: a small deviation
_ODD_EPOCHS = 2  # that a small deviation lasts before it is acted on
_POLISH_EPOCHS = 4
_JUDGED_EPOCHS = 16  # quiet ones at most, by whose mean a plan is polished
_NOISE = 0.01  # of the budget, by which the mean may be off without a move
_REVERSAL_EPOCHS = 3
_TRIED_RECORDS = 500  # of an operator that is not known, in its first epoch
_MIN_TRIED, _TRIED_MOST = 0.01, 0.5  # shares of what comes to it
_TRIED_BUDGET = 0.8  # of the budget for what is known, while something is tried


@dataclass(frozen=True, slots=True)
class LoadFactorPlan:
    """Load factors and what they are expected to lead to in an epoch."""

    load_factors: tuple[float, ...]
    cpu_s: float
    sent: float  #: bytes, or records drained
    cuts: tuple[int, int]  #: the operator-level plans that it mixes (lo, hi)


def with_floor(lo: int, hi: int, theta: float, floor: float, operators: int) -> tuple[float, ...]:
    """Load factors of a plan of which the share `floor` of the input runs the whole pipeline instead.

    Examples
    --------
    >>> with_floor(1, 1, 0.0, 0.01, 3)
    (1.0, 0.01, 1.0)
    """
    plain, effective = shares(lo, hi, theta, operators)
    if floor <= 0:
        return plain
    factors, before = [], 1.0
    for e in effective:
        now = floor + (1 - floor) * e
        factors.append(min(now / before, 1.0))
        before = now
    return tuple(factors)


@dataclass(frozen=True, slots=True)
class Ask:
    """Conditions of a plan: the expected epoch and the objective."""

    n_records: float  #: above 0
    budget_s: float  #: CPU seconds, above 0
    usable: int  #: leading operators that are known; the others get nothing
    floor: float  #: share of the input that runs all usable operators
    objective: str  #: bytes or records


def floor_within(model: PipelineModel, floor: float, budget_s: float, n_records: float, usable: int) -> float:
    """The floor, less where it would cost more than 5 % of the budget."""
    if floor <= 0 or budget_s <= 0:
        return 0.0
    factors = (floor, *(1.0,) * (usable - 1)) if usable else ()
    cost_s = model.forecast(n_records, _whole(model, factors)).cpu_s
    return floor if cost_s <= _FLOOR_SHARE * budget_s else floor * _FLOOR_SHARE * budget_s / cost_s


def _whole(model: PipelineModel, factors: tuple[float, ...]) -> tuple[float, ...]:
    return factors + (0.0,) * (len(model.operators) - len(factors))


def best_plan(
    model: PipelineModel, ask: Ask, *, keep: tuple[int, int] | None = None, bar: float = 0.0
) -> LoadFactorPlan:
    """The plan that sends least within the budget, by the model.

    Cuts to `keep` stay unless others send less by more than the share `bar`.
    """
    best = min(_candidates(model, ask), key=lambda plan: plan.sent)
    if keep is None or keep == best.cuts or keep[1] > ask.usable:
        return best
    kept = _filled(model, ask, keep, 0.5)
    return best if kept.cpu_s > (1 + _OVER) * ask.budget_s or best.sent < (1 - bar) * kept.sent else kept


def _candidates(model: PipelineModel, ask: Ask) -> Iterator[LoadFactorPlan]:
    """Plans by costs at the whole input, then at the load of the plan that these give."""
    effective: tuple[float, ...] | None = None
    tried: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        relay, cost, sizes = model.inputs(ask.n_records, effective)
        counted = sizes[: ask.usable + 1] if ask.objective == "bytes" else None
        frontier = Frontier.of(relay[: ask.usable], cost[: ask.usable], counted)
        partition = frontier.at(ask.budget_s, ask.n_records)
        pair = (partition.lo, partition.hi)
        if pair in tried:
            return
        tried.add(pair)
        yield _filled(model, ask, pair, partition.theta)
        runs = (max(e, 1e-6) if k < partition.hi else 1.0 for k, e in enumerate(partition.effective))
        effective = (*runs, *(1.0,) * (len(model.operators) - ask.usable))


def _filled(model: PipelineModel, ask: Ask, pair: tuple[int, int], theta: float) -> LoadFactorPlan:
    """The plan between two cuts that takes the whole budget, costs taken at its own load."""
    lo, hi = pair

    def plan(share: float) -> LoadFactorPlan:
        factors = _whole(model, with_floor(lo, hi, share, ask.floor, ask.usable))
        forecast = model.forecast(ask.n_records, factors, ask.objective)
        return LoadFactorPlan(factors, forecast.cpu_s, forecast.sent, pair)

    if lo == hi:
        return plan(theta)
    budget_s = ask.budget_s
    if (whole := plan(1.0)).cpu_s <= (1 + _NEAR) * budget_s:
        return whole
    low, high, least_s, best = 0.0, 1.0, plan(0.0).cpu_s, plan(theta)
    for _ in range(_HALVINGS):
        if abs(best.cpu_s - budget_s) <= _NEAR * budget_s:
            break
        low, high = (theta, high) if best.cpu_s < budget_s else (low, theta)
        guess = theta * (budget_s - least_s) / (best.cpu_s - least_s) if best.cpu_s > least_s else 1.0
        theta = guess if low < guess < high else (low + high) / 2
        best = plan(theta)
    return best


_NEVER = Conditions(-_POLISH_EPOCHS, -1.0, -1.0)


class ScalarMethod:
    """Method ``scalar``: the effective budget is the only number adapted."""

    def __init__(self) -> None:
        self.z: float | None = 1.0
        self._volume, self._failing, self._swings = Volume(), FailingOperators(), Swings()
        self._restraint, self._polish, self._obtainable = Restraint(), Polish(), ObtainableBudget()
        self._cuts: tuple[int, int] | None = None  # that the plan in force mixes
        self._uses: list[float] = []  # shares of the budget that epochs took, by which the next look judges
        self._odd = self._quiet = 0  # epochs in a row with a small deviation, and without one
        self._tries, self._trying = 1.0, False
        self._vain = self._moved = _NEVER  # when more CPU time was of no use, and when the plan moved last
        self._way = 0  # of that move: 1 to more CPU time, -1 to less

    def step(self, epoch: MethodEpoch) -> MethodStep:
        """Answer an epoch with obtainable CPU time."""
        self._volume.add(epoch.observation.n_records)
        if not epoch.observation.n_records:
            return MethodStep(
                epoch.load_factors, Phase.PROBE, EpochState.STABLE, "no records came; what is known is kept"
            )
        self._failing.watch(epoch)
        if (suspect := self._failing.suspect) is not None and self._usable(epoch) == len(epoch.load_factors):
            name = epoch.model.operators[suspect].operator.id
            return keep_load_factors(
                epoch, epoch.state, f"{name} left all of its records though there was CPU time; watched"
            )
        waits = self._swings.add(epoch.number, epoch.observation.budget_s)
        epoch = self._obtainable.add(epoch)
        here = self._conditions(epoch)
        self._restraint.watch(epoch, here)
        undo = self._polish.watch(epoch, here)
        operators, usable = len(epoch.load_factors), self._usable(epoch)
        if waits and undo is None:
            return keep_load_factors(
                epoch, epoch.state, f"swings of the budget were short lately; {counted(waits, 'epoch')} more to see"
            )
        if usable == operators:
            self._tries = 1.0
            if undo is not None and epoch.state is not EpochState.CONGESTED:
                return self._undo(epoch, *undo)
            return self._adapt(epoch, usable)
        if not (resting := self._failing.resting(usable, epoch.number)):
            return self._try_out(epoch, usable)
        step = self._without(epoch, usable) if epoch.load_factors[usable] > 0 else self._adapt(epoch, usable)
        name = epoch.model.operators[usable].operator.id
        again = counted(resting, "epoch")
        why = f"{name} left its records though there was CPU time; tried again in {again}; {step.reason}"
        return MethodStep(step.load_factors, step.phase, step.state, why)

    def _without(self, epoch: MethodEpoch, usable: int) -> MethodStep:
        """Step at once without the operators from `usable` on."""
        plan = self._plan(epoch, usable, epoch.settings.margin * epoch.observation.budget_s)
        self._cuts, self._odd, self._quiet, self._uses = plan.cuts, 0, 0, []
        return MethodStep(plan.load_factors, Phase.ADAPT, epoch.state, self._words(epoch, plan))

    def _usable(self, epoch: MethodEpoch) -> int:
        """Number of leading operators that are known and do not fail."""
        operators = len(epoch.load_factors)
        unknown = next((k for k, operator in enumerate(epoch.model.operators) if not operator.known), operators)
        return min(unknown, self._failing.first(operators))

    def _conditions(self, epoch: MethodEpoch) -> Conditions:
        return Conditions(epoch.number, epoch.observation.budget_s, self._volume.planned)

    def _plan(self, epoch: MethodEpoch, usable: int, budget_s: float) -> LoadFactorPlan:
        volume, settings = self._volume.planned, epoch.settings
        floor = floor_within(epoch.model, settings.floor, epoch.observation.budget_s, volume, usable)
        ask = Ask(volume, budget_s, usable, floor, settings.objective)
        return best_plan(epoch.model, ask, keep=self._cuts, bar=self._polish.bar)

    # What is not known yet

    def _try_out(self, epoch: MethodEpoch, k: int) -> MethodStep:
        """Try operator `k` with a small share of its input, and those before it with the known best."""
        model, self._trying = epoch.model, True
        if epoch.load_factors[k] > 0:
            self._tries *= 0.5 if epoch.state is EpochState.CONGESTED else 2.0
        plan = self._plan(epoch, k, _TRIED_BUDGET * epoch.settings.margin * epoch.observation.budget_s)
        comes = self._volume.planned
        for p, operator in zip(plan.load_factors[:k], model.operators, strict=False):
            comes = operator.rows(comes * p, model.epoch_s)
        before, few = plan.load_factors[:k], comes < 2 * MIN_RECORDS
        if few:  # the operators before it are worth little by themselves: all are tried
            before, comes = (1.0,) * k, self._volume.planned
        share = min(max(self._tries * _TRIED_RECORDS / max(comes, 1.0), _MIN_TRIED), _TRIED_MOST)
        after = [1.0] * (len(plan.load_factors) - k - 1)
        for j in range(len(after)):
            if self._failing.resting(k + 1 + j, epoch.number):
                after[j:] = [0.0] * (len(after) - j)
                break
        operator = model.operators[k]
        before_now = (
            f"{operator.operator.id} failed"
            if operator.known
            else f"what {operator.operator.id} costs is not known yet"
        )
        why = f"{before_now}; it is tried with {share:.1%} of its records".replace("%", " %")
        factors = (share, *before, *after) if few else (*before, share, *after)
        return MethodStep(factors, Phase.PROFILE, epoch.state, f"{use_in_words(epoch.observation)}; {why}")

    # What is

    def _adapt(self, epoch: MethodEpoch, usable: int) -> MethodStep:
        due, tried, self._trying = self._due(epoch), self._trying, False
        if held := self._restraint.held(epoch.number):
            return keep_load_factors(
                epoch, epoch.state, f"its plan moved too often and is held for {counted(held, 'epoch')} yet"
            )
        if epoch.state is EpochState.IDLE and self._between_bursts(epoch):
            return keep_load_factors(
                epoch, EpochState.STABLE, f"planned for bursts of {self._volume.planned:,.0f} records"
            )
        if not (due or tried):
            return keep_load_factors(epoch, EpochState.STABLE if self._in_vain(epoch) else epoch.state)
        uses = self._uses or [epoch.observation.used_s / epoch.observation.budget_s]
        use, margin = sum(uses) / len(uses), epoch.settings.margin
        if self._odd:
            self._odd, self._uses = 0, []
        self._correct(epoch, use)
        plan = self._plan(epoch, usable, (self.z or 1.0) * margin * epoch.observation.budget_s)
        now = epoch.model.forecast(self._volume.planned, epoch.load_factors, epoch.settings.objective)
        gain = 1 - plan.sent / now.sent if now.sent > 0 else 0.0
        tight = epoch.state is EpochState.CONGESTED or use > (1 + margin) / 2
        other = plan.cuts != self._cuts or abs(use - margin) > _NOISE
        if tight or tried or (other and gain >= Polish.LEAST):
            return self._move(epoch, usable, plan, now.cpu_s)
        if epoch.state is EpochState.IDLE:
            self._vain = self._conditions(epoch)
            return keep_load_factors(epoch, EpochState.STABLE, "more CPU time would save hardly any bytes")
        return keep_load_factors(epoch, EpochState.STABLE)

    def _due(self, epoch: MethodEpoch) -> bool:
        """Whether to look for a better plan: at once, after two odd epochs, or after four quiet ones."""
        observation, settings = epoch.observation, epoch.settings
        use, idle = observation.used_s / observation.budget_s, epoch.state is EpochState.IDLE
        if epoch.state is EpochState.CONGESTED:
            self._uses = [use]
            return True
        if self._between_bursts(epoch) or (idle and self._in_vain(epoch)):
            return False
        if idle and use < 1 - _LARGE * settings.idle_thres:
            self._uses = [use]
            return True
        low = use < settings.margin - _LOW * settings.idle_thres and min(epoch.load_factors) < 1
        odd = idle or low or observation.overflow > 0
        if odd != bool(self._odd):
            self._uses = []
        self._odd = self._odd + 1 if odd else 0
        self._uses = [*self._uses[1 - _JUDGED_EPOCHS :], use]
        self._quiet = 0 if odd else self._quiet + 1
        return self._odd >= _ODD_EPOCHS or (self._quiet > 0 and self._quiet % _POLISH_EPOCHS == 0)

    def _between_bursts(self, epoch: MethodEpoch) -> bool:
        return epoch.observation.n_records * Volume.BURST < self._volume.planned

    def _in_vain(self, epoch: MethodEpoch) -> bool:
        """Whether more CPU time was of no use recently, and conditions have not changed since."""
        return epoch.number - self._vain.number < _POLISH_EPOCHS and self._vain.like(self._conditions(epoch))

    def _correct(self, epoch: MethodEpoch, use: float) -> None:
        """Correct z: expected CPU time of the processed records over the time they took."""
        seen, settings = epoch.observation.operators, epoch.settings
        expected_s = sum(
            model.cpu_s(operator.processed) for model, operator in zip(epoch.model.operators, seen, strict=True)
        )
        if expected_s > 0 and use > 0:
            z = expected_s / (use * epoch.observation.budget_s)
            self.z = min(max(z, settings.z_least), settings.z_most)

    def _move(self, epoch: MethodEpoch, usable: int, plan: LoadFactorPlan, now_s: float) -> MethodStep:
        """Move to a better plan; half the way where the last move went the other way under the same conditions."""
        here, way = self._conditions(epoch), 1 if plan.cpu_s > now_s else -1
        back = way == -self._way and here.like(self._moved) and here.number - self._moved.number <= _REVERSAL_EPOCHS
        if back and plan.cpu_s > 0 and now_s > 0:
            plan = self._plan(epoch, usable, math.sqrt(plan.cpu_s * now_s))
        self._moved, self._way = here, way
        self._odd, self._quiet, self._uses = 0, 0, []
        if plan.cuts != self._cuts and epoch.state is EpochState.STABLE:
            self._polish.begin(here, epoch.load_factors, self._cuts)
        self._cuts = plan.cuts
        if plan.load_factors == epoch.load_factors:
            return keep_load_factors(epoch, epoch.state)
        self._restraint.moved(epoch.number)
        if (best := self._restraint.hold(here)) is not None:
            often = f"its plan moved {Restraint.MOVES} times in {Restraint.WITHIN} epochs"
            why = f"{often}; the best one is held for {counted(self._restraint.held(epoch.number), 'epoch')}"
            return MethodStep(best, Phase.PROBE, epoch.state, f"{use_in_words(epoch.observation)}; {why}")
        return MethodStep(plan.load_factors, Phase.ADAPT, epoch.state, self._words(epoch, plan))

    def _undo(self, epoch: MethodEpoch, factors: tuple[float, ...], cuts: tuple[int, int] | None) -> MethodStep:
        """Return to the plan that sent less."""
        self._cuts, self._odd, self._quiet, self._uses, self._way = cuts, 0, 0, [], 0
        self._restraint.moved(epoch.number)
        words = f"{use_in_words(epoch.observation)}; more was sent than with the plan before, back to it"
        return MethodStep(factors, Phase.ADAPT, epoch.state, words)

    def _words(self, epoch: MethodEpoch, plan: LoadFactorPlan) -> str:
        names = [operator.operator.id for operator in epoch.model.operators]
        words = f"{use_in_words(epoch.observation)}; {moves_in_words(names, epoch.load_factors, plan.load_factors)}"
        if not self._volume.bursts:
            return words
        return f"{words}; records come in bursts, planned for {self._volume.planned:,.0f} in an epoch"
