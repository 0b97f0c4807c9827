"""Promises of decisions held against what was measured: whether they held, what else changed, and what an error is of.

A decision promises a latency for the query it lets in. What it promised is kept with the query's surroundings: all that
was on its servers when it started, and what is above that. Later the surroundings are estimated again, first as they
were, then with what was measured since: with the arrivals of now, with the costs of now too, and as they are now. Each
step moves the estimate by its part of the error; the model's part is what no step explains.

Notes
-----
With the estimate E of the query in its surroundings, the promise p and the measurement m:

    load = E(kept, arrivals now) - E(kept)
    costs = E(kept, arrivals and costs now) - E(kept, arrivals now)
    changes = E(now) - E(kept, arrivals and costs now)
    rest = m - E(now) + E(kept) - p = (m - p) - load - costs - changes

The rest has E(kept) - p, too: what was promised apart from what is estimated of the same once it has started. Nothing
waits where a horizon begins, so that both begin alike. What surroundings leave out is left out before and after
(`engine.estimation.vicinity`): differences err by less than estimates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from engine.document.elements import Operator
from engine.records import Fact, Record, Sentence, Words
from engine.solvers import solving

if TYPE_CHECKING:
    from engine.document.deployment import Deployment

__all__ = [
    "MAX_ARRIVALS",
    "MAX_OPERATORS",
    "PromiseChange",
    "PromiseError",
    "explain_error",
    "is_verdict_wrong",
    "judge_promise",
    "query_surroundings",
    "surroundings_changes",
]

MAX_OPERATORS = 400  #: operators that are kept for a query; with more on its servers nothing is
MAX_ARRIVALS = 400_000  #: numbers of arrivals that are kept with them
_MAX_CHANGES = 30
_MOVED = 0.02  # of a mean rate or a cost: less moves no estimate beyond its resolution
_PASSING = frozenset({"admit", "admit_with_changes"})


def judge_promise(
    measured_s: float, *, bound_s: float | None, low_s: float | None, high_s: float | None
) -> Literal["held", "outside", "missed"]:
    """Outcome of a promise: the objective missed, or kept outside the interval, or held.

    Examples
    --------
    >>> judge_promise(0.41, bound_s=1.0, low_s=0.2, high_s=0.9)
    'held'
    >>> judge_promise(0.95, bound_s=1.0, low_s=0.2, high_s=0.9), judge_promise(1.2, bound_s=1.0, low_s=0.2, high_s=0.9)
    ('outside', 'missed')
    """
    if bound_s is not None and measured_s > bound_s:
        return "missed"
    return "outside" if is_within(measured_s, low_s, high_s) is False else "held"


def is_within(measured_s: float, low_s: float | None, high_s: float | None) -> bool | None:
    """Whether an interval held; None where there was none."""
    return None if low_s is None or high_s is None else low_s <= measured_s <= high_s


def is_verdict_wrong(verdict: str, promised_state: str, outcome: str) -> bool:
    """Whether a verdict turned out wrong: it passed a query that misses its objective, or refused one that keeps it.

    A refusal for what others would suffer is not judged by the query's own latency.

    Examples
    --------
    >>> is_verdict_wrong("admit", "holds", "missed"), is_verdict_wrong("reject", "breached", "held")
    (True, True)
    >>> is_verdict_wrong("reject", "breached", "missed"), is_verdict_wrong("reject", "holds", "held")
    (False, False)
    """
    if verdict in _PASSING:
        return outcome == "missed"
    return verdict == "reject" and promised_state == "breached" and outcome in ("held", "outside")


def query_surroundings(deployment: Deployment, query: str) -> Deployment | None:
    """The operators on the servers of a query, with all that is above them; None where that is too much to keep."""
    own = [deployment.operators[i] for i in deployment.operators_of(query)]
    above = deployment.with_above(operator.id for operator in own)[1]
    servers = {(part.node, part.core) for operator in above for part in operator.replicas}
    residents = [
        operator.id
        for operator in deployment.operators
        if any((part.node, part.core) in servers for part in operator.replicas)
    ]
    sources, operators = deployment.with_above(residents)
    if len(operators) > MAX_OPERATORS or len(sources) * deployment.subintervals > MAX_ARRIVALS:
        return None
    return deployment.restricted({operator.id for operator in operators}, with_sources=False).without_backlogs()


@dataclass(frozen=True)
class PromiseChange(Record):
    """A change in the surroundings of a query since it was let in."""

    TITLE: ClassVar[str] = "a change"

    kind: Annotated[
        Literal["query_added", "query_removed", "operator_moved", "node", "arrivals", "cost"],
        Words("What changed: a neighbour, a place, a node's capacity, a source's arrivals, or an operator's costs."),
    ]
    subject: Annotated[str, Words("Name of the query, operator, node or source.")]
    text: Annotated[Sentence, Words("The change in words.")]


def surroundings_changes(kept: Deployment, present: Deployment, query: str) -> tuple[PromiseChange, ...]:
    """Differences of the surroundings as they are now from those kept, neighbours first; at most 30."""
    return tuple(change for change, _ in zip(_changes(kept, present, query), range(_MAX_CHANGES), strict=False))


def _changes(kept: Deployment, present: Deployment, query: str) -> Iterator[PromiseChange]:
    """In the order in which they are told."""
    for name in present.queries:
        if name not in kept.query_index:
            yield PromiseChange("query_added", name, Fact("receipts.query_added", query=name))
    for name in kept.queries:
        if name not in present.query_index and name != query:
            yield PromiseChange("query_removed", name, Fact("receipts.query_removed", query=name))
    before, after = _by_name(kept), _by_name(present)
    for name in sorted(before.keys() & after.keys()):
        was, now = _places(before[name]), _places(after[name])
        if was != now:
            yield PromiseChange("operator_moved", name, Fact("receipts.moved", operator=name, was=was, now=now))
    yield from _node_changes(kept, present)
    yield from _arrival_changes(kept, present)
    for name in sorted(before.keys() & after.keys()):
        was_cycles, now_cycles = _cycles(before[name]), _cycles(after[name])
        if was_cycles is not None and now_cycles is not None and _differs(was_cycles, now_cycles):
            share = now_cycles / was_cycles - 1.0 if was_cycles else None
            yield PromiseChange("cost", name, Fact("receipts.cost", operator=name, share=share))


def _node_changes(kept: Deployment, present: Deployment) -> Iterator[PromiseChange]:
    nodes = {node.id: node for node in present.nodes}
    for node in kept.nodes:
        now = nodes.get(node.id)
        if now is None or (node.capacity_cps, node.cores) == (now.capacity_cps, now.cores):
            continue
        was_cps, now_cps = node.capacity_cps, now.capacity_cps
        share = now_cps / was_cps - 1.0 if was_cps and now_cps else None
        fact = Fact("receipts.node", node=node.id, share=share, was_cores=node.cores, cores=now.cores)
        yield PromiseChange("node", node.id, fact)


def _arrival_changes(kept: Deployment, present: Deployment) -> Iterator[PromiseChange]:
    sources = {source.id: source for source in present.sources}
    for source in kept.sources:
        now = sources.get(source.id)
        if now is None:
            continue
        was_eps = float(source.arrivals.mean()) / kept.subinterval_s
        now_eps = float(now.arrivals.mean()) / present.subinterval_s
        if _differs(was_eps, now_eps):
            fact = Fact("receipts.arrivals", source=source.id, was_eps=was_eps, now_eps=now_eps)
            yield PromiseChange("arrivals", source.id, fact)


def _differs(was: float, now: float) -> bool:
    return abs(now - was) > _MOVED * max(abs(was), abs(now))


def _by_name(deployment: Deployment) -> Mapping[str, Operator]:
    return {operator.id: operator for operator in deployment.operators}


def _places(operator: Operator) -> tuple[str, ...]:
    return tuple(sorted({part.node for part in operator.replicas}))


def _cycles(operator: Operator) -> float | None:
    """Cycles per event over its inputs; None where one is not known or no number."""
    cycles = [entry.cycles_per_event for entry in operator.inputs if not entry.model]
    return sum(cycles) if len(cycles) == len(operator.inputs) else None


@dataclass(frozen=True, kw_only=True)
class PromiseError(Record):
    """Measured less promised, by what made it; seconds. The parts add up to the whole.

    Where load or costs of some of the surroundings were not measured since, `rest_s` is not the model's alone.
    """

    TITLE: ClassVar[str] = "an error"

    load_s: Annotated[float | None, Words("By arrivals other than told; null: none was measured since.")]
    costs_s: Annotated[float | None, Words("By costs other than told; null: none was measured since.")]
    changes_s: Annotated[float, Words("By what was changed since: neighbours, places, nodes.")]
    rest_s: Annotated[float, Words("What nothing of this explains: the model, and what was not measured.")]
    sources: Annotated[int, Words("Sources of the surroundings.")]
    sources_measured: Annotated[int, Words("Those measured since.")]
    operators: Annotated[int, Words("Operators of the surroundings.")]
    operators_measured: Annotated[int, Words("Those whose costs were measured since.")]

    @property
    def is_of_model(self) -> bool:
        """Whether the rest is the model's alone: all arrivals and costs were measured since."""
        return self.sources_measured == self.sources and self.operators_measured == self.operators


def explain_error(
    kept: Deployment,
    present: Deployment,
    query: str,
    *,
    promised_s: float,
    measured_s: float,
    sources_measured: Collection[str],
    operators_measured: Collection[str],
    mace_every: int,
) -> PromiseError | None:
    """Parts of an error: of load, of costs, of what was changed, and the rest.

    Parameters
    ----------
    kept, present : Deployment
        Surroundings of `query` as they were when it started, and as they are now.
    promised_s, measured_s : float
        Of the objective's statistic.
    sources_measured, operators_measured : collection of str
        Names of sources and operators that were measured since; what was not stays as it was kept.
    mace_every : int
        As of `engine.estimation.estimate.estimate`.

    Returns
    -------
    PromiseError, or None where both do not compare: the grid is another, or the query runs no more.
    """
    solving()
    if (kept.subinterval_s, kept.subintervals) != (present.subinterval_s, present.subintervals):
        return None
    if not (kept.operators_of(query) and present.operators_of(query)):
        return None
    now = {source.id: source for source in present.sources if source.id in sources_measured}
    loaded = replace(kept, sources=tuple(now.get(source.id, source) for source in kept.sources))
    known = {operator.id: operator for operator in present.operators if operator.id in operators_measured}
    costed = replace(loaded, operators=tuple(_with_costs(operator, known) for operator in kept.operators))
    was_s, by_load_s, by_costs_s, now_s = (
        _latency_s(deployment, query, mace_every) for deployment in (kept, loaded, costed, present)
    )
    measured = {source.id for source in kept.sources} & now.keys()
    told = {operator.id for operator in kept.operators} & known.keys()
    return PromiseError(
        load_s=by_load_s - was_s if measured else None,
        costs_s=by_costs_s - by_load_s if told else None,
        changes_s=now_s - by_costs_s,
        rest_s=measured_s - now_s + was_s - promised_s,
        sources=len(kept.sources),
        sources_measured=len(measured),
        operators=len(kept.operators),
        operators_measured=len(told),
    )


def _with_costs(operator: Operator, known: Mapping[str, Operator]) -> Operator:
    """The operator with the statistics of another that reads the same, at its own place."""
    now = known.get(operator.id)
    if now is None or [entry.source for entry in now.inputs] != [entry.source for entry in operator.inputs]:
        return operator
    return replace(operator, inputs=now.inputs)


def _latency_s(deployment: Deployment, query: str, mace_every: int) -> float:
    """Estimate of the objective's statistic, with random costs and arrivals of the query alone."""
    from engine.estimation.estimate import estimate  # the compiled part, which only workers load

    found = estimate(deployment, mace_every=mace_every, intervals=False)
    return replace(found, queries={query: found.queries[query]}).realised().queries[query].estimate_s
