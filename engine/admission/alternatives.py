"""Alternatives with which a candidate would pass, each searched for, then estimated in full."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from engine.admission.answer import Alternative, Reason
from engine.admission.changes import (
    Change,
    ObjectiveChange,
    join_changes,
    moves_in,
    nodes_in,
    rate_share_in,
    start_s_in,
)
from engine.admission.evaluation import Evaluation, list_effects
from engine.admission.moves import find_distant_placement, find_move, find_moves
from engine.admission.pick import find_placements
from engine.admission.prediction import judge_scenario, prediction_words
from engine.admission.reasons import estimate_words, outcome_words, wait_words
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, node_capacity_cps, scenario_of
from engine.admission.search import AdmissionSearch, Settled, find_node_capacity, find_rate_share, passes
from engine.document.deployment import Deployment, Replica
from engine.words import (
    counted,
    duration_words,
    listed,
    load_words,
    money_words,
    percent_words,
    seconds_words,
    server_words,
    size_words,
    statistic_words,
)

__all__ = ["find_alternatives", "find_objective", "verdict_of"]


def verdict_of(reasons: tuple[Reason, ...], scenario: AdmissionScenario) -> str:
    """Verdict by reasons and changes: admit, admit_with_changes, review or reject; the search alone says queue."""
    if any(reason.severity == "bad" for reason in reasons):
        return "reject"
    if any(reason.review for reason in reasons):
        return "review"
    return "admit_with_changes" if scenario.changes or scenario.altered else "admit"


def find_alternatives(
    search: AdmissionSearch,
    reasons: tuple[Reason, ...],
    progress: Callable[[float, str], None],
    *,
    start: Settled | None = None,
    unpinned: Settled | None = None,
) -> Iterator[tuple[Alternative, Evaluation]]:
    """Every kind of alternative that passes with its estimate, in a fixed order; none with the changes of another.

    Parameters
    ----------
    search : AdmissionSearch
    reasons : tuple of Reason
        Those of the scenario it starts from. Where only a person's word is missing, places are sought that need none.
    progress : callable
        Told the share done and the step.
    start, unpinned : Settled, optional
        The later start, and the candidate on the nodes it would get had it asked for none, both found already.
    """
    kinds: list[tuple[str, Callable[[AdmissionSearch], Settled | Iterable[Settled] | None]]] = []
    if not passes(reasons):
        kinds = [
            ("place_again", find_placements),
            ("move", lambda s: find_move(s, neighbours=False)),
            ("move", _with_neighbours),
            ("place_again", lambda s: unpinned if unpinned and passes(unpinned.reasons) else None),
            ("scale_rate", find_rate_share),
            ("start_at", lambda s: start),
            ("add_node", find_node_capacity),
            ("objective", find_objective),
        ]
    if any(reason.review for reason in reasons):
        kinds.append(("place_apart", find_distant_placement))
    seen: dict[str, int] = {}
    offered: list[tuple[Change, ...]] = []
    for number, (kind, find) in enumerate(kinds):
        share = 0.4 + 0.6 * number / len(kinds)
        reporting = replace(search, tell=lambda step, share=share: progress(share, step))  # type: ignore[misc]
        answer = find(reporting)
        for settled in [answer] if isinstance(answer, Settled) else answer or ():
            if settled.scenario.changes not in offered:
                offered.append(settled.scenario.changes)
                seen[kind] = seen.get(kind, 0) + 1
                yield _alternative(search, kind, f"{kind}-{seen[kind]}", settled), settled.evaluation


def _with_neighbours(search: AdmissionSearch) -> Settled | None:
    """A move of a running query's operator, or a few together."""
    if not search.question.policy.may_move_neighbours:
        return None
    return find_move(search, neighbours=True) or find_moves(search)


def find_objective(search: AdmissionSearch) -> Settled | None:
    """The bound that the candidate would hold, where only its own is in the way."""
    if search.base is None or search.after is None:
        return None
    search.tell("Finding the objective that would hold")
    own = search.after.outcomes[search.question.candidate.query]
    if own.bound_s is None or own.state == "holds":
        return None
    bound_s = _round_up_bound(own.upper_s)
    change = ObjectiveChange(own.query, own.statistic, bound_s)
    scenario = scenario_of(search.question, join_changes(search.changes, [change]))
    # The bound decides nothing about what runs: the estimate is the one there is.
    outcomes = {**search.after.outcomes, own.query: replace(own, bound_s=bound_s)}
    evaluation = replace(search.after, outcomes=outcomes)
    _, reasons = judge_scenario(search.question, scenario, search.evaluator, evaluation)
    return Settled(scenario, evaluation, reasons) if passes(reasons) else None


def _round_up_bound(value: float, digits: int = 2) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit * (1.0 - 1e-12)) * unit:.12g}")


def _alternative(search: AdmissionSearch, kind: str, name: str, settled: Settled) -> Alternative:
    question, before = search.question, search.evaluator.before_from(settled.scenario.start_p)
    title, detail = _words(search, kind, settled, before)
    own = settled.evaluation.outcomes[question.candidate.query]
    return Alternative(
        id=name,
        kind=kind,
        title=title,
        detail=detail,
        changes=settled.scenario.changes,
        verdict=verdict_of(settled.reasons, settled.scenario),
        estimate_s=own.estimate_s,
        effects=list_effects(question, settled.scenario, before, settled.evaluation),
    )


def _words(search: AdmissionSearch, kind: str, settled: Settled, before: Evaluation) -> tuple[str, str]:
    """Title and detail of an alternative."""
    new = [change for change in settled.scenario.changes if change not in search.changes]
    writers: dict[str, Callable[..., tuple[str, str]]] = {
        "move": _move_words,
        "place_again": _place_words,
        "place_apart": _apart_words,
        "scale_rate": _rate_words,
        "start_at": _start_words,
        "add_node": _node_words,
        "objective": _objective_words,
    }
    return writers[kind](search.question, settled, new, before)


def _estimate_sentence(question: CandidateQuestion, settled: Settled) -> str:
    """Sentence about the candidate's estimate."""
    own = settled.evaluation.outcomes[question.candidate.query]
    if own.is_predicted:
        return f"{question.candidate.query}: {prediction_words(own)}."
    return f"{question.candidate.query} would have a {statistic_words(own.statistic)} of {estimate_words(own)}."


def _move_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    moves = moves_in(new)
    if len(moves) > 1:
        return _moves_words(question, settled, moves)
    ((name, place),) = moves.items()
    running, deployment = question.running, settled.scenario.deployment
    core = _core(deployment, place)
    title, state = f"Place {name} on {server_words(core)}", None
    if name in running.operator_index:
        operator = running.operators[running.operator_index[name]]
        left = server_words(_core(deployment, operator.replicas[0]))
        title, state = f"Move {name} from {left} to {server_words(core)}", operator.state_bytes
    peak = settled.evaluation.peaks[core]
    moving = f" It moves {size_words(state)} of state." if state else ""
    load = f"{server_words(core, begins=True)} goes to {load_words(peak)[0]} of its capacity at peak."
    return title, f"{load} {_estimate_sentence(question, settled)}{moving}"


def _moves_words(question: CandidateQuestion, settled: Settled, moves: Mapping[str, Replica]) -> tuple[str, str]:
    """Several moves at once."""
    deployment, index = settled.scenario.deployment, question.running.operator_index
    where = [f"{name} to {server_words(_core(deployment, place))}" for name, place in moves.items()]
    state = sum(question.running.operators[index[name]].state_bytes or 0.0 for name in moves if name in index)
    sentences = [_estimate_sentence(question, settled)]
    if state:
        sentences.append(f"They move {size_words(state)} of state.")
    return f"Move {listed(where)}", " ".join(sentences)


def _core(deployment: Deployment, place: Replica) -> str:
    """The name of the server that a replica is on."""
    node = deployment.node_index[place.node]
    return next(s.name for s in deployment.servers if s.node == node and s.core == place.core)


def _place_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    own = settled.evaluation.outcomes[question.candidate.query]
    if own.is_predicted:
        nodes = listed(settled.scenario.nodes_of(question.candidate.query))
        return f"Place it on {nodes}", f"{question.candidate.query}: {prediction_words(own)}."
    title = f"Place {counted(len(new), 'operator')} elsewhere than asked for"
    return title, _estimate_sentence(question, settled)


def _apart_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    nodes = settled.scenario.nodes_of(question.candidate.query)
    title = f"Place it on {listed(nodes)}, away from what is for a person to judge"
    return title, _estimate_sentence(question, settled)


def _rate_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    share = rate_share_in(new)
    title = f"Admit it with {percent_words(share)} of its rate"
    held_back = f"Its sources must hold back {percent_words(1.0 - share)} of their events; Sluice does not do that."
    return title, f"{held_back} {_estimate_sentence(question, settled)}"


def _start_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    return f"Start it {duration_words(start_s_in(new))} later", _estimate_sentence(question, settled)


def _node_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    added = nodes_in(new)
    like = question.running.nodes[question.running.node_index[added[0].like]]
    share = added[0].capacity_cps * (added[0].cores or like.cores) / node_capacity_cps(like)
    size = f"with {percent_words(share)} of the capacity of {like.id}" if share < 0.995 else f"like {like.id}"
    title = f"Add a node {size}" if len(added) == 1 else f"Add {len(added)} nodes {size}"
    sentences = [_estimate_sentence(question, settled)]
    if like.price_per_hour:
        sentences.append(f"A node like {like.id} costs {money_words(like.price_per_hour, question.currency)} per hour.")
    return title, " ".join(sentences)


def _objective_words(
    question: CandidateQuestion, settled: Settled, new: list[Change], before: Evaluation
) -> tuple[str, str]:
    own = settled.evaluation.outcomes[question.candidate.query]
    title = f"Ask for {seconds_words(own.bound_s or 0.0)[0]} instead"
    statistic, estimated = statistic_words(own.statistic), outcome_words(own)
    sentence = f"Its {statistic} is estimated at {estimated}"
    if own.high_s is not None:
        sentence += f" and may be up to {seconds_words(own.upper_s)[0]}"
    sentence += f"{wait_words(own)}. Nothing else changes."
    if any(term.kind == "window" for term in own.waits) and own.wait_s > own.estimate_s - own.wait_s:
        sentence += " A shorter window makes it less, or a promise that counts from the window's end."
    return title, sentence
