"""Profile of a resource plan, taken from the statistics of a query's operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.fleet.choices import InputOrigin
from apps.queries.choices import OperatorKind
from engine.document.elements import Input, Operator
from engine.document.topology import order_of

__all__ = ["PlanInput", "QueryWork", "microbatch_inputs", "query_work", "stage_inputs", "weakest_origin"]

#: Operators that need the events of a key together: what comes before the first of them is map, the rest reduce.
KEYED = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.JOIN})
_STRENGTH = (InputOrigin.DEFAULT, InputOrigin.ASSUMED, InputOrigin.PREDICTED, InputOrigin.MEASURED)


@dataclass(frozen=True, slots=True)
class PlanInput:
    """An input of a plan with its origin."""

    value: float | int | bool | str
    origin: InputOrigin


@dataclass(frozen=True, slots=True)
class QueryWork:
    """Work of a query on either side of its shuffle.

    Attributes
    ----------
    rate_eps : float
        Events/s that its sources bring; 0 unless the arrivals of all of them are known.
    map_cycles : float
        Cycles per input event in operators before the first keyed ones.
    map_outputs : float
        Events handed on to keyed operators per input event; without keyed operators, events that leave the query.
    reduce_cycles : float
        Cycles per handed-on event in keyed operators and all that read them.
    output_bytes : float
        Mean size of a handed-on event; 0 where it is not known.
    is_keyed : bool
        Whether it has keyed operators.
    map_origin, reduce_origin : InputOrigin
        The weakest evidence of the statistics behind each.
    """

    rate_eps: float
    map_cycles: float
    map_outputs: float
    reduce_cycles: float
    output_bytes: float
    is_keyed: bool
    map_origin: InputOrigin
    reduce_origin: InputOrigin


def weakest_origin(origins: Iterable[str], fallback: InputOrigin = InputOrigin.ASSUMED) -> InputOrigin:
    """The origin that vouches least: default before assumed, predicted and measured.

    Examples
    --------
    >>> str(weakest_origin(["measured", "assumed", "measured"]))
    'assumed'
    """
    return min(map(InputOrigin, origins), key=_STRENGTH.index, default=fallback)


def query_work(operators: Sequence[Operator], rates: Mapping[str, float], subinterval_s: float) -> QueryWork:
    """Split a query's work at its first keyed operators (aggregate, window, join).

    Parameters
    ----------
    operators : sequence of Operator
        All operators of the query.
    rates : mapping
        Mean events/s by source. Sources that are not in it weigh as much as the mean of those that are.
    subinterval_s : float
        Seconds that the polynomials of operators with a model are stated for.
    """
    order, _ = order_of(operators)
    ordered = [operators[i] for i in order]
    by_id = {operator.id: operator for operator in ordered}
    inflow = _source_rates(ordered, by_id, rates)
    total = sum(inflow.values()) or 1.0
    reduces: set[str] = set()
    outflow = dict(inflow)
    map_cycles = reduce_cycles = handed = handed_bytes = 0.0
    for operator in ordered:
        if operator.kind in KEYED or any(entry.source in reduces for entry in operator.inputs):
            reduces.add(operator.id)
        outflow[operator.id] = sum(_output(entry, outflow[entry.source], subinterval_s) for entry in operator.inputs)
        cycles = sum(_cycles(entry, outflow[entry.source], subinterval_s) for entry in operator.inputs)
        if operator.id not in reduces:
            map_cycles += cycles
            continue
        reduce_cycles += cycles
        for entry in operator.inputs:
            if entry.source not in reduces:
                handed += outflow[entry.source]
                handed_bytes += outflow[entry.source] * _bytes(by_id.get(entry.source))
    if not reduces:
        read = {entry.source for operator in ordered for entry in operator.inputs}
        last = [operator for operator in ordered if operator.id not in read]
        handed = sum(outflow[operator.id] for operator in last)
        handed_bytes = sum(outflow[operator.id] * operator.bytes_per_event for operator in last)
    maps = [operator for operator in ordered if operator.id not in reduces]
    every = weakest_origin(_kinds(ordered))
    return QueryWork(
        rate_eps=sum(inflow.values()) if inflow.keys() <= rates.keys() else 0.0,
        map_cycles=map_cycles / total,
        map_outputs=handed / total,
        reduce_cycles=reduce_cycles / handed if handed else 0.0,
        output_bytes=handed_bytes / handed if handed else 0.0,
        is_keyed=bool(reduces),
        map_origin=weakest_origin(_kinds(maps), every),
        reduce_origin=weakest_origin(_kinds(operator for operator in ordered if operator.id in reduces), every),
    )


def _source_rates(
    operators: Sequence[Operator], by_id: Mapping[str, Operator], rates: Mapping[str, float]
) -> dict[str, float]:
    """Events/s of every source that is read, each once however often it is read."""
    names = {entry.source for operator in operators for entry in operator.inputs if entry.source not in by_id}
    known = [rates[name] for name in names if rates.get(name, 0.0) > 0]
    usual = sum(known) / len(known) if known else 1.0
    return {name: rates.get(name, usual) if known else usual for name in sorted(names)}


def _output(entry: Input, rate: float, subinterval_s: float) -> float:
    """Events/s put out for the events/s of one input."""
    if entry.model is None:
        return entry.selectivity * rate
    return _polynomial(entry.model.output, rate, subinterval_s)


def _cycles(entry: Input, rate: float, subinterval_s: float) -> float:
    """Cycles/s spent on the events/s of one input."""
    if entry.model is None:
        return entry.cycles_per_event * rate
    return _polynomial(entry.model.cycles, rate, subinterval_s)


def _polynomial(terms: tuple[float, float, float], rate: float, subinterval_s: float) -> float:
    events = rate * subinterval_s
    return max(terms[0] + terms[1] * events + terms[2] * events * events, 0.0) / subinterval_s


def _bytes(operator: Operator | None) -> float:
    return operator.bytes_per_event if operator is not None else 0.0


def _kinds(operators: Iterable[Operator]) -> list[str]:
    return [operator.evidence.kind if operator.evidence else InputOrigin.ASSUMED for operator in operators]


def stage_inputs(work: QueryWork, capacity_cps: float, capacity_origin: str) -> dict[str, PlanInput]:
    """Profile of a map-reduce stage: core-seconds on a core of `capacity_cps`, by path of the question."""
    inputs = {"profile.c_map": _work(work.map_cycles, work.map_origin, capacity_cps, capacity_origin)}
    if work.is_keyed:
        inputs["profile.c_red"] = _work(work.reduce_cycles, work.reduce_origin, capacity_cps, capacity_origin)
    else:
        inputs["profile.c_red"] = PlanInput(0.0, work.map_origin)
    if work.map_outputs > 0:
        inputs["profile.alpha"] = PlanInput(work.map_outputs, work.map_origin)
    if work.output_bytes > 0:
        inputs["profile.b_out"] = PlanInput(work.output_bytes, InputOrigin.ASSUMED)
    return inputs


def microbatch_inputs(work: QueryWork, capacity_cps: float, capacity_origin: str) -> dict[str, PlanInput]:
    """Profile of Spark's micro-batches; without keyed operators nothing is shuffled."""
    inputs = {
        "profile.c_in_s": _work(work.map_cycles, work.map_origin, capacity_cps, capacity_origin),
        "profile.alpha": PlanInput(work.map_outputs if work.is_keyed else 0.0, work.map_origin),
    }
    if work.is_keyed:
        inputs["profile.c_sh_s"] = _work(work.reduce_cycles, work.reduce_origin, capacity_cps, capacity_origin)
    return inputs


def _work(cycles: float, origin: InputOrigin, capacity_cps: float, capacity_origin: str) -> PlanInput:
    """Seconds of one core for some cycles, vouched for by the weaker of both figures."""
    return PlanInput(cycles / capacity_cps, weakest_origin([origin, capacity_origin]))
