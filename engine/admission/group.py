"""Group: several candidates that are admitted all or none, judged by one estimate of what runs with all of them in.

Each member first joins those before it that fit, in the order given: that places it, and tells how many of them fit as
they stand. Then the whole is estimated once, and every member is judged in it as a candidate whose companions are the
others: its own objective, everybody else's beside what runs without any of them, servers, memory, and quotas with the
demands of all members added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.admission.alternatives import verdict_of
from engine.admission.answer import AdmissionPolicy, Reason
from engine.admission.changes import Change, LaterStart, join_changes
from engine.admission.decision import OpenDecision, Progress, open_decision
from engine.admission.evaluation import Evaluator
from engine.admission.group_answer import GroupAnswer, MemberVerdict
from engine.admission.policy_reasons import waits_by_policy
from engine.admission.prediction import judge_scenario
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, Companion, scenario_of
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, Settled, find_start
from engine.costream.accuracy import PredictionRecord
from engine.costream.first_placement import FirstPlacement, PlacementPredictor, pins_of
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from engine.estimation.base import EstimateBase
from engine.measurement.trust import QueryCalibration
from engine.placement.separation import ApartOperator
from engine.policies.candidate_policy import PolicyStanding
from engine.solvers import solving

__all__ = ["GroupMember", "OpenGroup", "decide_group"]

_RANK = ("admit", "admit_with_changes", "queue", "review", "reject")  # the best first
_PASSING = _RANK[:2]


@dataclass(frozen=True, eq=False)
class GroupMember:
    """A member of a group as it asks: its candidate's document, its changes, and the rules it is decided by."""

    document: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any] | Change] = ()
    policy: AdmissionPolicy = field(default_factory=AdmissionPolicy)
    standing: PolicyStanding | None = None
    prediction: FirstPlacement | None = None
    predictor: PlacementPredictor | None = None

    @property
    def query(self) -> str:
        """Name of its query."""
        return str(self.document["query"])


@dataclass(frozen=True, eq=False)
class OpenGroup:
    """The answer about a group and the decision about each member, in their order."""

    answer: GroupAnswer
    opened: tuple[OpenDecision, ...]


@dataclass(frozen=True, eq=False)
class _Asked:
    """All that members have in common; `open` decides about one of them alone or beside some."""

    mace_every: int
    record: PredictionRecord
    calibrations: Mapping[str, QueryCalibration]
    currency: str

    def open(self, member: GroupMember, base: EstimateBase, progress: Progress) -> OpenDecision:
        """A member's own decision beside what runs by `base`, of which an earlier version of it is left out."""
        base = _without(base, [member.query])
        return open_decision(
            base.estimate.deployment,
            member.document,
            policy=member.policy,
            changes=member.changes,
            standing=member.standing,
            prediction=member.prediction,
            predictor=member.predictor,
            kept=base,
            progress=progress,
            mace_every=self.mace_every,
            record=self.record,
            calibrations=self.calibrations,
            currency=self.currency,
        )

    def question(self, member: GroupMember, running: Deployment, placed: Companion) -> CandidateQuestion:
        """The question about a member that has its place."""
        return CandidateQuestion(
            running,
            placed.candidate,
            member.policy,
            self.mace_every,
            member.prediction,
            member.predictor,
            self.record,
            self.calibrations,
            self.currency,
            member.standing,
        )


def decide_group(
    members: Sequence[GroupMember],
    kept: EstimateBase,
    *,
    may_wait_s: float = 0.0,
    record: PredictionRecord | None = None,
    calibrations: Mapping[str, QueryCalibration] | None = None,
    currency: str = "",
    progress: Progress | None = None,
) -> OpenGroup:
    """Decide on candidates that are admitted all or none.

    Parameters
    ----------
    members : sequence of GroupMember
        Two or more, of different queries, in the order in which they are tried one beside the other.
    kept : EstimateBase
        Estimate of what runs, with earlier versions of the members' queries where there are any.
    may_wait_s : float
        How long they would wait for a later start, which they have in common.
    record, calibrations, currency, progress
        As of `open_decision`.

    Raises
    ------
    DocumentError
        A member is malformed or refers to something unknown; every path begins with ``members[i]``.
    """
    solving()
    asked = _Asked(kept.mace_every, record or PredictionRecord(), calibrations or {}, currency)
    tell = progress or (lambda share, step: None)
    members = [_patient(member, may_wait_s) for member in members]
    beside, fits = _beside(asked, members, kept, tell)
    placed = _placed(beside, members)
    running = _without(kept, [member.query for member in members])
    if placed is None:
        opened = tuple(replace(one, in_group=True) for one in beside)
    else:
        opened = _together(asked, members, placed, running, may_wait_s, tell)
    verdict = "reject" if placed is None else _group_verdict(opened)
    alone: list[OpenDecision | None] = [None] * len(members)
    if verdict not in _PASSING:
        for i, member in enumerate(members):
            tell(0.8, f"Estimating {member.query} alone")
            alone[i] = beside[i] if i == 0 else _located(i, asked.open, member, kept, _silent)
    # Where all are as bad, that which does not fit beside those before it.
    ranks = [(_RANK.index(one.verdict), _RANK.index(own.verdict)) for one, own in zip(opened, beside, strict=True)]
    worst = opened[ranks.index(max(ranks))]
    told = tuple(
        MemberVerdict(
            query=member.query,
            beside=beside[i].verdict,
            beside_headline=beside[i].decision.headline,
            is_fitting=fits[i],
            together=opened[i].verdict if placed is not None else "",
            together_headline=opened[i].decision.headline if placed is not None else "",
            alone=one.verdict if (one := alone[i]) is not None else "",
            alone_headline=one.decision.headline if one is not None else "",
        )
        for i, member in enumerate(members)
    )
    name = worst.search.question.candidate.query
    return OpenGroup(GroupAnswer(verdict, worst.decision.headline, name, told), opened)


def _patient(member: GroupMember, may_wait_s: float) -> GroupMember:
    return replace(member, document={**member.document, "may_wait_s": may_wait_s})


def _silent(share: float, step: str) -> None:
    pass


def _located(i: int, ask: Callable[..., OpenDecision], *asked: Any) -> OpenDecision:
    """The decision of `ask`; its faults name the member."""
    try:
        return ask(*asked)
    except DocumentError as error:
        faults = [replace(fault, path=f"members[{i}].{fault.path}") for fault in error.faults]
        raise DocumentError(faults, "group") from None


def _without(base: EstimateBase, queries: Sequence[str]) -> EstimateBase:
    """The base without some queries, where it has them."""
    deployment = base.estimate.deployment
    for query in queries:
        if query in deployment.query_index:
            deployment = deployment.without_query(query)
    return base if deployment is base.estimate.deployment else base.moved(deployment)


def _beside(
    asked: _Asked, members: Sequence[GroupMember], kept: EstimateBase, tell: Progress
) -> tuple[list[OpenDecision], list[bool]]:
    """Each member beside those before it that fit, and which those are."""
    opened, fits, base = list[OpenDecision](), list[bool](), kept
    for i, member in enumerate(members):
        tell(0.5 * i / len(members), f"Estimating {member.query} beside those before it")
        found = _located(i, asked.open, member, base, _silent)
        opened.append(found)
        fits.append(found.verdict in _PASSING)
        if fits[-1] and found.search.base is not None:
            base = _without(base, [member.query]).moved(found.search.base.deployment)
    return opened, fits


@dataclass(frozen=True, eq=False)
class _Placed:
    """A member in its place, with what it could not have there: nodes asked for, and company (`AdmissionScenario`)."""

    own: Companion
    altered: Mapping[str, str]
    apart: tuple[ApartOperator, ...]

    def scenario(self, whole: AdmissionScenario, changes: Sequence[Change]) -> AdmissionScenario:
        """The whole group as it is for this member, with the changes that it rests on."""
        return replace(whole, changes=tuple(changes), altered=self.altered, apart=self.apart)


def _placed(beside: Sequence[OpenDecision], members: Sequence[GroupMember]) -> list[_Placed] | None:
    """The members in their places; None where one of them fits no node.

    A source that several bring is each one's: whichever joins first brings it.
    """
    bases = [found.search.base for found in beside]
    own = [found.search.question.candidate for found in beside]
    brought = {source.id: source for candidate in own for source in candidate.sources}
    placed = []
    for found, candidate, base, member in zip(beside, own, bases, members, strict=True):
        if base is None:
            return None
        replicas = base.replicas_of(candidate.query)
        read = dict.fromkeys(entry.source for operator in candidate.operators for entry in operator.inputs)
        operators = tuple(replace(operator, replicas=replicas[operator.id]) for operator in candidate.operators)
        sources = tuple(brought[name] for name in read if name in brought)
        team = "" if member.standing is None else member.standing.team
        candidate = replace(candidate, operators=operators, sources=sources, pins={})
        placed.append(_Placed(Companion(candidate, found.search.changes, team), base.altered, base.apart))
    return placed


def _together(
    asked: _Asked,
    members: Sequence[GroupMember],
    placed: Sequence[_Placed],
    running: EstimateBase,
    may_wait_s: float,
    tell: Progress,
) -> tuple[OpenDecision, ...]:
    """Decisions about the members with all of them in, of one estimate."""
    tell(0.6, "Estimating all of them together")
    deployment = running.estimate.deployment
    questions = []
    for i, (member, place) in enumerate(zip(members, placed, strict=True)):
        companions = tuple(other.own for other in placed if other is not place)
        question = replace(asked.question(member, deployment, place.own), companions=companions)
        if i and question.standing is not None:  # who waits before them is asked about once, by the first
            question = replace(question, standing=replace(question.standing, ahead=()))
        questions.append(question)
    evaluator = Evaluator(questions[0], running)
    whole = scenario_of(questions[0], placed[0].own.changes)
    evaluation = evaluator.full(whole)
    searches, found = [], []
    for question, place in zip(questions, placed, strict=True):
        question, changes = _told(question, whole), place.own.changes
        scenario = place.scenario(whole, changes)
        after, reasons = judge_scenario(question, scenario, evaluator, evaluation)
        screen = Screen(question, evaluator, scenario, after)
        searches.append(AdmissionSearch(question, changes, evaluator, scenario, after, screen, lambda step: None))
        found.append(reasons)
    is_late = may_wait_s > 0 and _fails([row for own in found for row in own])
    starts = _starts(searches, found, placed) if is_late else None
    return tuple(
        _opened(search, reasons, None if starts is None else starts[i], may_wait_s)
        for i, (search, reasons) in enumerate(zip(searches, found, strict=True))
    )


def _told(question: CandidateQuestion, whole: AdmissionScenario) -> CandidateQuestion:
    """The question with the prediction of its candidate in its place beside all others, where a model predicts it."""
    if question.prediction is None or question.predictor is None or question.prediction.state == "incomplete":
        return question
    name = question.candidate.query
    own = tuple(whole.deployment.operators[i] for i in whole.deployment.operators_of(name))
    beside = whole.deployment.without_query(name)
    return replace(question, prediction=question.predictor.predict_placed(beside, own, pins_of(own)))


def _fails(reasons: Sequence[Reason]) -> bool:
    return any(reason.severity == "bad" for reason in reasons)


def _starts(
    searches: Sequence[AdmissionSearch], found: Sequence[tuple[Reason, ...]], placed: Sequence[_Placed]
) -> list[Settled] | None:
    """The group at the latest of the starts at which its failing members pass; None where not all pass then."""
    failing = [search for search, reasons in zip(searches, found, strict=True) if _fails(reasons)]
    starts = [find_start(search) for search in failing]
    if None in starts:
        return None
    latest = max((start for start in starts if start is not None), key=lambda start: start.scenario.start_p)
    later = [change for change in latest.scenario.changes if isinstance(change, LaterStart)]
    settled = []
    for search, place in zip(searches, placed, strict=True):
        scenario = place.scenario(latest.scenario, join_changes(search.changes, later))
        _, reasons = judge_scenario(search.question, scenario, search.evaluator, latest.evaluation)
        settled.append(Settled(scenario, latest.evaluation, reasons))
    bad = any(_fails(one.reasons) or any(reason.review for reason in one.reasons) for one in settled)
    return None if bad else settled


def _opened(
    search: AdmissionSearch, reasons: tuple[Reason, ...], start: Settled | None, may_wait_s: float
) -> OpenDecision:
    """A member's decision: at the start of the group where that may wait for one, as it is otherwise."""
    scenario = search.base
    assert scenario is not None
    verdict, start_p = verdict_of(reasons, scenario), scenario.start_p
    if start is not None and (start.scenario.start_p - 1) * search.question.running.subinterval_s <= may_wait_s:
        verdict, start_p = "queue" if _fails(reasons) else verdict, start.scenario.start_p
        return OpenDecision(search, verdict, reasons, start, start_p, in_group=True)
    if verdict == "reject" and may_wait_s > 0 and waits_by_policy(reasons):
        verdict = "queue"
    return OpenDecision(search, verdict, reasons, None, start_p, in_group=True)


def _group_verdict(opened: Sequence[OpenDecision]) -> str:
    """The worst verdict; where one waits and another is for a person, waiting alone cures nothing: reject."""
    verdicts = [one.verdict for one in opened]
    worst = max(verdicts, key=_RANK.index)
    return "reject" if worst == "review" and "queue" in verdicts else worst
