"""Magnitudes of a deployment: rates and loads that its numbers multiply to must stay far inside the range of floats.

Each number of a document is bounded where it is read (`engine/fields.py`); a chain of operators multiplies them without
a bound. What passes here can be added, multiplied by a horizon and squared, as the models do, and stays finite.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.document.elements import Backlog, Input, Node, Operator, Source
from engine.document.topology import order_of
from engine.errors import Fault

__all__ = ["MAX_BUSY", "MAX_CYCLES", "MAX_EVENTS", "find_excessive_rates"]

#: Events in one subinterval out of an operator: whole numbers beyond are not exact in floats.
MAX_EVENTS = 1e15
#: Cycles in one subinterval, of one operator.
MAX_CYCLES = 1e60
#: Subintervals that the load of one may keep a core busy for. Kernels number subintervals by whole numbers of 64 bits.
MAX_BUSY = 1e9


def find_excessive_rates(
    sources: Sequence[Source],
    nodes: Sequence[Node],
    operators: Sequence[Operator],
    subinterval_s: float,
    path: str = "operators",
) -> list[Fault]:
    """Faults of the first operators whose events, cycles or time outgrow what can be computed with.

    Works with the largest subinterval of each source, so that it costs one step an input. What reads a faulty operator
    is not named again. Names must be sound: references exist and form no cycle.

    Notes
    -----
    Of operator j with inputs i, at peaks: events_j = sum of sigma_ji * events_i, cycles_j = sum of omega_ji * events_i,
    or the input's polynomials with the absolute values of their coefficients; busy = cycles_j * fraction / (C w).
    """
    faults: list[Fault] = []
    peaks = {
        source.id: _with_waiting(float(source.arrivals.max(initial=0.0)), source.backlog, subinterval_s)
        for source in sources
    }
    capacities = {node.id: _least_capacity(node) * subinterval_s for node in nodes}
    for i in order_of(operators)[0]:
        operator = operators[i]
        arriving = [_with_waiting(peaks.get(e.source, 0.0), e.backlog, subinterval_s) for e in operator.inputs]
        flows = [_flow(entry, peak) for entry, peak in zip(operator.inputs, arriving, strict=True)]
        events, cycles = sum(flow[0] for flow in flows), sum(flow[1] for flow in flows)
        fault = (
            _fault("puts out", events, MAX_EVENTS, "events in a subinterval")
            or _fault("costs", cycles, MAX_CYCLES, "cycles in a subinterval")
            or _busy_fault(operator, cycles, capacities)
        )
        if fault:
            faults.append(Fault(f"{path}[{i}]", f"operator {operator.id!r} {fault}"))
        peaks[operator.id] = 0.0 if fault else events
    return faults


def _with_waiting(peak: float, backlog: Backlog | None, subinterval_s: float) -> float:
    """Events of a stream in its largest subinterval, and those that wait, as if they came at once."""
    if backlog is None:
        return peak
    if backlog.events is not None:
        return peak + backlog.events
    return peak * (1.0 + (backlog.behind_s or 0.0) / subinterval_s)


def _least_capacity(node: Node) -> float:
    """The smallest capacity above 0 of a core, cycles/s; 0 where it never has any."""
    if node.capacity_series_cps is None:
        return float(node.capacity_cps or 0.0)
    series = node.capacity_series_cps
    return float(series[series > 0.0].min(initial=float(series.max(initial=0.0))))


def _flow(entry: Input, peak: float) -> tuple[float, float]:
    """Events out and cycles that `peak` events of an input cause at most."""
    if entry.model is None:
        return entry.selectivity * peak, entry.cycles_per_event * peak
    return _polynomial(entry.model.output, peak), _polynomial(entry.model.cycles, peak)


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    value = 0.0
    for coefficient in reversed(coefficients):  # Horner; multiplication gives inf where a power would raise
        value = value * x + abs(coefficient)
    return value


def _busy_fault(operator: Operator, cycles: float, capacities: dict[str, float]) -> str | None:
    for replica in operator.replicas:
        capacity = capacities.get(replica.node, 0.0)
        if capacity > 0.0:
            busy = cycles * replica.fraction / capacity
            verb = f"in one subinterval brings {replica.node!r} the work of"
            if fault := _fault(verb, busy, MAX_BUSY, "subintervals"):
                return fault
    return None


def _fault(verb: str, value: float, allowed: float, unit: str) -> str | None:
    if value <= allowed:
        return None
    return f"{verb} up to {value:.3g} {unit}; allowed: up to {allowed:g}"
