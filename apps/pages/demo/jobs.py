"""Queries with windows of many lengths on what a scheduler tells of its jobs, all at one agent.

They share its core, and wait for each other when jobs come in bursts. No host has such a log, so it is made up.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.dataflow.templates import Assumed, Template

__all__ = ["JOB_TEMPLATES", "RECORDS", "RECORDS_EPS", "RECORDS_SOURCE"]

RECORDS_SOURCE = "job-records"
RECORDS_EPS = 600.0  # on average
_BURST = 5.0  # times as many as else, for four seconds of every twenty
#: What the source's collector makes.
RECORDS: dict[str, Any] = {
    "rate_per_s": RECORDS_EPS / 2,  # times 2, the mean of the curve
    "curve": [[0, 1], [13, 1], [14, _BURST], [18, _BURST], [19, 1], [20, 1]],
    "period_s": 20,
    "columns": {
        "tenant": {"skewed": [f"tenant-{number:02d}" for number in range(20)]},
        "queue": {"choice": ["batch", "interactive", "nightly", "reports"]},
        "outcome": {"choice": ["done"] * 18 + ["failed", "killed"]},
        "run_ms": {"lognormal": [400, 1.2]},
        "wait_ms": {"lognormal": [60, 1.5]},
        "cpu_percent": {"uniform": [0, 100]},
    },
}
_COLUMNS = {
    "ts": "timestamp",
    "tenant": "string",
    "queue": "string",
    "outcome": "string",
    "run_ms": "float64",
    "wait_ms": "float64",
    "cpu_percent": "float64",
}
_ALL = "cpu_percent >= 0"
#: Of each query: length of its windows, which records it takes, by what it groups them, what it computes.
_QUERIES: dict[str, tuple[float, str, str, dict[str, str]]] = {
    "job-failures": (2, "outcome != 'done'", "queue", {"jobs": "count(*)"}),
    "job-waits": (2, _ALL, "queue", {"jobs": "count(*)", "wait_avg_ms": "avg(wait_ms)", "wait_max_ms": "max(wait_ms)"}),
    "job-times": (5, "outcome = 'done'", "queue", {"jobs": "count(*)", "run_median_ms": "quantile(run_ms, 0.5)"}),
    "tenant-cpu": (5, _ALL, "tenant", {"jobs": "count(*)", "cpu_avg_percent": "avg(cpu_percent)"}),
    "slow-jobs": (10, "run_ms > 2000", "tenant", {"jobs": "count(*)", "run_max_ms": "max(run_ms)"}),
    "tenant-jobs": (15, _ALL, "tenant", {"jobs": "count(*)", "run_avg_ms": "avg(run_ms)"}),
}


def _document(window_s: float, where: str, group: str, compute: dict[str, str]) -> dict[str, Any]:
    operators = [
        {"id": "window", "expression": {"op": "window", "size_s": window_s}},
        {"id": "wanted", "expression": {"op": "filter", "where": where}},
        {"id": "groups", "expression": {"op": "aggregate", "by": [group], "compute": compute}},
    ]
    return {"source": {"id": "", "time": "ts", "columns": _COLUMNS}, "operators": operators}


def _template(name: str, window_s: float, where: str, group: str, compute: dict[str, str]) -> Template:
    return Template(
        name=name,
        title="Jobs of a scheduler",
        summary=f"Jobs by {group} in windows of {window_s:g} s.",
        collector="generator",
        parameters=(),
        build=partial(_document, window_s, where, group, compute),
        assumed=(Assumed(1.0, 150, 96), Assumed(1.0 if where == _ALL else 0.5, 200, 96), Assumed(0.05, 900, 60)),
    )


JOB_TEMPLATES = {name: _template(name, *query) for name, query in _QUERIES.items()}
