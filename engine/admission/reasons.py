"""Reasons for and against a candidate, with the grounds that their sentences are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from engine.admission.answer import Reason, ReasonSubject, named_reason
from engine.admission.changes import moves_in
from engine.admission.evaluation import Evaluation, QueryOutcome, coarse_sources, servers_of_query
from engine.admission.grounds import (
    CatchUpGround,
    NamedGround,
    OutcomeGround,
    TightestObjective,
)
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.document.backlog import USED
from engine.document.elements import Operator
from engine.document.memory import MEMORY_SLACK, memory_by_node, memory_with_more, unstated_memory
from engine.document.unknown_costs import unknown_costs
from engine.latency_state import WITHIN, CatchUp
from engine.measurement.calibration import LEVEL
from engine.measurement.trust import LOST, UNJUDGED, EstimateTrust
from engine.policies.rules import ADMIT, weight_of

__all__ = [
    "MEMORY_EXCEEDED",
    "doubted_queries",
    "evidence_of",
    "in_order",
    "passes",
    "reasons_of",
    "to_measure",
    "tolerance_s",
]

MEMORY_EXCEEDED = "memory_exceeded"

#: Ends of codes. What a model's votes or predicted use put at risk is among them: another place or less load cures it.
_CURABLE = ("at_risk", "_breached", "_overloaded", "catches_up", "still_growing", "predicted_failure")
_SERIOUS = {"bad": 0, "watch": 1, "info": 2, "ok": 3}
_WORSE_SHARE = 0.01  # by which what is over already may get worse: of a bound, or of a mean load
_LONGER_SHARE = 0.1  # by which a query that misses its objective may catch up later without a person's consent
_MORE_LOAD = 1e-9  # a server's load has changed when it differs by more than rounding


def reasons_of(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> tuple[Reason, ...]:
    """Every finding about a scenario, the most serious first; in each class in a fixed order."""
    related = _concerned(scenario, after)
    reasons = [
        *_objectives(question, scenario, before, after),
        *_overloads(question, scenario, before, after),
        *_memory(question, scenario),
        *_placement(scenario),
        *_statistics(question, after),
        *_coarse_counts(question, scenario, related),
        *_silent_sources(question, scenario),
        *_unread_plans(question, scenario, related),
        *_unknown_costs(scenario, related),
        *_short_statistics(scenario, related),
        *_lost_trust(question, scenario, related),
        *_nominal_neighbours(question, scenario, related),
        *_backlogs(question, scenario, related, before, after),
        *_alarm(after),
    ]
    if not any(reason.severity == "bad" for reason in reasons):
        reasons += _holding_reasons(question, after)
    return in_order(reasons)


def in_order(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """The most serious first; in each class as they stand."""
    return tuple(sorted(reasons, key=lambda reason: _SERIOUS[reason.severity]))


def passes(reasons: Iterable[Reason]) -> bool:
    """Whether nothing speaks against a scenario that a change of rate, place, time or capacity could cure."""
    return not any(reason.severity == "bad" or (reason.review and reason.code.endswith(_CURABLE)) for reason in reasons)


def tolerance_s(outcome: QueryOutcome) -> float:
    """Tolerated increase for a query already over its objective: 1 % of its bound."""
    return _WORSE_SHARE * (outcome.bound_s or 0.0)


def evidence_of(operators: tuple[Operator, ...]) -> dict[str, int]:
    """Number of operators by the origin of their statistics; those without evidence count as assumed."""
    counts = {"assumed": 0, "predicted": 0, "measured": 0}
    if any(operator.evidence and operator.evidence.kind == "unknown" for operator in operators):
        counts = {"unknown": 0, **counts}
    for operator in operators:
        counts[operator.evidence.kind if operator.evidence else "assumed"] += 1
    return counts


def to_measure(question: CandidateQuestion, after: Evaluation) -> tuple[str, ...]:
    """Operators of the candidate to measure first: those whose statistics a person has to decide on."""
    operators = question.candidate.operators
    new = {op.id for op in operators if op.never_ran}
    if question.policy.evidence.assumed != ADMIT:
        new |= {*_assumed(operators), *_varying(question, after), *(name for _, name in _few_events(question))}
    return tuple(op.id for op in operators if op.id in new)


def _assumed(operators: Iterable[Operator]) -> list[str]:
    return [op.id for op in operators if op.evidence is None or op.evidence.kind == "assumed"]


def _varying(question: CandidateQuestion, after: Evaluation) -> list[str]:
    """Operators of the candidate with measured costs whose variation is assumed."""
    own = {op.id for op in question.candidate.operators} - set(_assumed(question.candidate.operators))
    inputs = after.outcomes[question.candidate.query].assumed_costs
    return [name for name in (entry.split("<-")[0] for entry in inputs) if name in own]


def _few_events(question: CandidateQuestion) -> list[tuple[float, str]]:
    """(events, operator) of the candidate's measured operators with fewer events than the policy asks for."""
    return [
        (op.evidence.events, op.id)
        for op in question.candidate.operators
        if op.evidence and op.evidence.kind == "measured" and op.evidence.events < question.policy.min_events
    ]


def _objectives(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> Iterator[Reason]:
    name = question.candidate.query
    own = after.outcomes[name]
    severity, review = weight_of(question.policy.evidence.at_risk, admitted="watch")
    if own.bound_s is None:
        yield named_reason("no_objective", "info", ReasonSubject("query", name), value=own.estimate_s)
    elif own.is_predicted:
        pass  # the prediction speaks for itself (`engine.admission.prediction`)
    elif own.state == "breached":
        yield _breach("objective_breached", OutcomeGround("missed", own, peak=_peak_of(after, own)), question)
    elif own.state == "unknown":
        yield _query_reason("latency_unknown", "watch", OutcomeGround("unknown", own), question, review=True)
    elif own.lacks_policy:
        # It holds by stimulus time, where another policy is in force: for a person, whatever the rules.
        yield _query_reason("policy_at_risk", "watch", OutcomeGround("policy_at_risk", own), question, review=True)
    elif own.state == "at_risk":
        yield _query_reason("at_risk", severity, OutcomeGround("at_risk", own), question, review=review)
    elif own.bound_s < own.resolution_s:
        ground = OutcomeGround("too_fine", own)
        yield _query_reason("under_resolution", severity, ground, question, review=review)
    if own.state == "holds" and _lacks_margin(question, own):
        yield _margin_reason(question, own)
    if own.standing.is_known and own.standing.words:
        yield _query_reason("rate_bounded", "info", OutcomeGround("rate_bounded", own), question)
    for query, was in before.outcomes.items():
        if query == name or (after.outcomes[query] is was and query in before.quiet):
            continue
        reason = _neighbour(question, scenario, was, after)
        if reason:
            yield reason


def _peak_of(after: Evaluation, outcome: QueryOutcome) -> float | None:
    """Largest load of the server that makes a query late."""
    return None if outcome.bottleneck is None else after.peaks[outcome.bottleneck.server]


def _neighbour(
    question: CandidateQuestion, scenario: AdmissionScenario, was: QueryOutcome, after: Evaluation
) -> Reason | None:
    now, candidate = after.outcomes[was.query], question.candidate.query
    worse_s = now.estimate_s - was.estimate_s
    if now.state == "breached" and (was.state != "breached" or (now.standing.is_endless and _falls_faster(was, now))):
        is_shared = now.bottleneck is not None and now.bottleneck.node in scenario.nodes_of(candidate)
        ground = OutcomeGround("missed", now, was, peak=_peak_of(after, now), is_shared=is_shared)
        return _breach("neighbour_breached", ground, question)
    if now.state == "breached" and worse_s > tolerance_s(now):
        return _breach("neighbour_breached", OutcomeGround("missed_already", now, was, is_worse=True), question)
    if now.state == "breached":
        is_old = now.oldest_s > (now.bound_s or 0.0)
        ground = OutcomeGround("old_events" if is_old else "missed_already", now, was, candidate)
        return _query_reason("neighbour_already_over", "info", ground, question)
    if now.state == "unknown":
        return _query_reason("neighbour_unknown", "info", OutcomeGround("unknown", now, was), question)
    if now.lacks_policy:
        ground = OutcomeGround("policy_at_risk", now, was)
        return _query_reason("neighbour_policy_at_risk", "watch", ground, question, review=True)
    if now.state == "at_risk":
        is_new = was.state == "holds" or now.upper_s - was.upper_s > tolerance_s(now)
        ground = OutcomeGround("at_risk" if is_new else "at_risk_already", now, was)
        severity, review = weight_of(question.policy.evidence.at_risk, admitted="watch") if is_new else ("info", False)
        return _query_reason("neighbour_at_risk", severity, ground, question, review=review)
    if _lacks_margin(question, now) and now.upper_s - was.upper_s > (
        tolerance_s(now) if _lacks_margin(question, was) else 0.0
    ):
        return _margin_reason(question, now)
    return None


def _lacks_margin(question: CandidateQuestion, outcome: QueryOutcome) -> bool:
    """Whether less of an objective stays free above the upper end than the policy asks for."""
    bound_s = outcome.bound_s
    return bound_s is not None and outcome.upper_s > bound_s * (1.0 - question.policy.margin)


def _margin_reason(question: CandidateQuestion, outcome: QueryOutcome) -> Reason:
    severity, review = weight_of(question.policy.evidence.at_risk)
    free = 1.0 - outcome.upper_s / (outcome.bound_s or 1.0)
    subject, numbers = ReasonSubject("query", outcome.query), (question.policy.margin, free, "share")
    return named_reason("margin_short", severity, subject, (), *numbers, review=review)


def _falls_faster(was: QueryOutcome, now: QueryOutcome) -> bool:
    """Whether a query that never catches up falls behind faster than it does without the candidate."""
    return (now.standing.growth or 0.0) > (was.standing.growth or 0.0) * (1.0 + _WORSE_SHARE) + _MORE_LOAD


def _query_reason(
    code: str,
    severity: str,
    ground: OutcomeGround | TightestObjective,
    question: CandidateQuestion,
    *,
    review: bool = False,
) -> Reason:
    """A reason about a query's objective, with the place and time of its bottleneck."""
    outcome = ground.now if isinstance(ground, OutcomeGround) else ground.own
    bottleneck = outcome.bottleneck
    value = outcome.upper_s if code.endswith("at_risk") else outcome.estimate_s
    return Reason(
        code,
        severity,
        ReasonSubject("query", outcome.query),
        ground,
        bound=outcome.bound_s,
        value=value,
        where=bottleneck.server if bottleneck else None,
        when_p=bottleneck.at_p if bottleneck else None,
        when_s=(bottleneck.at_p - 1) * question.mace_width_s if bottleneck else None,
        review=review,
    )


def _breach(code: str, ground: OutcomeGround, question: CandidateQuestion) -> Reason:
    """A miss: a person's decision where a model of arrivals alone says so, as long as the objective may hold too."""
    is_certain = ground.now.is_certain
    return _query_reason(code, "bad" if is_certain else "watch", ground, question, review=not is_certain)


def _overloads(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> Iterator[Reason]:
    """Servers that would get more than they can ever process, and peaks above capacity that are new.

    A peak is no fault by itself (that is what latency is estimated for); it is bad where it holds up a late query.
    """
    most = question.policy.max_mean_load
    late = {o.bottleneck.server for o in after.outcomes.values() if o.bottleneck and _newly_late(o, before)}
    for server in after.mace.deployment.servers:  # of all others the load is as before
        name = server.name
        mean, peak = after.means[name], after.peaks[name]
        mean_was, peak_was = before.means.get(name, 0.0), before.peaks.get(name, 0.0)
        subject = ReasonSubject("link", name)
        if server.node is not None:
            subject = ReasonSubject("node", after.mace.deployment.nodes[server.node].id)
        code, kind, severity, was, now, bound = "node_overloaded", "", "bad", peak_was, peak, 1.0
        if mean > max(most, mean_was * (1.0 + _WORSE_SHARE)):
            kind, was, now, bound = "overloaded", mean_was, mean, most
        elif name in after.endless and mean > mean_was * (1.0 + _WORSE_SHARE):
            code = kind = "never_catches_up"
        elif after.begin and name in after.growing and mean > mean_was * (1.0 + _WORSE_SHARE):
            code = kind = "still_growing"
        elif peak > 1.0 and peak > peak_was + _MORE_LOAD:
            kind, severity = "over_at_peak", "bad" if name in late else "info"
        if kind:
            numbers = bound, now, "share"
            yield named_reason(code, severity, subject, (), *numbers, kind=kind, was=was, about=name, where=name)


def _newly_late(now: QueryOutcome, before: Evaluation) -> bool:
    """Whether a query misses its objective because of the candidate."""
    was = before.outcomes.get(now.query)
    if now.state != "breached" or not now.is_certain:
        return False
    if was is not None and now.standing.is_endless and _falls_faster(was, now):
        return True
    return was is None or was.state != "breached" or now.estimate_s - was.estimate_s > tolerance_s(now)


def _placement(scenario: AdmissionScenario) -> Iterator[Reason]:
    for operator, node in scenario.altered.items():
        subject = ReasonSubject("operator", operator)
        yield named_reason("placement_altered", "watch", subject, (node,), unit="", where=node)


def _statistics(question: CandidateQuestion, after: Evaluation) -> Iterator[Reason]:
    """Reasons about the statistics behind the candidate's estimate."""
    operators, policy = question.candidate.operators, question.policy
    severity, review = weight_of(policy.evidence.assumed)
    subject = ReasonSubject("statistic", question.candidate.query)
    if assumed := tuple(_assumed(operators)):
        numbers = 0.0, float(len(assumed)), "operators"
        of = len(operators)
        yield named_reason("assumed_statistics", severity, subject, assumed, *numbers, of=of, review=review)
    own = set(_varying(question, after))
    inputs = after.outcomes[question.candidate.query].assumed_costs
    varying = tuple(name for name in inputs if name.split("<-")[0] in own)
    if varying:
        numbers = 0.0, float(len(varying)), "inputs"
        yield named_reason("assumed_costs", severity, subject, varying, *numbers, review=review)
    if few := _few_events(question):
        fewest, name = min(few)
        numbers, operator = (policy.min_events, fewest, "events"), ReasonSubject("operator", name)
        yield named_reason("few_events", severity, operator, (), *numbers, of=len(few), review=review)


def _memory(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Nodes that get more state than memory, or have more already; what nobody knows, once."""
    was = memory_by_node(question.running)
    for node, now in memory_with_more(was, question.running, scenario.deployment).items():
        before = was[node].held_bytes if node in was else 0.0
        if now.over_bytes <= 0.0:
            continue
        grows = now.held_bytes > before * (1.0 + MEMORY_SLACK)
        code, severity = (MEMORY_EXCEEDED, "bad") if grows else ("memory_over_already", "info")
        yield named_reason(code, severity, ReasonSubject("node", node), (), now.memory_bytes, now.held_bytes, "B")
    moved = moves_in(scenario.changes).keys()
    concerned = {operator.id for operator in question.candidate.operators} | moved
    unstated = unstated_memory(scenario.deployment, concerned)
    if unstated:
        subject = ReasonSubject("query", question.candidate.query)
        yield named_reason("memory_unknown", "info", subject, (str(unstated),), unit="B")


def _concerned(scenario: AdmissionScenario, after: Evaluation) -> tuple[str, ...]:
    """Queries that the candidate concerns, itself among them: a load on their way differs, or when a slice is done."""
    return tuple(query for query in scenario.deployment.queries if query in after.concerned)


def doubted_queries(question: CandidateQuestion, scenario: AdmissionScenario) -> tuple[str, ...]:
    """Running queries because of which a person would have to decide about whatever concerns them.

    Their counts are coarse, their estimates lost trust, their plans are not understood in full, costs are unknown, or
    statistics cover too little time.
    """
    policy = question.policy
    return tuple(
        query
        for query in question.running.queries
        if (policy.evidence.untrusted != ADMIT and _trust_of(question, query).state == LOST)
        or any(operator.unread or operator.waits_outside for operator in _operators_of(scenario, query))
        or unknown_costs(question.running, query)
        or any(
            operator.measured_s is not None or operator.cost_by is not None
            for operator in _operators_of(scenario, query)
        )
        or (policy.evidence.coarse != ADMIT and coarse_sources(scenario.deployment, [query], question.mace_width_s))
    )


def _operators_of(scenario: AdmissionScenario, query: str) -> list[Operator]:
    after = scenario.deployment
    return [after.operators[j] for j in after.operators_of(query)]


def _trust_of(question: CandidateQuestion, query: str) -> EstimateTrust:
    return question.calibrations[query].trust if query in question.calibrations else UNJUDGED


def _coarse_counts(
    question: CandidateQuestion, scenario: AdmissionScenario, related: Collection[str]
) -> Iterator[Reason]:
    """Arrivals of queries that the candidate can affect, whose bursts nobody has counted."""
    after = scenario.deployment
    width_s = question.mace_width_s
    coarse = coarse_sources(after, related, width_s)
    if not coarse:
        return
    names = tuple(source.id for source in coarse)
    step_s = max(source.arrivals_step_s or 0.0 for source in coarse)
    (severity, review), subject = weight_of(question.policy.evidence.coarse), ReasonSubject("source", names[0])
    yield named_reason("coarse_counts", severity, subject, names, width_s, step_s, review=review)


def _silent_sources(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Sources of the candidate without events, of which nothing follows for its latencies."""
    after, name = scenario.deployment, question.candidate.query
    read = after.with_above(after.operators[j].id for j in after.operators_of(name))[0]
    silent = tuple(source.id for source in read if not source.arrivals.any())
    if silent:
        rule = question.policy.evidence.assumed if len(silent) == len(read) else ADMIT
        (severity, review), subject = weight_of(rule), ReasonSubject("source", silent[0])
        yield named_reason("no_events", severity, subject, silent, about=name, review=review)


def _unread_plans(
    question: CandidateQuestion, scenario: AdmissionScenario, related: Collection[str]
) -> Iterator[Reason]:
    """Queries that the candidate can affect, itself among them, whose plans are not understood in full.

    No policy lets anything in on their estimates alone.
    """
    for query in related:
        own = _operators_of(scenario, query)
        unread = tuple(f"{op.id} ({part})" for op in own for part in op.unread or ())
        unread += tuple(op.id for op in own if op.waits_outside and not op.unread)
        if unread:
            subject, numbers = ReasonSubject("query", query), (0.0, float(len(unread)), "operators")
            yield named_reason("plan_unread", "watch", subject, unread, *numbers, review=True)


def _unknown_costs(scenario: AdmissionScenario, related: Collection[str]) -> Iterator[Reason]:
    """Operators whose cost nobody knows, of the candidate or of queries that it can affect.

    No policy lets anything in beside them alone.
    """
    for query in related:
        if costs := unknown_costs(scenario.deployment, query):
            subject, numbers = ReasonSubject("query", query), (0.0, float(len(costs)), "operators")
            yield named_reason("cost_unknown", "watch", subject, costs, *numbers, review=True)


def _short_statistics(scenario: AdmissionScenario, related: Collection[str]) -> Iterator[Reason]:
    """Queries that the candidate can affect, itself among them, that were watched for too short to decide by."""
    for query in related:
        spans = [op.measured_s for op in _operators_of(scenario, query) if op.measured_s is not None]
        if spans:
            subject, numbers = ReasonSubject("query", query), (None, min(spans), "s")
            yield named_reason("still_measuring", "watch", subject, (), *numbers, review=True)


def _backlogs(
    question: CandidateQuestion,
    scenario: AdmissionScenario,
    related: Collection[str],
    before: Evaluation,
    after: Evaluation,
) -> Iterator[Reason]:
    """Queries that catch up later because of the candidate, when it does itself, and backlogs that are not used."""
    for query, now in after.outcomes.items():
        was = before.outcomes.get(query)
        if was is None:
            if now.catch_up is not None:
                severity = "info" if now.catch_up.state == WITHIN else "watch"
                ground = CatchUpGround(query, now.catch_up, None, query)
                subject = ReasonSubject("query", query)
                yield Reason("catch_up", severity, subject, ground, None, now.catch_up.at_s)
        elif now.catch_up is not None and was.catch_up is not None and _is_delayed(was.catch_up, now.catch_up):
            longer = now.catch_up.latest_s > was.catch_up.latest_s * (1.0 + _LONGER_SHARE)
            review = now.catch_up.state != was.catch_up.state or (longer and now.state == "breached")
            ground = CatchUpGround(query, now.catch_up, was.catch_up, question.candidate.query)
            subject, bound = ReasonSubject("query", query), was.catch_up.at_s
            yield Reason("catch_up_delayed", "watch", subject, ground, bound, now.catch_up.at_s, review=review)
    for found in scenario.deployment.backlogs:
        if found.query in related and found.standing != USED:
            review = not found.is_used
            severity = "watch" if review else "info"
            yield Reason("backlog_unknown", severity, ReasonSubject("operator", found.operator), found, review=review)


def _is_delayed(was: CatchUp, now: CatchUp) -> bool:
    """Whether a query catches up later than without the candidate, by more than rounding."""
    return now.latest_s > was.latest_s * (1.0 + _WORSE_SHARE)


def _lost_trust(question: CandidateQuestion, scenario: AdmissionScenario, related: Collection[str]) -> Iterator[Reason]:
    """Running queries that the candidate can affect, and whose intervals hold too seldom to rest a decision on."""
    severity, review = weight_of(question.policy.evidence.untrusted)
    for query in related:
        trust = _trust_of(question, query)
        coverage = trust.coverage
        if trust.state == LOST and coverage is not None:
            ground = NamedGround("trust_lost", query, of=trust.judged, value=trust.held, bound=LEVEL)
            subject = ReasonSubject("query", query)
            yield Reason("trust_lost", severity, subject, ground, LEVEL, coverage, "share", review=review)


def _nominal_neighbours(
    question: CandidateQuestion, scenario: AdmissionScenario, related: Collection[str]
) -> Iterator[Reason]:
    """Running queries that the candidate can affect, and whose own costs nobody has measured or stated."""
    if question.record.is_borne_out:
        return
    running = question.running
    names = tuple(
        query
        for query in related
        if any(running.operators[i].never_ran for i in running.operators_of(query))
        and not unknown_costs(running, query)
    )
    if names:
        subject, about = ReasonSubject("query", names[0]), question.candidate.query
        yield named_reason("neighbour_unmeasured", "watch", subject, names, unit="", about=about, review=True)


def _alarm(after: Evaluation) -> Iterator[Reason]:
    alarm = after.alarm
    if alarm.untrusted:
        yield Reason(
            "theorem_alarm", "info", ReasonSubject("statistic", "mace"), alarm, 0.05, alarm.flow_over_mace, "share"
        )


def _holding_reasons(question: CandidateQuestion, after: Evaluation) -> list[Reason]:
    """The objective with the least headroom, if all hold."""
    judged = [o for o in after.outcomes.values() if o.bound_s is not None]
    if not judged or any(outcome.state != "holds" for outcome in judged):
        return []
    if any(outcome.assumed_sources or (outcome.bound_s or 0.0) < outcome.resolution_s for outcome in judged):
        return []  # nobody knows what happens between counts

    def headroom(outcome: QueryOutcome) -> float:
        return 1.0 - outcome.estimate_s / (outcome.bound_s or 1.0)

    tightest, name = min(judged, key=headroom), question.candidate.query
    servers = after.mace.deployment.servers
    own = [servers[i].name for i in servers_of_query(after.mace.deployment, name).tolist()]
    busiest = max(own, key=lambda server: after.peaks[server], default=None)
    load = 0.0 if busiest is None else after.peaks[busiest]
    ground = TightestObjective(tightest, headroom(tightest), len(judged), name, busiest, load)
    return [_query_reason("all_hold", "ok", ground, question)]
