"""Replay of a decision: what was decided then beside what would be decided now, and what changed most in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from engine.admission.answer import AdmissionDecision
from engine.admission.policy_replay import replay_policy
from engine.policies.policy import ClusterPolicy
from engine.policies.quotas import CORES, RATE
from engine.records import Record, Words

__all__ = ["EVERYTHING", "TAKEN", "ReplayChange", "Taken", "decision_changes", "shares_of"]

#: What a replay may take of today.
TAKEN = ("load", "cost", "model", "policy", "cluster")
Taken = frozenset[str]
EVERYTHING: Taken = frozenset(TAKEN)

_NOTHING = 0.01  # share below which a change is none


@dataclass(frozen=True)
class ReplayChange(Record):
    """A change between a decision and its replay."""

    TITLE: ClassVar[str] = "a change since a decision"

    kind: Annotated[
        Literal["policy", "model", "load", "cost", "cluster"],
        Words(
            "policy: under that of then the verdict of now would be the old one; model: another one, or measured where "
            "it was predicted; load: events per second that the query reads; cost: cores for each of them; cluster: "
            "peak load of the busiest node without the query."
        ),
    ]
    share: Annotated[float | None, Words("By how much of what it was, such as 0.3; null where there is no number.")]


def decision_changes(
    then: AdmissionDecision, now: AdmissionDecision, policy_then: ClusterPolicy, may_wait_s: float = 0.0
) -> tuple[ReplayChange, ...]:
    """Changes between two decisions about the same question, that which tells most first.

    A policy by whose old version the verdict would be the old one comes first, then another model, then numbers by how
    far they moved. What the older decision did not keep is left out.
    """
    named = list(_named(then, now, policy_then, may_wait_s))
    numbers = [change for change in _numbers(then, now) if abs(change.share or 0.0) > _NOTHING]
    return (*named, *sorted(numbers, key=lambda change: -abs(change.share or 0.0)))


def _named(
    then: AdmissionDecision, now: AdmissionDecision, policy_then: ClusterPolicy, may_wait_s: float
) -> Iterator[ReplayChange]:
    if then.verdict != now.verdict and now.policy_facts is not None and then.policy_facts is not None:
        is_other = then.policy_facts.version != now.policy_facts.version
        if is_other and replay_policy(now, policy_then, may_wait_s).verdict == then.verdict:
            yield ReplayChange("policy", None)
    if _model_of(then) != _model_of(now):
        yield ReplayChange("model", None)


def _model_of(decision: AdmissionDecision) -> str:
    """Model that predicted it; empty where none did."""
    prediction = decision.prediction
    return prediction.model.line if prediction is not None and prediction.model is not None else ""


def _numbers(then: AdmissionDecision, now: AdmissionDecision) -> Iterator[ReplayChange]:
    load, cost = shares_of(now, then)
    if load is not None:
        yield ReplayChange("load", load - 1.0)
    if cost is not None:
        yield ReplayChange("cost", cost - 1.0)
    peak_was, peak_now = _busiest(then), _busiest(now)
    if peak_was > _NOTHING:
        yield ReplayChange("cluster", peak_now / peak_was - 1.0)


def shares_of(decision: AdmissionDecision, other: AdmissionDecision) -> tuple[float | None, float | None]:
    """Events per second that a query reads by one decision over those by another, and so core seconds of an event.

    None where one of the two did not keep it, or it is 0.
    """
    one, two = _wanted(decision), _wanted(other)
    if not (one[RATE] > 0.0 and two[RATE] > 0.0):
        return None, None
    cost_one, cost_two = one[CORES] / one[RATE], two[CORES] / two[RATE]
    return one[RATE] / two[RATE], cost_one / cost_two if cost_two > 0.0 else None


def _wanted(decision: AdmissionDecision) -> dict[str, float]:
    """Events per second and mean cores that a query asked for; 0 where that was not kept."""
    wanted = decision.policy_facts.wanted if decision.policy_facts is not None else {}
    return {name: wanted.get(name, 0.0) for name in (RATE, CORES)}


def _busiest(decision: AdmissionDecision) -> float:
    """Peak load of the busiest node without the candidate, as a share of its capacity."""
    return max((node.before_peak for node in decision.nodes if node.before_peak is not None), default=0.0)
