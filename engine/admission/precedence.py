"""Precedence of requests that wait: whether a candidate would take the room, or the quota, that they wait for.

What waits is put where its own decision has it, from the start that it was given, beside what runs. The candidate is
then judged as a query that joins them all: what speaks against that and not against the candidate beside what runs
alone is room that the others wait for. One that finds no room yet keeps its place as well: it must not be further from
room with the candidate than without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from engine.admission.answer import Reason, ReasonSubject, named_reason
from engine.admission.changes import LaterStart, NewNode, OperatorMove, read_changes
from engine.admission.evaluation import Evaluator
from engine.admission.policy_reasons import wanted_by_team
from engine.admission.reasons import passes, reasons_of
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, scenario_of
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.errors import EngineError
from engine.policies.candidate_policy import PolicyStanding, WaitingRequest
from engine.policies.quotas import TeamDemand, quota_standings

__all__ = ["precedence_reasons"]

_ROUNDING = 1e-9


def precedence_reasons(
    question: CandidateQuestion, scenario: AdmissionScenario, evaluator: Evaluator, reasons: Sequence[Reason]
) -> Iterator[Reason]:
    """A reason where requests that come first in the queue would lose what they wait for; `reasons` are all others.

    None is looked for where something else speaks against the scenario already.
    """
    standing = question.standing
    if standing is None or not standing.ahead or any(reason.severity == "bad" for reason in reasons):
        return
    losers = {*_quota_losers(question, scenario, standing), *_room_losers(question, scenario, evaluator, reasons)}
    names = tuple(entry.name for entry in standing.ahead if entry.name in losers)
    if names:
        subject = ReasonSubject("query", question.candidate.query)
        yield named_reason("queue_precedence", "bad", subject, names, unit="", of=len(names))


def _quota_losers(question: CandidateQuestion, scenario: AdmissionScenario, standing: PolicyStanding) -> Iterator[str]:
    """Requests whose team could no longer have what they ask for, once those before them and the candidate had it."""
    if not standing.policy.has_quotas:
        return
    wanted = wanted_by_team(question, scenario)
    usage = dict(standing.usage(question.running))
    for entry in standing.ahead:
        beside = {**usage, **{team: usage.get(team, TeamDemand()).plus(own) for team, own in wanted.items()}}
        alone, together = (
            quota_standings(standing.policy, use, entry.team, entry.demand, standing.pools) for use in (usage, beside)
        )
        if any(
            later.is_exceeded and later.available < first.available - _ROUNDING
            for first, later in zip(alone, together, strict=True)
        ):
            yield entry.name
        usage[entry.team] = usage.get(entry.team, TeamDemand()).plus(entry.demand)


def _room_losers(
    question: CandidateQuestion, scenario: AdmissionScenario, evaluator: Evaluator, reasons: Sequence[Reason]
) -> Iterator[str]:
    """Requests that the candidate would leave too little room where they are to run."""
    room = _room_of(evaluator)
    own = {node for member in question.members for node in scenario.nodes_of(member.query)}
    yield from (entry.name for entry in room.unweighed if own & entry.nodes)
    if not room.placed:
        return
    beside = room.evaluator.question
    replicas = scenario.replicas_of(question.candidate.query)
    placed = tuple(replace(op, replicas=replicas[op.id]) for op in question.candidate.operators)
    candidate = replace(question.candidate, operators=placed)
    asked = replace(beside, candidate=candidate, prediction=question.prediction)
    # once it runs it reads from the beginning, whenever the load comes again: a later start keeps nobody's room free
    joined = scenario_of(asked, [change for change in scenario.changes if not isinstance(change, LaterStart)])
    before, after = room.evaluator.before_from(joined.start_p), room.evaluator.full(joined)
    if question.prediction is not None:  # its own latency is predicted, and nominal costs say nothing of it
        own_outcome = replace(after.outcomes[candidate.query], is_predicted=True)
        after = replace(after, outcomes={**after.outcomes, candidate.query: own_outcome})
    told = {(reason.code, reason.id) for reason in reasons}
    new = [
        reason
        for reason in reasons_of(asked, joined, before, after)
        if not passes([reason]) and (reason.code, reason.id) not in told
    ]
    if new:
        named = {reason.id for reason in new if reason.subject.kind == "query"}
        hit = [entry for entry in room.placed if entry.query in named]
        near = [entry for entry in room.placed if own & entry.nodes]
        yield from (entry.name for entry in hit or near or room.placed)


@dataclass(frozen=True, eq=False)
class _WaitingRoom:
    """Room of those that wait, beside what runs. `unweighed` could not be put there: who shares their nodes waits."""

    evaluator: Evaluator
    placed: tuple[WaitingRequest, ...]
    unweighed: tuple[WaitingRequest, ...]


_rooms: WeakKeyDictionary[Evaluator, _WaitingRoom] = WeakKeyDictionary()


def _room_of(evaluator: Evaluator) -> _WaitingRoom:
    """The room of those that wait before the candidate, computed once for a decision."""
    if evaluator not in _rooms:
        question = evaluator.question
        assert question.standing is not None
        running, placed = question.running, list[WaitingRequest]()
        for entry in question.standing.ahead:
            joined = _joined(question, running, entry)
            if joined is not None:
                running = joined
                placed.append(entry)
        base = evaluator.base.moved(running) if placed else evaluator.base
        asked = replace(question, running=base.estimate.deployment, standing=None, ground=None)
        unweighed = tuple(entry for entry in question.standing.ahead if entry not in placed)
        _rooms[evaluator] = _WaitingRoom(Evaluator(asked, base), tuple(placed), unweighed)
    return _rooms[evaluator]


def _joined(question: CandidateQuestion, running: Deployment, entry: WaitingRequest) -> Deployment | None:
    """The running deployment with a request that waits where its decision has it; None where it cannot be put there."""
    if entry.candidate is None:
        return None
    if entry.query in running.query_index:  # the version that it takes the place of
        running = running.without_query(entry.query)
    brought = [source for source in entry.candidate.get("sources", ()) if source["id"] not in running.source_index]
    try:
        candidate = read_candidate({**entry.candidate, "sources": brought}, running)
        changes = read_changes(entry.changes, running, candidate)
        own = {operator.id for operator in candidate.operators}
        if any(isinstance(c, NewNode) or (isinstance(c, OperatorMove) and c.operator not in own) for c in changes):
            return None
        asked = replace(question, running=running, candidate=candidate, companions=(), prediction=None)
        asked = replace(asked, standing=None, ground=None)
        return scenario_of(asked, changes).deployment
    except EngineError:
        return None
