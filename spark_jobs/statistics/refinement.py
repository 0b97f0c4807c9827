"""Measured figures of each plan at each agent, reported every ten seconds where something has changed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from agent.wire import REFINEMENTS, FrameKind
from engine.jarvis.fits import EpochSums, LoadLevel, OperatorFit, WindowSums, fit_operator, plan_partition
from engine.jarvis.settings import AdaptationSettings
from engine.measurement.sums import CostEquations
from spark_jobs.plans import FlowKey
from spark_jobs.statistics.history import CYCLE_SUMS, REST, OperatorHistory, StatisticsState, add_epochs
from spark_jobs.statistics.updates import Rows, Update, has_moved, select_updates

__all__ = ["RefinementReport", "differs", "refined_rows"]

_MIN_EPOCHS = 1.0  # of a level, for it to belong to the range in which figures were seen
_FIGURES = ("cost_s", "group_cost_s", "groups", "relay", "bytes_in", "bytes_out", "input_records", "budget_s")


class RefinementReport:
    """Gathers counters, and makes REFINED updates every `every_ms` of arrival time."""

    def __init__(self, every_ms: int, aggregate_of: Callable[[str], int | None]) -> None:
        self._every_ms, self._aggregate_of = every_ms, aggregate_of

    def updates(self, state: StatisticsState, counters: pa.Table, live: Collection[FlowKey]) -> list[Update]:
        """Take in rows of `EPOCHS`; one for each live query and plan with a change to report."""
        history = add_epochs(state.learned, counters, self._aggregate_of, state.now_ms, state.step)
        state.learned = history
        if state.now_ms - history.told_ms < self._every_ms:
            return []
        live_rows = {flow: rows for flow, rows in refined_rows(history).items() if flow in live}
        fresh, sent = select_updates(live_rows, history.sent, state.now_ms, differs)
        state.learned = replace(history, sent=sent, told_ms=state.now_ms)
        return [Update.of_rows(FrameKind.REFINED, REFINEMENTS, flow, rows) for flow, rows in sorted(fresh.items())]


def refined_rows(history: OperatorHistory) -> dict[FlowKey, Rows]:
    """Rows of REFINEMENTS, with query and plan, by both."""
    cycles = _grouped(history.cycles)
    flow_rows: dict[FlowKey, Rows] = defaultdict(list)
    for key, rows in sorted(_grouped(history.operators).items()):
        flow_rows[key[:2]] += [
            dict(zip(("query", "plan"), key, strict=False)) | row for row in agent_rows(rows, cycles[key])
        ]
    return flow_rows


def _grouped(table: pa.Table) -> dict[tuple[str, str, str], Rows]:
    groups: dict[tuple[str, str, str], Rows] = defaultdict(list)
    for row in table.to_pylist():
        groups[row["query"], row["plan"], row["place"]].append(row)
    return groups


def agent_rows(rows: Rows, cycles: Rows) -> Rows:
    """Rows of REFINEMENTS of one plan at one agent.

    Figures are of the configuration version with the most epochs behind them; input and budget of the newest.
    """
    version = max(
        {row["config_version"] for row in rows}, key=lambda operator_fit: (_epochs_of(rows, operator_fit), operator_fit)
    )
    newest = max(row["config_version"] for row in rows)
    chosen: dict[int, Rows] = defaultdict(list)
    for row in rows:
        if row["config_version"] == version:
            chosen[row["entry"]].append(row)
    windows = {row["entry"]: row for row in cycles if row["config_version"] == version}
    entries = sorted(chosen)
    fits = [fit_operator(_sums_of(chosen[entry], windows.get(entry))) for entry in entries]
    first = [row for row in rows if row["config_version"] == newest and row["entry"] == 0]
    epochs = _total(first, "epochs")
    if not epochs:
        return []
    shared = {
        "agent": rows[0]["place"],
        "config_version": version,
        "input_records": _total(first, "records_in") / epochs,
        "budget_s": _total(first, "granted_s") / epochs,
        "measured_us": max(row["newest_us"] for row in rows),
    } | _range(chosen[0], "granted_s", "budget", "_s")
    operators = [shared | _operator(chosen[entry], fit) for entry, fit in zip(entries, fits, strict=True)]
    return _with_plan(operators, fits)


def _epochs_of(rows: Rows, version: int) -> float:
    return math.fsum(row["epochs"] for row in rows if row["config_version"] == version and row["level"] != REST)


def _sums_of(rows: Rows, cycle: Mapping[str, Any] | None) -> EpochSums:
    """The sums of one operator over its levels."""
    usable = [row for row in rows if row["level"] != REST]
    names = ("sum_wng", "sum_wg2", "sum_wnt", "sum_wgt", "cost_sum2")
    epochs = _total(usable, "epochs")  # n >= 30: each counts, and w n^2 = 1
    costs = CostEquations(cost_count=epochs, sum_wn2=epochs, **{name: _total(usable, name) for name in names})
    counts = {name: _total(usable, name) for name in ("records_processed", "records_out", "bytes_out", "groups_out")}
    levels = tuple(LoadLevel(row["epochs"], row["records_processed"], row["groups_out"]) for row in usable)
    if cycle is None:
        return EpochSums(costs, **counts, levels=levels)
    windows = WindowSums(**{name: cycle[name] for name in CYCLE_SUMS}) if cycle["closings"] else None
    return EpochSums(costs, **counts, levels=levels, is_windowed=True, windows=windows)


def _operator(rows: Rows, operator_fit: OperatorFit | None) -> dict[str, Any]:
    usable = [row for row in rows if row["level"] != REST]
    put_in = _total(rows, "records_in")
    figures = {
        **{name: rows[0][name] for name in ("operator", "fingerprint", "entry")},
        "epochs": _total(usable, "epochs"),
        "records": round(_total(usable, "records_processed")),
        "bytes_in": _total(rows, "bytes_in") / put_in if put_in else None,
        **_range(rows, "records_processed", "records"),
    }
    if operator_fit is not None:
        names = ("cost_s", "group_cost_s", "groups", "relay", "standard_error", "bytes_out")
        figures |= {name: getattr(operator_fit, name) for name in names}
    return figures


def _range(rows: Rows, name: str, called: str, unit: str = "") -> dict[str, float | None]:
    """The least and the most of an epoch, by levels."""
    means = [row[name] / row["epochs"] for row in rows if row["level"] != REST and row["epochs"] >= _MIN_EPOCHS]
    return {f"{called}_least{unit}": min(means, default=None), f"{called}_most{unit}": max(means, default=None)}


def _with_plan(rows: Rows, fits: Sequence[OperatorFit | None]) -> Rows:
    """The same with the plan that is best within the usual margin of the budget."""
    first = rows[0]
    if first["bytes_in"] is None:
        return rows
    budget_s = AdaptationSettings().margin * first["budget_s"]
    best = plan_partition(fits, bytes_in=first["bytes_in"], input_records=first["input_records"], budget_s=budget_s)
    if best is None:
        return rows
    figures = {"lo": best.lo, "hi": best.hi, "theta": best.theta, "bytes_sent": best.objective}
    return [row | figures | {"load_factor": factor} for row, factor in zip(rows, best.load_factors, strict=True)]


def _total(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    return math.fsum(row[name] for row in rows)


def differs(rows: Rows, sent: Rows) -> bool:
    """Whether agents or operators are others, or a figure moved by 5 %, or a load factor by 5 points."""
    before = {(row["agent"], row["operator"]): row for row in sent}
    now = {(row["agent"], row["operator"]): row for row in rows}
    return before.keys() != now.keys() or any(_moved(row, before[key]) for key, row in now.items())


def _moved(row: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    if any(has_moved(row.get(name), before[name]) for name in _FIGURES):
        return True
    return has_moved(row.get("load_factor"), before["load_factor"], 1.0)
