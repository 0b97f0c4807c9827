"""Answers of a policy to recorded requests, by the same engine as live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.admission.answer import AdmissionPolicy
from engine.admission.changes import Change, ObjectiveChange, OperatorMove, RateChange
from engine.admission.decision import decide
from engine.admission.scenario import CandidateQuestion, scenario_of
from engine.backtest.period import RecordedPeriod, RecordedRequest
from engine.backtest.policy import ReplayPolicy
from engine.document.candidate import Candidate, read_candidate
from engine.document.deployment import Deployment, Replica
from engine.errors import EngineError, InfeasibleError
from engine.records import Fact

__all__ = ["PolicyAnswer", "answer_request", "join_request"]

_KEPT = (RateChange, ObjectiveChange, OperatorMove)  # what of a request's changes outlasts the moment it was asked in


@dataclass(frozen=True, eq=False)
class PolicyAnswer:
    """Answer of a policy to a request: admitted, rejected, queued or review, with its reason.

    `placement` is where its operators go, `wait_s` how long a queued one waits.
    """

    outcome: str
    reason: Fact | str
    verdict: str = ""
    placement: Mapping[str, tuple[Replica, ...]] | None = None
    wait_s: float = 0.0


def answer_request(
    period: RecordedPeriod, policy: ReplayPolicy, request: RecordedRequest, scaled: Deployment
) -> PolicyAnswer:
    """Ask whether a request may run beside `scaled`: what runs in the replay, at the load of that moment."""
    running = _without(scaled, request.query)
    try:
        if policy.admission == "everything":
            return _admit_everything(period, request, running)
        return _decide_by_mace(period, policy, request, running)
    except EngineError as error:
        return PolicyAnswer("rejected", error.faults[0].message if error.faults else error.message)


def _admit_everything(period: RecordedPeriod, request: RecordedRequest, running: Deployment) -> PolicyAnswer:
    candidate = read_candidate(request.candidate, running)
    policy = AdmissionPolicy(closed_nodes=period.closed_nodes)
    try:
        scenario = scenario_of(
            CandidateQuestion(running, candidate, policy, period.mace_every), _lasting_changes(request)
        )
    except InfeasibleError as error:
        return PolicyAnswer("rejected", Fact("backtests.fits_nowhere", query=request.query, why=error.message))
    return PolicyAnswer("admitted", Fact("backtests.everything"), "admit", scenario.replicas_of(request.query))


def _decide_by_mace(
    period: RecordedPeriod, policy: ReplayPolicy, request: RecordedRequest, running: Deployment
) -> PolicyAnswer:
    document = dict(request.candidate)
    if policy.headroom and document.get("objective"):
        bound_s = document["objective"]["bound_s"] * (1.0 - policy.headroom)
        document["objective"] = {**document["objective"], "bound_s": bound_s}
    decision = decide(
        policy.tightened(running),
        document,
        policy=policy.admission_policy(period.closed_nodes),
        changes=_lasting_changes(request),
        mace_every=period.mace_every,
    )
    outcome = {"admit": "admitted", "admit_with_changes": "admitted", "queue": "queued", "review": "review"}
    return PolicyAnswer(
        outcome.get(decision.verdict, "rejected"),
        decision.headline,
        decision.verdict,
        dict(decision.placement),
        decision.start_s or 0.0,
    )


def join_request(
    period: RecordedPeriod, request: RecordedRequest, base: Deployment, placement: Mapping[str, tuple[Replica, ...]]
) -> Deployment:
    """`base` (at its own load) with a request's query on the given places; what has none is placed beside the rest.

    Raises
    ------
    DocumentError, InfeasibleError
        If it cannot be read against what runs, or an operator fits no node.
    """
    running = _without(base, request.query)
    candidate = read_candidate(request.candidate, running)
    placed = _place_candidate(candidate, placement, running)
    policy = AdmissionPolicy(closed_nodes=period.closed_nodes)
    return scenario_of(
        CandidateQuestion(running, placed, policy, period.mace_every), _lasting_changes(request)
    ).deployment


def _place_candidate(
    candidate: Candidate, placement: Mapping[str, tuple[Replica, ...]], running: Deployment
) -> Candidate:
    """The candidate where it was put; a node that is no longer there leaves its operator open."""
    operators = []
    for operator in candidate.operators:
        parts = placement.get(operator.id, operator.replicas)
        known = all(_fits(part, running) for part in parts)
        operators.append(replace(operator, replicas=parts if known else ()))
    return replace(candidate, operators=tuple(operators))


def _fits(part: Replica, running: Deployment) -> bool:
    index = running.node_index.get(part.node)
    return index is not None and part.core < running.nodes[index].cores


def _without(deployment: Deployment, query: str) -> Deployment:
    return deployment.without_query(query) if query in deployment.queries else deployment


def _lasting_changes(request: RecordedRequest) -> list[Change]:
    return [change for change in request.changes if isinstance(change, _KEPT)]
