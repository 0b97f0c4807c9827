"""Sentences of admission: what an outcome, a decision and an alternative say, made of their numbers.

Pages, REST, reports, mail and the command line show them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from engine.admission.answer import AdmissionFinding, Robustness
from engine.admission.changes import Change, moves_in, nodes_in, rate_share_in, start_s_in
from engine.admission.evaluation import Evaluation, QueryOutcome, servers_of_query
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, node_capacity_cps
from engine.document.deployment import Deployment, Replica
from engine.estimation.answer import Bottleneck
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

__all__ = [
    "OfferedScenario",
    "alternative_words",
    "chance_words",
    "estimate_words",
    "increase_words",
    "neighbour_miss",
    "outcome_words",
    "own_miss",
    "passing_finding",
    "prediction_words",
    "risk_words",
    "scarcest_words",
    "standing_finding",
    "thin_words",
    "wait_words",
    "would_be_words",
]

_NOTED_WAIT = 0.05  # of an estimate: less of it need not be named

_NAMED_WAITS = 2


def outcome_words(outcome: QueryOutcome) -> str:
    """Words for an estimate."""
    return seconds_words(outcome.estimate_s)[0]


def estimate_words(outcome: QueryOutcome) -> str:
    """The estimate beside its objective: ``8.2 s, against 10 s``."""
    if outcome.bound_s is None:
        return outcome_words(outcome)
    estimate, bound = seconds_words(outcome.estimate_s, outcome.bound_s)
    return f"{estimate}, against {bound}"


def would_be_words(outcome: QueryOutcome) -> str:
    return f"its {statistic_words(outcome.statistic)} would be {estimate_words(outcome)}"


def prediction_words(outcome: QueryOutcome) -> str:
    """Words for a predicted outcome: its statistic, the interval, and the objective."""
    bounds = () if outcome.bound_s is None else (outcome.bound_s,)
    estimate, low, high, *bound = seconds_words(
        outcome.estimate_s, outcome.low_s or 0.0, outcome.high_s or 0.0, *bounds
    )
    words = f"its {statistic_words(outcome.statistic)} is predicted at {estimate}"
    words += f" (80% interval {low} to {high})"
    return f"{words}, against {bound[0]}" if bound else words


def increase_words(was: QueryOutcome, now: QueryOutcome) -> str:
    first, last, bound = seconds_words(was.estimate_s, now.estimate_s, now.bound_s or 0.0)
    return f"its {statistic_words(now.statistic)} would go from {first} to {last}, against {bound}"


def risk_words(outcome: QueryOutcome) -> str:
    estimate, high, bound = seconds_words(outcome.estimate_s, outcome.upper_s, outcome.bound_s or 0.0)
    statistic = statistic_words(outcome.statistic)
    words = f"its {statistic} is estimated at {estimate} but may be up to {high}, against {bound}"
    return f"{words}{chance_words(outcome)}{_by_scored_runs(outcome)}"


def _by_scored_runs(outcome: QueryOutcome) -> str:
    """Words on an upper end that is over because past estimates were off; empty elsewhere."""
    widening = outcome.widening
    if widening is None or outcome.bound_s is None or widening.stated_high_s > outcome.bound_s:
        return ""
    stated, times = seconds_words(widening.stated_high_s)[0], f"{widening.factor:.2g}"
    runs = counted(widening.runs, "scored run")
    return f"; {stated} before {runs} widened its interval {times} times on that side"


def chance_words(outcome: QueryOutcome) -> str:
    """Assumption behind a miss where mean costs alone would keep the objective; empty elsewhere."""
    if outcome.flow_s is None or outcome.bound_s is None or outcome.flow_s + outcome.wait_s > outcome.bound_s:
        return ""
    return "; how costs vary is assumed" if outcome.assumed_costs else ""


def wait_words(outcome: QueryOutcome) -> str:
    """Clause on what of an estimate is no queue, but the largest of its waits; empty where that is next to nothing."""
    if outcome.wait_s < _NOTED_WAIT * outcome.estimate_s:
        return ""
    parts = sorted(((term.part_s(outcome.statistic), term) for term in outcome.waits), key=lambda part: -part[0])
    named = [(seconds, term.words) for seconds, term in parts if seconds >= _NOTED_WAIT * outcome.wait_s][:_NAMED_WAITS]
    said = [f"{seconds_words(seconds)[0]} of it is {named[0][1]}" for seconds, _ in named[:1]]
    said += [f"{seconds_words(seconds)[0]} {words}" for seconds, words in named[1:]]
    up_to = "up to " if outcome.statistic.startswith("q") else ""
    return f"; {up_to}{listed(said)}"


def standing_finding(consequence: str, outcome: QueryOutcome) -> AdmissionFinding:
    """AdmissionFinding that follows from what is known of a query's latency."""
    words = outcome.standing.words.removesuffix(".")
    is_named = not words.startswith(("It ", "No ", "None "))
    return AdmissionFinding(consequence, words if is_named else f"{words[:1].lower()}{words[1:]}", is_named)


def own_miss(after: Evaluation, own: QueryOutcome) -> AdmissionFinding:
    """The candidate's miss, with the load of the server that makes it late."""
    missed = f"{own.query} would miss its objective"
    if own.standing.is_endless:
        return standing_finding(missed, own)
    waits = wait_words(own)
    if own.bottleneck is None or own.wait_s > own.estimate_s - own.wait_s:
        return AdmissionFinding(missed, f"{would_be_words(own)}{waits}")
    place, load = _bottleneck_words(after, own.bottleneck)
    return AdmissionFinding(
        missed, f"{would_be_words(own)}, because {place} would run at {load} of its capacity at peak{waits}"
    )


def neighbour_miss(candidate_nodes: Collection[str], was: QueryOutcome, after: Evaluation) -> AdmissionFinding:
    """A running query's new miss, with the node it shares with the candidate or the load that makes it late."""
    now = after.outcomes[was.query]
    missed, increase = f"{was.query} would miss its objective", increase_words(was, now)
    if now.standing.is_endless:
        return standing_finding(missed, now)
    if now.bottleneck is None:
        return AdmissionFinding(missed, f"{increase}{wait_words(now)}")
    if now.bottleneck.node in candidate_nodes:
        return AdmissionFinding(missed, f"{increase}, because both queries use {now.bottleneck.node}")
    place, load = _bottleneck_words(after, now.bottleneck)
    return AdmissionFinding(missed, f"{increase}, because {place} would run at {load} of its capacity at peak")


def _bottleneck_words(after: Evaluation, bottleneck: Bottleneck) -> tuple[str, str]:
    """Place and load at its peak."""
    return server_words(bottleneck.server), load_words(after.peaks[bottleneck.server])[0]


def scarcest_words(question: CandidateQuestion, after: Evaluation) -> str:
    """The busiest server of the candidate: time left of an objective says nothing of capacity left."""
    own = servers_of_query(after.mace.deployment, question.candidate.query)
    if not own.size:
        return ""
    name = max((after.mace.deployment.servers[i].name for i in own.tolist()), key=lambda server: after.peaks[server])
    load = load_words(after.peaks[name])[0]
    where = f"{server_words(name)}, the busiest that {question.candidate.query} uses,"
    return f"; {where} is at {load} of its capacity at peak"


def passing_finding(name: str, changed: bool, after: Evaluation) -> AdmissionFinding:
    own = after.outcomes[name]
    statistic, estimate = statistic_words(own.statistic), estimate_words(own)
    with_changes = " with the changes" if changed else ""
    if own.is_predicted:
        return AdmissionFinding(f"{name} may run", prediction_words(own))
    over = [outcome.query for outcome in after.outcomes.values() if outcome.state == "breached"]
    if over:
        misses = f"{over[0]} misses its objective" if len(over) == 1 else f"{listed(over)} miss their objective"
        cause = f"its {statistic} would be {estimate}; {misses} with or without it"
        return AdmissionFinding(f"{name} may run{with_changes}", cause)
    if own.bound_s is None:
        return AdmissionFinding(f"Every objective holds with {name}", f"its {statistic} would be {estimate}")
    return AdmissionFinding(f"Every objective holds{with_changes}", f"the {statistic} of {name} would be {estimate}")


def thin_words(robustness: Robustness) -> str:
    """Words for the room that a thin verdict lacks."""
    what = "load" if robustness.load <= robustness.costs else "costs"
    if robustness.margin <= 0.0:
        return f"no higher {what} is confirmed to keep it"
    return f"it holds only up to {percent_words(robustness.margin)} more {what}"


@dataclass(frozen=True, eq=False)
class OfferedScenario:
    """A scenario that would pass, and the changes in it that were not asked for."""

    question: CandidateQuestion
    scenario: AdmissionScenario
    evaluation: Evaluation
    new: list[Change]

    @property
    def own(self) -> QueryOutcome:
        """The candidate's outcome."""
        return self.evaluation.outcomes[self.question.candidate.query]


def alternative_words(kind: str, offered: OfferedScenario) -> tuple[str, str]:
    """Title and detail of an alternative."""
    return _ALTERNATIVES[kind](offered)


def _estimate_sentence(offered: OfferedScenario) -> str:
    """Sentence about the candidate's estimate."""
    own = offered.own
    if own.is_predicted:
        return f"{offered.question.candidate.query}: {prediction_words(own)}."
    return f"{offered.question.candidate.query} would have a {statistic_words(own.statistic)} of {estimate_words(own)}."


def _move_words(offered: OfferedScenario) -> tuple[str, str]:
    moves = moves_in(offered.new)
    if len(moves) > 1:
        return _moves_words(offered, moves)
    ((name, place),) = moves.items()
    running, deployment = offered.question.running, offered.scenario.deployment
    core = _core(deployment, place)
    title, state = f"Place {name} on {server_words(core)}", None
    if name in running.operator_index:
        operator = running.operators[running.operator_index[name]]
        left = server_words(_core(deployment, operator.replicas[0]))
        title, state = f"Move {name} from {left} to {server_words(core)}", operator.state_bytes
    peak = offered.evaluation.peaks[core]
    moving = f" It moves {size_words(state)} of state." if state else ""
    load = f"{server_words(core, begins=True)} goes to {load_words(peak)[0]} of its capacity at peak."
    return title, f"{load} {_estimate_sentence(offered)}{moving}"


def _moves_words(offered: OfferedScenario, moves: Mapping[str, Replica]) -> tuple[str, str]:
    """Several moves at once."""
    deployment, index = offered.scenario.deployment, offered.question.running.operator_index
    where = [f"{name} to {server_words(_core(deployment, place))}" for name, place in moves.items()]
    state = sum(offered.question.running.operators[index[name]].state_bytes or 0.0 for name in moves if name in index)
    sentences = [_estimate_sentence(offered)]
    if state:
        sentences.append(f"They move {size_words(state)} of state.")
    return f"Move {listed(where)}", " ".join(sentences)


def _core(deployment: Deployment, place: Replica) -> str:
    """The name of the server that a replica is on."""
    node = deployment.node_index[place.node]
    return next(s.name for s in deployment.servers if s.node == node and s.core == place.core)


def _place_words(offered: OfferedScenario) -> tuple[str, str]:
    own = offered.own
    if own.is_predicted:
        nodes = listed(offered.scenario.nodes_of(offered.question.candidate.query))
        return f"Place it on {nodes}", f"{offered.question.candidate.query}: {prediction_words(own)}."
    title = f"Place {counted(len(offered.new), 'operator')} elsewhere than asked for"
    return title, _estimate_sentence(offered)


def _apart_words(offered: OfferedScenario) -> tuple[str, str]:
    nodes = offered.scenario.nodes_of(offered.question.candidate.query)
    title = f"Place it on {listed(nodes)}, away from what is for a person to judge"
    return title, _estimate_sentence(offered)


def _rate_words(offered: OfferedScenario) -> tuple[str, str]:
    share = rate_share_in(offered.new)
    title = f"Admit it with {percent_words(share)} of its rate"
    held_back = f"Its sources must hold back {percent_words(1.0 - share)} of their events; Sluice does not do that."
    return title, f"{held_back} {_estimate_sentence(offered)}"


def _start_words(offered: OfferedScenario) -> tuple[str, str]:
    return f"Start it {duration_words(start_s_in(offered.new))} later", _estimate_sentence(offered)


def _node_words(offered: OfferedScenario) -> tuple[str, str]:
    added = nodes_in(offered.new)
    like = offered.question.running.nodes[offered.question.running.node_index[added[0].like]]
    share = added[0].capacity_cps * (added[0].cores or like.cores) / node_capacity_cps(like)
    size = f"with {percent_words(share)} of the capacity of {like.id}" if share < 0.995 else f"like {like.id}"
    title = f"Add a node {size}" if len(added) == 1 else f"Add {len(added)} nodes {size}"
    sentences = [_estimate_sentence(offered)]
    if like.price_per_hour:
        sentences.append(
            f"A node like {like.id} costs {money_words(like.price_per_hour, offered.question.currency)} per hour."
        )
    return title, " ".join(sentences)


def _objective_words(offered: OfferedScenario) -> tuple[str, str]:
    own = offered.own
    title = f"Ask for {seconds_words(own.bound_s or 0.0)[0]} instead"
    statistic, estimated = statistic_words(own.statistic), outcome_words(own)
    sentence = f"Its {statistic} is estimated at {estimated}"
    if own.high_s is not None:
        sentence += f" and may be up to {seconds_words(own.upper_s)[0]}"
    sentence += f"{wait_words(own)}. Nothing else changes."
    if any(term.kind == "window" for term in own.waits) and own.wait_s > own.estimate_s - own.wait_s:
        sentence += " A shorter window makes it less, or a promise that counts from the window's end."
    return title, sentence


_ALTERNATIVES: dict[str, Callable[[OfferedScenario], tuple[str, str]]] = {
    "move": _move_words,
    "place_again": _place_words,
    "place_apart": _apart_words,
    "scale_rate": _rate_words,
    "start_at": _start_words,
    "add_node": _node_words,
    "objective": _objective_words,
}
