"""Operators whose cost or plan nobody knows, and the queries whose figures are lower bounds because of them."""

from __future__ import annotations

import numpy as np

from engine.document.deployment import Deployment
from engine.document.elements import Input, Operator
from engine.document.topology import servers_above
from engine.records import Fact

__all__ = ["FULL_SPAN_S", "unknown_costs", "unknown_grounds"]

FULL_SPAN_S = 300.0  # that statistics have to cover before anything is said to hold by them
_MIN_EVENTS = 1000  # after which what let nothing through is believed to do so


def unknown_costs(deployment: Deployment, query: str) -> tuple[str, ...]:
    """Operators with an unknown cost that a query consists of or waits beside; without any, its load is known.

    They are its own, those of streams that it reads, and whatever runs on the servers of these. One that gets no event,
    since what it reads was measured to let nothing through, takes nothing whatever its cost.
    """
    unknown = [j for j, operator in enumerate(deployment.operators) if operator.is_cost_unknown]
    if not unknown:
        return ()
    layout, (start, members), i = deployment.layout, deployment.closures, deployment.query_index[query]
    replicas = members[start[i] : start[i + 1]]
    near = {*replicas.tolist(), *np.flatnonzero(np.isin(layout.rep_server, servers_above(layout, replicas))).tolist()}
    concerned = {*deployment.operators_of(query), *layout.rep_operator[sorted(near)].tolist()}
    fed = _fed_streams(deployment)
    return tuple(
        deployment.operators[j].id
        for j in unknown
        if j in concerned and any(entry.source in fed for entry in deployment.operators[j].inputs)
    )


def unknown_grounds(deployment: Deployment, query: str) -> Fact | None:
    """Reason for which a query's latency is not known: a cost, a plan, answers from outside, or too short a time."""
    if costs := unknown_costs(deployment, query):
        return Fact("latency.cost_unknown", names=costs)
    operators = [deployment.operators[j] for j in deployment.operators_of(query)]
    unread = [f"{operator.id} ({words})" for operator in operators for words in operator.unread or ()]
    if unread:
        return Fact("latency.plan_unread", parts=unread)
    if outside := tuple(operator.id for operator in operators if operator.waits_outside):
        return Fact("latency.waits_outside", names=outside)
    spans_s = [operator.measured_s for operator in operators if operator.measured_s is not None]
    return Fact("latency.still_measuring", span_s=min(spans_s), rest_s=FULL_SPAN_S - min(spans_s)) if spans_s else None


def _fed_streams(deployment: Deployment) -> set[str]:
    """Streams that events may come on: those of sources, and of operators that may put something out."""
    fed = {source.id for source in deployment.sources}
    for j in deployment.graph.order:
        operator = deployment.operators[j]
        if any(entry.source in fed and _lets_through(operator, entry) for entry in operator.inputs):
            fed.add(operator.id)
    return fed


def _lets_through(operator: Operator, entry: Input) -> bool:
    """Whether events may come of an input: a window that has not closed yet puts out nothing for now."""
    seen = operator.evidence.events if operator.evidence else 0.0
    return entry.selectivity > 0.0 or entry.model is not None or operator.window is not None or seen < _MIN_EVENTS
