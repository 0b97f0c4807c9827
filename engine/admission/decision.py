"""Decision about a candidate: verdict, reasons and effects on every query first, then the parts that follow them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from engine.admission.alternatives import (
    OfferedScenario,
    find_alternatives,
    measured_verdict,
    offer_scenario,
    verdict_of,
)
from engine.admission.answer import (
    PARTS,
    AdmissionDecision,
    AdmissionPolicy,
    Alternative,
    AlternativeSearch,
    DecisionCurves,
    NodeEffect,
    PartName,
    QueryEffect,
    Reason,
    ReasonSubject,
    Robustness,
    Thinness,
    named_reason,
)
from engine.admission.changes import Change, moves_in, read_changes
from engine.admission.curves import decision_curves
from engine.admission.evaluation import Evaluation, Evaluator, list_effects, list_effects_without, node_effects
from engine.admission.grounds import Ground, NamedGround, PassedOver, PassGround, VerdictGround, WithoutPins
from engine.admission.places import PlacementPick, judge_unpinned, pick_placement
from engine.admission.policy_reasons import beside_by_team, waits_by_policy
from engine.admission.prediction import judge_scenario, question_in
from engine.admission.reasons import evidence_of, in_order, passes, to_measure
from engine.admission.robustness import robustness_of
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, scenario_of
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, Settled, find_start
from engine.command_options import AdmitOptions
from engine.costream.accuracy import PredictionRecord
from engine.costream.first_placement import FirstPlacement, PlacementPredictor
from engine.costream.prediction import shipped_ensemble
from engine.document.candidate import Candidate, read_candidate
from engine.document.deployment import Deployment, Replica
from engine.errors import DocumentError, Fault, InfeasibleError, value_words
from engine.estimation.base import EstimateBase
from engine.measurement.trust import QueryCalibration
from engine.policies.candidate_policy import PolicyStanding
from engine.policies.facts import PolicyFacts
from engine.solvers import solving
from engine.words.admission import alternative_words

__all__ = ["OpenDecision", "answer_document", "command", "decide", "open_decision"]

Progress = Callable[[float, str], None]


def decide(
    running: Deployment, candidate: Mapping[str, Any] | Candidate, *, progress: Progress | None = None, **asked: Any
) -> AdmissionDecision:
    """Decide on a candidate with every part of the decision at once; arguments as of `open_decision`."""
    tell = progress or _tell_nobody
    opened = open_decision(running, candidate, progress=_between(tell, 0.0, 0.4), **asked)
    for part, begin, end in zip(PARTS, (0.4, 0.8), (0.8, 1.0), strict=True):
        if not opened.why_without(part):
            opened.compute(part, _between(tell, begin, end))
    tell(1.0, "Done")
    return opened.decision


def _tell_nobody(share: float, step: str) -> None:
    pass


def _between(tell: Progress, begin: float, end: float) -> Progress:
    """Progress of a step that is a part of a whole."""
    return lambda share, step: tell(begin + (end - begin) * share, step)


def open_decision(
    running: Deployment,
    candidate: Mapping[str, Any] | Candidate,
    *,
    policy: AdmissionPolicy | None = None,
    changes: Sequence[Mapping[str, Any] | Change] = (),
    mace_every: int = 1,
    standing: PolicyStanding | None = None,
    prediction: FirstPlacement | None = None,
    predictor: PlacementPredictor | None = None,
    record: PredictionRecord | None = None,
    calibrations: Mapping[str, QueryCalibration] | None = None,
    currency: str = "",
    kept: EstimateBase | None = None,
    progress: Progress | None = None,
) -> OpenDecision:
    """Decide on a candidate as far as its verdict needs: reasons, effects on every running query, placement.

    Parameters
    ----------
    running : Deployment
        What runs, everything placed; at w, or at w / `mace_every` (4 is recommended).
    candidate : mapping or Candidate
        Query, operators (placed or not), sources it brings, objective.
    policy : AdmissionPolicy, optional
        Rules of the cluster.
    changes : sequence of Change, or of their documents
        Changes to apply first, as an alternative of an earlier decision carries them.
    standing : PolicyStanding, optional
        Quotas, freezes and the queue as they stand; without one nothing but `policy` is asked.
    prediction : FirstPlacement, optional
        Of a candidate that never ran: it says what the candidate itself may expect, and where it goes. Nominal costs
        then say what it does to the others: of the options the first is taken with which every objective holds.
    predictor : PlacementPredictor, optional
        The model behind it, for what the prediction does not know: changes, and places other than those asked for.
    record : PredictionRecord, optional
        Record of the model on this cluster; without one no run bears it out, and nothing is admitted or rejected on
        what it predicts or on nominal costs.
    calibrations : mapping, optional
        Of running queries whose estimates were held against measurements: their upper ends are as far off as these ask
        for, never nearer, and where trust is lost a person decides.
    currency : str
        Of the nodes' prices, for sentences.
    kept : EstimateBase, optional
        Estimate of what runs, of `mace_every` as well, where somebody keeps it.
    progress : callable, optional
        Told the share done (0 to 1) and the step in words; an exception it raises ends the decision.

    Returns
    -------
    OpenDecision
        With what was computed, so that its parts can follow. The same input always gives the same answer.

    Raises
    ------
    DocumentError
        If the candidate or a change is malformed or refers to something unknown; with every fault.
    """
    solving()
    rules = policy or AdmissionPolicy()
    read = candidate if isinstance(candidate, Candidate) else read_candidate(candidate, running)
    applied = read_changes(
        changes, running, read, may_move_neighbours=rules.may_move_neighbours, closed_nodes=rules.closed_nodes
    )
    question = CandidateQuestion(
        running,
        read,
        rules,
        mace_every,
        prediction,
        predictor,
        record or PredictionRecord(),
        calibrations or {},
        currency,
        standing,
    )
    tell = progress or _tell_nobody
    tell(0.0, "Estimating what runs")
    evaluator = Evaluator(question, kept)
    question = replace(question, ground=evaluator.ground)
    evaluator.before  # noqa: B018 - computed here, so that progress tells of it
    tell(0.5, f"Estimating it with {read.query}")
    try:
        pick = pick_placement(question, applied, evaluator, lambda step: tell(0.7, step))
        base = scenario_of(pick.question, applied)
    except InfeasibleError as error:
        return _open_unplaced(AdmissionSearch(question, applied, evaluator, None, None, None, lambda step: None), error)
    question = question_in(pick.question, base)
    after, reasons = judge_scenario(question, base, evaluator, evaluator.full(base))
    reasons = in_order((*reasons, *_passed_over(question, pick)))
    screen = Screen(question, evaluator, base, after)
    search = AdmissionSearch(question, applied, evaluator, base, after, screen, lambda step: tell(0.9, step))
    return _open_placed(search, reasons)


def _passed_over(question: CandidateQuestion, pick: PlacementPick) -> list[Reason]:
    """The placement that is best for the candidate alone, where another was picked."""
    if pick.passed_over is None:
        return []
    name, other = question.candidate.query, pick.passed_over
    nodes = other.scenario.nodes_of(name)
    against = (r.ground for r in other.reasons if r.severity == "bad" or (r.review and r.code != _UNPROVEN))
    why = next(against, None)
    ground = NamedGround("not_placed", name, nodes) if why is None else PassedOver(name, nodes, why)
    return [Reason("placed_for_others", "info", ReasonSubject("query", name), ground, unit="")]


_UNPROVEN = "prediction_unproven"


@dataclass(eq=False)
class OpenDecision:
    """A decision whose verdict is certain, with the parts that were computed so far.

    A part adds what it finds to `decision`; the verdict, the effects and the placement stay as they are. Parts are
    computed in the order of `PARTS`: what one search learns, the next one knows.
    """

    search: AdmissionSearch
    verdict: str
    reasons: tuple[Reason, ...]
    start: Settled | None = None
    start_p: int = 1
    unpinned: Settled | None = None  #: the candidate on the nodes it would get had it asked for none
    offers: list[OfferedScenario] = field(default_factory=list)
    searched: AlternativeSearch | None = None
    robustness: Robustness | None = None
    in_group: bool = False  #: whether it is a member's, which parts are not computed of

    def why_without(self, part: PartName) -> str:
        """Code of why a part does not apply (`engine.words.admission.part_words`); empty where it does."""
        question = self.search.question
        if self.in_group:
            return "in_group"
        if not (question.policy.choices if part == "alternatives" else question.policy.robustness):
            return "not_asked"
        does_pass = passes(self.reasons)
        if part == "alternatives":
            return "passes" if does_pass and not any(reason.review for reason in self.reasons) else ""
        if question.prediction is not None:
            return "predicted"
        return "" if does_pass else "fails"

    def compute(self, part: PartName, tell: Progress = _tell_nobody) -> None:
        """Compute a part that applies. An exception that `tell` raises ends it; what it had found by then is kept."""
        solving()
        if part == "alternatives":
            self._find_alternatives(tell)
        else:
            self.robustness = robustness_of(self.search, tell)

    def _find_alternatives(self, tell: Progress) -> None:
        search = self.search
        # The verdict of who would not wait rests on no later start.
        if search.base is not None and _is_free(search, self.reasons) and search.question.candidate.may_wait_s <= 0:
            self.start = find_start(replace(search, tell=lambda step: tell(0.0, step)))
            if self.verdict == "reject" and self.start:
                self.reasons += (_cannot_wait(search.question, _start_s(search, self.start)),)
        if self.unpinned is not None and search.screen is not None:
            search.screen.learn(self.unpinned.scenario, self.unpinned.evaluation)
        self.offers.clear()
        in_vain: list[str] = []
        for offered in find_alternatives(
            search, self.reasons, tell, start=self.start, unpinned=self.unpinned, in_vain=in_vain
        ):
            self.offers.append(offered)
        measured = measured_verdict(self.reasons) if search.question.never_ran else None
        self.searched = AlternativeSearch(tuple(in_vain), bool(self.offers), measured)

    @property
    def decision(self) -> AdmissionDecision:
        """The decision as far as it is known. Of what was not computed it says nothing, or that it is pending."""
        search, question, base, after = self.search, self.search.question, self.search.base, self.search.after
        offers, start_p = self._offers, self.start_p
        return AdmissionDecision(
            verdict=self.verdict,
            finding=self._finding,
            query=question.candidate.query,
            snapshot=question.running.digest,
            reasons=self.reasons,
            effects=self._effects,
            placement=_placement(question, base) if base else {},
            apart=base.apart if base else (),
            measure=to_measure(question, after) if after else (),
            alternatives=tuple(_alternative(search, offered) for offered in offers),
            searched=self.searched,
            changes=search.changes,
            start_p=start_p if start_p > 1 else None,
            start_s=(start_p - 1) * question.running.subinterval_s if start_p > 1 else None,
            evidence=evidence_of(question.candidate.operators),
            nodes=self._nodes,
            curves=_curves(self._before, after, offers),
            policy=question.policy,
            policy_facts=self._policy_facts,
            never_ran=question.never_ran,
            robustness=self.robustness,
            thin=self._thin,
            prediction=question.prediction,
        )

    @property
    def _offers(self) -> Sequence[OfferedScenario]:
        """Alternatives found; of who waits in the queue the start, too, which is certain with the verdict."""
        known = any(offered.kind == "start_at" for offered in self.offers)
        is_offered = self.search.question.policy.choices and not self.in_group
        if self.verdict != "queue" or self.start is None or known or not is_offered:
            return self.offers
        return [*self.offers, offer_scenario(self.search, "start_at", 1, self.start)]

    @property
    def _thin(self) -> Thinness:
        policy, why_without = self.search.question.policy, self.why_without("robustness")
        if self.verdict in _GREEN and why_without == "in_group" and policy.thin_below and policy.robustness:
            return "unknown"
        if self.verdict not in _GREEN or why_without or not policy.thin_below:
            return False
        return "pending" if self.robustness is None else self.robustness.margin < policy.thin_below

    @property
    def _finding(self) -> Ground:
        search = self.search
        if search.after is None:
            return self.reasons[0].ground
        return replace(
            _first_ground(search.question, self.verdict, self.reasons, search.after, self.start),
            passes_unpinned=self.unpinned is not None and passes(self.unpinned.reasons),
            thin=self.robustness if self._thin is True else None,
        )

    @cached_property
    def _policy_facts(self) -> PolicyFacts | None:
        question, base = self.search.question, self.search.base
        if question.standing is None:
            return None
        if base is None:
            return question.standing.facts(question.running, None, question.candidate.query)
        beside = beside_by_team(question, base)
        return question.standing.facts(question.running, base.deployment, question.candidate.query, beside)

    @cached_property
    def _before(self) -> Evaluation:
        base = self.search.base
        return self.search.evaluator.before_from(base.start_p if base else 1)

    @cached_property
    def _effects(self) -> tuple[QueryEffect, ...]:
        question, base, after = self.search.question, self.search.base, self.search.after
        if base is None or after is None:
            return list_effects_without(question, self._before)
        return list_effects(question, base, self._before, after)

    @cached_property
    def _nodes(self) -> tuple[NodeEffect, ...]:
        return node_effects(self._before, self.search.after or self._before)


def _open_placed(search: AdmissionSearch, reasons: tuple[Reason, ...]) -> OpenDecision:
    question, base = search.question, search.base
    assert base is not None
    verdict, start_p = verdict_of(reasons, base), base.start_p
    is_free = _is_free(search, reasons)
    start = find_start(search) if is_free and question.candidate.may_wait_s > 0 else None
    # What it teaches the screen is learned with the alternatives, after the search for a start.
    unpinned = judge_unpinned(replace(search, screen=None)) if is_free and question.prediction is None else None
    if unpinned is not None:
        reasons = in_order((*reasons, _pinned(question, verdict, unpinned)))
    if verdict == "reject" and start:
        later_s = _start_s(search, start)
        if later_s <= question.candidate.may_wait_s and not any(reason.review for reason in start.reasons):
            verdict, start_p = "queue", start.scenario.start_p
        else:
            reasons += (_cannot_wait(question, later_s),)
    if verdict == "reject" and question.candidate.may_wait_s > 0 and waits_by_policy(reasons):
        verdict = "queue"  # until the policy lets it in: nobody knows when
    return OpenDecision(search, verdict, reasons, start, start_p, unpinned)


def _open_unplaced(search: AdmissionSearch, error: InfeasibleError) -> OpenDecision:
    """Decision where an operator of the candidate fits no node: reject, with a new node as an alternative."""
    first = error.faults[0].message if error.faults else error.message
    subject = ReasonSubject("query", search.question.candidate.query)
    return OpenDecision(search, "reject", (named_reason("no_place", "bad", subject, (first,), unit=""),))


def _is_free(search: AdmissionSearch, reasons: Sequence[Reason]) -> bool:
    """Whether the candidate does not pass as asked, and what is known of it holds at other times and places."""
    return not passes(reasons) and (search.question.prediction is None or search.question.predictor is not None)


def _start_s(search: AdmissionSearch, start: Settled) -> float:
    return (start.scenario.start_p - 1) * search.question.running.subinterval_s


def _alternative(search: AdmissionSearch, offered: OfferedScenario) -> Alternative:
    settled, (title, detail) = offered.settled, alternative_words(offered)
    before = search.evaluator.before_from(settled.scenario.start_p)
    return Alternative(
        id=offered.id,
        kind=offered.kind,
        title=title,
        detail=detail,
        changes=settled.scenario.changes,
        verdict=verdict_of(settled.reasons, settled.scenario),
        estimate_s=offered.own.estimate_s,
        effects=list_effects(search.question, settled.scenario, before, settled.evaluation),
    )


def _curves(before: Evaluation, after: Evaluation | None, offers: Sequence[OfferedScenario]) -> DecisionCurves:
    """Curves of the decision; a query that is predicted has none."""
    predicted = [o.query for o in after.outcomes.values() if o.is_predicted] if after is not None else []
    return decision_curves(before, after, {offered.id: offered.settled.evaluation for offered in offers}, predicted)


_REVIEW_RANK = {
    "neighbour_breached": 0,
    "outside_domain": 1,
    "predicted_failure": 2,
    "objective_breached": 2,
    "votes_at_risk": 4,
    "capacity_at_risk": 4,
    "prediction_unproven": 5,
}
_GREEN = ("admit", "admit_with_changes")


def _placement(question: CandidateQuestion, base: AdmissionScenario) -> dict[str, tuple[Replica, ...]]:
    """Placement of the candidate and of the running operators that the changes move."""
    placement = base.replicas_of(question.candidate.query)
    index = base.deployment.operator_index
    moved = sorted(moves_in(base.changes).keys() - placement.keys())
    return placement | {name: base.deployment.operators[index[name]].replicas for name in moved}


def _pinned(question: CandidateQuestion, verdict: str, unpinned: Settled) -> Reason:
    """The verdict that the candidate would get on nodes of Sluice's choice, in place of those asked for."""
    name = question.candidate.query
    free = verdict_of(unpinned.reasons, unpinned.scenario)
    own, does_pass = unpinned.evaluation.outcomes[name], passes(unpinned.reasons)
    nodes = unpinned.scenario.nodes_of(name)
    ground = WithoutPins(name, nodes, free, free == verdict, own if does_pass else None)
    return Reason("pinned", "info", ReasonSubject("query", name), ground, own.bound_s, own.estimate_s)


def _cannot_wait(question: CandidateQuestion, later_s: float) -> Reason:
    subject, may_wait_s = ReasonSubject("query", question.candidate.query), question.candidate.may_wait_s
    kind = "may_wait" if may_wait_s > 0 else "may_not_wait"
    return named_reason("cannot_wait", "info", subject, (), may_wait_s, later_s, kind=kind)


def _first_ground(
    question: CandidateQuestion, verdict: str, reasons: tuple[Reason, ...], after: Evaluation, start: Settled | None
) -> VerdictGround:
    """The ground that the verdict rests on."""
    name = question.candidate.query
    if verdict == "queue" and start:
        later_s = (start.scenario.start_p - 1) * question.running.subinterval_s
        return VerdictGround(PassGround(start.evaluation.outcomes[name], later_s=later_s))
    if verdict in ("reject", "queue"):
        # The harm to others comes first, then its own objective, then servers.
        rank = {"neighbour_breached": 0, "predicted_failure": 1, "objective_breached": 1}
        bad = sorted((reason for reason in reasons if reason.severity == "bad"), key=lambda r: rank.get(r.code, 2))
        others = tuple(reason.id for reason in bad[1:] if reason.code in rank)
        return VerdictGround(bad[0].ground, others)
    if verdict == "review":
        # What would reject, were it certain, comes first; what is said of the model's record, last.
        return VerdictGround(min((r for r in reasons if r.review), key=lambda r: _REVIEW_RANK.get(r.code, 3)).ground)
    over = tuple(outcome.query for outcome in after.outcomes.values() if outcome.state == "breached")
    return VerdictGround(PassGround(after.outcomes[name], verdict == "admit_with_changes", over))


def command(document: Any, options: AdmitOptions) -> AdmissionDecision:
    """Decide on ``candidate`` of a deployment document that holds what runs; ``changes`` are applied first.

    One that never ran is predicted by the shipped model, as the console does; no run of a cluster bears it out here.
    """
    return answer_document(document, options, PredictionRecord())


def answer_document(document: Any, options: AdmitOptions, record: PredictionRecord) -> AdmissionDecision:
    """As `command`, with the record of the shipped model on the cluster that the document is of."""
    if not isinstance(document, Mapping):
        raise DocumentError([Fault("", f"the document is {value_words(document)}; allowed: an object")])
    if "candidate" not in document:
        raise DocumentError([Fault("candidate", "candidate is missing; admit needs the query that wants to join")])
    running = {name: value for name, value in document.items() if name not in ("candidate", "changes")}
    faults: list[Fault] = []
    policy = AdmissionPolicy.read(options.policy or {}, "", "policy", faults)
    if policy is None:
        raise DocumentError(faults, "policy")
    deployment = Deployment.parse(running)
    candidate = read_candidate(document["candidate"], deployment)
    predictor = None
    if any(operator.never_ran for operator in candidate.operators):
        predictor = PlacementPredictor(shipped_ensemble(), closed=policy.closed_nodes)
    return decide(
        deployment,
        candidate,
        policy=policy,
        prediction=None if predictor is None else predictor.predict_candidate(deployment, candidate),
        predictor=predictor,
        record=record,
        changes=document.get("changes", ()),
        mace_every=options.mace_every,
    )
