"""Confirmation of answers by Flow at full resolution, and where a placement breaks an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.arrays import statistic_of
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.loads import sink_events
from engine.estimation.mace import mace
from engine.estimation.reports import QueryReport, QueryReporter
from engine.provisioning.nodes import lose_nodes
from engine.provisioning.pool.problem import Placement

__all__ = ["ObjectiveMiss", "flow_miss", "on_nodes"]

_Runs = list[int]


@dataclass(frozen=True, eq=False)
class ObjectiveMiss:
    """A query over its objective: by how much, where and when, and with which node lost."""

    query: str
    statistic: str
    bound_s: float
    value_s: float
    by: str
    lost: str | None
    report: QueryReport | None
    over: dict[str, float] = field(default_factory=dict)  # every query beyond its bound, and how many times

    def to_dict(self) -> dict[str, Any]:
        where = self.report.bottleneck if self.report else None
        return {
            "query": self.query,
            "statistic": self.statistic,
            "bound_s": self.bound_s,
            "value_s": self.value_s,
            "over_s": self.value_s - self.bound_s,
            "by": self.by,
            "lost": self.lost,
            "server": where.server if where else None,
            "node": where.node if where else None,
            "from_p": where.from_p if where else None,
            "to_p": where.to_p if where else None,
            "operators": [dict(item) for item in where.operators[:5]] if where else [],
            "message": self.message,
        }

    @property
    def message(self) -> str:
        text = f"query {self.query} takes {self.value_s:.3g} s of its {self.bound_s:g} s"
        if self.lost:
            text = f"query {self.query} takes {self.value_s:.3g} s of its {self.bound_s:g} s with {self.lost} lost"
        if self.report is None or self.report.bottleneck is None:
            return text
        bottleneck = self.report.bottleneck
        return f"{text}; {bottleneck.server} falls behind in subintervals {bottleneck.from_p} to {bottleneck.to_p}"


def on_nodes(deployment: Deployment, placement: Placement, names: Sequence[str], lost: str | None = None) -> Deployment:
    """`deployment` as `placement` has it, on the named nodes only, less one that is lost."""
    kept = set(names) - {lost}
    return lose_nodes(deployment.with_placement(placement), {node.id for node in deployment.nodes} - kept)


def flow_miss(
    deployment: Deployment, *, mace_every: int, lost: str | None = None, runs: _Runs | None = None
) -> ObjectiveMiss | None:
    """The query that is most over its objective by Flow; None if all are kept. `runs` counts the runs of Flow."""
    if runs is not None:
        runs[0] += 1
    run = flow(deployment, by_input=True)
    weights = sink_events(deployment)
    values = {
        entry: statistic_of(run.by_query[entry.query], weights[entry.query], entry.statistic)
        for entry in deployment.objectives
        if entry.query in run.by_query
    }
    worst = max(values, key=lambda entry: values[entry] / entry.bound_s, default=None)
    if worst is None or values[worst] <= worst.bound_s:
        return None
    coarse = deployment.coarsened(mace_every)
    grouped = {name: _grouped(series, mace_every) for name, series in run.by_query.items()}
    stand_in = replace(run, by_query=grouped, slices=1)
    reporter = QueryReporter(coarse, coarse, mace(coarse), stand_in, deployment.subinterval_s)
    report = reporter.report(worst.query)
    over = {entry.query: value / entry.bound_s for entry, value in values.items() if value > entry.bound_s}
    return ObjectiveMiss(worst.query, worst.statistic, worst.bound_s, values[worst], "flow", lost, report, over)


def _grouped(series: Any, every: int) -> Any:
    padded = np.concatenate([series, np.zeros(-len(series) % every)])
    return padded.reshape(-1, every).max(axis=1)
