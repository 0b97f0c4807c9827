"""Costs of operators that never ran by relatives that did: a prior on the cost table, with its weight.

A relative is an operator that runs, or ran in a query that stopped, whose cost was measured, of the same kind and
features. By how much the table is off for it says how much it is off for one that never ran: rates and windows of both
are in the table's own cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from typing import Annotated, Any, ClassVar

from engine.document.cycles import is_of_clock, operator_unit
from engine.document.deployment import Deployment
from engine.document.elements import (
    AggregateFeatures,
    FilterFeatures,
    JoinFeatures,
    Operator,
    Window,
)
from engine.document.kinds import ID, NOT_NEGATIVE, OPERATOR_KINDS, POSITIVE
from engine.document.translation import source_rates, stream_rates, table_costs
from engine.document.unknown_costs import FULL_SPAN_S
from engine.kinds import Anything, Enumeration
from engine.records import Record, Words

__all__ = ["RelativeCost", "Relatives", "relative_costs"]

_MIN_EVENTS = 1000.0  # that a cost must have been measured over
_MOST = 20  # relatives of an operator
_TABLE_WEIGHT = 1.0  # of the table, in relatives of the same expression
_OTHER_EXPRESSION = 0.5  # weight of a relative by another expression, or by one that nobody stated
_STOPPED = 0.5  # part of its weight that is left to one that runs no more: hosts and data may be others by now


@dataclass(frozen=True, kw_only=True)
class RelativeCost(Record):
    """Measured cost of an operator over that of the table, and what makes another one its relative."""

    TITLE: ClassVar[str] = "the cost of an operator that ran"

    id: Annotated[str, ID]
    kind: Annotated[str, Enumeration(OPERATOR_KINDS)]
    ratio: Annotated[Annotated[float, POSITIVE], Words("measured cycles per event over those of the table")]
    events: Annotated[Annotated[float, NOT_NEGATIVE], Words("that it was measured over")]
    filter: FilterFeatures | None = None
    join: JoinFeatures | None = None
    aggregate: AggregateFeatures | None = None
    window: Window | None = None
    expression: Annotated[Any, Anything()] = None


def relative_costs(
    operators: Sequence[Operator], rates_eps: Mapping[str, float], processor: str
) -> tuple[RelativeCost, ...]:
    """Costs of those operators that were measured long enough, in cycles of a clock, over those of the table.

    Parameters
    ----------
    operators
        Of whole queries.
    rates_eps
        Events/s of every stream that they read. What reads one that is not among them is left out.
    processor
        Stream processor that they ran on, whose costs the table's are.
    """
    known = [operator for operator in operators if _is_measured(operator)]
    known = [operator for operator in known if all(entry.source in rates_eps for entry in operator.inputs)]
    if not known:
        return ()
    queries = {operator.query for operator in known}
    own = [operator for operator in operators if operator.query in queries]
    nominal = dict(zip((operator.id for operator in own), table_costs(own, rates_eps, processor), strict=True))
    return tuple(
        RelativeCost(
            id=operator.id,
            kind=operator.kind or "",
            ratio=cost / nominal[operator.id],
            events=operator.evidence.events if operator.evidence else 0.0,
            filter=operator.filter,
            join=operator.join,
            aggregate=operator.aggregate,
            window=operator.window,
            expression=operator.expression,
        )
        for operator in known
        if nominal[operator.id] > 0.0 and (cost := _cost(operator, rates_eps)) > 0.0
    )


class Relatives:
    """Operators of a deployment, and such that run no more, whose measured costs say something of others like them."""

    def __init__(self, running: Deployment, stopped: Sequence[RelativeCost] = ()) -> None:
        self._running, self._stopped = running, tuple(stopped)

    def corrected(self, operator: Operator, nominal: float) -> tuple[float, int]:
        """The cost of an operator that never ran, in cycles per event, and of how many relatives it is.

        Notes
        -----
        nominal · exp(sum of w·ln(measured/nominal) of relatives / (sum of w + `_TABLE_WEIGHT`)): few relatives move the
        table's cost little. w is 1 for the same expression, else `_OTHER_EXPRESSION`; of one that runs no more half of
        that. The heaviest come first, then by events.
        """
        known = [(1.0, other) for other in self._costs] + [(_STOPPED, other) for other in self._stopped]
        found = [(part * weight, other) for part, other in known if (weight := _kinship(operator, other)) > 0.0]
        nearest = sorted(found, key=lambda item: (-item[0], -item[1].events, item[1].id))[:_MOST]
        if not nearest or nominal <= 0.0:
            return nominal, 0
        weight = sum(w for w, _ in nearest) + _TABLE_WEIGHT
        return nominal * exp(sum(w * log(other.ratio) for w, other in nearest) / weight), len(nearest)

    @cached_property
    def _costs(self) -> tuple[RelativeCost, ...]:
        """Those of operators that run."""
        running = self._running
        known = [operator.id for operator in running.operators if _is_measured(operator)]
        if not known:
            return ()
        sources, above = running.with_above(known)
        rates = stream_rates(above, source_rates(sources, running.subinterval_s), running.subinterval_s)
        return relative_costs(running.operators, rates, running.stream_processor)


def _kinship(operator: Operator, other: RelativeCost) -> float:
    """Weight of another operator as a relative; 0: it is none.

    Of a map and the like the expression is all that is known: one by another expression may do anything.
    """
    if _features(operator) != _features(other):
        return 0.0
    if operator.expression is not None and operator.expression == other.expression:
        return 1.0
    is_described = operator.filter or operator.join or operator.aggregate
    return _OTHER_EXPRESSION if is_described else 0.0


def _features(operator: Operator | RelativeCost) -> tuple[object, ...]:
    window = operator.window and (operator.window.policy, operator.window.type)
    return operator.kind, operator.filter, operator.join, operator.aggregate, window


def _is_measured(operator: Operator) -> bool:
    """Whether its cost was measured, long enough, in cycles of a clock, and is known to be its own."""
    evidence = operator.evidence
    if evidence is None or evidence.kind != "measured" or evidence.events < _MIN_EVENTS or operator.cost_by is not None:
        return False
    is_whole = operator.measured_s is None or operator.measured_s >= FULL_SPAN_S
    is_linear = all(entry.model is None and not entry.never_ran for entry in operator.inputs)
    return is_whole and is_linear and operator.kind not in (None, "other") and is_of_clock(operator_unit(operator))


def _cost(operator: Operator, rates_eps: Mapping[str, float]) -> float:
    """Mean cycles per event over its inputs."""
    read = [(rates_eps.get(entry.source, 0.0), entry.cycles_per_event) for entry in operator.inputs]
    events = sum(rate for rate, _ in read)
    return sum(rate * cycles for rate, cycles in read) / events if events > 0.0 else 0.0
