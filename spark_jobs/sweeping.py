"""What was learned of the sweeping watermarks of each plan, told to the console where it is news."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from agent.wire import WATERMARKS, FrameKind
from engine.jarvis.grouping import distinct
from spark_jobs.delays import Windows, figures
from spark_jobs.news import Flow, Rows, by_flow, has_moved, news
from spark_jobs.results import news_frame
from spark_jobs.state import State
from spark_jobs.sweeps import CHAIN, VALUES, flat, lengths, numbered, take_in

__all__ = ["ALL", "EventCost", "Sweeping", "differs", "event_costs", "watermarks"]

_MOST_ROWS = 50_000  # that wait to be taken in, whatever the time
ALL = "*"  #: all agents of a query together

#: CPU seconds of a source record through the operators at an agent, and the records of an epoch.
EventCost = tuple[float, float]


class Sweeping:
    """Takes in swept windows, and every `every_ms` of arrival time makes WATERMARKS frames of what is known."""

    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms

    def frames(self, state: State, live: Collection[Flow]) -> list[bytes]:
        """A frame for each live query and plan of which there is something new to tell."""
        is_time = state.now_ms - state.swept.told_ms >= self._every_ms
        if state.sweeps is not None and (is_time or state.sweeps.num_rows >= _MOST_ROWS):
            rings = take_in(state.swept.rings, state.sweeps, state.now_ms)
            state.sweeps, state.swept = None, replace(state.swept, step=state.step, rings=rings)
        known = state.swept
        if not is_time or not known.rings.num_rows:
            return []
        told = watermarks(known.rings, event_costs(state.learned.sent))
        found = {flow: one for flow, one in told.items() if flow in live}
        fresh, sent = news(found, known.sent, state.now_ms, differs)
        state.swept = replace(known, told_ms=state.now_ms)
        if fresh:  # else the tables stay where they were written
            state.swept = replace(state.swept, step=state.step, sent=sent)
        return [news_frame(FrameKind.WATERMARKS, WATERMARKS, state, flow, one) for flow, one in sorted(fresh.items())]


def watermarks(rings: pa.Table, costs: Mapping[tuple[str, str, str], EventCost]) -> dict[Flow, Rows]:
    """Rows of WATERMARKS by query and plan, of `sweeps.RINGS` and what is known of costs by query, plan and agent."""
    found: dict[Flow, Rows] = defaultdict(list)
    if not rings.num_rows:
        return found
    keys = rings.select(CHAIN)
    named = keys.to_pylist()
    own = np.repeat(np.arange(rings.num_rows), lengths(rings))
    values = {name: flat(rings, name) for name, _ in VALUES}
    for key, row in zip(named, figures(Windows(own, **values)), strict=True):
        flow, agent = (key["query"], key["plan"]), key["place"]
        cost_s = costs[*flow, agent][0] if (*flow, agent) in costs else None
        found[flow].append({"agent": agent, "stream": key["stream"], "event_cost_s": cost_s} | row)
    stream = numbered(keys, CHAIN[:3])
    _, firsts = np.unique(stream, return_index=True)
    for first, row in zip(firsts, figures(Windows(stream[own], **values)), strict=True):
        flow = named[first]["query"], named[first]["plan"]
        at_agents = [costs[*flow, one["agent"]] for one in found[flow] if (*flow, one["agent"]) in costs]
        shared = {"agent": ALL, "stream": named[first]["stream"], "event_cost_s": _mean_cost(at_agents)}
        found[flow].append(shared | row)
    return found


def _mean_cost(costs: Collection[EventCost]) -> float | None:
    """CPU seconds over records, of all agents."""
    records = math.fsum(each for _, each in costs)
    return math.fsum(cost_s * each for cost_s, each in costs) / records if records else None


def event_costs(refinements: pa.Table) -> dict[tuple[str, str, str], EventCost]:
    """By query, plan and agent, of what was learned of operators (REFINEMENTS); only where all of them are known."""
    chains: dict[tuple[str, str, str], Rows] = defaultdict(list)
    for flow, rows in by_flow(refinements).items():
        for row in sorted(rows, key=lambda one: one["entry"]):
            chains[*flow, row["agent"]].append(row)
    found = {key: _event_cost(rows) for key, rows in chains.items()}
    return {key: cost for key, cost in found.items() if cost is not None}


def _event_cost(rows: Rows) -> EventCost | None:
    """Each operator's cost with all of the input, times the records that come to it of one at the source."""
    records = rows[0]["input_records"]
    if not records:
        return None
    cost_s, reaching = 0.0, 1.0
    for row in rows:
        if row["cost_s"] is None or reaching is None:
            return None
        cost_s += reaching * (row["cost_s"] + _group_cost_s(row, records * reaching))
        reaching = None if row["relay"] is None else reaching * row["relay"]
    return cost_s, records


def _group_cost_s(row: Mapping[str, Any], records: float) -> float:
    """Of groups, per record, where they can be told apart."""
    if not (row["group_cost_s"] and row["groups"] and records):
        return 0.0
    return row["group_cost_s"] * distinct(records, row["groups"]) / records


def differs(rows: Rows, told: Rows) -> bool:
    """Whether agents or streams are others, or a figure came, went or moved by 5 %; a mean delay by 5 % of what delays
    are like, for most of it may be noise.
    """
    before = {(row["agent"], row["stream"]): row for row in told}
    now = {(row["agent"], row["stream"]): row for row in rows}
    return before.keys() != now.keys() or any(_moved(row, before[key]) for key, row in now.items())


def _moved(row: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    if any(has_moved(row[name], before[name]) for name in ("period_s", "event_cost_s")):
        return True
    if (row["levels"] is None) != (before["levels"] is None):
        return True
    old_s, new_s = _deviation_s(before), _deviation_s(row)
    usual_s = (before["mean_s"] or 0.0) + (old_s or 0.0)
    lasted_s = before["latency_mean_s"]
    return (
        has_moved(row["mean_s"], before["mean_s"], usual_s)
        or has_moved(new_s, old_s, usual_s)
        or has_moved(row["latency_mean_s"], lasted_s)
        or has_moved(row["latency_p99_s"], before["latency_p99_s"])
    )


def _deviation_s(row: Mapping[str, Any]) -> float | None:
    return None if row["variance_s2"] is None else math.sqrt(row["variance_s2"])
