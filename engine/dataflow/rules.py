"""Which operators may run at a source, and why the others may not: rules 1 to 4 of section IV-B of the Jarvis paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.dataflow.operators import AggregateSpec, Spec, StreamJoinSpec

__all__ = ["Judged", "Rule", "judge", "not_runnable"]


@dataclass(frozen=True)
class Rule:
    """Whether an operator may run at a source; if not, the `number` of the rule and the `reason`.

    `number` is None for an operator that no rule forbids but that comes after one that must not run there.
    """

    allowed: bool
    number: int | None
    reason: str


@dataclass(frozen=True)
class Judged:
    """What the rules look at."""

    id: str
    spec: Spec
    copies: int


def judge(chain: Sequence[Judged]) -> tuple[Rule, ...]:
    """The rules on every operator of a chain, in order."""
    rules: list[Rule] = []
    stateful: str | None = None
    barred: str | None = None
    for operator in chain:
        rule = _own(operator, stateful)
        if rule.allowed and barred is not None:
            reason = f"{operator.id} comes after {barred}, which must not run at a source"
            rule = Rule(False, None, reason)
        rules.append(rule)
        if isinstance(operator.spec, AggregateSpec):
            stateful = stateful or operator.id
        if not rule.allowed:
            barred = barred or operator.id
    return tuple(rules)


def _own(operator: Judged, stateful: str | None) -> Rule:
    spec = operator.spec
    if isinstance(spec, AggregateSpec) and spec.exact:
        return Rule(False, 1, _exact(operator.id, spec))
    if stateful is not None:
        reason = f"{operator.id} comes after {stateful}, whose groups are complete only where all sources meet"
        return Rule(False, 2, reason)
    if isinstance(spec, StreamJoinSpec):
        return Rule(False, 3, f"{operator.id} joins the stream {spec.stream!r}: {_WHY_NOT[spec.within_agent]}")
    if operator.copies > 1:
        reason = (
            f"{operator.id} has {operator.copies} physical copies: which one takes a record is not the source's to say"
        )
        return Rule(False, 4, reason)
    return Rule(True, None, f"{operator.id} needs nothing but the records of its source")


#: Why a join of two streams runs at no source, by whether records of one agent alone match.
_WHY_NOT = {
    False: "records that match may be at other sources",
    True: "both streams are the agent's own, but what matches is known at the end of a window, and no agent holds "
    "records back so long",
}


def _exact(name: str, spec: AggregateSpec) -> str:
    listed = ", ".join(f"{out.name} ({out.function})" for out in spec.outputs if out.name in spec.exact)
    advice = "quantile() keeps a small one" if not _distinct(spec) else "quantile() and counts by group keep small ones"
    return f"{name} computes {listed}, which no small state can be updated for record by record; {advice}"


def _distinct(spec: AggregateSpec) -> bool:
    return any(out.function == "count distinct" for out in spec.outputs if out.name in spec.exact)


def not_runnable(operator: Judged) -> str | None:
    """Why an operator can run nowhere, or None if it can.

    What has no state that merges could not be taken up again after a restart, nor bounded, at the stream processor
    either.
    """
    spec = operator.spec
    if isinstance(spec, AggregateSpec) and spec.exact:
        return f"{_exact(operator.id, spec)}; allowed: aggregates whose state merges"
    return None
