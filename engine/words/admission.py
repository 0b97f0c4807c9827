"""Sentences of admission, made of the grounds that its other modules find and of what an alternative offers.

Pages, REST, reports, mail and the command line show them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from engine.admission.changes import moves_in, nodes_in, rate_share_in, start_s_in
from engine.admission.grounds import (
    MAX_RISE,
    CatchUpGround,
    Ground,
    NamedGround,
    OutcomeGround,
    PassedOver,
    PassGround,
    PredictedGround,
    TightestObjective,
    UnprovenGround,
    VerdictGround,
    WithoutPins,
)
from engine.document.backlog import InputBacklog
from engine.document.elements import Replica
from engine.estimation.answer import Alarm
from engine.records import Record
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
from engine.words.document import MEMORY_HELD
from engine.words.templates import fill

if TYPE_CHECKING:
    from engine.admission.alternatives import OfferedScenario
    from engine.admission.answer import AlternativeSearch, Robustness
    from engine.admission.evaluation import QueryOutcome
    from engine.document.deployment import Deployment

__all__ = [
    "AdmissionFinding",
    "alternative_words",
    "finding_words",
    "part_words",
    "robustness_sentences",
    "search_sentences",
]

_NOTED_WAIT = 0.05  # of an estimate: less of it need not be named
_NAMED_WAITS = 2
_ROUNDING = 1e-5  # of a prediction's six digits
_COMES_AGAIN = "when this load comes again it runs from its beginning, and what is said of now holds then"


@dataclass(frozen=True)
class AdmissionFinding(Record):
    """Clauses of a finding: what follows, and why.

    `is_named` tells that the second begins with a name, which keeps its letters.
    """

    TITLE: ClassVar[str] = "a finding"

    consequence: str
    cause: str = ""
    is_named: bool = False

    @property
    def message(self) -> str:
        """Both in one sentence, without its full stop."""
        return f"{self.consequence}: {self.cause}" if self.cause else self.consequence

    @property
    def explanation(self) -> str:
        """The cause as a sentence; empty where none is told."""
        cause = self.cause if self.is_named else f"{self.cause[:1].upper()}{self.cause[1:]}"
        return f"{cause}." if cause else ""

    def adding(self, words: str) -> AdmissionFinding:
        """The finding with more words at its end."""
        if self.cause:
            return replace(self, cause=f"{self.cause}{words}")
        return replace(self, consequence=f"{self.consequence}{words}")


def finding_words(ground: Ground | AdmissionFinding) -> AdmissionFinding:
    """A ground in words; what is read back from a stored decision as it is."""
    match ground:
        case AdmissionFinding():
            return ground
        case NamedGround():
            return _named_finding(ground)
        case OutcomeGround():
            return _outcome_finding(ground)
        case TightestObjective(own, headroom, count):
            closest = f"{own.query} at {_estimate_words(own)} ({percent_words(headroom)} headroom)"
            hold = "The objective holds" if count == 1 else f"All {count} objectives hold"
            return AdmissionFinding(f"{hold}; the closest is {closest}{_busiest_words(ground)}")
        case CatchUpGround(query, now, was, candidate):
            without = "" if was is None else f"; without {candidate} it {was.words}"
            return AdmissionFinding(f"{query} {now.words}{without}")
        case InputBacklog():
            return AdmissionFinding(ground.words)
        case Alarm():
            return AdmissionFinding(str(ground.message))
        case PredictedGround(own):
            consequence = {
                "none": "passes the votes",
                "breached": "would miss its objective",
                "at_risk": "may miss its objective",
            }.get(own.state, "would keep its objective")
            return AdmissionFinding(f"{own.query} {consequence}", f"{_prediction_words(own)}{_parts_words(ground)}")
        case UnprovenGround(query, own, record):
            known = "its costs are nominal" if own is None else _prediction_words(own)
            cause = f"{known}. No prediction decides here yet: {record.words}"
            return AdmissionFinding(f"{query} never ran", cause)
        case PassedOver(query, nodes, why):
            finding = finding_words(why)
            best = f"On {listed(nodes)}, the best place for {query} alone"
            return replace(finding, consequence=f"{best}, {finding.consequence}")
        case WithoutPins():
            return _unpinned_finding(ground)
        case PassGround():
            return _passing_finding(ground)
        case VerdictGround():
            return finding_words(ground.first).adding(_verdict_words(ground))


def _named_finding(ground: NamedGround) -> AdmissionFinding:
    template = _NAMED.get(f"{ground.kind}+") if ground.of > 1 else None
    consequence, _, cause = (template or _NAMED[ground.kind]).partition(" | ")
    first = next(iter(ground.names), "")
    values = vars(ground) | {
        "first": first,
        "text": first.removesuffix("."),
        "count": len(ground.names),
        "more": ground.of - 1,
        "share": ground.value / max(1, ground.of),
        "server": server_words(ground.subject),
        "Server": server_words(ground.subject, begins=True),
        "loads": load_words(ground.was, ground.value, ground.bound),
        "seconds": seconds_words(ground.value, ground.bound),
    }
    return AdmissionFinding(fill(consequence, **values), fill(cause, **values), ground.kind in _NAMES_FIRST)


#: Templates by kind: what follows, and behind a bar why; those with a plus are of several where `of` counts them.
_NAMED = {
    "no_objective": "{subject} has no objective | only its effect on the others is judged",
    "placement_altered": "{subject} was placed elsewhere | {first} takes nothing new",
    "assumed_statistics": "The statistics of {count} of {of:counted operator} are assumed, not measured | "
    "{names:listed}",
    "assumed_costs": "How single costs vary is assumed, not measured | {names:listed}",
    "few_events": "The statistics of {subject} rest on {value:.0f} events; {bound:.0f} are asked for",
    "few_events+": "The statistics of {subject} rest on {value:.0f} events; {bound:.0f} are asked for ({of} operators "
    "below that)",
    "memory_exceeded": "{subject} has too little memory | it would hold {value:size} of state, its memory is "
    "{bound:size}",
    "memory_over_already": f"{MEMORY_HELD}, without the candidate",
    "memory_unknown": "Whether state fits the memory of the nodes is not known | {text}",
    "coarse_counts": "Arrivals of {names:listed} are known as counts per {value:step}, which hide bursts",
    "no_events": "{names:listed} {count:either has|have} no events in the horizon | nothing is known of how late "
    "{subject} would be with some",
    "plan_unread": "The plan of {subject} is not understood in full, so its estimate may leave out a wait | "
    "{names:listed}",
    "cost_unknown": "What {subject} can take is not known | {names:listed 5} {count:either runs|run} at a cost that "
    "nothing tells in full: a step of load beside CPU counters of the TaskManagers would",
    "still_measuring": "{subject} is still being measured | its statistics cover {value:duration}, which tells neither "
    "costs nor loads well enough",
    "neighbour_unmeasured": "{names:listed} {count:either has|have} nominal costs alone, which no run of this cluster "
    "bears out | what {subject} does to {count:either it|them} is not known",
    "trust_lost": "Estimates of {subject} are not to be trusted | {value:.0f} of its last {of} intervals held "
    "({share:percent}), where {bound:percent} is right",
    "may_wait": "{subject} would pass if it started {value:duration} later, but it may wait {bound:duration}",
    "may_not_wait": "{subject} would pass if it started {value:duration} later, but it was not said that it may wait",
    "not_placed": "{subject} was not placed on {names:listed}",
    "no_place": "{subject} cannot be placed | {first}",
    # the policy
    "margin_short": "{subject} would keep its objective with {value:percent} of it to spare; the policy asks for "
    "{bound:percent}",
    "change_frozen": "Nothing starts during {subject} | it is over at {names[1]}",
    "frozen_without_end": "Nothing starts during {subject} | freezes follow one another without an end in sight",
    "queue_overdue": "Requests that have waited longer come first | {names:listed}",
    "queue_precedence": "Requests that come first in the queue would lose the room they wait for | {names:listed}",
    "class_not_allowed": "{subject} is of the class {names[1]} by its priority of {value:.0f} | {first} may use "
    "{names[2]} at most",
    "quota_cores": "{first} would exceed its quota of cores | {names[1]} keeps {value:.3g} busy on average, "
    "{was:.3g} are in use, and {bound:.3g} can be had",
    "quota_pool": "{first} would exceed its share of the pool {names[2]} | {names[1]} keeps {value:.3g} cores busy on "
    "average, {was:.3g} are in use, and {bound:.3g} can be had",
    "quota_queries": "{first} would exceed its quota of queries | {was:.0f} run, and {bound:.0f} more can be had",
    "quota_rate_eps": "{first} would exceed its quota of events | {names[1]} reads {value:.4g} per second, {was:.4g} "
    "are read, and {bound:.4g} more can be had",
    "quota_unknown": "Whether {first} stays within its quota of {names[2]} is not known | something that runs, or "
    "{names[1]} itself, has a cost that nobody knows",
    "borrowed_cores": "{first} borrows {value:.3g} cores of its cohort, above its own {bound:.3g}",
    "borrowed_pool": "{first} borrows {value:.3g} cores of the pool {names[2]}, above its own {bound:.3g}",
    "borrowed_queries": "{first} borrows room for {value:.0f} queries of its cohort, above its own {bound:.0f}",
    "borrowed_rate_eps": "{first} borrows {value:.4g} events per second of its cohort, above its own {bound:.4g}",
    # servers
    "overloaded": "{Server} would be overloaded | its mean load would go from {loads[0]} to {loads[1]} of its "
    "capacity, against {loads[2]}",
    "over_at_peak": "{Server} would be over its capacity at peak | its load would go from {loads[0]} to {loads[1]}",
    "never_catches_up": "{Server} would never catch up | what comes at the end of the horizon is more than it can "
    "process",
    "still_growing": "The backlog of {server} would still grow at the end of the horizon | nothing shows that a later "
    "start keeps up",
    # candidates that never ran
    "never_ran": "{subject} never ran and nothing predicts it | {count:counted operator} ({names:listed}) "
    "{count:either has a nominal cost|have nominal costs}",
    "predicted": "{subject} never ran; it is predicted, not measured. {text}",
    "relative_costs": "{subject} never ran; costs of {names:listed} are estimated from {of:counted relative} that "
    "{of:either has run|have run}",
    "assumed_hosts": "{text}",
    "prediction_incomplete": "{subject} never ran and cannot be predicted | {text}",
    "prediction_incomplete+": "{subject} never ran and cannot be predicted | {text} ({of:counted gap} in all)",
    "infeasible": "{subject} has no feasible placement | {text}",
    "no_results": "{subject} would fail on {names:listed} | the majority predicts no results",
    "sources_wait": "{subject} would fail on {names:listed} | the majority predicts that its sources have to wait",
    "outside_domain": "{subject} lies outside what the model was trained on | {first}",
    "outside_domain+": "{subject} lies outside what the model was trained on | {first}, and {more:counted more "
    "finding}",
    "changes_unpredicted": "The prediction of {subject} does not know of the changes that were asked for | "
    "{names:listed}",
    "votes_at_risk": "{subject} may be held back or put nothing out | {value:.0f} of {of} members of the model "
    "{value:either predicts|predict} it",
    "capacity_at_risk": "{subject} may be held back | what it runs on would be used to {value:percent} by predicted "
    "costs, and {bound:percent} is as far as a prediction is trusted",
    "filling_unpredicted": "What {subject} takes beyond filling its windows cannot be told | the model predicts "
    "{seconds[0]} from end to end, and windows and links alone take {seconds[1]}",
}
#: Kinds whose second clause begins with a name.
_NAMES_FIRST = (
    "placement_altered", "assumed_statistics", "assumed_costs", "memory_unknown", "plan_unread", "no_place",
    "prediction_incomplete", "infeasible", "outside_domain", "queue_overdue", "queue_precedence",
)  # fmt: skip


def _outcome_finding(ground: OutcomeGround) -> AdmissionFinding:
    now, name = ground.now, ground.now.query
    match ground.kind:
        case "missed":
            return _missed_finding(ground).adding(f"{_chance_words(now)}{_doubt_words(now)}")
        case "missed_already":
            return _missed_already_finding(ground)
        case "old_events":
            cause = f"events have waited for {duration_words(now.oldest_s)}, with or without {ground.candidate}"
            return AdmissionFinding(f"{name} misses its objective already", cause)
        case "unknown":
            would_be = "would be" if ground.was is None else "is"
            return _standing_finding(f"Nothing is known of how late {name} {would_be}", now)
        case "policy_at_risk":
            lacking = "" if now.gap is None else now.gap.words(now.policy_high_s)
            return AdmissionFinding(f"{name} may miss its objective", f"{_would_be_words(now)}, but {lacking}")
        case "at_risk":
            return AdmissionFinding(f"{name} may miss its objective", _risk_words(now))
        case "at_risk_already":
            return AdmissionFinding(f"{name} is at risk already", _risk_words(now))
        case "too_fine":
            finest = seconds_words(now.resolution_s)[0]
            consequence = f"The objective of {name} is finer than arrivals are counted ({finest})"
            return AdmissionFinding(consequence, _would_be_words(now))
        case "rate_bounded":
            return AdmissionFinding(_standing_finding("", now).cause)


def _estimate_words(outcome: QueryOutcome) -> str:
    """The estimate beside its objective: ``8.2 s, against 10 s``."""
    if outcome.bound_s is None:
        return seconds_words(outcome.estimate_s)[0]
    estimate, bound = seconds_words(outcome.estimate_s, outcome.bound_s)
    return f"{estimate}, against {bound}"


def _would_be_words(outcome: QueryOutcome) -> str:
    return f"its {statistic_words(outcome.statistic)} would be {_estimate_words(outcome)}"


def _prediction_words(outcome: QueryOutcome) -> str:
    """Words for a predicted outcome: its statistic, the interval, and the objective."""
    bounds = () if outcome.bound_s is None else (outcome.bound_s,)
    estimate, low, high, *bound = seconds_words(
        outcome.estimate_s, outcome.low_s or 0.0, outcome.high_s or 0.0, *bounds
    )
    words = f"its {statistic_words(outcome.statistic)} is predicted at {estimate}"
    words += f" (interval {low} to {high})"
    return f"{words}, against {bound[0]}" if bound else words


def _increase_words(was: QueryOutcome, now: QueryOutcome) -> str:
    first, last, bound = seconds_words(was.estimate_s, now.estimate_s, now.bound_s or 0.0)
    return f"its {statistic_words(now.statistic)} would go from {first} to {last}, against {bound}"


def _risk_words(outcome: QueryOutcome) -> str:
    estimate, high, bound = seconds_words(outcome.estimate_s, outcome.upper_s, outcome.bound_s or 0.0)
    statistic = statistic_words(outcome.statistic)
    words = f"its {statistic} is estimated at {estimate} but may be up to {high}, against {bound}"
    return f"{words}{_chance_words(outcome)}{_by_scored_runs(outcome)}"


def _by_scored_runs(outcome: QueryOutcome) -> str:
    """Words on an upper end that is over because past estimates were off; empty elsewhere."""
    widening = outcome.widening
    if widening is None or outcome.bound_s is None or widening.stated_high_s > outcome.bound_s:
        return ""
    stated, times = seconds_words(widening.stated_high_s)[0], f"{widening.factor:.2g}"
    runs = counted(widening.runs, "scored run")
    return f"; {stated} before {runs} widened its interval {times} times on that side"


def _chance_words(outcome: QueryOutcome) -> str:
    """Assumption behind a miss where mean costs alone would keep the objective; empty elsewhere."""
    if outcome.flow_s is None or outcome.bound_s is None or outcome.flow_s + outcome.wait_s > outcome.bound_s:
        return ""
    return "; how costs vary is assumed" if outcome.assumed_costs else ""


def _wait_words(outcome: QueryOutcome) -> str:
    """Clause on what of an estimate is no queue, but the largest of its waits; empty where that is next to nothing."""
    if outcome.wait_s < _NOTED_WAIT * outcome.estimate_s:
        return ""
    parts = sorted(((term.part_s(outcome.statistic), term) for term in outcome.waits), key=lambda part: -part[0])
    named = [(seconds, term.words) for seconds, term in parts if seconds >= _NOTED_WAIT * outcome.wait_s][:_NAMED_WAITS]
    said = [f"{seconds_words(seconds)[0]} of it is {named[0][1]}" for seconds, _ in named[:1]]
    said += [f"{seconds_words(seconds)[0]} {words}" for seconds, words in named[1:]]
    up_to = "up to " if outcome.statistic.startswith("q") else ""
    return f"; {up_to}{listed(said)}"


def _standing_finding(consequence: str, outcome: QueryOutcome) -> AdmissionFinding:
    """Finding that follows from what is known of a query's latency."""
    words = outcome.standing.sentence.removesuffix(".")
    return AdmissionFinding(consequence, f"{words[:1].lower()}{words[1:]}")


def _missed_finding(ground: OutcomeGround) -> AdmissionFinding:
    """A query's miss, with the node it shares with the candidate or the load of the server that makes it late."""
    now, was = ground.now, ground.was
    missed = f"{now.query} would miss its objective"
    if now.standing.is_endless:
        return _standing_finding(missed, now)
    cause = _would_be_words(now) if was is None else _increase_words(was, now)
    waits_longer = was is None and now.wait_s > now.estimate_s - now.wait_s
    if now.bottleneck is None or ground.peak is None or waits_longer:
        return AdmissionFinding(missed, f"{cause}{_wait_words(now)}")
    if ground.is_shared:
        return AdmissionFinding(missed, f"{cause}, because both queries use {now.bottleneck.node}")
    place, load = server_words(now.bottleneck.server), load_words(ground.peak)[0]
    waits = _wait_words(now) if was is None else ""
    return AdmissionFinding(missed, f"{cause}, because {place} would run at {load} of its capacity at peak{waits}")


def _missed_already_finding(ground: OutcomeGround) -> AdmissionFinding:
    """A miss without the candidate, which gets worse by more than is let pass, by less, or not at all."""
    now, was = ground.now, ground.was
    assert was is not None
    already = f"{now.query} misses its objective already"
    if ground.is_worse:
        finding = AdmissionFinding(f"{already} and would get worse", _increase_words(was, now))
        return finding.adding(f"{_chance_words(now)}{_doubt_words(now)}")
    worse_s = now.estimate_s - was.estimate_s
    then = f"gets worse by only {seconds_words(worse_s)[0]}" if worse_s > 0 else "stays as it is"
    return AdmissionFinding(f"{already} ({_estimate_words(was)}) and {then}")


def _doubt_words(outcome: QueryOutcome) -> str:
    """Clause on a miss that a model of arrivals alone says; empty where it is certain."""
    if outcome.is_certain:
        return ""
    low = seconds_words(outcome.low_s or 0.0)[0]
    return f"; as {listed(outcome.assumed_sources)} may come between counts, it may also be {low}"


def _busiest_words(ground: TightestObjective) -> str:
    """The busiest server of the candidate: time left of an objective says nothing of capacity left."""
    if ground.busiest is None:
        return ""
    where = f"{server_words(ground.busiest)}, the busiest that {ground.candidate} uses,"
    return f"; {where} is at {load_words(ground.load)[0]} of its capacity at peak"


def _parts_words(ground: PredictedGround) -> str:
    """Parts of a predicted latency, where more than the model speaks in it."""
    own = ground.own
    texts = seconds_words(ground.latency_s, ground.fill_s, ground.above_s, own.mean_wait_s)
    parts = []
    if ground.fill_s > 0.0:
        parts.append(f"without the {texts[1]} that windows take to fill")
    if own.mean_wait_s > 0.0:
        parts.append(f"with the {texts[3]} that events wait for windows and the like on average")
    if ground.above_s > _ROUNDING * own.estimate_s:
        parts.append(f"with the {texts[2]} that it lies above the mean with nominal costs")
    return f"; the model predicts {texts[0]} from end to end, {listed(parts)}" if parts else ""


def _unpinned_finding(ground: WithoutPins) -> AdmissionFinding:
    name, nodes = ground.query, listed(ground.nodes)
    if ground.own is not None:
        would_be = _would_be_words(ground.own)
        return AdmissionFinding(f"Without the nodes asked for {name} would pass on {nodes}", would_be)
    if ground.is_same:
        cause = f"on {nodes} the verdict on {name} would be {ground.verdict} as well"
        return AdmissionFinding("The nodes asked for do not decide", cause)
    return AdmissionFinding(f"Without the nodes asked for the verdict on {name} would be {ground.verdict}, on {nodes}")


def _passing_finding(ground: PassGround) -> AdmissionFinding:
    own, over = ground.own, ground.over
    if ground.later_s is not None:
        later = duration_words(ground.later_s)
        cause = f"{_would_be_words(own)}; {_COMES_AGAIN}"
        return AdmissionFinding(f"{own.query} would pass if it starts {later} later", cause)
    statistic, estimate = statistic_words(own.statistic), _estimate_words(own)
    with_changes = " with the changes" if ground.is_changed else ""
    if own.is_predicted:
        return AdmissionFinding(f"{own.query} may run", _prediction_words(own))
    if over:
        misses = f"{over[0]} misses its objective" if len(over) == 1 else f"{listed(over)} miss their objective"
        cause = f"its {statistic} would be {estimate}; {misses} with or without it"
        return AdmissionFinding(f"{own.query} may run{with_changes}", cause)
    if own.bound_s is None:
        return AdmissionFinding(f"Every objective holds with {own.query}", f"its {statistic} would be {estimate}")
    cause = f"the {statistic} of {own.query} would be {estimate}"
    return AdmissionFinding(f"Every objective holds{with_changes}", cause)


def _verdict_words(ground: VerdictGround) -> str:
    """Clauses that a verdict adds to its first ground."""
    others, clauses = ground.others, []
    if others:
        theirs = "its own" if len(others) == 1 else "theirs"
        clauses.append(f"{listed(others, len(others))} would miss {theirs} too")
    if ground.unborne:
        rests_on = "a prediction" if ground.unborne == "prediction" else f"nominal costs of {ground.candidate}"
        clauses.append(f"that rests on {rests_on}, which runs of this cluster do not bear out yet")
    if ground.passes_unpinned:
        clauses.append("without the nodes asked for it would pass")
    if ground.thin is not None:
        clauses.append(f"thin, for {_thin_words(ground.thin)}")
    return "".join(f"; {clause}" for clause in clauses)


def _thin_words(robustness: Robustness) -> str:
    """Words for the room that a thin verdict lacks."""
    what = "load" if robustness.load <= robustness.costs else "costs"
    if robustness.margin <= 0.0:
        return f"no higher {what} is confirmed to keep it"
    return f"it holds only up to {percent_words(robustness.margin)} more {what}"


def robustness_sentences(robustness: Robustness) -> Iterator[str]:
    """The room that a verdict has."""
    load, costs = robustness.load, robustness.costs
    if load or costs:
        load_text, costs_text = _up_to(load, "load"), _up_to(costs, "costs of its operators")
        yield f"It stays as it is with {load_text}, or with {costs_text}."
    else:
        yield "No rise of load or costs is confirmed to keep it."
    broken = list(dict.fromkeys(query for lost in robustness.lost_nodes for query in lost.breaks))
    names = listed([lost.node for lost in robustness.lost_nodes]) if robustness.lost_nodes else ""
    if names:
        yield f"The loss of {names} breaks {listed(broken)}." if broken else f"Without {names} something has no place."
    elif robustness.nodes == 1:
        yield "The one node in use may be lost."
    else:
        yield f"Any one of the {robustness.nodes} nodes in use may be lost."
    if (weakest := robustness.weakest) is not None:
        up_to = weakest.holds_up_to
        room = f"may be {percent_words(up_to)} higher" if up_to is not None else "may be five times as high"
        room = "leaves no room" if up_to == 0.0 else room
        yield f"Weakest assumption: the cost of {weakest.operator}, {weakest.evidence}, {room}."


_WITHOUT_PART = {
    "in_group": "It is asked in a group: what the members stand and what would cure one is not looked for.",
    "not_asked": "It was not asked for.",
    "passes": "It passes as asked: no change is needed.",
    "predicted": "It is predicted: nothing is known of its costs that could be raised.",
    "fails": "Only a verdict that passes has room.",
}


def part_words(why_without: str) -> str:
    """Why a part of a decision does not apply (`engine.admission.decision`), as a sentence."""
    return _WITHOUT_PART[why_without]


def _up_to(share: float, what: str) -> str:
    least = "at least " if share >= MAX_RISE else "up to "
    return f"{what} {least}{100 * share:.3g}% higher" if share else f"no higher {what}"


def alternative_words(offered: OfferedScenario) -> tuple[str, str]:
    """Title and detail of an alternative."""
    own, estimate = offered.own, _estimate_sentence(offered.own)
    nodes = listed(offered.settled.scenario.nodes_of(own.query))
    match offered.kind:
        case "move":
            return _move_words(offered, estimate)
        case "place_again":
            elsewhere = f"{counted(len(offered.new), 'operator')} elsewhere than asked for"
            return f"Place {f'it on {nodes}' if own.is_predicted else elsewhere}", estimate
        case "place_apart":
            return f"Place it on {nodes}, away from what is for a person to judge", estimate
        case "scale_rate":
            share = rate_share_in(offered.new)
            held_back = f"hold back {percent_words(1.0 - share)} of their events; Sluice does not do that."
            return f"Admit it with {percent_words(share)} of its rate", f"Its sources must {held_back} {estimate}"
        case "start_at":
            return f"Start it {duration_words(start_s_in(offered.new))} later", f"{estimate} But {_COMES_AGAIN}."
        case "add_node":
            return _node_words(offered, estimate)
    return f"Ask for {seconds_words(own.bound_s or 0.0)[0]} instead", _objective_words(own)


_KINDS_TRIED = {
    "place_again": "other placements",
    "move": "moves of its operators and of others",
    "scale_rate": "a smaller rate",
    "start_at": "a later start",
    "add_node": "new nodes",
    "objective": "another objective",
    "place_apart": "nodes away from what is for a person to judge",
}
_WHEN_MEASURED = {
    "admit": "it would then be admitted",
    "review": "a person would then still have to decide",
    "reject": "it would then be rejected",
}


def search_sentences(searched: AlternativeSearch) -> Iterator[str]:
    """Sentences on kinds of alternatives that were sought in vain, and on what measuring would change."""
    if searched.tried:
        tried = listed([_KINDS_TRIED[kind] for kind in searched.tried], len(_KINDS_TRIED))
        yield (
            f"Tried as well, and none passes: {tried}." if searched.found else f"No alternative passes; tried: {tried}."
        )
    if searched.verdict_measured is not None:
        then = _WHEN_MEASURED[searched.verdict_measured]
        yield f"Once it is measured, at an agent or where it runs, and costs what is estimated now, {then}."


def _estimate_sentence(own: QueryOutcome) -> str:
    """Sentence about the candidate's estimate."""
    if own.is_predicted:
        return f"{own.query}: {_prediction_words(own)}."
    return f"{own.query} would have a {statistic_words(own.statistic)} of {_estimate_words(own)}."


def _move_words(offered: OfferedScenario, estimate: str) -> tuple[str, str]:
    deployment, running = offered.settled.scenario.deployment, offered.question.running
    cores = {name: _core(deployment, place) for name, place in moves_in(offered.new).items()}
    operators = {operator.id: operator for operator in running.operators if operator.id in cores}
    state = sum(operator.state_bytes or 0.0 for operator in operators.values())
    if len(cores) > 1:
        moving = f" They move {size_words(state)} of state." if state else ""
        return f"Move {listed([f'{name} to {server_words(core)}' for name, core in cores.items()])}", estimate + moving
    ((name, core),) = cores.items()
    title = f"Place {name} on {server_words(core)}"
    if name in operators:
        left = server_words(_core(deployment, operators[name].replicas[0]))
        title = f"Move {name} from {left} to {server_words(core)}"
    moving = f" It moves {size_words(state)} of state." if state else ""
    load = f"{server_words(core, begins=True)} goes to {load_words(offered.settled.evaluation.peaks[core])[0]}"
    return title, f"{load} of its capacity at peak. {estimate}{moving}"


def _core(deployment: Deployment, place: Replica) -> str:
    """The name of the server that a replica is on."""
    node = deployment.node_index[place.node]
    return next(s.name for s in deployment.servers if s.node == node and s.core == place.core)


def _node_words(offered: OfferedScenario, estimate: str) -> tuple[str, str]:
    added = nodes_in(offered.new)
    like, share = offered.model_of(added[0])
    size = f"with {percent_words(share)} of the capacity of {like.id}" if share < 0.995 else f"like {like.id}"
    title = f"Add a node {size}" if len(added) == 1 else f"Add {len(added)} nodes {size}"
    if not like.price_per_hour:
        return title, estimate
    price = money_words(like.price_per_hour, offered.question.currency)
    return title, f"{estimate} A node like {like.id} costs {price} per hour."


def _objective_words(own: QueryOutcome) -> str:
    sentence = f"Its {statistic_words(own.statistic)} is estimated at {seconds_words(own.estimate_s)[0]}"
    if own.high_s is not None:
        sentence += f" and may be up to {seconds_words(own.upper_s)[0]}"
    sentence += f"{_wait_words(own)}. Nothing else changes."
    if any(term.kind == "window" for term in own.waits) and own.wait_s > own.estimate_s - own.wait_s:
        sentence += " A shorter window makes it less, or a promise that counts from the window's end."
    return sentence
