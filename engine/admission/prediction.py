"""Admission of candidates that never ran: what a model predicts of them, as an outcome and as reasons.

The model predicts the mean latency from the oldest event behind a result on, which holds the time that windows take to
fill; an objective counts from each event or from a window's end, and may be about a quantile. So the time of filling
is taken off, the mean wait for windows that belongs to the objective is put in its place, and what a quantile lies
above the mean is added as estimated with nominal costs. What is left without waits is never below the latency of the
links; where the model predicts less than that, nothing is known of it, and a person decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.admission.evaluation import Evaluation, QueryOutcome
from engine.admission.reasons import Reason
from engine.admission.scenario import AdmissionScenario, CandidateQuestion
from engine.costream.first_placement import FirstPlacement
from engine.words import counted, listed, seconds_words, statistic_words

__all__ = ["prediction_reasons", "prediction_words", "with_prediction"]

_LATENCY = "end_to_end_latency_s"
_ROUNDING = 1e-5  # of a prediction's six digits


def with_prediction(question: CandidateQuestion, after: Evaluation) -> Evaluation:
    """The evaluation with the predicted outcome in the place of Mace's for the candidate, where there is one."""
    prediction = question.prediction
    if prediction is None or prediction.state != "predicted":
        return after
    name = question.candidate.query
    own, latency = after.outcomes[name], prediction.costs[_LATENCY]
    above_s = max(0.0, own.estimate_s - (own.mean_s or 0.0))
    estimate_s, low_s, high_s = (
        _beyond_filling_s(prediction, latency[end]) + own.mean_wait_s + above_s for end in ("mean", "low", "high")
    )
    outcome = replace(own, estimate_s=estimate_s, low_s=low_s, high_s=high_s, is_predicted=True)
    return replace(after, outcomes={**after.outcomes, name: outcome})


def _beyond_filling_s(prediction: FirstPlacement, latency_s: float) -> float:
    """A latency from end to end without the filling of windows: no less than its links take."""
    return max(prediction.floor_s, latency_s - prediction.fill_s)


def prediction_words(outcome: QueryOutcome) -> str:
    """Words for a predicted outcome: its statistic, the interval, and the objective."""
    bounds = () if outcome.bound_s is None else (outcome.bound_s,)
    estimate, low, high, *bound = seconds_words(
        outcome.estimate_s, outcome.low_s or 0.0, outcome.high_s or 0.0, *bounds
    )
    words = f"its {statistic_words(outcome.statistic)} is predicted at {estimate}"
    words += f" (80% interval {low} to {high})"
    return f"{words}, against {bound[0]}" if bound else words


def prediction_reasons(question: CandidateQuestion, scenario: AdmissionScenario, after: Evaluation) -> Iterator[Reason]:
    """Findings about a candidate that never ran; none about any other."""
    prediction, name = question.prediction, question.candidate.query
    if prediction is None:
        new = [operator.id for operator in question.candidate.operators if operator.never_ran]
        if new:
            message = (
                f"{name} never ran and nothing predicts it: {counted(len(new), 'operator')} "
                f"({listed(new)}) {'has a' if len(new) == 1 else 'have'} nominal {'cost' if len(new) == 1 else 'costs'}"
            )
            yield _reason("never_ran", "watch", name, message, review=True)
        return
    line = prediction.model["line"].removesuffix(".")
    yield _reason("never_ran", "info", name, f"{name} never ran; it is predicted, not measured. {line}")
    yield from (_reason("assumed_hosts", "info", name, text.removesuffix(".")) for text in prediction.assumptions)
    if prediction.state == "incomplete":
        gaps = [fault.message.removesuffix(".") for fault in prediction.faults]
        message = f"{name} never ran and cannot be predicted: {gaps[0]}"
        if len(gaps) > 1:
            message += f" ({counted(len(gaps), 'gap')} in all)"
        yield _reason("prediction_incomplete", "watch", name, message, review=True)
    elif prediction.state == "infeasible":
        detail = prediction.reason.rpartition("feasible: ")[2].removesuffix(".")
        is_unknown = bool(prediction.outside)  # every candidate is outside the domain: the votes are no knowledge
        yield from _outside(question)
        severity = "watch" if is_unknown else "bad"
        message = f"{name} has no feasible placement: {detail}"
        yield _reason("predicted_failure", severity, name, message, review=is_unknown)
    else:
        yield from _predicted(question, after.outcomes[name])
        unknown = dict.fromkeys(c["kind"].replace("_", " ") for c in scenario.changes if c["kind"] != "objective")
        if unknown:
            message = (
                f"The prediction of {name} does not know of the changes that were asked for: {listed(list(unknown))}"
            )
            yield _reason("changes_unpredicted", "watch", name, message, review=True)


def _predicted(question: CandidateQuestion, own: QueryOutcome) -> Iterator[Reason]:
    """Findings about a candidate whose chosen placement passes the votes."""
    prediction, name = question.prediction, question.candidate.query
    assert prediction is not None
    yield from _outside(question)
    latency = prediction.costs[_LATENCY]["mean"]
    least_s = prediction.fill_s + prediction.floor_s
    if prediction.fill_s > 0.0 and latency < least_s * (1.0 - _ROUNDING):
        texts = seconds_words(latency, least_s)
        message = (
            f"What {name} takes beyond filling its windows cannot be told: the model predicts {texts[0]} from end to "
            f"end, and windows and links alone take {texts[1]}"
        )
        yield _reason("filling_unpredicted", "watch", name, message, latency, least_s, review=True)
    words = prediction_words(own)
    parts = _parts(question, own)
    value, bound = own.high_s, own.bound_s
    if bound is None:
        yield _reason("predicted", "info", name, f"{name} passes the votes: {words}{parts}", value)
    elif own.state == "breached":
        message = f"{name} would miss its objective: {words}{parts}"
        yield _reason("objective_breached", "bad", name, message, own.low_s, bound)
    elif own.state == "at_risk":
        message = f"{name} may miss its objective: {words}{parts}"
        yield _reason("predicted_at_risk", "watch", name, message, value, bound, review=True)
    else:
        yield _reason("predicted", "ok", name, f"{name} would keep its objective: {words}{parts}", value, bound)


def _outside(question: CandidateQuestion) -> Iterator[Reason]:
    """The finding that a candidate lies outside the training domain; none where it does not."""
    prediction, name = question.prediction, question.candidate.query
    if prediction is None or not prediction.outside:
        return
    more = len(prediction.outside) - 1
    message = f"{name} lies outside what the model was trained on: {prediction.outside[0]}"
    message += f", and {counted(more, 'more finding')}" if more else ""
    yield _reason("outside_domain", "watch", name, message, review=True)


def _parts(question: CandidateQuestion, own: QueryOutcome) -> str:
    """Parts of a predicted latency, where more than the model speaks in it."""
    prediction = question.prediction
    assert prediction is not None
    latency = prediction.costs[_LATENCY]["mean"]
    above_s = own.estimate_s - own.mean_wait_s - _beyond_filling_s(prediction, latency)
    texts = seconds_words(latency, prediction.fill_s, above_s, own.mean_wait_s)
    parts = []
    if prediction.fill_s > 0.0:
        parts.append(f"without the {texts[1]} that windows take to fill")
    if own.mean_wait_s > 0.0:
        parts.append(f"with the {texts[3]} that events wait for windows and the like on average")
    if above_s > _ROUNDING * own.estimate_s:
        parts.append(f"with the {texts[2]} that it lies above the mean with nominal costs")
    return f"; the model predicts {texts[0]} from end to end, {listed(parts)}" if parts else ""


def _reason(
    code: str,
    severity: str,
    name: str,
    message: str,
    value: float | None = None,
    bound: float | None = None,
    *,
    review: bool = False,
) -> Reason:
    return Reason(code, severity, "query", name, message, bound, value, review=review)
