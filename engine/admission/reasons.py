"""Reasons for and against a candidate, as data and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.admission.answer import AdmissionFinding, Reason, ReasonSubject
from engine.admission.changes import moves_in
from engine.admission.evaluation import Evaluation, QueryOutcome, coarse_sources, related_queries
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.admission.words import (
    chance_words,
    estimate_words,
    increase_words,
    neighbour_miss,
    own_miss,
    risk_words,
    scarcest_words,
    standing_finding,
    would_be_words,
)
from engine.document.backlog import USED
from engine.document.elements import Operator
from engine.document.memory import MEMORY_SLACK, memory_by_node, unknown_memory_words
from engine.estimation.waits.clocks import sources_above
from engine.latency_state import WITHIN, CatchUp
from engine.measurement.calibration import LEVEL
from engine.measurement.trust import LOST, UNJUDGED, EstimateTrust
from engine.words import (
    counted,
    duration_words,
    listed,
    load_words,
    percent_words,
    seconds_words,
    server_words,
    size_words,
    step_words,
)

__all__ = [
    "MEMORY_EXCEEDED",
    "doubted_queries",
    "evidence_of",
    "in_order",
    "reasons_of",
    "to_measure",
    "tolerance_s",
]

MEMORY_EXCEEDED = "memory_exceeded"

_SERIOUS = {"bad": 0, "watch": 1, "info": 2, "ok": 3}
_WORSE_SHARE = 0.01  # by which what is over already may get worse: of a bound, or of a mean load
_LONGER_SHARE = 0.1  # by which a query that misses its objective may catch up later without a person's consent
_MORE_LOAD = 1e-9  # a server's load has changed when it differs by more than rounding


def reasons_of(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> tuple[Reason, ...]:
    """Every finding about a scenario, the most serious first; in each class in a fixed order."""
    reasons = [
        *_objectives(question, scenario, before, after),
        *_overloads(question, scenario, before, after),
        *_memory(question, scenario),
        *_placement(scenario),
        *_statistics(question, after),
        *_coarse_counts(question, scenario),
        *_silent_sources(question, scenario),
        *_unread_plans(question, scenario),
        *_lost_trust(question, scenario),
        *_nominal_neighbours(question, scenario),
        *_backlogs(question, scenario, before, after),
        *_alarm(after),
    ]
    if not any(reason.severity == "bad" for reason in reasons):
        reasons += _holding_reasons(question, after)
    return in_order(reasons)


def in_order(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """The most serious first; in each class as they stand."""
    return tuple(sorted(reasons, key=lambda reason: _SERIOUS[reason.severity]))


def tolerance_s(outcome: QueryOutcome) -> float:
    """Tolerated increase for a query already over its objective: 1 % of its bound."""
    return _WORSE_SHARE * (outcome.bound_s or 0.0)


def evidence_of(operators: tuple[Operator, ...]) -> dict[str, int]:
    """Number of operators by the origin of their statistics; those without evidence count as assumed."""
    counts = {"assumed": 0, "predicted": 0, "measured": 0}
    for operator in operators:
        counts[operator.evidence.kind if operator.evidence else "assumed"] += 1
    return counts


def to_measure(question: CandidateQuestion, after: Evaluation) -> tuple[str, ...]:
    """Operators of the candidate to measure first: those whose statistics a person has to decide on."""
    operators = question.candidate.operators
    new = {op.id for op in operators if op.never_ran}
    if question.policy.review_assumed:
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
    if own.bound_s is None:
        finding = AdmissionFinding(f"{name} has no objective", "only its effect on the others is judged")
        yield Reason("no_objective", "info", ReasonSubject("query", name), finding, value=own.estimate_s)
    elif own.is_predicted:
        pass  # the prediction speaks for itself (`engine.admission.prediction`)
    elif own.state == "breached":
        yield _breach("objective_breached", own, own_miss(after, own), question)
    elif own.state == "unknown":
        finding = standing_finding(f"Nothing is known of how late {name} would be", own)
        yield _query_reason("latency_unknown", "watch", own, finding, question, review=True)
    elif own.lacks_policy:
        yield _policy_risk("policy_at_risk", own, question)
    elif own.state == "at_risk":
        finding = AdmissionFinding(f"{name} may miss its objective", risk_words(own))
        yield _query_reason("at_risk", "watch", own, finding, question, review=question.policy.review_at_risk)
    elif own.bound_s < own.resolution_s:
        finest = seconds_words(own.resolution_s)[0]
        finding = AdmissionFinding(
            f"The objective of {name} is finer than arrivals are counted ({finest})", would_be_words(own)
        )
        yield _query_reason("under_resolution", "watch", own, finding, question, review=question.policy.review_at_risk)
    if own.standing.is_known and own.standing.words:
        yield _query_reason("rate_bounded", "info", own, AdmissionFinding(standing_finding("", own).cause), question)
    for query in question.running.queries:
        reason = _neighbour(question, scenario, before.outcomes[query], after)
        if reason:
            yield reason


def _neighbour(
    question: CandidateQuestion, scenario: AdmissionScenario, was: QueryOutcome, after: Evaluation
) -> Reason | None:
    now = after.outcomes[was.query]
    worse_s = now.estimate_s - was.estimate_s
    if now.state == "breached" and (was.state != "breached" or (now.standing.is_endless and _falls_faster(was, now))):
        finding = neighbour_miss(scenario.nodes_of(question.candidate.query), was, after)
        return _breach("neighbour_breached", now, finding, question)
    if now.state == "breached" and worse_s > tolerance_s(now):
        finding = AdmissionFinding(
            f"{was.query} misses its objective already and would get worse", increase_words(was, now)
        )
        return _breach("neighbour_breached", now, finding, question)
    if now.state == "breached" and now.oldest_s > (now.bound_s or 0.0):
        oldest = duration_words(now.oldest_s)
        finding = AdmissionFinding(
            f"{was.query} misses its objective already",
            f"events have waited for {oldest}, with or without {question.candidate.query}",
        )
        return _query_reason("neighbour_already_over", "info", now, finding, question)
    if now.state == "breached":
        estimate = estimate_words(was)
        finding = AdmissionFinding(f"{was.query} misses its objective already ({estimate}) and stays as it is")
        if worse_s > 0:
            only = seconds_words(worse_s)[0]
            finding = AdmissionFinding(
                f"{was.query} misses its objective already ({estimate}) and gets worse by only {only}"
            )
        return _query_reason("neighbour_already_over", "info", now, finding, question)
    if now.state == "unknown":
        finding = standing_finding(f"Nothing is known of how late {was.query} is", now)
        return _query_reason("neighbour_unknown", "info", now, finding, question)
    if now.lacks_policy:
        return _policy_risk("neighbour_policy_at_risk", now, question)
    if now.state == "at_risk":
        news = was.state == "holds" or now.upper_s - was.upper_s > tolerance_s(now)
        finding = AdmissionFinding(f"{was.query} is at risk already", risk_words(now))
        if news:
            finding = AdmissionFinding(f"{was.query} may miss its objective", risk_words(now))
        review = news and question.policy.review_at_risk
        return _query_reason("neighbour_at_risk", "watch" if news else "info", now, finding, question, review=review)
    return None


def _falls_faster(was: QueryOutcome, now: QueryOutcome) -> bool:
    """Whether a query that never catches up falls behind faster than it does without the candidate."""
    return (now.standing.growth or 0.0) > (was.standing.growth or 0.0) * (1.0 + _WORSE_SHARE) + _MORE_LOAD


def _policy_risk(code: str, outcome: QueryOutcome, question: CandidateQuestion) -> Reason:
    """An objective that holds by stimulus time, where another policy is in force: for a person, whatever the rules."""
    assert outcome.gap is not None
    words = outcome.gap.words(outcome.policy_high_s)
    finding = AdmissionFinding(f"{outcome.query} may miss its objective", f"{would_be_words(outcome)}, but {words}")
    return _query_reason(code, "watch", outcome, finding, question, review=True)


def _query_reason(
    code: str,
    severity: str,
    outcome: QueryOutcome,
    finding: AdmissionFinding,
    question: CandidateQuestion,
    *,
    review: bool = False,
) -> Reason:
    """A reason about a query's objective, with the place and time of its bottleneck."""
    bottleneck = outcome.bottleneck
    value = outcome.upper_s if code.endswith("at_risk") else outcome.estimate_s
    return Reason(
        code,
        severity,
        ReasonSubject("query", outcome.query),
        finding,
        bound=outcome.bound_s,
        value=value,
        where=bottleneck.server if bottleneck else None,
        when_p=bottleneck.at_p if bottleneck else None,
        when_s=(bottleneck.at_p - 1) * question.mace_width_s if bottleneck else None,
        review=review,
    )


def _breach(code: str, outcome: QueryOutcome, finding: AdmissionFinding, question: CandidateQuestion) -> Reason:
    """A miss: a person's decision where a model of arrivals alone says so, as long as the objective may hold too."""
    finding = finding.adding(chance_words(outcome))
    if outcome.is_certain:
        return _query_reason(code, "bad", outcome, finding, question)
    low = seconds_words(outcome.low_s or 0.0)[0]
    doubt = f"; as {listed(outcome.assumed_sources)} may come between counts, it may also be {low}"
    return _query_reason(code, "watch", outcome, finding.adding(doubt), question, review=True)


def _overloads(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> Iterator[Reason]:
    """Servers that would get more than they can ever process, and peaks above capacity that are new.

    A peak is no fault by itself (that is what latency is estimated for); it is bad where it holds up a late query.
    """
    most = question.policy.max_mean_load
    late = {o.bottleneck.server for o in after.outcomes.values() if o.bottleneck and _newly_late(o, before)}
    for server in scenario.deployment.servers:
        name, where = server.name, server_words(server.name, begins=True)
        mean, peak = after.means[name], after.peaks[name]
        mean_was, peak_was = before.means.get(name, 0.0), before.peaks.get(name, 0.0)
        kind, subject = "link", name
        if server.node is not None:
            kind, subject = "node", scenario.deployment.nodes[server.node].id
        if mean > max(most, mean_was * (1.0 + _WORSE_SHARE)):
            was, now, bound = load_words(mean_was, mean, most)
            finding = AdmissionFinding(
                f"{where} would be overloaded",
                f"its mean load would go from {was} to {now} of its capacity, against {bound}",
            )
            yield Reason("node_overloaded", "bad", ReasonSubject(kind, subject), finding, most, mean, "share", name)
        elif name in after.endless and mean > mean_was * (1.0 + _WORSE_SHARE):
            finding = AdmissionFinding(
                f"{where} would never catch up", "what comes at the end of the horizon is more than it can process"
            )
            yield Reason("never_catches_up", "bad", ReasonSubject(kind, subject), finding, 1.0, peak, "share", name)
        elif after.begin and name in after.growing and mean > mean_was * (1.0 + _WORSE_SHARE):
            finding = AdmissionFinding(
                f"The backlog of {server_words(name)} would still grow at the end of the horizon",
                "nothing shows that a later start keeps up",
            )
            yield Reason("still_growing", "bad", ReasonSubject(kind, subject), finding, 1.0, peak, "share", name)
        elif peak > 1.0 and peak > peak_was + _MORE_LOAD:
            was, now, _ = load_words(peak_was, peak, 1.0)
            finding = AdmissionFinding(
                f"{where} would be over its capacity at peak", f"its load would go from {was} to {now}"
            )
            severity = "bad" if name in late else "info"
            yield Reason("node_overloaded", severity, ReasonSubject(kind, subject), finding, 1.0, peak, "share", name)


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
        finding = AdmissionFinding(f"{operator} was placed elsewhere", f"{node} takes nothing new", is_named=True)
        yield Reason("placement_altered", "watch", ReasonSubject("operator", operator), finding, unit="", where=node)


def _statistics(question: CandidateQuestion, after: Evaluation) -> Iterator[Reason]:
    """Reasons about the statistics behind the candidate's estimate."""
    operators, policy = question.candidate.operators, question.policy
    severity = "watch" if policy.review_assumed else "info"
    assumed = _assumed(operators)
    if assumed:
        of = counted(len(operators), "operator")
        finding = AdmissionFinding(
            f"The statistics of {len(assumed)} of {of} are assumed, not measured", listed(assumed), is_named=True
        )
        yield Reason(
            "assumed_statistics",
            severity,
            ReasonSubject("statistic", question.candidate.query),
            finding,
            0.0,
            float(len(assumed)),
            "operators",
            review=policy.review_assumed,
        )
    own = set(_varying(question, after))
    varying = [name for name in after.outcomes[question.candidate.query].assumed_costs if name.split("<-")[0] in own]
    if varying and policy.review_assumed:
        finding = AdmissionFinding("How single costs vary is assumed, not measured", listed(varying), is_named=True)
        yield Reason(
            "assumed_costs",
            "watch",
            ReasonSubject("statistic", question.candidate.query),
            finding,
            0.0,
            float(len(varying)),
            "inputs",
            review=True,
        )
    few = _few_events(question)
    if few:
        fewest, name = min(few)
        finding = AdmissionFinding(
            f"The statistics of {name} rest on {fewest:.0f} events; {policy.min_events:.0f} are asked for"
        )
        if len(few) > 1:
            finding = finding.adding(f" ({len(few)} operators below that)")
        yield Reason(
            "few_events",
            severity,
            ReasonSubject("operator", name),
            finding,
            policy.min_events,
            fewest,
            "events",
            review=policy.review_assumed,
        )


def _memory(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Nodes that get more state than memory, or have more already; what nobody knows, once."""
    was = memory_by_node(question.running)
    for node, now in memory_by_node(scenario.deployment).items():
        before = was[node].held_bytes if node in was else 0.0
        if now.over_bytes <= 0.0:
            continue
        grows = now.held_bytes > before * (1.0 + MEMORY_SLACK)
        if grows:
            sizes = size_words(now.held_bytes), size_words(now.memory_bytes or 0.0)
            finding = AdmissionFinding(
                f"{node} has too little memory", f"it would hold {sizes[0]} of state, its memory is {sizes[1]}"
            )
            yield Reason(
                MEMORY_EXCEEDED, "bad", ReasonSubject("node", node), finding, now.memory_bytes, now.held_bytes, "B"
            )
        else:
            finding = AdmissionFinding(f"{now.words}, without the candidate")
            yield Reason(
                "memory_over_already",
                "info",
                ReasonSubject("node", node),
                finding,
                now.memory_bytes,
                now.held_bytes,
                "B",
            )
    moved = moves_in(scenario.changes).keys()
    concerned = {operator.id for operator in question.candidate.operators} | moved
    unknown = unknown_memory_words(scenario.deployment, concerned)
    if unknown:
        finding = AdmissionFinding("Whether state fits the memory of the nodes is not known", unknown, is_named=True)
        yield Reason("memory_unknown", "info", ReasonSubject("query", question.candidate.query), finding, unit="B")


def doubted_queries(question: CandidateQuestion, scenario: AdmissionScenario) -> tuple[str, ...]:
    """Running queries tied to the candidate because of which a person has to decide.

    Their counts are coarse, their estimates lost trust, or their plans are not understood in full.
    """
    policy = question.policy
    related = related_queries(scenario.deployment, question.running, {*scenario.touched, question.candidate.query})
    return tuple(
        query
        for query in related
        if query != question.candidate.query
        and (
            (policy.review_coarse and coarse_sources(scenario.deployment, [query], question.mace_width_s))
            or (policy.review_untrusted and _trust_of(question, query).state == LOST)
            or any(operator.unread for operator in _operators_of(scenario, query))
        )
    )


def _operators_of(scenario: AdmissionScenario, query: str) -> list[Operator]:
    after = scenario.deployment
    return [after.operators[j] for j in after.operators_of(query)]


def _trust_of(question: CandidateQuestion, query: str) -> EstimateTrust:
    return question.calibrations[query].trust if query in question.calibrations else UNJUDGED


def _coarse_counts(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Arrivals of queries that the candidate can affect, whose bursts nobody has counted."""
    after, review = scenario.deployment, question.policy.review_coarse
    width_s = question.mace_width_s
    related = related_queries(after, question.running, {*scenario.touched, question.candidate.query})
    coarse = coarse_sources(after, related, width_s)
    if not coarse:
        return
    names = [source.id for source in coarse]
    step_s = max(source.arrivals_step_s or 0.0 for source in coarse)
    finding = AdmissionFinding(
        f"Arrivals of {listed(names)} are known as counts per {step_words(step_s)}, which hide bursts"
    )
    yield Reason(
        "coarse_counts",
        "watch" if review else "info",
        ReasonSubject("source", names[0]),
        finding,
        width_s,
        step_s,
        review=review,
    )


def _silent_sources(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Sources of the candidate without events, of which nothing follows for its latencies."""
    after, name = scenario.deployment, question.candidate.query
    above = sources_above(after)
    read = set[int]().union(*(above[j] for j in after.operators_of(name)))
    silent = [after.sources[u].id for u in sorted(read) if not after.arrivals[u].any()]
    if silent:
        finding = AdmissionFinding(
            f"{listed(silent)} {'has' if len(silent) == 1 else 'have'} no events in the horizon",
            f"nothing is known of how late {name} would be with some",
        )
        review = question.policy.review_assumed and len(silent) == len(read)
        yield Reason(
            "no_events", "watch" if review else "info", ReasonSubject("source", silent[0]), finding, review=review
        )


def _unread_plans(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Queries that the candidate can affect, itself among them, whose plans are not understood in full.

    No policy lets anything in on their estimates alone.
    """
    related = related_queries(scenario.deployment, question.running, {*scenario.touched, question.candidate.query})
    for query in related:
        unread = [(op.id, words) for op in _operators_of(scenario, query) for words in op.unread or ()]
        if unread:
            named = listed([f"{operator} ({words})" for operator, words in unread])
            finding = AdmissionFinding(
                f"The plan of {query} is not understood in full, so its estimate may leave out a wait",
                named,
                is_named=True,
            )
            count = float(len(unread))
            yield Reason(
                "plan_unread", "watch", ReasonSubject("query", query), finding, 0.0, count, "operators", review=True
            )


def _backlogs(
    question: CandidateQuestion, scenario: AdmissionScenario, before: Evaluation, after: Evaluation
) -> Iterator[Reason]:
    """Queries that catch up later because of the candidate, when it does itself, and backlogs that are not used."""
    for query, now in after.outcomes.items():
        was = before.outcomes.get(query)
        if was is None:
            if now.catch_up is not None:
                severity = "info" if now.catch_up.state == WITHIN else "watch"
                finding = AdmissionFinding(f"{query} {now.catch_up.words}")
                yield _catch_up_reason("catch_up", severity, query, finding, now.catch_up, None)
        elif now.catch_up is not None and was.catch_up is not None and _is_delayed(was.catch_up, now.catch_up):
            longer = now.catch_up.latest_s > was.catch_up.latest_s * (1.0 + _LONGER_SHARE)
            review = now.catch_up.state != was.catch_up.state or (longer and now.state == "breached")
            finding = AdmissionFinding(
                f"{query} {now.catch_up.words}; without {question.candidate.query} it {was.catch_up.words}"
            )
            yield _catch_up_reason("catch_up_delayed", "watch", query, finding, now.catch_up, was.catch_up, review)
    related = related_queries(scenario.deployment, question.running, {*scenario.touched, question.candidate.query})
    for found in scenario.deployment.backlogs:
        if found.query in related and found.standing != USED:
            review = not found.is_used
            severity = "watch" if review else "info"
            yield Reason(
                "backlog_unknown",
                severity,
                ReasonSubject("operator", found.operator),
                AdmissionFinding(found.words),
                review=review,
            )


def _is_delayed(was: CatchUp, now: CatchUp) -> bool:
    """Whether a query catches up later than without the candidate, by more than rounding."""
    return now.latest_s > was.latest_s * (1.0 + _WORSE_SHARE)


def _catch_up_reason(
    code: str,
    severity: str,
    query: str,
    finding: AdmissionFinding,
    now: CatchUp,
    was: CatchUp | None,
    review: bool = False,
) -> Reason:
    bound = None if was is None else was.at_s
    return Reason(code, severity, ReasonSubject("query", query), finding, bound, now.at_s, review=review)


def _lost_trust(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Running queries that the candidate can affect, and whose intervals hold too seldom to rest a decision on."""
    related = related_queries(scenario.deployment, question.running, {*scenario.touched, question.candidate.query})
    review = question.policy.review_untrusted
    for query in related:
        trust = _trust_of(question, query)
        coverage = trust.coverage
        if trust.state == LOST and coverage is not None:
            share, right = percent_words(coverage), percent_words(LEVEL)
            finding = AdmissionFinding(
                f"Estimates of {query} are not to be trusted",
                f"{trust.held} of its last {trust.judged} intervals held ({share}), where {right} is right",
            )
            severity = "watch" if review else "info"
            yield Reason(
                "trust_lost", severity, ReasonSubject("query", query), finding, LEVEL, coverage, "share", review=review
            )


def _nominal_neighbours(question: CandidateQuestion, scenario: AdmissionScenario) -> Iterator[Reason]:
    """Running queries that the candidate can affect, and whose own costs nobody has measured or stated."""
    if question.record.is_borne_out:
        return
    new = {op.query for op in question.running.operators if op.never_ran and op.query is not None}
    related = related_queries(scenario.deployment, question.running, {*scenario.touched, question.candidate.query})
    names = [query for query in related if query in new and query in question.running.queries]
    if names:
        has = "has" if len(names) == 1 else "have"
        finding = AdmissionFinding(
            f"{listed(names)} {has} nominal costs alone, which no run of this cluster bears out",
            f"what {question.candidate.query} does to {'it' if len(names) == 1 else 'them'} is not known",
        )
        yield Reason("neighbour_unmeasured", "watch", ReasonSubject("query", names[0]), finding, unit="", review=True)


def _alarm(after: Evaluation) -> Iterator[Reason]:
    alarm = after.alarm
    if alarm.untrusted:
        over = alarm.flow_over_mace
        subject = ReasonSubject("statistic", "mace")
        yield Reason("theorem_alarm", "info", subject, AdmissionFinding(alarm.message), 0.05, over, "share")


def _holding_reasons(question: CandidateQuestion, after: Evaluation) -> list[Reason]:
    """The objective with the least headroom, if all hold."""
    judged = [o for o in after.outcomes.values() if o.bound_s is not None]
    if not judged or any(outcome.state != "holds" for outcome in judged):
        return []
    if any(outcome.assumed_sources or (outcome.bound_s or 0.0) < outcome.resolution_s for outcome in judged):
        return []  # nobody knows what happens between counts

    def headroom(outcome: QueryOutcome) -> float:
        return 1.0 - outcome.estimate_s / (outcome.bound_s or 1.0)

    tightest = min(judged, key=headroom)
    estimated = f"{estimate_words(tightest)} ({percent_words(headroom(tightest))} headroom)"
    finding = AdmissionFinding(f"All {len(judged)} objectives hold; the closest is {tightest.query} at {estimated}")
    if len(judged) == 1:
        finding = AdmissionFinding(f"The objective holds; the closest is {tightest.query} at {estimated}")
    finding = finding.adding(scarcest_words(question, after))
    return [_query_reason("all_hold", "ok", tightest, finding, question)]
