"""Admission of candidates that never ran: what a model predicts of them, as an outcome and as reasons.

The model predicts the mean latency from the oldest event behind a result on, which holds the time that windows take to
fill; an objective counts from each event or from a window's end, and may be about a quantile. So the time of filling
is taken off, the mean wait for windows that belongs to the objective is put in its place, and what a quantile lies
above the mean is added as estimated with nominal costs. What is left without waits is never below the latency of the
links; where the model's whole interval is below that, nothing is known of it, and a person decides, as where a member
of the model votes against it, or what it runs on would be nearly full.

No candidate is admitted or rejected on a prediction, or on nominal costs, before runs of the cluster bear the model out
(`engine.costream.accuracy`): then a person decides. A finding that stands even if all that never ran took no capacity
rests on what was measured, and rejects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from engine.admission.answer import Reason, ReasonSubject, named_reason
from engine.admission.changes import ObjectiveChange, OperatorMove, moves_in
from engine.admission.evaluation import Evaluation, Evaluator, QueryOutcome
from engine.admission.grounds import PredictedGround, UnprovenGround, VerdictGround
from engine.admission.policy_reasons import policy_reasons
from engine.admission.precedence import precedence_reasons
from engine.admission.reasons import in_order, reasons_of
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.costream.answer import PredictedCosts
from engine.costream.first_placement import FirstPlacement, pins_of
from engine.document.deployment import Deployment
from engine.document.translation import NEXT_TO_NOTHING
from engine.latency_state import KNOWN
from engine.policies.rules import REJECT, REVIEW, weight_of

__all__ = ["judge_scenario", "question_in", "with_prediction"]

_TOLD = (ObjectiveChange, OperatorMove)  # changes that a prediction can know of
#: Predicted use of a host, a thread or an uplink above which nothing is admitted: costs that were never measured are
#: off by a tenth and more from one run to another.
_MAX_USE = 0.8
_ROUNDING = 1e-5  # of a prediction's six digits
_BY_COSTS = frozenset({
    "objective_breached", "neighbour_breached", "node_overloaded", "never_catches_up", "still_growing",
    "predicted_failure",
})  # fmt: skip


def judge_scenario(
    question: CandidateQuestion, scenario: AdmissionScenario, evaluator: Evaluator, evaluation: Evaluation
) -> tuple[Evaluation, tuple[Reason, ...]]:
    """A scenario's evaluation, with the prediction in it where the candidate never ran, and every finding about it.

    The prediction of `question` must be that of the scenario (`question_in`).
    """
    after = with_prediction(question, evaluation)
    before = evaluator.before_from(scenario.start_p)
    reasons = (*_reasons(question, scenario, after), *reasons_of(question, scenario, before, after))
    if question.is_unproven:
        reasons = _for_person(question, scenario, evaluator, after, reasons)
    reasons = (*reasons, *policy_reasons(question, scenario))
    return after, in_order((*reasons, *precedence_reasons(question, scenario, evaluator, reasons)))


def question_in(question: CandidateQuestion, scenario: AdmissionScenario) -> CandidateQuestion:
    """The question with the prediction of the candidate as a scenario has it; as it is where none can be had."""
    prediction = question.prediction
    if prediction is None or prediction.state == "incomplete" or _is_told(prediction, scenario):
        return question
    name = question.candidate.query
    own = [scenario.deployment.operators[i] for i in scenario.deployment.operators_of(name)]
    pins = pins_of(own)
    only_moves = all(isinstance(change, _TOLD) for change in scenario.changes)
    if only_moves and scenario.touched == {name} and prediction.options is not None:
        option = prediction.options.of(pins)
        if option is not None:
            return replace(question, prediction=option)
    if question.predictor is None:
        return question
    running = scenario.deployment.without_query(name)
    return replace(question, prediction=question.predictor.predict_placed(running, tuple(own), pins))


def _is_told(prediction: FirstPlacement, scenario: AdmissionScenario) -> bool:
    """Whether a prediction is of this very scenario."""
    if not all(isinstance(change, _TOLD) for change in scenario.changes):
        return False
    moved = moves_in(scenario.changes)
    return all(prediction.placement.get(name) == replica.node for name, replica in moved.items())


def _for_person(
    question: CandidateQuestion,
    scenario: AdmissionScenario,
    evaluator: Evaluator,
    after: Evaluation,
    reasons: tuple[Reason, ...],
) -> tuple[Reason, ...]:
    """The findings where no run bears out what they rest on: what would reject is for a person, as what would admit."""
    name = question.candidate.query
    measured = set[tuple[str, str]]()
    if any(reason.severity == "bad" and reason.code in _BY_COSTS for reason in reasons):
        measured = _measured_grounds(question, scenario, evaluator)
    softened = [
        replace(reason, severity="watch", review=True, finding=_unborne(question, reason))
        if reason.severity == "bad" and reason.code in _BY_COSTS and not _is_measured(question, after, reason, measured)
        else reason
        for reason in reasons
    ]
    own = after.outcomes[name]
    if not own.is_predicted and softened == list(reasons):
        return reasons  # nothing was told that a record could bear out
    ground = UnprovenGround(name, own if own.is_predicted else None, question.record)
    return (*softened, Reason("prediction_unproven", "watch", ReasonSubject("query", name), ground, review=True))


def _unborne(question: CandidateQuestion, reason: Reason) -> VerdictGround:
    """The ground of a reason, with what it rests on that no run bears out."""
    is_predicted = reason.code in ("objective_breached", "predicted_failure") and question.prediction is not None
    rests_on = "prediction" if is_predicted else "costs"
    return VerdictGround(reason.ground, unborne=rests_on, candidate=question.candidate.query)


def _is_measured(
    question: CandidateQuestion, after: Evaluation, reason: Reason, measured: set[tuple[str, str]]
) -> bool:
    """Whether a finding stands without what a model or a table tells."""
    prediction, own = question.prediction, after.outcomes[question.candidate.query]
    if reason.code == "predicted_failure":
        return prediction is not None and prediction.blocked
    if reason.code == "objective_breached" and own.is_predicted and prediction is not None:
        # Links and windows take that long whatever the operators cost.
        return own.bound_s is not None and prediction.floor_s + own.mean_wait_s > own.bound_s
    return (reason.code, reason.id) in measured


def _measured_grounds(
    question: CandidateQuestion, scenario: AdmissionScenario, evaluator: Evaluator
) -> set[tuple[str, str]]:
    """(code, subject) of what speaks against the scenario even if all that never ran took no capacity."""
    own = {member.query for member in question.members}
    free = replace(scenario, deployment=_without_unknown_costs(scenario.deployment, own))
    found = reasons_of(question, free, evaluator.before_from(free.start_p), evaluator.full(free))
    return {(reason.code, reason.id) for reason in found if reason.severity == "bad"}


def _without_unknown_costs(deployment: Deployment, queries: Collection[str]) -> Deployment:
    """The deployment with no cost at operators of `queries` that never ran, and at those that read their output."""
    unknown = set[str]()
    operators = list(deployment.operators)
    for i in deployment.graph.order:
        operator = operators[i]
        reads = any(entry.never_ran or entry.source in unknown for entry in operator.inputs)
        if operator.query in queries and reads:
            unknown.add(operator.id)
            inputs = tuple(
                replace(e, cycles_per_event=NEXT_TO_NOTHING, model=None, batches=(), never_ran=False)
                for e in operator.inputs
            )
            operators[i] = replace(operator, inputs=inputs)
    return replace(deployment, operators=tuple(operators))


def with_prediction(question: CandidateQuestion, after: Evaluation) -> Evaluation:
    """The evaluation with the predicted outcome in the place of Mace's for the candidate, where there is one."""
    prediction = question.prediction
    if prediction is None or prediction.costs is None:
        return after
    name = question.candidate.query
    own, latency = after.outcomes[name], prediction.costs.end_to_end_latency_s
    above_s = max(0.0, own.estimate_s - (own.mean_s or 0.0))
    estimate_s, low_s, high_s = (
        _beyond_filling_s(prediction, end_s) + own.mean_wait_s + above_s
        for end_s in (latency.mean, latency.low, latency.high)
    )
    # What nominal costs say of the candidate's own standing, a prediction takes the place of.
    outcome = replace(own, estimate_s=estimate_s, low_s=low_s, high_s=high_s, is_predicted=True, standing=KNOWN)
    return replace(after, outcomes={**after.outcomes, name: outcome})


def _beyond_filling_s(prediction: FirstPlacement, latency_s: float) -> float:
    """A latency from end to end without the filling of windows: no less than its links take."""
    return max(prediction.floor_s, latency_s - prediction.fill_s)


def _reasons(question: CandidateQuestion, scenario: AdmissionScenario, after: Evaluation) -> Iterator[Reason]:
    """Findings about a candidate that never ran; none about any other."""
    prediction, subject = question.prediction, ReasonSubject("query", question.candidate.query)
    rule = question.policy.evidence.predicted
    known = {op.id: max(entry.relatives for entry in op.inputs) for op in question.candidate.operators if op.never_ran}
    if names := tuple(name for name, relatives in known.items() if relatives):
        yield named_reason("relative_costs", "info", subject, names, of=sum(known.values()))
    if prediction is None:
        new = tuple(operator.id for operator in question.candidate.operators if operator.never_ran)
        if new:
            severity, review = weight_of(REJECT if rule == REJECT else REVIEW)
            yield named_reason("never_ran", severity, subject, new, review=review)
        return
    assert prediction.model is not None
    severity, review = weight_of(rule)
    yield named_reason("never_ran", severity, subject, (prediction.model.line,), kind="predicted", review=review)
    yield from (named_reason("assumed_hosts", "info", subject, (str(text),)) for text in prediction.assumptions)
    if prediction.state == "incomplete":
        gaps = tuple(fault.message for fault in prediction.faults)
        yield named_reason("prediction_incomplete", "watch", subject, gaps, of=len(gaps), review=True)
    elif prediction.state == "infeasible":
        # Every candidate is outside the domain: the votes are no knowledge. Or rules of the model leave no candidate.
        is_unknown = bool(prediction.outside) or not (prediction.blocked or prediction.candidates)
        yield from _outside(question)
        severity, cause = "watch" if is_unknown else "bad", (prediction.cause,)
        yield named_reason("predicted_failure", severity, subject, cause, kind="infeasible", review=is_unknown)
    else:
        yield from _predicted(question, after.outcomes[subject.id])
        kinds = dict.fromkeys(
            change.kind.replace("_", " ") for change in scenario.changes if not isinstance(change, ObjectiveChange)
        )
        if kinds and question.predictor is None and not _is_told(prediction, scenario):
            yield named_reason("changes_unpredicted", "watch", subject, tuple(kinds), review=True)


def _predicted(question: CandidateQuestion, own: QueryOutcome) -> Iterator[Reason]:
    """Findings about a candidate whose chosen placement passes the votes."""
    prediction, subject = question.prediction, ReasonSubject("query", question.candidate.query)
    assert prediction is not None and prediction.costs is not None
    yield from _outside(question)
    if not prediction.passes_votes:
        kind = "sources_wait" if prediction.costs.success.holds else "no_results"
        nodes = tuple(dict.fromkeys(prediction.placement.values()))
        yield named_reason("predicted_failure", "bad", subject, nodes, kind=kind)
    else:
        yield from _near_failure(prediction.costs, subject)
    latency_s = prediction.costs.end_to_end_latency_s.mean
    least_s = prediction.fill_s + prediction.floor_s
    # An interval that holds this least says how much more it may be; one below contradicts it.
    if prediction.fill_s > 0.0 and prediction.costs.end_to_end_latency_s.high < least_s * (1.0 - _ROUNDING):
        yield named_reason("filling_unpredicted", "watch", subject, (), least_s, latency_s, review=True)
    above_s = own.estimate_s - own.mean_wait_s - _beyond_filling_s(prediction, latency_s)
    ground = PredictedGround(own, latency_s, prediction.fill_s, above_s)
    if own.state == "breached":
        yield Reason("objective_breached", "bad", subject, ground, own.bound_s, own.low_s)
    elif own.state == "at_risk":
        yield Reason("predicted_at_risk", "watch", subject, ground, own.bound_s, own.high_s, review=True)
    else:
        severity = "info" if own.bound_s is None else "ok"
        yield Reason("predicted", severity, subject, ground, own.bound_s, own.high_s)


def _near_failure(costs: PredictedCosts, subject: ReasonSubject) -> Iterator[Reason]:
    """Findings about a placement that passes the votes and may fail nevertheless: a person decides."""
    if costs.dissent:
        numbers = 0.0, float(costs.dissent), "members"
        yield named_reason("votes_at_risk", "watch", subject, (), *numbers, of=costs.members, review=True)
    if costs.use is not None and costs.use > _MAX_USE:
        yield named_reason("capacity_at_risk", "watch", subject, (), _MAX_USE, costs.use, "share", review=True)


def _outside(question: CandidateQuestion) -> Iterator[Reason]:
    """The finding that a candidate lies outside the training domain; none where it does not."""
    outside = () if question.prediction is None else question.prediction.outside
    if outside:
        subject = ReasonSubject("query", question.candidate.query)
        yield named_reason("outside_domain", "watch", subject, outside, of=len(outside), review=True)
