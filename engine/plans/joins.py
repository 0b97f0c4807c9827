"""Rules about joins: a filter below one, and the order of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.document.elements import Evidence, Input, Operator, Window
from engine.plans.answer import PlanFact, RewriteRefusal, RewriteStep
from engine.plans.chains import must_follow
from engine.plans.rules import (
    Dataflow,
    join_blocked,
    local_name,
    pushable_side,
    scale_outputs,
)

__all__ = ["exchange_joins", "push_below_join"]


def push_below_join(
    flow: Dataflow, chain: tuple[Operator, ...], refused: list[RewriteRefusal]
) -> Iterator[tuple[Dataflow, RewriteStep]]:
    """Every filter of a chain behind a join that may go to one of the join's inputs.

    Its events there are the join's input; the outputs that the other side causes shrink by the filter's selectivity,
    as they meet fewer events. That takes the filter to be independent of what meets in the join.
    """
    join = flow.upstream(chain[0])
    if join is None or join.kind != "join" or flow.only_reader(join) is not chain[0]:
        return
    before = must_follow(chain)
    for place, operator in enumerate(chain):
        if operator.kind != "filter" or before[place]:
            continue
        side = pushable_side(flow, operator, join)
        if isinstance(side, PlanFact):
            refused.append(RewriteRefusal("filter push-down", local_name(operator), local_name(join), side))
            continue
        yield _pushed(flow, operator, join, side)


def _pushed(flow: Dataflow, moved: Operator, join: Operator, side: int) -> tuple[Dataflow, RewriteStep]:
    entry, own = join.inputs[side], moved.inputs[0]
    lower = replace(moved, inputs=(replace(own, source=entry.source),))
    inputs = [replace(entry, source=moved.id), scale_outputs(join.inputs[1 - side], own)]
    joined = replace(join, inputs=tuple(inputs if side == 0 else inputs[::-1]))
    above = own.source  # the join, or what of the chain was before the filter
    below = [replace(op, inputs=tuple(_moved(e, moved.id, above) for e in op.inputs)) for op in flow.operators]
    changed = {op.id: op for op in below} | {lower.id: lower}
    changed[join.id] = joined
    names = local_name(moved), local_name(join)
    step = RewriteStep("filter push-down", PlanFact("moved_below", names), PlanFact("meeting_independent", names))
    return Dataflow(list(changed.values())), step


def _moved(entry: Input, old: str, new: str) -> Input:
    return replace(entry, source=new) if entry.source == old else entry


def exchange_joins(
    flow: Dataflow, rates: Mapping[str, float], refused: list[RewriteRefusal]
) -> Iterator[tuple[Dataflow, RewriteStep]]:
    """Two joins in a row with one of the first's streams and the second's other stream exchanged.

    Only for equi-joins (`reads` names the keys) with tumbling time windows of one size: what falls into one window
    meets in it in whatever order. Sliding windows reach back from the later event, so there the order decides.
    """
    for upper in flow.operators:
        for position, entry in enumerate(upper.inputs if upper.kind == "join" else ()):
            lower = flow.by_id.get(entry.source)
            if lower is None or lower.kind != "join" or flow.only_reader(lower) is not upper:
                continue
            why = _order_blocked(lower, upper)
            if why:
                refused.append(RewriteRefusal("join order", local_name(upper), local_name(lower), why))
                continue
            for kept in (0, 1):
                why = _exchange_blocked(flow, lower, upper, position, kept)
                if why:
                    refused.append(RewriteRefusal("join order", local_name(upper), local_name(lower), why))
                else:
                    yield _exchanged(flow, rates, lower, upper, position, kept)


def _order_blocked(lower: Operator, upper: Operator) -> PlanFact | None:
    for join in (lower, upper):
        if why := join_blocked(join):
            return why
        if not join.reads:
            return PlanFact("keys_unstated", (local_name(join),))
    return None if _same_tumbling(lower.window, upper.window) else PlanFact("windows_differ")


def _same_tumbling(one: Window | None, other: Window | None) -> bool:
    return one is not None and other is not None and one.type == other.type == "tumbling" and one.size == other.size


def _exchange_blocked(flow: Dataflow, lower: Operator, upper: Operator, position: int, kept: int) -> PlanFact | None:
    """Reason why the upper join may not come first, between the lower's input `kept` and the upper's other stream."""
    streams = [lower.inputs[kept].source, lower.inputs[1 - kept].source, upper.inputs[1 - position].source]
    known = [flow.fields(stream) for stream in streams]
    for stream, fields in zip(streams, known, strict=True):
        if fields is None:
            return PlanFact("fields_unstated", (flow.stream_name(stream),))
    keep, leave, other = (fields or frozenset() for fields in known)
    low, up = frozenset(lower.reads or ()), frozenset(upper.reads or ())
    names = [flow.stream_name(stream) for stream in streams]
    if not up <= keep & other:
        return PlanFact("key_missing", (names[0], names[2]), tuple(sorted(up)))
    if not low <= keep & leave:
        return PlanFact("key_missing", (names[0], names[1]), tuple(sorted(low)))
    if clash := (keep & leave - low) | (keep & other - up) | (leave & other - (low & up)):
        return PlanFact("fields_shared", (), tuple(sorted(clash)))
    if written := frozenset(lower.writes or ()) | frozenset(upper.writes or ()):
        return PlanFact("fields_of_pairs", (), tuple(sorted(written)))
    rates = flow.rates(dict.fromkeys(_sources(flow), 1.0))
    has_events = all(rates.get(stream) for stream in (*streams, lower.id))
    return None if has_events else PlanFact("no_events")


def _sources(flow: Dataflow) -> list[str]:
    return [e.source for op in flow.operators for e in op.inputs if e.source not in flow.by_id]


def _exchanged(
    flow: Dataflow, rates: Mapping[str, float], lower: Operator, upper: Operator, position: int, kept: int
) -> tuple[Dataflow, RewriteStep]:
    """The upper join first, of the lower's stream `kept` and its own other stream; then the lower, with what is left.

    A pair of events matches as often as before, whichever third events it has met (independence), so as many results
    come out at the end; each side of a join is taken to cause half of them. What a join spends on an event of the
    same side stays.
    """
    keep, leave = lower.inputs[kept], lower.inputs[1 - kept]
    other, whole = upper.inputs[1 - position], upper.inputs[position]
    n_keep, n_leave, n_other = (rates[entry.source] for entry in (keep, leave, other))
    results = rates[upper.id]
    first = results * n_keep / rates[lower.id]  # pairs of kept and other, were the left stream not there
    sides = (Input(keep.source, first / 2 / n_keep, whole.cycles_per_event), _half(other, first, n_other))
    upper_first = replace(upper, inputs=sides, evidence=Evidence("assumed"))
    met = Input(upper.id, results / 2 / first if first else 0.0, keep.cycles_per_event)
    lower_last = replace(lower, inputs=(met, _half(leave, results, n_leave)), evidence=Evidence("assumed"))
    readers = [op for op in flow.reading(upper.id, lower.id) if op.id not in (lower.id, upper.id)]
    names = [flow.stream_name(entry.source) for entry in (keep, other, leave)]
    met_first = PlanFact("joins_exchanged", (*names[:2], local_name(upper), names[2], local_name(lower)))
    step = RewriteStep("join order", met_first, PlanFact("matches_independent"))
    return flow.changed(upper_first, lower_last, *readers), step


def _half(entry: Input, results: float, rate: float) -> Input:
    """An input that causes half of a join's results."""
    return replace(entry, selectivity=results / 2 / rate, batches=())
