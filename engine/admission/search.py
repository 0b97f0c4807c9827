"""Searches for changes with which a candidate passes: its rate, its start, the capacity of new nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from engine.admission.answer import Reason
from engine.admission.changes import (
    Change,
    LaterStart,
    NewNode,
    OperatorMove,
    RateChange,
    join_changes,
    moves_in,
    nodes_in,
    rate_share_in,
    start_p_in,
    without_moves,
)
from engine.admission.evaluation import Evaluation, Evaluator
from engine.admission.prediction import judge_scenario, question_in, with_prediction
from engine.admission.reasons import passes, reasons_of
from engine.admission.scenario import (
    AdmissionScenario,
    CandidateQuestion,
    core_capacity_cps,
    node_capacity_cps,
    scenario_of,
)
from engine.admission.screen import Screen
from engine.document.deployment import Node, Replica
from engine.document.memory import state_need_bytes
from engine.errors import InfeasibleError

__all__ = [
    "AdmissionSearch",
    "Settled",
    "find_node_capacity",
    "find_rate_share",
    "find_start",
    "gallop",
    "largest",
    "moves_of",
    "moves_to_replace",
]

_CAPACITY_PARTS = 64  # a node's capacity is searched in 64ths of the largest one's
_MAX_NODES = 3

_RATE_PARTS = 100  # shares are reported in hundredths
_MIN_SHARE = 10  # below that the query would hardly run: no alternative

_NEAR_ENOUGH = 20  # a largest number is sought to a twentieth of where its search starts

_GRID = 32  # starts that are compared; between two of them the first is found by halving


@dataclass(frozen=True, eq=False)
class Settled:
    """A scenario that was estimated in full, and what speaks for and against it."""

    scenario: AdmissionScenario
    evaluation: Evaluation
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, eq=False)
class AdmissionSearch:
    """A question, the changes it already carries, and what came of them. `screen` is None if nothing could be placed.

    `tell` reports progress in words; an exception it raises ends the search.
    """

    question: CandidateQuestion
    changes: tuple[Change, ...]
    evaluator: Evaluator
    base: AdmissionScenario | None
    after: Evaluation | None
    screen: Screen | None
    tell: Callable[[str], None]

    @property
    def budget(self) -> int:
        """Full estimates a search may spend."""
        return self.question.policy.full_evaluations

    def scenario(self, more: Sequence[Change]) -> AdmissionScenario | None:
        """The scenario with `more` changes, or None if it cannot be placed."""
        try:
            return scenario_of(self.question, join_changes(self.changes, more))
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
        """Estimate in full, once mean costs alone pass; None unless it passes."""
        judged = self.judge(more)
        return judged if judged is not None and passes(judged.reasons) else None

    def judge(self, more: Sequence[Change]) -> Settled | None:
        """Estimate in full, or by mean costs alone where these fail; None if it cannot be placed."""
        self.tell("Estimating in full")
        scenario = self.scenario(more)
        if scenario is None:
            return None

        asked, before = question_in(self.question, scenario), self.evaluator.before_from(scenario.start_p)

        def goes_on(evaluation_so_far: Evaluation) -> bool:
            after = with_prediction(asked, evaluation_so_far)
            return passes(reasons_of(asked, scenario, before, after))

        evaluation, reasons = judge_scenario(asked, scenario, self.evaluator, self.evaluator.full(scenario, goes_on))
        if self.screen is not None:
            self.screen.learn(scenario, evaluation)
        return Settled(scenario, evaluation, reasons)

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

    def largest_settled(
        self, start: int, low: int, change: Callable[[int], Sequence[Change]], fits: Callable[[int], bool]
    ) -> Settled | None:
        """A large number from `low` to `start` (which fits) whose change passes in full, within the budget.

        It goes down in steps that double until one passes, then halves what lies between that and the last that
        failed. What the first tells, the screen knows: the next must fit it again.
        """
        found: Settled | None = None
        best, failed, at, spent = low - 1, start + 1, start, 0
        step = max(1, (start - low) >> (self.budget - 1))
        while spent < self.budget:
            settled = None
            if not spent or fits(at):
                settled = self.settle(change(at))
                spent += 1
            if settled:
                found, best = settled, at
            else:
                failed = at
            if found is None:
                if at == low:
                    return None
                at, step = max(low, at - step), 2 * step
            elif failed - best <= max(1, start // _NEAR_ENOUGH):
                break
            else:
                at = (best + failed) // 2
        return found


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


def find_node_capacity(search: AdmissionSearch) -> Settled | None:
    """One node of the least capacity; failing that, two or three like the largest."""
    search.tell("Searching the least extra capacity")
    like = _model_node(search.question)
    if like is None:
        return None
    moves = moves_to_replace(search)
    if moves and search.flow_passes(moves) and search.settle(moves):
        return None  # placed again it passes on the nodes there are
    full = core_capacity_cps(like)
    names = _new_names(search)

    @cache
    def one(spared: int) -> list[Change]:
        # Counted in parts that are spared, so that more of it is harder, as in the other searches.
        return _with_moves(search, [_node(names[0], like, full * (_CAPACITY_PARTS - spared) / _CAPACITY_PARTS)])

    def by_mace(spared: int) -> bool:
        return _is_used(search, one(spared)) and search.mace_passes(one(spared))

    def by_flow(spared: int) -> bool:
        return _is_used(search, one(spared)) and search.flow_passes(one(spared))

    if by_mace(0) or by_flow(0):
        guess = largest(0, _CAPACITY_PARTS - 1, by_mace) or 0
        parts = gallop(guess, 0, _CAPACITY_PARTS - 1, by_flow, search.budget + 2)
        settled = None if parts is None else search.largest_settled(parts, 0, one, by_flow)
        if settled:
            return settled
    several = (
        _with_moves(search, [_node(name, like, full) for name in names[:count]]) for count in range(2, _MAX_NODES + 1)
    )
    return search.first_settled(more for more in several if _is_used(search, more) and search.flow_passes(more))


def _model_node(question: CandidateQuestion) -> Node | None:
    """The largest node whose memory is not known to be too small for an operator of the candidate; None without one."""
    need = max((state_need_bytes(operator) or 0.0 for operator in question.candidate.operators), default=0.0)
    fitting = (node for node in question.running.nodes if node.memory_bytes is None or node.memory_bytes >= need)
    return max(fitting, key=node_capacity_cps, default=None)


def _is_used(search: AdmissionSearch, more: Sequence[Change]) -> bool:
    """Whether the candidate would be on every new node: one that stays empty would cure nothing."""
    scenario = search.scenario(more)
    added = {node.id for node in nodes_in(more)}
    return scenario is not None and added <= set(scenario.nodes_of(search.question.candidate.query))


def _node(name: str, like: Node, capacity_cps: float) -> Change:
    return NewNode(name, like.id, _round_up_capacity(capacity_cps), like.cores)


def _round_up_capacity(value: float, digits: int = 3) -> float:
    """The next number with three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / unit * (1.0 - 1e-12)) * unit


def _new_names(search: AdmissionSearch) -> list[str]:
    taken = {node.id for node in search.question.running.nodes}
    taken |= {node.id for node in nodes_in(search.changes)}
    free = (name for k in itertools.count(1) if (name := f"new-{k}") not in taken)
    return list(itertools.islice(free, _MAX_NODES))


def _with_moves(search: AdmissionSearch, added: Sequence[Change]) -> list[Change]:
    """The new nodes, and the moves it takes to place again what was asked for on certain nodes."""
    return [*added, *moves_to_replace(search, added)]


def moves_to_replace(search: AdmissionSearch, more: Sequence[Change] = ()) -> list[Change]:
    """Moves that put the candidate where it would go had it asked for no nodes; splits stay as they are."""
    candidate = search.question.candidate
    asked = {op.id: op.replicas for op in candidate.operators if len(op.replicas) == 1}
    pinned = {op.id for op in candidate.operators if op.id in candidate.pins}
    if not asked and not pinned:
        return []
    free = replace(
        candidate,
        operators=tuple(replace(op, replicas=()) if op.id in asked else op for op in candidate.operators),
        pins={},
    )
    changes = without_moves(search.changes, {*asked, *pinned})
    try:
        scenario = scenario_of(replace(search.question, candidate=free), join_changes(changes, more))
    except InfeasibleError:
        return []
    moved = moves_in(search.changes).keys()
    places = scenario.replicas_of(candidate.query)
    return moves_of(
        {
            name: replicas
            for name, replicas in places.items()
            if (name in asked and replicas != asked[name])
            or (name in pinned and replicas[0].node != candidate.pins[name])
            or (name in moved and name in {*asked, *pinned})
        }
    )


def moves_of(places: Mapping[str, tuple[Replica, ...]]) -> list[Change]:
    """Moves to where operators are in one piece."""
    return [OperatorMove(name, replicas[0].node, replicas[0].core) for name, replicas in places.items()]


def find_rate_share(search: AdmissionSearch) -> Settled | None:
    """Bisect on Mace, refine by Flow, confirm in full and walk down until that holds."""
    search.tell("Searching the largest share of its rate")
    query = search.question.candidate.query
    present_share = rate_share_in(search.changes)
    high = round(present_share * _RATE_PARTS) - 1

    def change(part: int) -> list[Change]:
        return [RateChange(query, part / _RATE_PARTS)]

    if high < _MIN_SHARE:
        return None

    def by_flow(part: int) -> bool:
        return search.flow_passes(change(part))

    guess = largest(_MIN_SHARE, high, lambda part: search.mace_passes(change(part))) or (_MIN_SHARE + high) // 2
    parts = gallop(guess, _MIN_SHARE, high, by_flow, search.budget + 2)
    return None if parts is None else search.largest_settled(parts, _MIN_SHARE, change, by_flow)


def find_start(search: AdmissionSearch) -> Settled | None:
    """The first start on a grid over the horizon that passes, then the first between it and the one before.

    Enough must be left to judge on: ``start_horizon_share`` of the horizon, and of the candidate's mean rate.
    """
    search.tell("Searching a later start")
    every, d = search.question.mace_every, search.question.running.subintervals
    share = search.question.policy.start_horizon_share
    last = min(int(d * (1.0 - share)), _last_with_rate(search, share)) // every
    first = (start_p_in(search.changes) - 1) // every + 1
    if last < first:
        return None
    step = max(1, -(-(last - first + 1) // _GRID))
    early = first - 1
    spent = 0
    for k in range(first, last + 1, step):
        if search.mace_passes(_change(search, k)) and search.flow_passes(_change(search, k)):
            settled = search.settle(_change(search, k))
            if settled:
                return _between(search, early, k) or settled
            spent += 1
            if spent == search.budget:
                return None
        early = k
    return None


def _last_with_rate(search: AdmissionSearch, share: float) -> int:
    """The last subinterval (from 0) from which on the candidate still reads at that share of its mean rate."""
    sources = (*search.question.running.sources, *search.question.candidate.sources)
    read = {entry.source for operator in search.question.candidate.operators for entry in operator.inputs}
    d = search.question.running.subintervals
    arrivals = sum((source.arrivals for source in sources if source.id in read), np.zeros(d))
    rate = np.cumsum(arrivals[::-1])[::-1] / np.arange(d, 0, -1)
    return int(np.flatnonzero(rate >= share * rate[0])[-1])


def _between(search: AdmissionSearch, early: int, late: int) -> Settled | None:
    """A start after `early` (which fails) and before `late` (which passes) that passes in full; None without one."""
    start = late
    while late - early > 1:
        middle = (early + late) // 2
        if search.mace_passes(_change(search, middle)):
            late = middle
        else:
            early = middle
    return search.first_settled(_change(search, k) for k in (late, (late + start + 1) // 2) if k < start)


def _change(search: AdmissionSearch, k: int) -> list[Change]:
    """A start at the k-th (from 0) of Mace's subintervals."""
    p = k * search.question.mace_every + 1
    return [LaterStart(p, (p - 1) * search.question.running.subinterval_s)]
