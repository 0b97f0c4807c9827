"""Plans that mean the same, found by rules: filter order and push-down, join order, fusing.

The space is searched exhaustively over what the rules change about joins (each state once, however it is reached), with
the cheapest order of each chain found by dynamic programming (`engine.plans.chains`). A cap on the plans looked at
bounds the work and is reported when it was reached.

Reference: paper, section IX-A, "Navigating the Search Space".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.document.elements import Evidence, Input, Operator, Window
from engine.plans.answer import RewriteRefusal, RewriteStep
from engine.plans.chains import chains_of, find_cheapest_order, fuse_operators, must_follow, reorder_chain
from engine.plans.rules import (
    Dataflow,
    Operators,
    barrier,
    filter_blocked,
    join_blocked,
    local_name,
    pushable_side,
    scale_outputs,
    shape_of,
)
from engine.records import Fact, Sentence

__all__ = [
    "Rewrite",
    "RewriteSearch",
    "Rewriting",
    "exchange_joins",
    "push_below_join",
    "rewrite",
]


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
        if isinstance(side, Fact):
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
    step = RewriteStep("filter push-down", Fact("plans.moved_below", *names), Fact("plans.meeting_independent", *names))
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


def _order_blocked(lower: Operator, upper: Operator) -> Fact | None:
    for join in (lower, upper):
        if why := join_blocked(join):
            return why
        if not join.reads:
            return Fact("plans.keys_unstated", local_name(join))
    return None if _same_tumbling(lower.window, upper.window) else Fact("plans.windows_differ")


def _same_tumbling(one: Window | None, other: Window | None) -> bool:
    return one is not None and other is not None and one.type == other.type == "tumbling" and one.size == other.size


def _exchange_blocked(flow: Dataflow, lower: Operator, upper: Operator, position: int, kept: int) -> Fact | None:
    """Reason why the upper join may not come first, between the lower's input `kept` and the upper's other stream."""
    streams = [lower.inputs[kept].source, lower.inputs[1 - kept].source, upper.inputs[1 - position].source]
    known = [flow.fields(stream) for stream in streams]
    for stream, fields in zip(streams, known, strict=True):
        if fields is None:
            return Fact("plans.fields_unstated", flow.stream_name(stream))
    keep, leave, other = (fields or frozenset() for fields in known)
    low, up = frozenset(lower.reads or ()), frozenset(upper.reads or ())
    names = [flow.stream_name(stream) for stream in streams]
    if not up <= keep & other:
        return Fact("plans.key_missing", names[0], names[2], fields=sorted(up))
    if not low <= keep & leave:
        return Fact("plans.key_missing", names[0], names[1], fields=sorted(low))
    if clash := (keep & leave - low) | (keep & other - up) | (leave & other - (low & up)):
        return Fact("plans.fields_shared", fields=sorted(clash))
    if written := frozenset(lower.writes or ()) | frozenset(upper.writes or ()):
        return Fact("plans.fields_of_pairs", fields=sorted(written))
    rates = flow.rates(dict.fromkeys(_sources(flow), 1.0))
    has_events = all(rates.get(stream) for stream in (*streams, lower.id))
    return None if has_events else Fact("plans.no_events")


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
    met_first = Fact("plans.joins_exchanged", *names[:2], local_name(upper), names[2], local_name(lower))
    step = RewriteStep("join order", met_first, Fact("plans.matches_independent"))
    return flow.changed(upper_first, lower_last, *readers), step


def _half(entry: Input, results: float, rate: float) -> Input:
    """An input that causes half of a join's results."""
    return replace(entry, selectivity=results / 2 / rate, batches=())


MAX_PLANS = 500  # plans looked at
MAX_KEPT = 4  # plans given back


@dataclass(frozen=True)
class Rewrite:
    """A plan that means the same: its operators, what was done, what its statistics take for granted, and its cost in
    cycles/s at the sources' mean rates."""

    operators: Operators
    steps: tuple[RewriteStep, ...]
    cost_cps: float

    @property
    def assumed(self) -> tuple[Sentence, ...]:
        """Assumptions of the statistics, each once."""
        return tuple(dict.fromkeys(step.assumed for step in self.steps if step.assumed))


@dataclass(frozen=True)
class Rewriting:
    """Result of rewriting: plans, cheapest first, and refusals with their reasons.

    `examined` plans were looked at; `capped` if there were more than the cap allowed.
    """

    plans: tuple[Rewrite, ...]
    refused: tuple[RewriteRefusal, ...]
    examined: int
    cap: int
    capped: bool
    cost_cps: float


def rewrite(
    operators: Sequence[Operator],
    rates: Mapping[str, float] | None = None,
    *,
    hop_cycles: float = 0.0,
    cap: int = MAX_PLANS,
    keep: int = MAX_KEPT,
) -> Rewriting:
    """Find plans that mean the same and cost less.

    Parameters
    ----------
    operators : sequence of Operator
        One plan.
    rates : mapping, optional
        Mean events/s of the sources; 1 for those not named.
    hop_cycles : float
        Cycles that one event spends in a queue between two operators, part of the costs as measured; 0: not known, and
        nothing is fused.
    cap : int
        Plans looked at before the search ends.
    keep : int
        Plans given back at most.

    Returns
    -------
    Rewriting
        The cheapest plan first, then the cheapest by each other set of rules. Nothing is rewritten where meaning is not
        stated; `refused` says what was missing.
    """
    start = Dataflow(operators)
    known = {e.source: 1.0 for op in start.operators for e in op.inputs if e.source not in start.by_id}
    known |= dict(rates or {})
    search = RewriteSearch(known, hop_cycles, cap)
    rewrites = search.run(start)
    present = start.cost(known)
    own = shape_of(start.operators)
    cheaper = [
        candidate
        for candidate in rewrites
        if shape_of(candidate.operators) != own and candidate.cost_cps < present * (1 - 1e-9)
    ]
    refused = tuple(dict.fromkeys([*_refusals(start), *search.refused]))
    return Rewriting(_cheapest_variants(cheaper, keep), refused, search.examined, cap, search.capped, present)


class RewriteSearch:
    """One walk over the plans that the rules reach, the start among them."""

    def __init__(self, rates: Mapping[str, float], hop_cycles: float, cap: int) -> None:
        self.rates, self.hop_cycles, self.cap = rates, hop_cycles, cap
        self.refused: list[RewriteRefusal] = []
        self.examined = 0
        self.capped = False

    def run(self, start: Dataflow) -> list[Rewrite]:
        """Every plan found, cheapest first."""
        seen = {shape_of(start.operators)}
        waiting: deque[tuple[Dataflow, tuple[RewriteStep, ...]]] = deque([(start, ())])
        rewrites: list[Rewrite] = []
        while waiting and not self.capped:
            flow, steps = waiting.popleft()
            for plan, done in self._finished(flow, steps):
                rewrites.append(Rewrite(plan.operators, done, plan.cost(self.rates)))
            for neighbour, step in self._neighbours(flow):
                shape = shape_of(neighbour.operators)
                if shape in seen:
                    continue
                if self.examined >= self.cap:
                    self.capped = True
                    break
                seen.add(shape)
                waiting.append((neighbour, (*steps, step)))
        return sorted(rewrites, key=lambda plan: (plan.cost_cps, len(plan.steps)))

    def _neighbours(self, flow: Dataflow) -> Iterator[tuple[Dataflow, RewriteStep]]:
        for chain in chains_of(flow):
            yield from push_below_join(flow, chain, self.refused)
        yield from exchange_joins(flow, flow.rates(self.rates), self.refused)

    def _finished(
        self, flow: Dataflow, steps: tuple[RewriteStep, ...]
    ) -> Iterator[tuple[Dataflow, tuple[RewriteStep, ...]]]:
        """The plan as it is, with its chains in their cheapest order, and each of the two fused."""
        ordered, sorting = self._ordered(flow)
        variants = [(flow, steps)] if not sorting else [(flow, steps), (ordered, (*steps, *sorting))]
        for plan, done in variants:
            self.examined += 1
            yield plan, done
            fused, fusing = fuse_operators(plan, self.hop_cycles, self.refused)
            if fusing:
                self.examined += 1
                yield fused, (*done, *fusing)

    def _ordered(self, flow: Dataflow) -> tuple[Dataflow, list[RewriteStep]]:
        steps: list[RewriteStep] = []
        for chain in chains_of(flow):
            order = find_cheapest_order(chain)
            self.capped |= order.capped
            flow = reorder_chain(flow, chain, order.operators)
            steps += _moves(chain, order.operators)
        return flow, steps


def _moves(before: Sequence[Operator], after: Sequence[Operator]) -> Iterator[RewriteStep]:
    """Steps of a reordered chain, by the filters that now run earlier."""
    was = {operator.id: i for i, operator in enumerate(before)}
    for place, operator in enumerate(after):
        passed = [other for other in after[place + 1 :] if was[other.id] < was[operator.id]]
        if operator.kind != "filter" or not passed:
            continue
        filters = any(other.kind == "filter" for other in passed)
        flat = [other for other in passed if other.kind == "map" and other.inputs[0].selectivity != 1.0]
        assumed: Sentence = Fact("plans.filters_independent") if filters else ""
        if flat:
            assumed = Fact("plans.outputs_independent", local_name(flat[0]))
        moved = Fact("plans.moved_before", local_name(operator), passed=list(map(local_name, passed)))
        yield RewriteStep("filter order" if filters else "filter push-down", moved, assumed)


def _refusals(flow: Dataflow) -> Iterator[RewriteRefusal]:
    """Refusals of filters that stay behind the operator they follow."""
    for chain in chains_of(flow):
        before = must_follow(chain)
        for j, operator in enumerate(chain):
            if operator.kind != "filter":
                continue
            for i in sorted(before[j], reverse=True)[:1]:
                why = filter_blocked(operator, chain[i]) or ""
                yield RewriteRefusal("filter push-down", local_name(operator), local_name(chain[i]), why)
            above = flow.upstream(chain[0])
            if before[j] or above is None:
                continue
            if above.kind != "join" or len(flow.readers[above.id]) > 1:
                yield RewriteRefusal("filter push-down", local_name(operator), local_name(above), _behind(flow, above))
    for operator in flow.operators:
        barred = barrier(operator)
        above = flow.upstream(operator) if operator.inputs else None
        if operator.kind == "filter" and barred and above is not None:
            yield RewriteRefusal("filter push-down", local_name(operator), local_name(above), barred)


def _behind(flow: Dataflow, above: Operator) -> Fact:
    why = barrier(above)
    if why and above.kind != "join":
        return why
    others = [local_name(flow.by_id[name]) for name in dict.fromkeys(flow.readers[above.id])]
    return Fact("plans.other_readers", local_name(above), readers=others)


def _cheapest_variants(plans: Sequence[Rewrite], keep: int) -> tuple[Rewrite, ...]:
    """The cheapest of each set of rules, cheapest first; each plan once."""
    shapes: set[frozenset[tuple[str, tuple[str, ...]]]] = set()
    kinds: set[frozenset[str]] = set()
    kept: list[Rewrite] = []
    for plan in plans:
        shape, rules = shape_of(plan.operators), frozenset(step.rule for step in plan.steps)
        if shape not in shapes and rules not in kinds and len(kept) < keep:
            kept.append(plan)
            shapes.add(shape)
            kinds.add(rules)
    return tuple(kept)
