"""Costs of operators that never ran by relatives that did: a prior on the cost table, with its weight.

A relative is an operator that runs, whose cost was measured, of the same kind and features. By how much the table is
off for it says how much it is off for one that never ran: rates and windows of both are in the table's own cost.
"""

from __future__ import annotations

from functools import cached_property
from math import exp, log

from engine.document.cycles import is_of_clock, operator_unit
from engine.document.deployment import Deployment
from engine.document.elements import Operator
from engine.document.translation import source_rates, stream_rates, table_costs
from engine.document.unknown_costs import FULL_SPAN_S

__all__ = ["Relatives"]

_MIN_EVENTS = 1000.0  # that a cost must have been measured over
_MOST = 20  # relatives of an operator
_TABLE_WEIGHT = 1.0  # of the table, in relatives of the same expression
_OTHER_EXPRESSION = 0.5  # weight of a relative by another expression, or by one that nobody stated


class Relatives:
    """Operators of a deployment whose measured costs say something of others like them."""

    def __init__(self, running: Deployment) -> None:
        self._running = running

    def corrected(self, operator: Operator, nominal: float) -> tuple[float, int]:
        """The cost of an operator that never ran, in cycles per event, and of how many relatives it is.

        Notes
        -----
        nominal · exp(sum of w·ln(measured/nominal) of relatives / (sum of w + `_TABLE_WEIGHT`)): few relatives move the
        table's cost little. w is 1 for the same expression, else `_OTHER_EXPRESSION`. Those of the same expression come
        first, then by events.
        """
        found = [(weight, ratio, other) for other, ratio in self._ratios if (weight := _kinship(operator, other)) > 0.0]
        nearest = sorted(found, key=lambda item: (-item[0], -_events(item[2]), item[2].id))[:_MOST]
        if not nearest or nominal <= 0.0:
            return nominal, 0
        weight = sum(w for w, _, _ in nearest) + _TABLE_WEIGHT
        return nominal * exp(sum(w * ratio for w, ratio, _ in nearest) / weight), len(nearest)

    @cached_property
    def _ratios(self) -> list[tuple[Operator, float]]:
        """Operators that were measured, each with ln of its cost over the table's."""
        running = self._running
        known = [operator for operator in running.operators if _is_measured(operator)]
        if not known:
            return []
        sources, above = running.with_above(operator.id for operator in known)
        rates = stream_rates(above, source_rates(sources, running.subinterval_s), running.subinterval_s)
        queries = {operator.query for operator in known}
        own = [operator for operator in running.operators if operator.query in queries]
        costs = table_costs(own, rates, running.stream_processor)
        nominal = dict(zip((operator.id for operator in own), costs, strict=True))
        return [
            (operator, log(_cost(operator, rates) / nominal[operator.id]))
            for operator in known
            if nominal[operator.id] > 0.0 and _cost(operator, rates) > 0.0
        ]


def _kinship(operator: Operator, other: Operator) -> float:
    """Weight of another operator as a relative; 0: it is none.

    Of a map and the like the expression is all that is known: one by another expression may do anything.
    """
    if _features(operator) != _features(other):
        return 0.0
    if operator.expression is not None and operator.expression == other.expression:
        return 1.0
    is_described = operator.filter or operator.join or operator.aggregate
    return _OTHER_EXPRESSION if is_described else 0.0


def _features(operator: Operator) -> tuple[object, ...]:
    window = operator.window and (operator.window.policy, operator.window.type)
    return operator.kind, operator.filter, operator.join, operator.aggregate, window


def _events(operator: Operator) -> float:
    return operator.evidence.events if operator.evidence else 0.0


def _is_measured(operator: Operator) -> bool:
    """Whether its cost was measured, long enough, in cycles of a clock, and is known to be its own."""
    evidence = operator.evidence
    if evidence is None or evidence.kind != "measured" or evidence.events < _MIN_EVENTS or operator.cost_by is not None:
        return False
    is_whole = operator.measured_s is None or operator.measured_s >= FULL_SPAN_S
    is_linear = all(entry.model is None and not entry.never_ran for entry in operator.inputs)
    return is_whole and is_linear and operator.kind not in (None, "other") and is_of_clock(operator_unit(operator))


def _cost(operator: Operator, rates_eps: dict[str, float]) -> float:
    """Mean cycles per event over its inputs."""
    read = [(rates_eps.get(entry.source, 0.0), entry.cycles_per_event) for entry in operator.inputs]
    events = sum(rate for rate, _ in read)
    return sum(rate * cycles for rate, cycles in read) / events if events > 0.0 else 0.0
