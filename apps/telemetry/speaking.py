"""Whom a frame speaks for: the queries that its agent has, or had, a part in, and the agents below a relay."""

from __future__ import annotations

import re

import pyarrow as pa

from agent.wire import Frame, WireError, table_of
from apps.core.errors import Fault
from apps.telemetry.choices import AgentKind
from apps.telemetry.directory import AgentFacts, cluster_of, plans_of

__all__ = ["counted_fault", "origin_fault", "plan_fault"]

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def plan_fault(agent: str, query: str, plan: str, path: str) -> Fault | None:
    """Whether the agent has, or had, a part in the query with this plan. What is new is looked up at once."""
    for again in (False, True):
        if plan in plans_of(agent, again=again).get(query, ()):
            return None
    known = sorted(plans_of(agent))
    if query not in known:
        message = f"query is {query[:140]!r}; allowed: {', '.join(known) or 'none is assigned to this agent'}"
        return Fault(f"{path}.query", message)
    return Fault(f"{path}.plan", f"plan is {plan[:64]!r}, which {query!r} never had")


def counted_fault(frame: Frame, path: str) -> Fault | None:
    """Whether each row of counters or sweeps is of a query that the agent may speak for. The columns are compared."""
    try:
        named = table_of(frame.body).select(["query", "plan"])
        named.validate(full=True)
    except (WireError, pa.ArrowException) as error:
        return Fault(f"{path}.body", f"the body cannot be read: {str(error)[:200]}")
    for query, plan in dict.fromkeys(zip(*(column.to_pylist() for column in named.columns), strict=True)):
        if fault := plan_fault(frame.agent, query or "", plan or "", f"{path}.body"):
            return fault
    return None


def origin_fault(sender: AgentFacts, frame: Frame, path: str) -> Fault | None:
    """Whether the frame is of whom it says it is: only relays pass on what others counted.

    A relay may name any agent of its cluster, and one that is no more: what it holds of an agent that went elsewhere
    or was deleted is still to come, and refused, everything behind it would never come.
    """
    if "origin" not in frame.extra:
        return None
    origin = frame.extra["origin"]
    said = f"origin is {str(origin)[:64]!r}"
    if sender.kind != AgentKind.RELAY:
        return Fault(f"{path}.extra.origin", f"{said}; allowed: none, for {sender.name!r} is no relay")
    if not isinstance(origin, str) or not _ID.match(origin) or cluster_of(origin) not in (0, sender.cluster_id):
        return Fault(f"{path}.extra.origin", f"{said}; allowed: the id of an agent of the cluster {sender.cluster}")
    return None
