"""`place`: a placement for a deployment, with its changes, its moves, and its distance from the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from engine.document.deployment import Deployment
from engine.document.memory import fleet_memory, memory_by_node, memory_findings
from engine.errors import Fault, OptionError
from engine.estimation.estimate import Estimate, estimate
from engine.estimation.overload import lasting_overloads
from engine.placement.answer import AloneOperator, AppliedLimits, BestSoFar, MoveAnswer, PlacementAnswer
from engine.placement.colocation import TRANSFER_S
from engine.placement.comparison import RankedCandidate, best_by_flow, mace_at, query_rows, running_part, server_rows
from engine.placement.goal import GOALS, goal_of
from engine.placement.items import Placement, SearchSettings
from engine.placement.limits import limits_of, refuse_impossible_limits
from engine.placement.local_search.search import ALGORITHMS, compile_kernels
from engine.placement.migration import MigrationPauses, MigrationStep, changes_of, move_rows, order_moves
from engine.placement.search import PlacementSearch
from engine.words import counted, duration_words, listed, load_words, server_words, size_words

__all__ = ["Proposal", "command", "place"]

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
    """

    deployment: Deployment
    placement: Placement
    changed: frozenset[str]
    report: PlacementAnswer

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
    budget_s: float | None = 5.0,
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
        Nodes that take nothing new (draining); what is there may stay.
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

    def pause(n: int, step: MigrationStep, lasts_s: float) -> tuple[float | None, str | None]:
        if lasts_s > 0.0 and flow:
            tell(0.85 + 0.1 * (n - 1) / count, f"Migration pause of move {n} of {len(steps)}")
        return pauses(n, step, lasts_s) if flow else (None, None)

    moves = move_rows(deployment, steps, pause)
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
        (*_messages(search, best, moves), *_lacking_words(after)),
        tuple(search.trace),
        search.limits.applied,
    )
    tell(1.0, "Done")
    return Proposal(deployment, placement, frozenset(changes), report)


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
        messages=("There is no operator to place.",),
        trace=(),
        constraints=limits,
    )
    return Proposal(deployment, {}, frozenset(), report)


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Propose a placement for a deployment document; operators may lack a node.

    Options are those of `place`; with `rounds` and without `budget_s` time plays no part.
    """
    given = dict(options)
    if "rounds" in given:
        given.setdefault("budget_s", None)
    return place(Deployment.parse(document, placed=False), **given).report.to_dict()


def _messages(search: PlacementSearch, best: RankedCandidate, moves: Sequence[MoveAnswer]) -> list[str]:
    """Messages about a proposal for a person, in sentences."""
    words, spared = _lasting_words(search, best), _spared_words(search, best)
    if spared is not None:
        words.append(spared)
    elif search.start is not None and not moves:
        words += ["No better placement was found: everything stays where it is.", _still_words(search)]
    if (words_of_few := _few_words(search, moves)) is not None:
        words.append(words_of_few)
    words += [f"Before: {entry.words}." for entry in memory_by_node(search.deployment).values() if entry.over_bytes]
    words += [
        f"While {move.operator} moves, {over.node} holds {size_words(over.bytes)} more than its memory: "
        "stop the operator first."
        for move in moves
        for over in move.over_memory
    ]
    words += memory_findings(search.deployment.with_placement(best.candidate.placement))
    return words + [_alone_words(bottleneck, search.goal.kind) for bottleneck in search.alone]


def _lasting_words(search: PlacementSearch, best: RankedCandidate) -> list[str]:
    """Messages on what never catches up, now and with what is proposed."""
    now = [] if search.start is None else list(lasting_overloads(search.start.measured.mace).values())
    then = sorted(lasting_overloads(best.candidate.measured.mace).values(), key=lambda overload: -overload.growth)
    if then:
        server, times = server_words(then[0].server), load_words(then[0].load, 1.0)[0]
        more = "" if len(then) == 1 else f", and {counted(len(then) - 1, 'other server')} more than theirs"
        return [f"No placement was found that catches up: {server} gets {times} times its capacity{more}."]
    if not now:
        return []
    names = listed([server_words(overload.server) for overload in now], 3)
    verb = "catches" if len(now) == 1 else "catch"
    return [f"Where everything is now, {names} never {verb} up; as proposed, all does."]


def _lacking_words(after: Estimate | None) -> list[str]:
    """Messages on what the estimates after the moves lack where servers run other policies than stimulus time."""
    reports = {} if after is None else after.queries
    gaps = {query: (report.gap, report.policy_high_s) for query, report in reports.items()}
    return [f"Of {query} {gap.words(high_s)}." for query, (gap, high_s) in gaps.items() if gap is not None]


def _still_words(search: PlacementSearch) -> str:
    """Message where nothing moves: what was tried, what no placement can be below, and what would help."""
    assert search.start is not None
    measured, bound = search.start.measured, search.bound
    if bound.kind == "every placement tried":
        tried = "Every placement was tried."
    else:
        tried = f"Tried: {counted(search.rounds, 'round')} of search in {duration_words(search.elapsed_s)}."
    gap = _gap(measured.value, bound.value_s)
    if measured.value <= 0.0:
        return f"{tried} No work waits at Mace's width, so no placement can be better by it."
    if gap is None:
        limit = "How far the best possible is below it is not known."
    elif gap == 0.0:
        limit = "No placement can be better."
    else:
        limit = f"No placement can be better by more than {math.ceil(100 * gap / (1.0 + gap))}%."
    result = measured.mace
    slowest = int(result.worst_s.argmax())
    server, peak = result.deployment.servers[slowest].name, float(result.load_share[slowest].max())
    help_words = (
        f"Work waits longest at {server_words(server)}, which is at {peak:.2f} of its capacity at its peak: "
        "fewer events, a faster or one more node would help."
    )
    if search.limits.max_moves is not None:
        help_words += f" So may more than {counted(search.limits.max_moves, 'move')}."
    return f"{tried} {limit} {help_words}"


def _spared_words(search: PlacementSearch, best: RankedCandidate) -> str | None:
    """Message about moves left out for gaining less than the tolerance; None if there are none."""
    share, value = search.settings.tolerance, best.candidate.measured.value
    if share <= 0.0 or search.start is None or not search.candidates:
        return None
    lasting = best.candidate.measured.lasting
    least, moves = min(
        (candidate.whole for candidate in search.candidates if candidate.measured.lasting <= lasting),
        default=(value, 0),
    )
    if least >= value * (1.0 - _TIE):
        return None
    if search.goal.kind == "worst":
        return (
            f"With {moves} moves instead of {best.candidate.moves} the worst would be {least:.4g} instead of "
            f"{value:.4g} s: for less than {100 * share:g} % no more are made."
        )
    return (
        f"With {moves} moves instead of {best.candidate.moves} the worst would be {least:.4g} instead of "
        f"{value:.4g} of its objective: for less than {100 * share:g} % no more are made."
    )


def _few_words(search: PlacementSearch, moves: Sequence[MoveAnswer]) -> str | None:
    """Message about the first moves that bring nearly all of the gain; None where moves are few or all needed."""
    if search.start is None or len(moves) <= _FEW:
        return None
    before, after = search.start.measured.mace.worst, moves[-1].mace_s
    if after >= before * (1.0 - _WORTH_SAYING):
        return None
    limit_s = after + (1.0 - _MAIN_SHARE) * (before - after)
    n = next(move.n for move in moves if move.mace_s <= max(limit_s, after))
    if n > len(moves) // 2:
        return None
    there = moves[n - 1].mace_s
    return (
        f"After the first {n} of {len(moves)} moves the longest delay of a core is {there:.3g} s, "
        f"down from {before:.3g} s; max_moves asks for a placement with fewer."
    )


def _alone_words(bottleneck: AloneOperator, kind: str) -> str:
    sentences = [
        f"Operator {bottleneck.operator} alone on the best core it may use takes {bottleneck.own_s:.3g} s: "
        "no placement of it in one piece is faster."
    ]
    if bottleneck.load_share > 1.0:
        share = f"{bottleneck.load_share:.2f}"
        sentences.append(f"Its mean load is {share} of that core's capacity, so it never catches up.")
    parts, value = bottleneck.parts, bottleneck.split_value
    if value is not None and kind == "worst":
        sentences.append(f"Split into {parts} parts it would be {value:.3g} s; may_split does not list it.")
    elif value is not None:
        sentences.append(
            f"Split into {parts} parts it would be {value:.3g} of its objective; may_split does not list it."
        )
    elif bottleneck.stateless is False:
        sentences.append("It has state and cannot be split.")
    elif bottleneck.stateless is None:
        sentences.append("Whether it has state is not known; a stateless operator could be split.")
    return " ".join(sentences)
