"""Search: one operator elsewhere; or the candidate placed again, without the nodes asked for or away from doubts.

Operators on the bottlenecks of the late queries are tried on every other core: first by the peak excess of the cores
they would leave and join, then the best few by Flow, then in full. Where no single move is enough, the placement search
looks for a few that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.admission.answer import Reason
from engine.admission.changes import Change, OperatorMove, moves_in, without_moves
from engine.admission.evaluation import Evaluator, servers_of_query
from engine.admission.prediction import judge_scenario
from engine.admission.reasons import MEMORY_EXCEEDED, doubted_queries, passes, reasons_of
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, scenario_of
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, Settled, moves_of, moves_to_replace
from engine.arrays import FloatArray
from engine.costream.first_placement import FirstPlacement, PlacementOptions
from engine.document.deployment import Deployment
from engine.document.memory import memory_by_node, state_need_bytes
from engine.document.open_hosts import OpenHosts
from engine.errors import InfeasibleError
from engine.estimation.backlog import burdened_series
from engine.estimation.mace import mace
from engine.placement.goal import Goal, goal_of
from engine.placement.items import SearchSettings
from engine.placement.limits import PlacementLimits
from engine.placement.migration import changes_of
from engine.placement.problem import loaded_peaks
from engine.placement.search import PlacementSearch

__all__ = [
    "OFFERED_PLACEMENTS",
    "PlacementPick",
    "find_distant_placement",
    "find_move",
    "find_moves",
    "find_placements",
    "is_near_doubts",
    "judge_unpinned",
    "pick_placement",
]


MAX_MOVES = 3
_ROUNDS = 4  # of the search for a few moves; never a budget of time, so that the answer is always the same


def find_move(search: AdmissionSearch, *, neighbours: bool) -> Settled | None:
    """The best move of one operator, of the candidate's or of a running query's."""
    if search.base is None or search.after is None or search.screen is None:
        return None
    search.tell(
        "Searching a move of one of the running operators" if neighbours else "Searching a move of one of its operators"
    )
    ranked = _rank_moves(search, search.base, neighbours)[: 2 * search.budget]
    by_mace = [more for more in ranked if search.mace_passes(more)][: search.budget]
    return search.first_settled(more for more in by_mace if search.flow_passes(more))


def find_moves(search: AdmissionSearch) -> Settled | None:
    """Two or three moves, of running queries or of the candidate, that the placement search finds together."""
    if search.base is None or search.after is None or search.screen is None:
        return None
    search.tell("Searching a few moves")
    moves = _search_moves(search, search.base)
    if not 2 <= len(moves) <= MAX_MOVES or not search.mace_passes(moves) or not search.flow_passes(moves):
        return None
    return search.settle(moves)


def _search_moves(search: AdmissionSearch, base: AdmissionScenario) -> list[Change]:
    """The moves that the search makes of the scenario to bring every query under what it may wait."""
    deployment = base.deployment
    limits = deployment.constraints
    max_moves = MAX_MOVES if limits.max_moves is None else min(MAX_MOVES, limits.max_moves)
    bounded = replace(deployment, constraints=replace(limits, max_moves=max_moves, may_split=None))
    split = [operator.id for operator in deployment.operators if len(operator.replicas) != 1]
    goal = _goal(search, bounded)
    settings = SearchSettings(budget_s=None, rounds=_ROUNDS, mace_every=search.question.mace_every)
    around = PlacementLimits(bounded, frozenset(search.question.policy.closed_nodes), frozenset(split))
    hunt = PlacementSearch(bounded, around, goal, settings, lambda share, step, detail: None, lambda: False)
    if hunt.start is None or hunt.start.measured.value <= 1.0:
        return []
    best = hunt.run()[0]
    return moves_of({name: new for name, (_, new) in changes_of(bounded, best.placement).items()})


def _goal(search: AdmissionSearch, deployment: Deployment) -> Goal:
    """Every query with an objective weighs by what it may wait, as the screen has it; the others not at all."""
    goal = goal_of(deployment, "objectives")
    weight = np.zeros(len(goal.parties))
    for i, name in enumerate(goal.parties):
        objective = deployment.objective_of(name)
        if objective is not None and search.screen is not None:
            weight[i] = 1.0 / search.screen.limit_s(name, objective.bound_s)
    return replace(goal, weight=weight)


def judge_unpinned(search: AdmissionSearch) -> Settled | None:
    """The candidate on the nodes it would get had it asked for none; None where it asked for none, or for those."""
    moves = moves_to_replace(search)
    return search.judge(moves) if moves else None


def is_near_doubts(search: AdmissionSearch) -> bool:
    """Whether the candidate concerns running queries without trust, or whose arrivals are coarse counts alone."""
    if search.base is None or search.after is None:
        return False
    return not search.after.concerned.isdisjoint(doubted_queries(search.question, search.base))


def find_distant_placement(search: AdmissionSearch) -> Settled | None:
    """The candidate on nodes of no running query because of which a person has to decide (`is_near_doubts`).

    None where it is not admitted there either.
    """
    if search.base is None:
        return None
    search.tell("Searching a place away from what is for a person to judge")
    question = search.question
    doubted = frozenset(doubted_queries(question, search.base))
    used = {replica.node for op in question.running.operators if op.query in doubted for replica in op.replicas}
    own = [operator.id for operator in question.candidate.operators]
    closed = tuple(dict.fromkeys((*question.policy.closed_nodes, *used)))
    free = replace(
        question,
        policy=replace(question.policy, closed_nodes=closed),
        candidate=replace(
            question.candidate, operators=tuple(replace(op, replicas=()) for op in question.candidate.operators)
        ),
    )
    try:
        scenario = scenario_of(free, without_moves(search.changes, own))
    except InfeasibleError:
        return None
    settled = search.settle(moves_of(scenario.replicas_of(question.candidate.query)))
    needs_person = settled is None or any(reason.review for reason in settled.reasons)
    return None if needs_person else settled


@dataclass(frozen=True, eq=False)
class _ScreenBoard:
    """Loads of operators and servers of the scenario the search starts from, at Mace's width."""

    coarse: Deployment
    operator_load: FloatArray  # (m, d)
    server_load: FloatArray  # (n, d)
    budget: FloatArray  # (n, 1) or (n, d)
    excess: FloatArray  # (n,) peak excess now, in subintervals of work


def _board(search: AdmissionSearch, base: AdmissionScenario) -> _ScreenBoard:
    coarse = base.deployment.coarsened(search.question.mace_every)
    series, now = burdened_series(coarse), mace(coarse)
    server_load = np.ascontiguousarray(now.load).copy()
    server_load[:, 0] += now.start
    budget = np.ascontiguousarray(coarse.capacities.T * coarse.subinterval_s)
    excess, _ = loaded_peaks(server_load, np.zeros(coarse.subintervals), budget)
    return _ScreenBoard(coarse, series.load, server_load, budget, excess)


def _rank_moves(search: AdmissionSearch, base: AdmissionScenario, neighbours: bool) -> list[list[Change]]:
    """Moves off the bottlenecks, the best first by what the late queries would then wait for."""
    board = _board(search, base)
    limits = _limits(search, board.coarse)
    ranked: list[tuple[float, float, int, list[Change]]] = []
    for j, hot in _movable(search, base, neighbours):
        operator = board.coarse.operators[j]
        left, _ = loaded_peaks(board.server_load[[hot]], -board.operator_load[j], board.budget[[hot]])
        targets = _targets(search, base, j)
        joined_s, _ = loaded_peaks(board.server_load[targets], board.operator_load[j], board.budget[targets])
        for target, excess in zip(targets, joined_s, strict=True):
            after = board.excess.copy()
            after[hot], after[target] = left[0], excess
            score = max((after[servers].max(initial=0.0) / limit for servers, limit in limits), default=0.0)
            server = board.coarse.servers[target]
            node = board.coarse.nodes[server.node or 0].id
            change = OperatorMove(operator.id, node, server.core)
            ranked.append((float(score), float(excess), len(ranked), [change]))
    return [more for _, _, _, more in sorted(ranked, key=lambda item: item[:3])]


def _limits(search: AdmissionSearch, coarse: Deployment) -> list[tuple[np.ndarray, float]]:
    """Servers of every query with an objective, and what it may wait there, as the screen has it."""
    if search.screen is None:
        return []
    return [
        (servers_of_query(coarse, objective.query), search.screen.limit_s(objective.query, objective.bound_s))
        for objective in coarse.objectives
    ]


def _movable(search: AdmissionSearch, base: AdmissionScenario, neighbours: bool) -> Iterator[tuple[int, int]]:
    """Operators in one piece on the bottleneck of a query that is late or at risk, and that server."""
    deployment, own = base.deployment, search.question.candidate.query
    pinned = deployment.constraints.pin
    hot = _hot_servers(search, base)
    layout = deployment.layout
    for server in hot:
        for r in np.flatnonzero(layout.rep_server == server):
            j = int(layout.rep_operator[r])
            operator = deployment.operators[j]
            whole = len(operator.replicas) == 1 and operator.id not in pinned
            if whole and (operator.query != own if neighbours else operator.query == own):
                yield j, server


def _hot_servers(search: AdmissionSearch, base: AdmissionScenario) -> list[int]:
    if search.after is None:
        return []
    reasons = reasons_of(search.question, base, search.evaluator.before_from(base.start_p), search.after)
    names = {reason.where for reason in reasons if reason.severity == "bad" or reason.review}
    full = {reason.id for reason in reasons if reason.code == MEMORY_EXCEEDED}
    nodes = base.deployment.nodes
    return [
        i
        for i, server in enumerate(base.deployment.servers)
        if server.node is not None and (server.name in names or nodes[server.node].id in full)
    ]


def _targets(search: AdmissionSearch, base: AdmissionScenario, j: int) -> list[int]:
    """Servers that operator `j` may move to."""
    deployment = base.deployment
    operator, hosts = deployment.operators[j], OpenHosts(deployment, search.question.policy.closed_nodes)
    here = (operator.replicas[0].node, operator.replicas[0].core)
    need = state_need_bytes(operator) or 0.0
    free = {name: entry.free_bytes for name, entry in memory_by_node(deployment).items() if name != here[0]}
    out = {name for name, size in free.items() if need > 0.0 and size is not None and need > size}
    targets = []
    for i, server in enumerate(deployment.servers):
        if server.node is not None:
            node = deployment.nodes[server.node].id
            if node not in out and hosts.takes(operator.id, node) and (node, server.core) != here:
                targets.append(i)
    return targets


#: Other placements that a decision offers at most.
OFFERED_PLACEMENTS = 3

_SCREENED = 100  # options that Mace looks at


@dataclass(frozen=True, eq=False)
class PlacementPick:
    """The question with the option that was picked, and the first of the ranking where that was another."""

    question: CandidateQuestion
    passed_over: Settled | None = None


def pick_placement(
    question: CandidateQuestion, changes: tuple[Change, ...], evaluator: Evaluator, tell: Callable[[str], None]
) -> PlacementPick:
    """The first option with which every objective holds; else the one that harms the fewest, in the model's order.

    Where changes place operators of the candidate, these places stand.

    Raises
    ------
    InfeasibleError
        An operator of the candidate fits no node.
    """
    prediction = question.prediction
    own = {operator.id for operator in question.candidate.operators}
    placed = not own.isdisjoint(moves_in(changes))
    if prediction is None or prediction.options is None or placed:
        return PlacementPick(_with_option(question, prediction, placed))
    judged: list[tuple[FirstPlacement, Settled]] = []
    for option, settled in _judged(question, changes, evaluator, prediction.options, tell):
        judged.append((option, settled))
        if passes(settled.reasons) or len(judged) == question.policy.full_evaluations:
            break
    option, settled = min(judged, key=lambda pair: _harm(pair[1]))
    first = judged[0][1]
    option = replace(option, options=prediction.options)
    return PlacementPick(_with_option(question, option, False), None if settled is first else first)


def find_placements(search: AdmissionSearch) -> Iterator[Settled]:
    """Other placements with which the candidate passes, each predicted and estimated; nodes asked for do not bind."""
    question = search.question
    options = _free_options(question)
    if options is None or search.base is None:
        return
    search.tell("Searching other placements")
    here = {name: replicas[0].node for name, replicas in search.base.replicas_of(question.candidate.query).items()}
    kept = without_moves(search.changes, here)
    free = replace(
        question,
        candidate=replace(
            question.candidate, operators=tuple(replace(op, replicas=()) for op in question.candidate.operators)
        ),
    )
    offered = 0
    judged = _judged(free, kept, search.evaluator, options, search.tell)
    for spent, (option, settled) in enumerate(_while_feasible(judged), 1):
        if option.placement != here and passes(settled.reasons):
            again = search.settle(moves_of(settled.scenario.replicas_of(question.candidate.query)))
            if again is not None:
                offered += 1
                yield again
        if offered == OFFERED_PLACEMENTS or spent == search.budget:
            return


def _while_feasible(judged: Iterator[tuple[FirstPlacement, Settled]]) -> Iterator[tuple[FirstPlacement, Settled]]:
    try:
        yield from judged
    except InfeasibleError:
        return  # nowhere to go: no placement to offer


def _free_options(question: CandidateQuestion) -> PlacementOptions | None:
    """Options without the nodes asked for, where a model can be asked."""
    prediction, candidate = question.prediction, question.candidate
    if prediction is None:
        return None
    asked = any(operator.replicas for operator in candidate.operators)
    if not asked or question.predictor is None:
        return prediction.options
    operators = tuple(replace(operator, replicas=()) for operator in candidate.operators)
    return question.predictor.find_placement(question.running, operators, candidate.sources).options


def _with_option(question: CandidateQuestion, prediction: FirstPlacement | None, is_placed: bool) -> CandidateQuestion:
    pins = {} if prediction is None or is_placed else dict(prediction.placement)
    return replace(question, prediction=prediction, candidate=replace(question.candidate, pins=pins))


def _judged(
    question: CandidateQuestion,
    changes: tuple[Change, ...],
    evaluator: Evaluator,
    options: PlacementOptions,
    tell: Callable[[str], None],
) -> Iterator[tuple[FirstPlacement, Settled]]:
    """Options with what a full estimate says of them: those that Mace lets pass, and the first that fits in any case.

    Raises
    ------
    InfeasibleError
        None fits.
    """
    left, harmed = list(range(len(options))), set[str]()
    screen: Screen | None = None
    screened = 0
    refusal: InfeasibleError | None = None
    while left and screened < _SCREENED:
        i = min(left, key=lambda row: (bool(harmed & set(options.placements[row].values())), row))
        left.remove(i)
        screened += 1
        option = options.choose(i) if screen is None else None
        asked = replace(question, candidate=replace(question.candidate, pins=options.placements[i]))
        try:
            scenario = scenario_of(asked, changes)
        except InfeasibleError as error:
            refusal = refusal or error
            continue
        if screen is not None and screen.mace_s(scenario) > 1.0:
            continue
        tell(f"Estimating placement {screened}")
        option = option or options.choose(i)
        asked = replace(asked, prediction=option)
        evaluation, reasons = judge_scenario(asked, scenario, evaluator, evaluator.full(scenario))
        yield option, Settled(scenario, evaluation, reasons)
        screen = screen or Screen(asked, evaluator, scenario, evaluation)
        for query in _harmed(reasons):
            harmed |= set(scenario.nodes_of(query))
    if screen is None and refusal is not None:
        raise refusal


def _harmed(reasons: tuple[Reason, ...]) -> list[str]:
    """Running queries that reasons say are harmed or at risk."""
    return [
        reason.id
        for reason in reasons
        if reason.code.startswith("neighbour_") and (reason.severity == "bad" or reason.review)
    ]


def _harm(settled: Settled) -> tuple[int, int, int]:
    """Weight of what speaks against an option: running queries it harms, what rejects, what is for a person."""
    return (
        len(_harmed(settled.reasons)),
        sum(reason.severity == "bad" for reason in settled.reasons),
        sum(reason.review for reason in settled.reasons),
    )
