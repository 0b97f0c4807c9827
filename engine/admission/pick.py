"""Pick of a first placement: of what the model predicts, the first with which every objective holds.

The model ranks candidates by what they do to the query itself. What they do to those that run, Mace and Flow tell, with
nominal costs. So options are judged one by one in the model's order; once one harms a running query, those that stay
away from its nodes come first. Mace screens, as in every search; nothing is taken without a full estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from engine.admission.answer import Reason
from engine.admission.changes import Change, moves_in, without_moves
from engine.admission.evaluation import Evaluator
from engine.admission.prediction import judge_scenario
from engine.admission.scenario import CandidateQuestion, scenario_of
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, Settled, moves_of, passes
from engine.costream.first_placement import FirstPlacement, PlacementOptions
from engine.errors import InfeasibleError

__all__ = ["OFFERED_PLACEMENTS", "PlacementPick", "find_placements", "pick_placement"]

#: Other placements that a decision offers at most.
OFFERED_PLACEMENTS = 3

_SCREENED = 100  # options that Mace looks at


@dataclass(frozen=True, eq=False)
class PlacementPick:
    """The question with the option that was picked, and the first of the ranking where that was another."""

    question: CandidateQuestion
    passed_over: Settled | None = None


def pick_placement(
    question: CandidateQuestion, changes: tuple[Change, ...], evaluator: Evaluator, tell: Callable[[str], None]
) -> PlacementPick:
    """The first option with which every objective holds; else the one that harms the fewest, in the model's order.

    Where changes place operators of the candidate, these places stand.

    Raises
    ------
    InfeasibleError
        An operator of the candidate fits no node.
    """
    prediction = question.prediction
    own = {operator.id for operator in question.candidate.operators}
    placed = not own.isdisjoint(moves_in(changes))
    if prediction is None or prediction.options is None or placed:
        return PlacementPick(_with_option(question, prediction, placed))
    judged: list[tuple[FirstPlacement, Settled]] = []
    for option, settled in _judged(question, changes, evaluator, prediction.options, tell):
        judged.append((option, settled))
        if passes(settled.reasons) or len(judged) == question.policy.full_evaluations:
            break
    option, settled = min(judged, key=lambda pair: _harm(pair[1]))
    first = judged[0][1]
    option = replace(option, options=prediction.options)
    return PlacementPick(_with_option(question, option, False), None if settled is first else first)


def find_placements(search: AdmissionSearch) -> Iterator[Settled]:
    """Other placements with which the candidate passes, each predicted and estimated; nodes asked for do not bind."""
    question = search.question
    options = _free_options(question)
    if options is None or search.base is None:
        return
    search.tell("Searching other placements")
    here = {name: replicas[0].node for name, replicas in search.base.replicas_of(question.candidate.query).items()}
    kept = without_moves(search.changes, here)
    free = replace(
        question,
        candidate=replace(
            question.candidate, operators=tuple(replace(op, replicas=()) for op in question.candidate.operators)
        ),
    )
    offered = 0
    judged = _judged(free, kept, search.evaluator, options, search.tell)
    for spent, (option, settled) in enumerate(_while_feasible(judged), 1):
        if option.placement != here and passes(settled.reasons):
            again = search.settle(moves_of(settled.scenario.replicas_of(question.candidate.query)))
            if again is not None:
                offered += 1
                yield again
        if offered == OFFERED_PLACEMENTS or spent == search.budget:
            return


def _while_feasible(judged: Iterator[tuple[FirstPlacement, Settled]]) -> Iterator[tuple[FirstPlacement, Settled]]:
    try:
        yield from judged
    except InfeasibleError:
        return  # nowhere to go: no placement to offer


def _free_options(question: CandidateQuestion) -> PlacementOptions | None:
    """Options without the nodes asked for, where a model can be asked."""
    prediction, candidate = question.prediction, question.candidate
    if prediction is None:
        return None
    asked = any(operator.replicas for operator in candidate.operators)
    if not asked or question.predictor is None:
        return prediction.options
    operators = tuple(replace(operator, replicas=()) for operator in candidate.operators)
    return question.predictor.find_placement(question.running, operators, candidate.sources).options


def _with_option(question: CandidateQuestion, prediction: FirstPlacement | None, is_placed: bool) -> CandidateQuestion:
    pins = {} if prediction is None or is_placed else dict(prediction.placement)
    return replace(question, prediction=prediction, candidate=replace(question.candidate, pins=pins))


def _judged(
    question: CandidateQuestion,
    changes: tuple[Change, ...],
    evaluator: Evaluator,
    options: PlacementOptions,
    tell: Callable[[str], None],
) -> Iterator[tuple[FirstPlacement, Settled]]:
    """Options with what a full estimate says of them: those that Mace lets pass, and the first that fits in any case.

    Raises
    ------
    InfeasibleError
        None fits.
    """
    left, harmed = list(range(len(options))), set[str]()
    screen: Screen | None = None
    screened = 0
    refusal: InfeasibleError | None = None
    while left and screened < _SCREENED:
        i = min(left, key=lambda row: (bool(harmed & set(options.placements[row].values())), row))
        left.remove(i)
        screened += 1
        option = options.choose(i) if screen is None else None
        asked = replace(question, candidate=replace(question.candidate, pins=options.placements[i]))
        try:
            scenario = scenario_of(asked, changes)
        except InfeasibleError as error:
            refusal = refusal or error
            continue
        if screen is not None and screen.mace_s(scenario) > 1.0:
            continue
        tell(f"Estimating placement {screened}")
        option = option or options.choose(i)
        asked = replace(asked, prediction=option)
        evaluation, reasons = judge_scenario(asked, scenario, evaluator, evaluator.full(scenario))
        yield option, Settled(scenario, evaluation, reasons)
        screen = screen or Screen(asked, evaluator.before_from(scenario.start_p), scenario, evaluation)
        for query in _harmed(reasons):
            harmed |= set(scenario.nodes_of(query))
    if screen is None and refusal is not None:
        raise refusal


def _harmed(reasons: tuple[Reason, ...]) -> list[str]:
    """Running queries that reasons say are harmed or at risk."""
    return [
        reason.id
        for reason in reasons
        if reason.code.startswith("neighbour_") and (reason.severity == "bad" or reason.review)
    ]


def _harm(settled: Settled) -> tuple[int, int, int]:
    """Weight of what speaks against an option: running queries it harms, what rejects, what is for a person."""
    return (
        len(_harmed(settled.reasons)),
        sum(reason.severity == "bad" for reason in settled.reasons),
        sum(reason.review for reason in settled.reasons),
    )
