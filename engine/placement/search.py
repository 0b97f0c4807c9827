"""Search for a placement: local search of the cores, climb on the network, splits of large operators."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from engine.arrays import IntArray
from engine.document.deployment import Deployment
from engine.document.memory import MEMORY_SLACK, is_memory_known, needs_of, rooms_of
from engine.errors import Fault, InfeasibleError
from engine.placement.answer import AloneOperator, BestSoFar
from engine.placement.goal import Goal, measure
from engine.placement.items import Items, PlacementCandidate, SearchSettings, SparedMoves, items_of
from engine.placement.limits import PlacementLimits
from engine.placement.local_search.search import Bound, LocalSearchResult, search
from engine.placement.network import NetworkProblem, has_network
from engine.placement.separation import ApartOperator
from engine.placement.splits import BottleneckOperator, alone_in, parts_for
from engine.words import size_words

__all__ = ["PlacementSearch"]

Progress = Callable[[float, str, BestSoFar], None]

_FINALISTS = 8
_SEARCH_SHARE = 0.6  # of the time, where a climb on the network follows
_SPLIT_SHARE = 0.5  # of the time, where a search with more parts may follow
_TRIAL_ROUNDS = 4  # of the search that says what splitting would gain
_TRIAL_SHARE = 0.1  # of the time, for that search on top
_CLIMBED = 4  # finalists the network climb starts from
_TIE = 1e-9


@dataclass(eq=False)
class PlacementSearch:
    """Search for placements of one deployment; `best` is known at any time after the first.

    `stop` ends it early; what was found by then is kept.
    """

    deployment: Deployment
    limits: PlacementLimits
    goal: Goal
    settings: SearchSettings
    tell: Progress
    stop: Callable[[], bool]
    parts: dict[str, int] = field(default_factory=dict)
    candidates: list[PlacementCandidate] = field(default_factory=list)
    trace: list[tuple[float, float]] = field(default_factory=list)
    bound: Bound = field(default_factory=lambda: Bound(0.0, "none"))
    rounds: int = 0
    stopped: str = "rounds"
    alone: list[AloneOperator] = field(default_factory=list)
    cores_value: float | None = None  # best of the cores alone, while links and delays are still to be counted

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        self.start = self._start()
        if self.start is not None:
            self._note(self.start.measured.value)

    def run(self) -> list[PlacementCandidate]:
        """Placements, the best by the goal first; the one at the start is among them if it is allowed.

        With a tolerance only those that move least, of the ones within it.
        """
        while True:
            self._report("Reading the loads")
            items = items_of(self.deployment, self.settings.mace_every, self.parts)
            self._search(items)
            more = self._more_parts(items)
            if not more or self._is_over():
                break
            self.parts |= more
        candidates = self.candidates if self.start is None else [self.start, *self.candidates]
        candidates = sorted(candidates, key=lambda candidate: candidate.measured.rank)
        least = candidates[0].measured.value if candidates else 0.0
        if self.trace and self.trace[-1][1] < least:  # the values of placements that never catch up
            self.trace = [entry for entry in self.trace if entry[1] > least]
            self._note(least)
        if self.settings.tolerance <= 0.0 or not candidates:
            return candidates
        lasting, value = candidates[0].measured.rank
        limit = value * (1.0 + self.settings.tolerance)
        near = [c for c in candidates if c.measured.value <= limit and c.measured.lasting <= lasting]
        fewest = min(candidate.moves for candidate in near)
        return [candidate for candidate in near if candidate.moves == fewest]

    def apart(self, candidate: PlacementCandidate) -> tuple[ApartOperator, ...]:
        """Why operators that a candidate moves are apart from those they exchange events with."""
        if self.settings.transfer_s <= 0.0:
            return ()
        problem = NetworkProblem(candidate.items, self.limits, self.goal)
        return problem.apart(candidate.assignment, self.settings.transfer_s)

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._began

    def _left_s(self) -> float | None:
        budget_s = self.settings.budget_s
        return None if budget_s is None else max(0.0, budget_s - self.elapsed_s)

    def _is_over(self) -> bool:
        if self.stop():
            self.stopped = "stopped"
            return True
        left_s = self._left_s()
        return left_s is not None and left_s <= 0.0

    def _start(self) -> PlacementCandidate | None:
        """The running placement, if every operator has a place that it may keep."""
        if not self.deployment.operators:
            return None
        items = items_of(self.deployment, self.settings.mace_every, {})
        if (items.start < 0).any() or self._breaks(items, items.start):
            return None
        return PlacementCandidate(items, items.start, measure(items.placed(items.start), self.goal))

    def _breaks(self, items: Items, assignment: IntArray) -> bool:
        """Whether an assignment breaks the limits."""
        allowed = items.allowed(self.limits)[np.arange(len(assignment)), assignment]
        nodes = items.core_node[assignment]
        crowded = any(len({int(nodes[i]) for i in group}) < len(group) for group in items.apart(self.limits))
        away = int(((items.start >= 0) & (assignment != items.start)).sum())
        held = np.bincount(nodes, items.need, minlength=len(items.room))
        crowded = crowded or bool((held > items.room * (1.0 + MEMORY_SLACK)).any())
        most = self.limits.max_moves
        return crowded or not bool(allowed.all()) or (most is not None and away > most)

    def _note(self, value: float) -> None:
        if not self.trace or value < self.trace[-1][1]:
            self.trace.append((self.elapsed_s, value))

    @property
    def best_value(self) -> float | None:
        return self.trace[-1][1] if self.trace else None

    def state(self, cores_s: float | None = None) -> BestSoFar:
        """The best so far."""
        return BestSoFar(self.best_value, cores_s, self.bound.value_s, self.elapsed_s)

    def _report(self, step: str) -> None:
        budget_s = self.settings.budget_s
        share = 0.0 if not budget_s else min(1.0, self.elapsed_s / budget_s)
        self.tell(0.7 * share, step, self.state(self.cores_value))

    def _search(self, items: Items) -> None:
        """Search by Mace; where the best placement of all never catches up, again with the load after the horizon."""
        self._search_on(items)
        known = self.candidates if self.start is None else [self.start, *self.candidates]
        if not min(known, key=lambda candidate: candidate.measured.value).measured.lasting:
            return
        if items.problem(self.limits, self.goal).may_catch_up():
            self._search_on(items.held_on())

    def _search_on(self, items: Items) -> None:
        """Search the cores, then climb on the network if there is one."""
        network_problem = NetworkProblem(items, self.limits, self.goal)
        if self.settings.algorithm == "search" and network_problem.is_small():
            finalists = [self._best_of_all(items, network_problem)]
        else:
            network = has_network(items)
            result = self._search_cores(items, network)
            if not items.is_held_on:
                self.bound, self.stopped = result.bound, result.stopped
            self.rounds += result.rounds
            finalists = [result.assignment, *result.finalists]
            if network:
                finalists = self._climb(network_problem, finalists)
        good = [assignment for assignment in finalists if not self._breaks(items, assignment)]
        if not good and self.start is None:
            raise self._nothing(items)
        seen: set[bytes] = set()
        for assignment in good:
            candidate = self._with_fewer_moves(items, network_problem, assignment)
            if candidate.assignment.tobytes() not in seen:
                seen.add(candidate.assignment.tobytes())
                self.candidates.append(candidate)
                self._note(candidate.measured.value)

    def _with_fewer_moves(
        self, items: Items, network_problem: NetworkProblem, assignment: IntArray
    ) -> PlacementCandidate:
        """A placement without the moves that gain nothing, and without those that gain less than the tolerance.

        What moves all the same goes where those are that it exchanges events with, if that costs nothing.
        """
        exact = network_problem.with_fewer_moves(assignment)
        exact = network_problem.colocated(exact, self.settings.transfer_s)
        whole = PlacementCandidate(items, exact, measure(items.placed(exact), self.goal))
        if whole.measured.lasting:
            given = PlacementCandidate(items, assignment, measure(items.placed(assignment), self.goal))
            whole = given if given.measured.lasting < whole.measured.lasting else whole
        if self.settings.tolerance <= 0.0 or self.start is None:
            return whole
        fewer = network_problem.with_fewer_moves(exact, self.settings.tolerance)
        fewer = network_problem.colocated(fewer, self.settings.transfer_s)
        if (fewer == whole.assignment).all():
            return whole
        part = PlacementCandidate(items, fewer, measure(items.placed(fewer), self.goal))
        if part.measured.lasting != whole.measured.lasting:  # one of them catches up where the other does not
            return min(part, whole, key=lambda candidate: candidate.measured.rank)
        return replace(part, spared=SparedMoves(whole.moves - part.moves, whole.measured.value))

    def _best_of_all(self, items: Items, network_problem: NetworkProblem) -> IntArray:
        """The best of all placements, where they are few enough to try them one by one."""
        best = network_problem.best_of_all()
        if best is None:
            raise self._nothing(items)
        self.bound = Bound(measure(items.placed(best), self.goal).value, "every placement tried")
        self.stopped = "optimal"
        return best

    def _nothing(self, items: Items) -> InfeasibleError:
        """Refusal: no placement meets all constraints together, though each alone could be met."""
        limits = self.limits.deployment.constraints
        parts = [f"apart {', '.join(group)}" for group in self.limits.apart]
        parts += [f"pin {name} to {node}" for name, node in limits.pin.items()]
        parts += [f"forbid {name} on {', '.join(nodes)}" for name, nodes in limits.forbid.items()]
        parts += [f"max_moves {limits.max_moves}"] if limits.max_moves is not None else []
        parts += [_memory_words(self.deployment)] if is_memory_known(self.deployment) else []
        said = "; ".join(parts[:6]) + (f"; and {len(parts) - 6} more" if len(parts) > 6 else "")
        message = f"no placement was found that respects all constraints together: {said}"
        return InfeasibleError("No placement respects all constraints", [Fault("constraints", message)])

    def _search_cores(self, items: Items, network: bool) -> LocalSearchResult:
        left_s = self._left_s()
        if left_s is not None:
            if items.is_held_on:
                left_s = max(left_s, _TRIAL_SHARE * (self.settings.budget_s or 0.0))
            left_s = max(0.01, left_s * (_SEARCH_SHARE if network else 1.0))
            left_s *= _SPLIT_SHARE if self.limits.may_split - self.parts.keys() else 1.0

        def heard(elapsed_s: float, value: float, bound: float, rounds: int) -> None:
            if items.is_held_on:
                self._report("Searching what catches up")
                return
            self.bound = Bound(bound, self.bound.kind)
            if network:
                self.cores_value = value
            else:
                self._note(value)
            self._report("Searching")

        problem = items.problem(self.limits, self.goal)
        try:
            return search(
                problem,
                algorithm=self.settings.algorithm,
                seed=self.settings.seed,
                budget_s=left_s,
                rounds=self.settings.rounds,
                workers=self.settings.workers,
                finalists=_FINALISTS,
                progress=heard,
                stop=self.stop,
            )
        except InfeasibleError as error:
            raise self._named(error, items) from None

    def _named(self, error: InfeasibleError, items: Items) -> InfeasibleError:
        """The search's refusal with the names of operators in the place of the numbers of items."""

        def named(match: re.Match[str]) -> str:
            numbers = [int(number) for number in re.findall(r"\d+", match[2])]
            names = dict.fromkeys(items.coarse.operators[items.operator[k]].id for k in numbers)
            return f"operator {next(iter(names))}" if len(names) == 1 else f"operators {', '.join(names)}"

        faults = [
            Fault("constraints", re.sub(r"\bitems?( \[?|\[)(\d+(?:, \d+)*)\]?", named, fault.message))
            for fault in error.faults
        ]
        return InfeasibleError("No placement respects all constraints", faults or self._nothing(items).faults)

    def _climb(self, network_problem: NetworkProblem, finalists: list[IntArray]) -> list[IntArray]:
        """Climb on the full goal from the finalists and from the start."""
        starts = finalists[:_CLIMBED]
        if self.start is not None and not self.parts:
            starts = [self.start.assignment, *starts]
        self.cores_value = None

        def climbed(assignment: IntArray) -> IntArray:
            counts = not network_problem.items.is_held_on and not self._breaks(network_problem.items, assignment)

            def goes_on(value: float) -> bool:
                if counts:
                    self._note(value)
                self._report("Climbing on the network")
                return not self._is_over()

            return network_problem.climb(assignment, goes_on)

        return [climbed(assignment) for assignment in starts]

    def _more_parts(self, items: Items) -> dict[str, int]:
        """Parts for operators that alone are in the way; of those that may not be split, what it would gain."""
        known = self.candidates if self.start is None else [self.start, *self.candidates]
        best = min(known, key=lambda candidate: candidate.measured.value)
        blocking = alone_in(items, self.limits, self.goal, best.measured.value)
        splittable = [bottleneck for bottleneck in blocking if bottleneck.may_split]
        if len(splittable) < len(blocking):
            self._tell_gain(items, blocking)
            return {}
        more = parts_for(items, self.limits, self.goal, splittable, self.parts)
        if blocking and not more:
            self.alone = [bottleneck.answer() for bottleneck in blocking]
        return more

    def _tell_gain(self, items: Items, blocking: list[BottleneckOperator]) -> None:
        """Report the gain of splitting the bottleneck operators, where none of them has state."""
        if any(bottleneck.operator.is_divisible is not True for bottleneck in blocking):
            self.alone = [bottleneck.answer() for bottleneck in blocking]
            return
        parts = self.parts | parts_for(items, self.limits, self.goal, blocking, self.parts)
        cut = items_of(self.deployment, self.settings.mace_every, parts)
        budget_s = None if self.settings.budget_s is None else _TRIAL_SHARE * self.settings.budget_s
        self._report("Trying what splitting would gain")
        try:
            problem = cut.problem(self.limits, self.goal)
            result = search(problem, seed=self.settings.seed, rounds=_TRIAL_ROUNDS, budget_s=budget_s)
        except InfeasibleError:
            self.alone = [bottleneck.answer() for bottleneck in blocking]
            return
        self.alone = [bottleneck.answer(parts.get(bottleneck.operator.id), result.value_s) for bottleneck in blocking]


def _memory_words(deployment: Deployment) -> str:
    """The memory of the nodes beside the state that is known; nodes whose memory is not known have any."""
    needed, room = float(needs_of(deployment.operators).sum()), float(rooms_of(deployment.nodes).sum())
    whole = f" and they have {size_words(room)} together" if np.isfinite(room) else ""
    return f"the memory of the nodes (state takes {size_words(needed)} in all{whole})"
