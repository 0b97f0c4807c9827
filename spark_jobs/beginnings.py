"""What has no past here: queries that were started again, and agents whose frames a lost state held."""

from __future__ import annotations

from collections.abc import Iterable

import redis

from agent.wire.broker import progress
from spark_jobs.arrivals import Arrival
from spark_jobs.plans import Plans
from spark_jobs.state import Flow, State

__all__ = ["begin_anew", "recall"]


def begin_anew(state: State, plans: Plans, arrivals: Iterable[Arrival]) -> None:
    """Give a query that was started again a new flow: its sources may begin where they began before.

    Agents may hear of it first, so the console is asked about frames of queries that are not live.
    """
    if any(one.plan and one.flow not in plans.live() for one in arrivals):
        plans.refresh()
    for key, plan in plans.live().items():
        flow = state.flows.get(key)
        if flow is not None and flow.started_us and flow.started_us != plan.started_us:
            state.flows[key] = Flow(*key, started_us=plan.started_us)


def recall(state: State, plans: Plans, client: redis.Redis, arrivals: Iterable[Arrival]) -> None:
    """Go on behind what is committed of a life of which the state knows nothing: a state that was lost held it.

    A part of the agent's records of windows that are open now is gone with it; their results will say so.
    """
    stretches = {one.stretch for one in arrivals}
    begun = {one.stretch for one in arrivals if one.seq == 1} | state.positions.keys()
    for agent, life in stretches - begun:
        try:
            committed = progress(client, agent, life).committed_seq
        except redis.RedisError:
            continue
        if committed:
            state.positions[agent, life] = committed
            _lose(state, plans, agent)


def _lose(state: State, plans: Plans, agent: str) -> None:
    for key, plan in plans.live().items():
        flow = state.flows.setdefault(key, Flow(*key))
        if agent in plan.agents and agent not in flow.lost:
            flow.lost.append(agent)
