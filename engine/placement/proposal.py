"""`place`: a placement for a deployment, with its changes, its moves, and its distance from the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from engine.command_options import PlaceOptions
from engine.document.deployment import Deployment
from engine.document.memory import fleet_memory, memory_by_node, memory_findings
from engine.errors import Fault, OptionError
from engine.estimation.estimate import Estimate, estimate
from engine.estimation.overload import lasting_overloads
from engine.placement.answer import AloneOperator, AppliedLimits, BestSoFar, MoveAnswer, OverMemory, PlacementAnswer
from engine.placement.colocation import TRANSFER_S
from engine.placement.comparison import RankedCandidate, best_by_flow, mace_at, query_rows, running_part, server_rows
from engine.placement.goal import GOALS, goal_of
from engine.placement.items import Placement, PlacementCandidate, SearchSettings
from engine.placement.limits import limits_of, refuse_impossible_limits
from engine.placement.local_search.search import ALGORITHMS, compile_kernels
from engine.placement.migration import (
    MigrationPauses,
    MigrationStep,
    QueryDelay,
    changes_of,
    duration_s,
    order_moves,
)
from engine.placement.search import PlacementSearch
from engine.records import Fact
from engine.solvers import solving

__all__ = ["Proposal", "command", "place"]

BUDGET_S = 5.0  # to search, unless rounds end it
_TIE = 1e-6
_FEW = 5  # moves that need no summary
_MAIN_SHARE = 0.95
_WORTH_SAYING = 0.01  # share by which moves must shorten the longest delay to be counted

Progress = Callable[[float, str, BestSoFar], None]

_FLOW_SHARE = 0.5  # of the budget, for comparing candidates by Flow on top of it


@dataclass(frozen=True, eq=False)
class Proposal:
    """A placement and what follows from it.

    Attributes
    ----------
    deployment : Deployment
        As given.
    placement : mapping
        Replicas of every operator.
    changed : frozenset of str
        Operators that are elsewhere than before.
    report : PlacementAnswer
        All of it, by names.
    delays : mapping
        Delays of queries by the moves, made in their order one by one; queries that they do not delay are left out.
    """

    deployment: Deployment
    placement: Placement
    changed: frozenset[str]
    report: PlacementAnswer
    delays: Mapping[str, QueryDelay]

    @property
    def value(self) -> float:
        """The goal of what is proposed."""
        return self.report.value_after

    def placed(self) -> Deployment:
        """The deployment with the placement."""
        return self.deployment.with_placement(self.placement)


def place(
    deployment: Deployment,
    *,
    algorithm: str = "search",
    budget_s: float | None = BUDGET_S,
    rounds: int | None = None,
    seed: int = 0,
    workers: int = 1,
    closed: Collection[str] = (),
    objective: str = "worst",
    fixed: Collection[str] = (),
    mace_every: int = 1,
    rank_within: float = 0.0,
    tolerance: float = 0.0,
    transfer_s: float = TRANSFER_S,
    flow: bool = True,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Proposal:
    """Find a placement no worse than the present one, if that is allowed, and the moves to it.

    Parameters
    ----------
    deployment : Deployment
        Operators may lack a place. Its constraints are respected.
    algorithm : str
        One of `engine.placement.local_search.search.ALGORITHMS`.
    budget_s, rounds : float or None, int or None
        How long to search. With rounds alone the answer depends on the input and the seed only.
    closed : collection of str
        Nodes that take nothing new (draining) and keep nothing but what is `fixed` there.
    objective : str
        ``worst`` (largest latency) or ``objectives`` (largest latency over bound, weighted by priority).
    fixed : collection of str
        Operators that stay where they are.
    mace_every : int
        Subintervals of `deployment` that make one of Mace's.
    rank_within : float
        Candidates within this share of the best are compared by Flow; 0: those as good as the best.
    tolerance : float
        Moves are left out where the value stays within this share of the best found without them; so nothing is moved
        for a gain of less.
    transfer_s : float
        Seconds that an event's way to another node is taken to cost where no link gives its delay. What the search
        moves or places joins those it exchanges events with, unless being apart gains more than that. 0: no matter.
    flow : bool
        Whether to run Flow at all; without it there are neither latencies by Flow nor pauses.
    progress : callable, optional
        Told the share done, the step in words, and the best value so far with bound and elapsed time; what it raises
        ends the call.
    stop : callable, optional
        Ends the search when it returns True; what was found by then is proposed.

    Returns
    -------
    Proposal

    Raises
    ------
    OptionError
        For options that do not exist, nodes or operators that are unknown.
    InfeasibleError
        If the constraints leave no placement; every reason that can be told.
    """
    solving()
    _refuse_options(
        algorithm,
        objective,
        budget_s,
        rounds,
        {"rank_within": rank_within, "tolerance": tolerance, "transfer_s": transfer_s},
    )
    limits = limits_of(deployment, closed, fixed)
    refuse_impossible_limits(limits)
    tell = progress or (lambda share, step, detail: None)
    if not deployment.operators:
        return _empty(deployment, limits.applied, algorithm, objective, seed)
    goal = goal_of(deployment, objective)
    way_s = transfer_s if algorithm == "search" else 0.0  # the others propose what they found
    settings = SearchSettings(algorithm, budget_s, rounds, seed, workers, mace_every, tolerance, way_s)
    tell(0.0, "Preparing the search", BestSoFar(None, None, 0.0, 0.0))
    compile_kernels(algorithm)
    search = PlacementSearch(deployment, limits, goal, settings, tell, stop or (lambda: False))
    candidates = search.run()

    runs = running_part(deployment)
    with ThreadPoolExecutor(1) as beside:
        before = None
        if flow and runs.operators and candidates[0] is not search.start:
            # Flow takes seconds on a large fleet and leaves the interpreter to others: both sides at the same time.
            before = beside.submit(estimate, runs, mace_every=mace_every, intervals=False)
        best = best_by_flow(
            deployment,
            goal,
            candidates,
            search.start,
            within=rank_within,
            every=mace_every,
            flow=flow,
            step=lambda done, of: tell(0.7 + 0.1 * done / of, f"Flow of placement {done + 1} of {of}", search.state()),
            budget_s=None if budget_s is None else _FLOW_SHARE * budget_s,
        )
        tell(0.8, "Flow of what runs now", search.state())
        was = before.result() if before else best.estimate if best.candidate is search.start else None
    return _proposal(search, best, runs, was, flow, lambda share, step: tell(share, step, search.state()))


def _refuse_options(
    algorithm: str, objective: str, budget_s: float | None, rounds: int | None, shares: Mapping[str, float]
) -> None:
    faults = [
        Fault(name, f"{name} is {value!r}; allowed: {', '.join(allowed)}")
        for name, value, allowed in (("algorithm", algorithm, ALGORITHMS), ("objective", objective, GOALS))
        if value not in allowed
    ]
    if budget_s is None and rounds is None:
        faults.append(Fault("budget_s", "budget_s and rounds are both missing; allowed: at least one of the two"))
    for name, number in (("budget_s", budget_s), ("rounds", rounds)):
        if number is not None and not number > 0:
            faults.append(Fault(name, f"{name} is {number}; allowed: a number above 0"))
    for name, share in shares.items():
        if not share >= 0.0:
            faults.append(Fault(name, f"{name} is {share}; allowed: a number of at least 0"))
    if faults:
        raise OptionError(f"The options have {len(faults)} faults; first: {faults[0].message}", faults)


def _proposal(
    search: PlacementSearch,
    best: RankedCandidate,
    runs: Deployment,
    before: Estimate | None,
    flow: bool,
    tell: Callable[[float, str], None],
) -> Proposal:
    deployment, placement, every = search.deployment, best.candidate.placement, search.settings.mace_every
    was, now = mace_at(runs, every), best.candidate.measured.mace
    tell(0.85, "Ordering the moves")
    changes = changes_of(deployment, placement)
    steps = order_moves(deployment.coarsened(every), search.goal, changes)
    pauses = MigrationPauses(deployment)
    count = max(1, len(steps))

    def move(n: int, step: MigrationStep) -> MoveAnswer:
        lasts_s = duration_s(deployment, step)
        if lasts_s > 0.0 and flow:
            tell(0.85 + 0.1 * (n - 1) / count, f"Migration pause of move {n} of {len(steps)}")
        bump_s, query = pauses(n, step, lasts_s) if flow else (None, None)
        return MoveAnswer(
            n,
            step.operator.id,
            step.operator.query,
            step.old,
            step.new,
            step.kind,
            step.operator.state_bytes,
            tuple(OverMemory(node, size) for node, size in step.over),
            lasts_s,
            bump_s,
            query,
            step.mace_s,
            Fact("placement.move", **vars(step.effects), over=step.over),
        )

    moves = tuple(move(n, step) for n, step in enumerate(steps, 1))
    nodes, links = server_rows(was, now)
    tell(0.95, "Randomness of costs and arrivals")
    after = best.estimate.realised() if best.estimate else None
    start = after if before is best.estimate else before.realised() if before else None
    settings, bound, value = search.settings, search.bound, best.candidate.measured.value
    whole = before if runs is deployment else None
    report = PlacementAnswer(
        settings.algorithm,
        search.goal.kind,
        settings.seed,
        settings.transfer_s,
        settings.budget_s,
        search.rounds,
        search.stopped,
        search.elapsed_s,
        search.start.measured.value if search.start else None,
        value,
        was.worst if runs is deployment else None,
        now.worst,
        whole.flow.wc if whole else None,
        best.estimate.flow.wc if best.estimate else None,
        bound.value_s,
        bound.kind,
        _gap(value, bound.value_s),
        dict(placement),
        query_rows(deployment, start, after, was, now, set(changes)),
        nodes,
        links,
        moves,
        tuple(search.apart(best.candidate)),
        tuple(search.alone),
        fleet_memory(deployment.with_placement(placement)),
        (*_messages(search, best, moves), *_lacking(after)),
        tuple(search.trace),
        search.limits.applied,
    )
    tell(1.0, "Done")
    return Proposal(deployment, placement, frozenset(changes), report, pauses.delays)


def _gap(value: float, bound: float) -> float | None:
    """Share by which the value is above the bound; None if the bound says nothing."""
    if value <= bound * (1.0 + _TIE):
        return 0.0
    return value / bound - 1.0 if bound > 0.0 else None


def _empty(deployment: Deployment, limits: AppliedLimits, algorithm: str, objective: str, seed: int) -> Proposal:
    """Proposal of a deployment without operators."""
    report = PlacementAnswer(
        algorithm=algorithm,
        objective=objective,
        seed=seed,
        transfer_s=0.0,
        budget_s=None,
        rounds=0,
        stopped="optimal",
        elapsed_s=0.0,
        value_before=0.0,
        value_after=0.0,
        mace_before_s=0.0,
        mace_after_s=0.0,
        flow_before_s=0.0,
        flow_after_s=0.0,
        bound_s=0.0,
        bound_kind="nothing to place",
        gap=0.0,
        placement={},
        queries=(),
        nodes=(),
        links=(),
        moves=(),
        apart=(),
        alone=(),
        memory=fleet_memory(deployment),
        messages=(Fact("placement.nothing_to_place"),),
        trace=(),
        constraints=limits,
    )
    return Proposal(deployment, {}, frozenset(), report, {})


def command(document: Any, options: PlaceOptions) -> PlacementAnswer:
    """Propose a placement for a deployment document; operators may lack a node.

    With `rounds` and without `budget_s` time plays no part.
    """
    budget_s = options.budget_s or (BUDGET_S if options.rounds is None else None)
    return place(Deployment.parse(document, placed=False), **vars(replace(options, budget_s=budget_s))).report


def _messages(search: PlacementSearch, best: RankedCandidate, moves: Sequence[MoveAnswer]) -> Iterator[Fact | str]:
    """Remarks on a proposal."""
    start, is_seconds = search.start, search.goal.kind == "worst"
    yield from _lasting(search, best)
    spared = _spared(search, best)
    yield from spared
    if not spared and start is not None and not moves:
        yield Fact("placement.nothing_better")
        yield " ".join(map(str, _unimproved(search, start)))
    yield from _first_moves(search, moves)
    for entry in memory_by_node(search.deployment).values():
        if entry.over_bytes:
            yield Fact("placement.memory_before", memory=entry.held)
    for move in moves:
        yield from (
            Fact("placement.memory_while_moving", operator=move.operator, **vars(over)) for over in move.over_memory
        )
    yield from memory_findings(search.deployment.with_placement(best.candidate.placement))
    yield from (" ".join(map(str, _alone(alone, is_seconds))) for alone in search.alone)


def _lasting(search: PlacementSearch, best: RankedCandidate) -> Iterator[Fact]:
    """Remark on what never catches up, now and with what is proposed."""
    now = [] if search.start is None else list(lasting_overloads(search.start.measured.mace).values())
    then = sorted(lasting_overloads(best.candidate.measured.mace).values(), key=lambda overload: -overload.growth)
    if then:
        more = len(then) - 1
        kind = "placement.overloaded+" if more else "placement.overloaded"
        yield Fact(kind, server=then[0].server, load=then[0].load, more=more)
    elif now:
        yield Fact("placement.catches_up", servers=[overload.server for overload in now])


def _lacking(after: Estimate | None) -> Iterator[Fact]:
    """Remarks on estimates after the moves where servers run other policies than stimulus time."""
    for query, report in {} if after is None else after.queries.items():
        if report.gap is not None:
            yield Fact("placement.policy", query=query, lacking=report.gap.words(report.policy_high_s))


def _unimproved(search: PlacementSearch, start: PlacementCandidate) -> Iterator[Fact]:
    """Sentences where nothing moves: what was tried, what no placement can be below, and what would help."""
    measured, bound = start.measured, search.bound
    is_exhaustive = bound.kind == "every placement tried"
    yield (
        Fact("placement.tried_all")
        if is_exhaustive
        else Fact("placement.tried", rounds=search.rounds, elapsed_s=search.elapsed_s)
    )
    if measured.value <= 0.0:
        yield Fact("placement.no_work_waits")
        return
    gap = _gap(measured.value, bound.value_s)
    if gap:
        yield Fact("placement.near_bound", percent=math.ceil(100 * gap / (1.0 + gap)))
    else:
        yield Fact("placement.bound_unknown" if gap is None else "placement.optimal")
    result = measured.mace
    slowest = int(result.worst_s.argmax())
    server, peak = result.deployment.servers[slowest].name, float(result.load_share[slowest].max())
    yield Fact("placement.slowest", server=server, peak=peak)
    if search.limits.max_moves is not None:
        yield Fact("placement.more_moves", most=search.limits.max_moves)


def _spared(search: PlacementSearch, best: RankedCandidate) -> list[Fact]:
    """Moves left out for gaining less than the tolerance."""
    share, value = search.settings.tolerance, best.candidate.measured.value
    if share <= 0.0 or search.start is None or not search.candidates:
        return []
    lasting = best.candidate.measured.lasting
    least, moves = min(
        (candidate.whole for candidate in search.candidates if candidate.measured.lasting <= lasting),
        default=(value, 0),
    )
    if least >= value * (1.0 - _TIE):
        return []
    values = {"made": best.candidate.moves, "value": value, "is_seconds": search.goal.kind == "worst"}
    return [Fact("placement.spared", moves=moves, least=least, percent=100 * share, **values)]


def _first_moves(search: PlacementSearch, moves: Sequence[MoveAnswer]) -> Iterator[Fact]:
    """The first moves that bring nearly all of the gain, unless moves are few or all needed."""
    if search.start is None or len(moves) <= _FEW:
        return
    before_s, after_s = search.start.measured.mace.worst, moves[-1].mace_s
    if after_s >= before_s * (1.0 - _WORTH_SAYING):
        return
    limit_s = after_s + (1.0 - _MAIN_SHARE) * (before_s - after_s)
    n = next(move.n for move in moves if move.mace_s <= max(limit_s, after_s))
    if n <= len(moves) // 2:
        yield Fact("placement.first_moves", n=n, of=len(moves), before_s=before_s, after_s=moves[n - 1].mace_s)


def _alone(alone: AloneOperator, is_seconds: bool) -> Iterator[Fact]:
    """An operator that even alone costs as much as the whole placement, and what splitting it would gain."""
    yield Fact("placement.alone", **vars(alone))
    if alone.load_share > 1.0:
        yield Fact("placement.alone_overloaded", **vars(alone))
    if alone.split_value is not None:
        yield Fact("placement.alone_split", is_seconds=is_seconds, **vars(alone))
    elif not (alone.stateless or alone.keyed):
        is_unknown = alone.stateless is None and alone.keyed is None
        yield Fact("placement.alone_unknown" if is_unknown else "placement.alone_with_state")
