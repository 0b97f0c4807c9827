"""Plans that mean the same, found by rules: filter order and push-down, join order, fusing.

The space is searched exhaustively over what the rules change about joins (each state once, however it is reached), with
the cheapest order of each chain found by dynamic programming (`engine.plans.chains`). A cap on the plans looked at
bounds the work and is reported when it was reached.

Reference: paper, section IX-A, "Navigating the Search Space".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.document.elements import Operator
from engine.plans.answer import PlanFact, PlanText, RewriteRefusal, RewriteStep
from engine.plans.chains import chains_of, find_cheapest_order, fuse_operators, must_follow, reorder_chain
from engine.plans.joins import exchange_joins, push_below_join
from engine.plans.rules import (
    Dataflow,
    Operators,
    barrier,
    filter_blocked,
    local_name,
    shape_of,
)

__all__ = ["Rewrite", "RewriteSearch", "Rewriting", "rewrite"]

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
    def assumed(self) -> tuple[PlanText, ...]:
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
        assumed: PlanText = PlanFact("filters_independent") if filters else ""
        if flat:
            assumed = PlanFact("outputs_independent", (local_name(flat[0]),))
        moved = PlanFact("moved_before", (local_name(operator), *map(local_name, passed)))
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


def _behind(flow: Dataflow, above: Operator) -> PlanFact:
    why = barrier(above)
    if why and above.kind != "join":
        return why
    others = (local_name(flow.by_id[name]) for name in dict.fromkeys(flow.readers[above.id]))
    return PlanFact("other_readers", (local_name(above), *others))


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
