"""Alternatives with which a candidate would pass, each searched for, then estimated in full."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from engine.admission.answer import Reason
from engine.admission.changes import (
    Change,
    NewNode,
    ObjectiveChange,
    join_changes,
)
from engine.admission.evaluation import QueryOutcome
from engine.admission.grounds import VerdictGround
from engine.admission.places import (
    find_distant_placement,
    find_move,
    find_moves,
    find_placements,
    is_near_doubts,
)
from engine.admission.prediction import judge_scenario
from engine.admission.reasons import passes
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, node_capacity_cps, scenario_of
from engine.admission.search import AdmissionSearch, Settled, find_node_capacity, find_rate_share
from engine.document.deployment import Node

__all__ = [
    "OfferedScenario",
    "find_alternatives",
    "find_objective",
    "measured_verdict",
    "offer_scenario",
    "verdict_of",
]


_OUTSIDE = "outside_domain"
#: Findings that only what was never measured has. Of an interval across the objective (`predicted_at_risk`) it is not
#: known how wide a measured one is: it stays for a person.
_UNMEASURED = frozenset({
    "never_ran", "prediction_unproven", "prediction_incomplete", "changes_unpredicted", "filling_unpredicted", _OUTSIDE,
    "votes_at_risk", "capacity_at_risk", "assumed_statistics",
})  # fmt: skip


def verdict_of(reasons: tuple[Reason, ...], scenario: AdmissionScenario) -> str:
    """Verdict by reasons and changes: admit, admit_with_changes, review or reject; the search alone says queue."""
    if any(reason.severity == "bad" for reason in reasons):
        return "reject"
    if any(reason.review for reason in reasons):
        return "review"
    return "admit_with_changes" if scenario.changes or scenario.altered else "admit"


@dataclass(frozen=True, eq=False)
class OfferedScenario:
    """A scenario that would pass, and the changes in it that were not asked for."""

    question: CandidateQuestion
    id: str
    kind: str
    settled: Settled
    new: tuple[Change, ...]

    @property
    def own(self) -> QueryOutcome:
        """The candidate's outcome."""
        return self.settled.evaluation.outcomes[self.question.candidate.query]

    def model_of(self, added: NewNode) -> tuple[Node, float]:
        """The node that a new one is like, and the share of its capacity that the new one has."""
        like = self.question.running.nodes[self.question.running.node_index[added.like]]
        return like, added.capacity_cps * (added.cores or like.cores) / node_capacity_cps(like)


def find_alternatives(
    search: AdmissionSearch,
    reasons: tuple[Reason, ...],
    progress: Callable[[float, str], None],
    *,
    start: Settled | None = None,
    unpinned: Settled | None = None,
    in_vain: list[str] | None = None,
) -> Iterator[OfferedScenario]:
    """Every kind of alternative that passes with its estimate, in a fixed order; none with the changes of another.

    Parameters
    ----------
    search : AdmissionSearch
    reasons : tuple of Reason
        Those of the scenario it starts from. Where only a person's word is missing, places are sought that need none.
    progress : callable
        Told the share done and the step.
    start, unpinned : Settled, optional
        The later start, and the candidate on the nodes it would get had it asked for none, both found already.
    in_vain : list of str, optional
        Gets the kinds of which none passes.
    """
    kinds: list[tuple[str, Callable[[AdmissionSearch], Settled | Iterable[Settled] | None]]] = []
    if not passes(reasons):
        kinds = [
            ("place_again", find_placements),
            ("move", lambda s: find_move(s, neighbours=False)),
            ("move", _with_neighbours),
            ("place_again", lambda s: unpinned if unpinned and passes(unpinned.reasons) else None),
            ("scale_rate", find_rate_share),
            ("start_at", lambda s: start),
            ("add_node", find_node_capacity),
            ("objective", find_objective),
        ]
    elif any(reason.code == _OUTSIDE for reason in reasons):
        kinds = [("place_again", _within_domain)]
    if any(reason.review for reason in reasons) and is_near_doubts(search):
        kinds.append(("place_apart", find_distant_placement))
    seen: dict[str, int] = {}
    offered: list[tuple[Change, ...]] = []
    for number, (kind, find) in enumerate(kinds):
        share = number / len(kinds)
        reporting = replace(search, tell=lambda step, share=share: progress(share, step))  # type: ignore[misc]
        answer = find(reporting)
        for settled in [answer] if isinstance(answer, Settled) else answer or ():
            if settled.scenario.changes not in offered:
                offered.append(settled.scenario.changes)
                seen[kind] = seen.get(kind, 0) + 1
                yield offer_scenario(search, kind, seen[kind], settled)
    if in_vain is not None:
        in_vain += dict.fromkeys(kind for kind, _ in kinds if kind not in seen)


def measured_verdict(reasons: Iterable[Reason]) -> str:
    """Verdict on a candidate that never ran once it has, if it costs then what is estimated now: as `verdict_of`.

    Nobody has to decide then because it was predicted. What would reject but for the runs that are missing to bear it
    out rejects then; what is for a person for another reason stays so.
    """
    left = [reason for reason in reasons if reason.code not in _UNMEASURED]
    if any(reason.severity == "bad" or _is_unborne(reason) for reason in left):
        return "reject"
    return "review" if any(reason.review for reason in left) else "admit"


def _is_unborne(reason: Reason) -> bool:
    """Whether a finding is for a person only since no run bears out what it rests on."""
    return isinstance(reason.finding, VerdictGround) and bool(reason.finding.unborne)


def _within_domain(search: AdmissionSearch) -> Iterator[Settled]:
    """Other placements that pass, and that the model was trained for."""
    for settled in find_placements(search):
        if all(reason.code != _OUTSIDE for reason in settled.reasons):
            yield settled


def offer_scenario(search: AdmissionSearch, kind: str, number: int, settled: Settled) -> OfferedScenario:
    """An alternative with its id: the kind, and its number among those of the kind."""
    new = tuple(change for change in settled.scenario.changes if change not in search.changes)
    return OfferedScenario(search.question, f"{kind}-{number}", kind, settled, new)


def _with_neighbours(search: AdmissionSearch) -> Settled | None:
    """A move of a running query's operator, or a few together."""
    if not search.question.policy.may_move_neighbours:
        return None
    return find_move(search, neighbours=True) or find_moves(search)


def find_objective(search: AdmissionSearch) -> Settled | None:
    """The bound that the candidate would hold, where only its own is in the way."""
    if search.base is None or search.after is None:
        return None
    search.tell("Finding the objective that would hold")
    own = search.after.outcomes[search.question.candidate.query]
    if own.bound_s is None or own.state == "holds":
        return None
    bound_s = _round_up_bound(own.upper_s)
    change = ObjectiveChange(own.query, own.statistic, bound_s)
    scenario = scenario_of(search.question, join_changes(search.changes, [change]))
    # The bound decides nothing about what runs: the estimate is the one there is.
    outcomes = {**search.after.outcomes, own.query: replace(own, bound_s=bound_s)}
    evaluation = replace(search.after, outcomes=outcomes)
    _, reasons = judge_scenario(search.question, scenario, search.evaluator, evaluation)
    return Settled(scenario, evaluation, reasons) if passes(reasons) else None


def _round_up_bound(value: float, digits: int = 2) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit * (1.0 - 1e-12)) * unit:.12g}")
