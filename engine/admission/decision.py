"""Decision about a candidate: verdict, reasons, effects on every query, and alternatives that would pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.admission.alternatives import OfferedScenario, find_alternatives, verdict_of
from engine.admission.answer import (
    AdmissionDecision,
    AdmissionPolicy,
    Alternative,
    Curves,
    DecisionCurves,
    Reason,
    ReasonSubject,
)
from engine.admission.changes import Change, moves_in, read_changes
from engine.admission.evaluation import (
    CURVE_POINTS,
    Evaluation,
    Evaluator,
    list_effects,
    list_effects_without,
    node_effects,
)
from engine.admission.grounds import NamedGround, PassedOver, PassGround, VerdictGround, WithoutPins
from engine.admission.places import PlacementPick, judge_unpinned, pick_placement
from engine.admission.prediction import judge_scenario, question_in
from engine.admission.reasons import evidence_of, in_order, named_reason, to_measure
from engine.admission.robustness import robustness_of
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, scenario_of
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, Settled, find_start, passes
from engine.arrays import FloatArray, step_maxima
from engine.command_options import AdmitOptions
from engine.costream.accuracy import PredictionRecord
from engine.costream.first_placement import FirstPlacement, PlacementPredictor
from engine.document.candidate import Candidate, read_candidate
from engine.document.deployment import Deployment, Replica
from engine.errors import DocumentError, Fault, InfeasibleError, value_words
from engine.measurement.trust import QueryCalibration
from engine.words.admission import alternative_words

__all__ = ["command", "decide", "decision_curves"]


_MAX_NEIGHBOURS = _MAX_CURVES = 8
_CHANGED_S, _CHANGED_SHARE = 0.005, 0.005  # smaller changes of a latency, also as a share of its bound, are none
_CHANGED_LOAD = 0.005
_DIGITS = 4


def decision_curves(
    before: Evaluation,
    after: Evaluation | None,
    alternatives: Mapping[str, Evaluation],
    unknown: Collection[str] = (),
) -> DecisionCurves:
    """Curves of what runs, of the decision, and of its alternatives.

    Parameters
    ----------
    before, after : Evaluation
        `after` is None where the candidate fits nowhere.
    alternatives : mapping
        By their ids.
    unknown : collection of str
        Queries whose latency is no estimate of this model: they get no curve.
    """
    grid = before.mace.deployment
    loads_before = _node_loads(before)
    changed = {
        name: _changed_curves(before, loads_before, outcome, unknown)
        for name, outcome in ({"": after} | dict(alternatives)).items()
        if outcome is not None
    }
    names = {kind: {name for outcome in changed.values() for name in outcome[kind]} for kind in ("queries", "nodes")}
    return DecisionCurves(
        grid.subinterval_s * -(-grid.subintervals // CURVE_POINTS),
        {
            "queries": {name: _seconds(before.paths[name]) for name in before.outcomes if name in names["queries"]},
            "nodes": {name: _shares(load) for name, load in loads_before.items() if name in names["nodes"]},
        },
        changed.pop("", {}),
        changed,
    )


def _node_loads(evaluation: Evaluation) -> dict[str, FloatArray]:
    """Load of the busiest core of every node over the horizon."""
    deployment = evaluation.mace.deployment
    shares = step_maxima(evaluation.mace.load_share, CURVE_POINTS)
    loads: dict[str, FloatArray] = {}
    for i, server in enumerate(deployment.servers):
        if server.node is not None:
            name = deployment.nodes[server.node].id
            loads[name] = np.maximum(loads[name], shares[i]) if name in loads else shares[i]
    return loads


def _changed_curves(
    before: Evaluation, loads_before: Mapping[str, FloatArray], after: Evaluation, unknown: Collection[str]
) -> dict[str, Curves]:
    """Curves of the queries and nodes that an outcome changes most, each in the order of what would run."""
    moves: dict[str, float] = {}
    for name, outcome in after.outcomes.items():
        if name in unknown:
            continue
        known = before.outcomes.get(name)
        if known is None:
            moves[name] = np.inf
            continue
        by_s = max(abs(outcome.estimate_s - known.estimate_s), _distance(after.paths[name], before.paths[name]))
        if by_s >= max(_CHANGED_S, _CHANGED_SHARE * (outcome.bound_s or 0.0)) or outcome.state != known.state:
            # Who loses or wins its objective comes before who only moves.
            moves[name] = by_s / (outcome.bound_s or by_s or 1.0) + 1e6 * (outcome.state != known.state)
    loads = _node_loads(after)
    rises = {
        name: _distance(load, loads_before[name]) if name in loads_before else np.inf for name, load in loads.items()
    }
    busier = {name: by for name, by in rises.items() if by >= _CHANGED_LOAD}
    return {
        "queries": {name: _seconds(after.paths[name]) for name in _largest(moves, _MAX_NEIGHBOURS + 1)},
        "nodes": {name: _shares(loads[name]) for name in _largest(busier, _MAX_CURVES)},
    }


def _largest(values: Mapping[str, float], most: int) -> list[str]:
    kept = set(sorted(values, key=lambda name: -values[name])[:most])
    return [name for name in values if name in kept]


def _distance(a: FloatArray, b: FloatArray) -> float:
    return float(np.abs(a - b).max(initial=0.0))


def _seconds(path: FloatArray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in path.tolist()]


def _shares(load: FloatArray) -> list[float]:
    return np.round(load, 3).tolist()


Progress = Callable[[float, str], None]


def decide(
    running: Deployment,
    candidate: Mapping[str, Any] | Candidate,
    *,
    policy: AdmissionPolicy | None = None,
    changes: Sequence[Mapping[str, Any] | Change] = (),
    mace_every: int = 1,
    prediction: FirstPlacement | None = None,
    predictor: PlacementPredictor | None = None,
    record: PredictionRecord | None = None,
    calibrations: Mapping[str, QueryCalibration] | None = None,
    currency: str = "",
    progress: Progress | None = None,
) -> AdmissionDecision:
    """Decide on a candidate, with the effect on every running query and the changes that would admit it.

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
    progress : callable, optional
        Told the share done (0 to 1) and the step in words; an exception it raises ends the decision.

    Returns
    -------
    AdmissionDecision
        The same input always gives the same answer.

    Raises
    ------
    DocumentError
        If the candidate or a change is malformed or refers to something unknown; with every fault.
    """
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
    )
    tell = progress or (lambda share, step: None)
    tell(0.0, "Estimating what runs")
    evaluator = Evaluator(question)
    evaluator.before  # noqa: B018 - computed here, so that progress tells of it
    tell(0.2, f"Estimating it with {read.query}")
    try:
        pick = pick_placement(question, applied, evaluator, lambda step: tell(0.3, step))
        base = scenario_of(pick.question, applied)
    except InfeasibleError as error:
        return _decide_unplaced(question, applied, evaluator, error, tell)
    question = question_in(pick.question, base)
    after, reasons = judge_scenario(question, base, evaluator, evaluator.full(base))
    reasons = in_order((*reasons, *_passed_over(question, pick)))
    search = _search(question, applied, evaluator, base, after, tell)
    return _decide_placed(search, reasons, tell)


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


def _search(
    question: CandidateQuestion,
    applied: tuple[Change, ...],
    evaluator: Evaluator,
    base: AdmissionScenario | None,
    after: Evaluation | None,
    tell: Progress,
) -> AdmissionSearch:
    screen = Screen(question, evaluator, base, after) if base and after else None
    return AdmissionSearch(question, applied, evaluator, base, after, screen, lambda step: tell(0.4, step))


def _decide_placed(search: AdmissionSearch, reasons: tuple[Reason, ...], tell: Progress) -> AdmissionDecision:
    question, base, after = search.question, search.base, search.after
    assert base is not None
    assert after is not None
    before = search.evaluator.before_from(base.start_p)
    verdict = verdict_of(reasons, base)
    is_free = not passes(reasons) and (question.prediction is None or question.predictor is not None)
    is_asked = question.policy.choices or question.candidate.may_wait_s > 0
    start = find_start(search) if is_free and is_asked else None
    unpinned = judge_unpinned(search) if is_free and question.prediction is None else None
    if unpinned is not None:
        reasons = in_order((*reasons, _pinned(question, verdict, unpinned)))
    start_p, start_s = base.start_p, (base.start_p - 1) * question.running.subinterval_s
    if verdict == "reject" and start:
        later_s = (start.scenario.start_p - 1) * question.running.subinterval_s
        if later_s <= question.candidate.may_wait_s and not any(reason.review for reason in start.reasons):
            verdict, start_p, start_s = "queue", start.scenario.start_p, later_s
        else:
            reasons += (_cannot_wait(question, later_s),)
    offers: list[OfferedScenario] = []
    if question.policy.choices:
        offers = list(find_alternatives(search, reasons, tell, start=start, unpinned=unpinned))
    robustness = None
    if question.policy.robustness and question.prediction is None and passes(reasons):
        tell(0.8, "How much more it would stand")
        robustness = robustness_of(search)
    thin = robustness is not None and verdict in _GREEN and robustness.margin < question.policy.thin_below
    finding = replace(
        _first_ground(question, verdict, reasons, after, start),
        passes_unpinned=unpinned is not None and passes(unpinned.reasons),
        thin=robustness if thin else None,
    )
    tell(1.0, "Done")
    return AdmissionDecision(
        verdict=verdict,
        finding=finding,
        query=question.candidate.query,
        snapshot=question.running.digest,
        reasons=reasons,
        effects=list_effects(question, base, before, after),
        placement=_placement(question, base),
        apart=base.apart,
        measure=to_measure(question, after),
        alternatives=tuple(_alternative(search, offered) for offered in offers),
        changes=search.changes,
        start_p=start_p if start_p > 1 else None,
        start_s=start_s if start_p > 1 else None,
        evidence=evidence_of(question.candidate.operators),
        nodes=node_effects(before, after),
        curves=_curves(before, after, offers),
        policy=question.policy,
        never_ran=question.never_ran,
        robustness=robustness,
        thin=thin,
        prediction=question.prediction,
    )


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
    "prediction_unproven": 4,
}
_GREEN = ("admit", "admit_with_changes")


def _decide_unplaced(
    question: CandidateQuestion,
    applied: tuple[Change, ...],
    evaluator: Evaluator,
    error: InfeasibleError,
    tell: Progress,
) -> AdmissionDecision:
    """Decision where an operator of the candidate fits no node: reject, with a new node as the alternative."""
    name = question.candidate.query
    first = error.faults[0].message if error.faults else error.message
    reason = named_reason("no_place", "bad", ReasonSubject("query", name), (first,), unit="")
    search = _search(question, applied, evaluator, None, None, tell)
    before = evaluator.before
    offers = list(find_alternatives(search, (reason,), tell)) if question.policy.choices else []
    tell(1.0, "Done")
    return AdmissionDecision(
        verdict="reject",
        finding=reason.finding,
        query=name,
        snapshot=question.running.digest,
        reasons=(reason,),
        effects=list_effects_without(question, before),
        placement={},
        apart=(),
        measure=(),
        alternatives=tuple(_alternative(search, offered) for offered in offers),
        changes=applied,
        start_p=None,
        start_s=None,
        evidence=evidence_of(question.candidate.operators),
        nodes=node_effects(before, before),
        curves=_curves(before, None, offers),
        policy=question.policy,
        never_ran=question.never_ran,
        prediction=question.prediction,
    )


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
    if verdict == "reject":
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
    """Decide on ``candidate`` of a deployment document that holds what runs; ``changes`` are applied first."""
    if not isinstance(document, Mapping):
        raise DocumentError([Fault("", f"the document is {value_words(document)}; allowed: an object")])
    if "candidate" not in document:
        raise DocumentError([Fault("candidate", "candidate is missing; admit needs the query that wants to join")])
    running = {name: value for name, value in document.items() if name not in ("candidate", "changes")}
    faults: list[Fault] = []
    policy = AdmissionPolicy.read(options.policy or {}, "", "policy", faults)
    if policy is None:
        raise DocumentError(faults, "policy")
    return decide(
        Deployment.parse(running),
        document["candidate"],
        policy=policy,
        changes=document.get("changes", ()),
        mace_every=options.mace_every,
    )
