"""Delays of sweeping watermarks by plan, reported where they have moved.

An epoch of a stream is the time of one window. Its mean delay is mu and its mean squared delay chi, over the agents
that swept it; the next delay has the mean mean(mu) and the predictive variance mean(chi) - mean(mu)^2, which is
computed as the sum of the variance within epochs and between them: nothing cancels. What is none of its kind is
replaced for both, first among the delays of an agent, then among epochs (`engine.klink.watermarks.usual_epochs`);
quantiles keep all delays.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from agent.wire import WATERMARKS, FrameKind
from engine.jarvis.group_law import distinct
from engine.klink.watermarks import MIN_EPOCHS, usual_epochs
from spark_jobs.plans import FlowKey
from spark_jobs.statistics.history import (
    CHAIN,
    CLAMPED,
    EXPECTED,
    HISTORY,
    VALUES,
    WITHIN,
    StatisticsState,
    add_sweeps,
    flat_column,
    number_groups,
    ring_lengths,
    rows_behind,
)
from spark_jobs.statistics.updates import Rows, Update, has_moved, rows_by_flow, select_updates

__all__ = ["ALL", "SweepReport", "differs", "event_costs", "watermark_rows"]


MIN_WINDOWS = 30  # before quantiles are reported
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 1.0)
_P99 = (0.99,)
_VALUE_BITS = 44  # of a delay in microseconds: what is above half a year counts as that
_MAX_ROWS = 50_000  # that wait to be added, at any time
ALL = "*"  #: all agents of a query together


@dataclass(frozen=True)
class DelayWindows:
    """Columns of windows, each an array of one value for each sweep; `group` numbers them from 0 without gaps."""

    group: Any
    seen_ms: Any
    deadline_us: Any
    period_us: Any
    delay_us: Any
    latency_us: Any
    marks: Any
    usual_us: Any  #: the delay, or what counts in its place for mean and variance


@dataclass(frozen=True)
class _Epochs:
    """Sweeps of one deadline of one group."""

    of: Any  #: the epoch of each sweep
    group: Any
    newest: Any  #: order within the group: 0 is the newest
    mean_s: Any
    variance_s2: Any
    last: Any  #: a sweep of each, for what all of them share

    @classmethod
    def of_windows(cls, windows: DelayWindows) -> _Epochs:
        order = np.lexsort((windows.deadline_us, windows.group))
        group, deadline = windows.group[order], windows.deadline_us[order]
        begins = np.append(True, (np.diff(group) != 0) | (np.diff(deadline) != 0))
        epoch = np.empty(len(order), dtype=np.int64)
        epoch[order] = np.cumsum(begins) - 1
        first = order[begins]
        count, delay_s = np.bincount(epoch), windows.usual_us / 1e6
        mean_s = np.bincount(epoch, delay_s) / count
        variance_s2 = np.bincount(epoch, (delay_s - mean_s[epoch]) ** 2) / count
        seen = np.maximum.reduceat(windows.seen_ms[order], np.flatnonzero(begins))
        by_age = np.lexsort((windows.deadline_us[first], seen, windows.group[first]))
        newest = np.empty(len(first), dtype=np.int64)
        newest[by_age] = rows_behind(windows.group[first][by_age])
        return cls(epoch, windows.group[first], newest, mean_s, variance_s2, first)


def delay_figures(windows: DelayWindows) -> list[dict[str, Any]]:
    """Delay columns of WATERMARKS, a row for each group, over its newest epochs."""
    epochs = _Epochs.of_windows(windows)
    kept = epochs.newest < HISTORY
    rows = kept[epochs.of]
    group, groups = windows.group[rows], int(windows.group.max()) + 1
    moments = _moments(epochs.group[kept], epochs.mean_s[kept], epochs.variance_s2[kept], groups)
    newest = np.empty(groups, dtype=np.int64)
    newest[epochs.group[epochs.newest == 0]] = epochs.last[epochs.newest == 0]
    marks = windows.marks[rows]
    counted = {
        name: np.bincount(group, (marks & mark) > 0, groups).astype(np.int64)
        for name, mark in (("clamped", CLAMPED), ("expected", EXPECTED), ("within", WITHIN))
    }
    sweeps = np.bincount(group, minlength=groups)
    latency_us = windows.latency_us[rows]
    columns = {
        "period_s": windows.period_us[newest] / 1e6,
        "epochs": np.bincount(epochs.group[kept], minlength=groups),
        "sweeps": sweeps,
        **counted,
        **moments,
        "quantiles": _quantiles(group, windows.delay_us[rows], sweeps, LEVELS),
        "latency_mean_s": np.bincount(group, latency_us / 1e6, groups) / sweeps,
        "latency_p99_s": _quantiles(group, latency_us, sweeps, _P99)[:, 0],
        "measured_us": windows.deadline_us[newest],
    }
    listed = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [_told(dict(zip(columns, row, strict=True))) for row in listed]


def _moments(group: Any, mean_s: Any, variance_s2: Any, groups: int) -> dict[str, Any]:
    usual = _usual_rows(group, mean_s)
    mean_s, variance_s2 = mean_s[usual], variance_s2[usual]
    count = np.bincount(group, minlength=groups)
    mean = np.bincount(group, mean_s, groups) / count
    spread = np.bincount(group, variance_s2 + (mean_s - mean[group]) ** 2, groups) / count
    return {"mean_s": mean, "variance_s2": spread}


def _usual_rows(group: Any, delay: Any) -> Any:
    """For each row the one that counts in its place, of the same group."""
    order = np.argsort(group, kind="stable")
    bounds = np.flatnonzero(np.diff(group[order], prepend=-1, append=-1))
    usual = np.empty(len(group), dtype=np.int64)
    for begin, end in pairwise(bounds.tolist()):
        rows = order[begin:end]
        usual[rows] = rows[usual_epochs(delay[rows].tolist())]
    return usual


def _quantiles(group: Any, value_us: Any, count: Any, levels: tuple[float, ...]) -> Any:
    """Seconds by group and level, between the two values next to it: [groups, levels]."""
    keys = np.sort((group.astype(np.int64) << _VALUE_BITS) | np.minimum(value_us, (1 << _VALUE_BITS) - 1))
    values = keys & ((1 << _VALUE_BITS) - 1)
    begins = np.insert(np.cumsum(count)[:-1], 0, 0)[:, None]
    place = np.asarray(levels) * (count[:, None] - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, count[:, None] - 1)
    below, above = values[begins + low], values[begins + high]
    return (below + (place - low) * (above - below)) / 1e6


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """The row without the figures that so few epochs cannot support."""
    values = row.pop("quantiles")
    if row["epochs"] < MIN_EPOCHS:
        return row | dict.fromkeys(("mean_s", "variance_s2", "least_s", "most_s", "levels", "values_s"))
    shape = {"least_s": values[0], "most_s": values[-1], "levels": None, "values_s": None}
    if row["epochs"] >= MIN_WINDOWS:
        shape |= {"levels": list(LEVELS), "values_s": values}
    return row | shape


#: CPU seconds of a source record through the operators at an agent, and the records of an epoch.
EventCost = tuple[float, float]


class SweepReport:
    """Gathers swept windows, and makes WATERMARKS updates every `every_ms` of arrival time."""

    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms

    def is_due(self, state: StatisticsState, rows: int) -> bool:
        """Whether something is to be done where `rows` windows wait."""
        return rows >= _MAX_ROWS or ((rows > 0 or state.swept.step > 0) and self._is_time(state))

    def _is_time(self, state: StatisticsState) -> bool:
        return state.now_ms - state.swept.told_ms >= self._every_ms

    def updates(self, state: StatisticsState, live: Collection[FlowKey]) -> list[Update]:
        """One for each live query and plan with a change to report."""
        is_time = self._is_time(state)
        if state.sweeps is not None and (is_time or state.sweeps.num_rows >= _MAX_ROWS):
            rings = add_sweeps(state.swept.rings, state.sweeps, state.now_ms)
            state.sweeps, state.swept = None, replace(state.swept, step=state.step, rings=rings)
        swept = state.swept
        if not is_time or not swept.rings.num_rows:
            return []
        flow_rows = watermark_rows(swept.rings, event_costs(state.learned.sent))
        live_rows = {flow: rows for flow, rows in flow_rows.items() if flow in live}
        fresh, sent = select_updates(live_rows, swept.sent, state.now_ms, differs)
        state.swept = replace(swept, told_ms=state.now_ms)
        if fresh:  # else the tables stay where they were written
            state.swept = replace(state.swept, step=state.step, sent=sent)
        return [Update.of_rows(FrameKind.WATERMARKS, WATERMARKS, flow, rows) for flow, rows in sorted(fresh.items())]


def watermark_rows(rings: pa.Table, costs: Mapping[tuple[str, str, str], EventCost]) -> dict[FlowKey, Rows]:
    """Rows of WATERMARKS by query and plan, from `sweep_history.RINGS` and known costs by query, plan and agent."""
    rows_by_key: dict[FlowKey, Rows] = defaultdict(list)
    if not rings.num_rows:
        return rows_by_key
    keys = rings.select(CHAIN)
    named = keys.to_pylist()
    own = np.repeat(np.arange(rings.num_rows), ring_lengths(rings))
    values = {name: flat_column(rings, name) for name, _ in VALUES}
    values["usual_us"] = values["delay_us"][_usual_rows(own, values["delay_us"])]
    for key, row in zip(named, delay_figures(DelayWindows(own, **values)), strict=True):
        flow, agent = (key["query"], key["plan"]), key["place"]
        cost_s = costs[*flow, agent][0] if (*flow, agent) in costs else None
        rows_by_key[flow].append({"agent": agent, "stream": key["stream"], "event_cost_s": cost_s} | row)
    stream = number_groups(keys, CHAIN[:3])
    _, firsts = np.unique(stream, return_index=True)
    for first, row in zip(firsts, delay_figures(DelayWindows(stream[own], **values)), strict=True):
        flow = named[first]["query"], named[first]["plan"]
        at_agents = [costs[*flow, record["agent"]] for record in rows_by_key[flow] if (*flow, record["agent"]) in costs]
        shared = {"agent": ALL, "stream": named[first]["stream"], "event_cost_s": _mean_cost(at_agents)}
        rows_by_key[flow].append(shared | row)
    return rows_by_key


def _mean_cost(costs: Collection[EventCost]) -> float | None:
    """CPU seconds over records, of all agents."""
    records = math.fsum(each for _, each in costs)
    return math.fsum(cost_s * each for cost_s, each in costs) / records if records else None


def event_costs(refinements: pa.Table) -> dict[tuple[str, str, str], EventCost]:
    """Costs by query, plan and agent from REFINEMENTS; only where all operators are known."""
    chains: dict[tuple[str, str, str], Rows] = defaultdict(list)
    for flow, rows in rows_by_flow(refinements).items():
        for row in sorted(rows, key=lambda key_row: key_row["entry"]):
            chains[*flow, row["agent"]].append(row)
    costs = {key: _event_cost(rows) for key, rows in chains.items()}
    return {key: cost for key, cost in costs.items() if cost is not None}


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
    """Cost of groups per record, where it can be separated."""
    if not (row["group_cost_s"] and row["groups"] and records):
        return 0.0
    return row["group_cost_s"] * distinct(records, row["groups"]) / records


def differs(rows: Rows, sent: Rows) -> bool:
    """Whether agents or streams changed, or a figure appeared, vanished or moved by 5 %; for a mean delay by 5 % of
    the typical delay, since most of a smaller move may be noise.
    """
    before = {(row["agent"], row["stream"]): row for row in sent}
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
