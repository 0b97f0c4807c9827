"""What all searches for choices stand on: trying a list of changes in full, and walking until it passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.admission.changes import Change, joined
from engine.admission.evaluation import Evaluation, Evaluator
from engine.admission.reasons import Reason, reasons_of
from engine.admission.scenario import Question, Scenario, scenario_of
from engine.admission.screen import Screen
from engine.errors import InfeasibleError

__all__ = ["Search", "Settled", "gallop", "largest", "passes"]


@dataclass(frozen=True, eq=False)
class Settled:
    """A scenario that was estimated in full and passes."""

    scenario: Scenario
    evaluation: Evaluation
    reasons: tuple[Reason, ...]


def passes(reasons: Sequence[Reason]) -> bool:
    """Whether nothing speaks against a scenario that a change of rate, place, time or capacity could cure."""
    return not any(
        reason.severity == "bad" or (reason.review and reason.code.endswith("at_risk")) for reason in reasons
    )


@dataclass(frozen=True, eq=False)
class Search:
    """A question, the changes it already carries, and what came of them. `screen` is None if nothing could be placed.

    `tell` reports progress in words; whoever listens may raise to end the search.
    """

    question: Question
    changes: tuple[Change, ...]
    evaluator: Evaluator
    base: Scenario | None
    after: Evaluation | None
    screen: Screen | None
    tell: Callable[[str], None]

    @property
    def budget(self) -> int:
        """Full estimates a search may spend."""
        return self.question.policy.full_evaluations

    def scenario(self, more: Sequence[Change]) -> Scenario | None:
        """The scenario with `more` changes, or None if it cannot be placed."""
        try:
            return scenario_of(self.question, joined(self.changes, more))
        except InfeasibleError:
            return None

    def mace_passes(self, more: Sequence[Change]) -> bool:
        """Whether it would pass by Mace."""
        scenario = self.scenario(more)
        return scenario is not None and (self.screen is None or self.screen.mace_s(scenario) <= 1.0)

    def flow_passes(self, more: Sequence[Change]) -> bool:
        """Whether it would pass by Flow at Mace's width."""
        self.tell("Comparing by Flow")
        scenario = self.scenario(more)
        return scenario is not None and (self.screen is None or self.screen.flow_s(scenario) <= 1.0)

    def settle(self, more: Sequence[Change]) -> Settled | None:
        """Estimate in full; None unless it passes."""
        self.tell("Estimating in full")
        scenario = self.scenario(more)
        if scenario is None:
            return None

        def reasons_for(evaluation: Evaluation) -> tuple[Reason, ...]:
            return reasons_of(self.question, scenario, self.evaluator.before, evaluation)

        evaluation = self.evaluator.full(scenario, lambda found: passes(reasons_for(found)))
        reasons = reasons_for(evaluation)
        if passes(reasons):
            return Settled(scenario, evaluation, reasons)
        if self.screen is not None:
            self.screen.learn(scenario, evaluation)
        return None

    def first_settled(self, candidates: Iterable[Sequence[Change]]) -> Settled | None:
        """The first that passes in full, within the budget.

        Once one has failed, the screen knows better: the next must pass it again.
        """
        spent = 0
        for more in candidates:
            if spent == self.budget:
                return None
            if spent and not self.flow_passes(more):
                continue
            settled = self.settle(more)
            if settled:
                return settled
            spent += 1
        return None


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """Largest whole number in ``low..high`` that fits, if fitting ends at one point; None if `low` does not fit."""
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def gallop(start: int, low: int, high: int, fits: Callable[[int], bool], runs: int) -> int | None:
    """A large number in ``low..high`` that fits, from a good guess and with few calls.

    From `start` it goes up (or down) in steps that double until the answer changes, and then halves what is left.
    """
    best: int | None = None
    bad = high + 1
    at, step = start, max(1, (high - low) // 24)
    for _ in range(runs):
        if fits(at):
            best, low = at, at
        else:
            bad = at
        if best is None:
            if at == low:
                return None
            at, step = max(low, at - step), step * 2
        elif bad - best <= 1:
            break
        elif bad == high + 1:
            at, step = min(high, at + step), step * 2
        else:
            at = (best + bad) // 2
    return best
