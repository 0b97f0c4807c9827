"""Factors of intervals over days of scored runs: split conformal, by the engine that the console asks as well.

The console's own factors rest on the newest hours, so that they follow what changes. These weigh by days alone: where
the two differ, the estimates have changed or the newest hours are unlike the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from engine.measurement.calibration import ScoredRuns

__all__ = ["RUNS", "interval_factors_by_group"]

#: Scored runs, as the console exports them: only those that count, with an interval and of a steady stream processor.
RUNS = pa.schema(
    [
        ("cluster", pa.string()),
        ("query", pa.string()),
        ("origin", pa.string()),  # who measured: live, flink, spark, prometheus, simulated
        ("evidence", pa.string()),  # of the statistics behind the estimate
        ("statistic", pa.string()),
        ("windowed", pa.bool_()),
        ("at_s", pa.float64()),
        ("estimate_s", pa.float64()),
        ("low_s", pa.float64()),  # the interval as the model stated it
        ("high_s", pa.float64()),
        ("shown_low_s", pa.float64()),  # and as it was shown
        ("shown_high_s", pa.float64()),
        ("realised_s", pa.float64()),
    ]
)
_GROUP = ("cluster", "origin", "evidence")
_FACTORS = (
    "cluster string, origin string, evidence string, query string, statistic string, runs long, concluded boolean, "
    "lower double, upper double, coverage_before double, coverage_after double, bias double"
)


def interval_factors_by_group(runs: DataFrame, now_s: float) -> DataFrame:
    """Factors of the runs of each query and statistic, and of all runs of an origin in a cluster together.

    Parameters
    ----------
    runs : DataFrame
        Of `RUNS`, in any order.
    now_s : float
        On the clock of `at_s`; a run weighs half after a week.

    Returns
    -------
    DataFrame
        cluster, origin, evidence, query and statistic (empty: all of them), runs, `concluded` (whether there are
        enough), `lower` and `upper`, coverage as stated and as shown, and bias (median of realised over estimated).

    References
    ----------
    `engine.measurement.calibration`.
    """

    def factors(batch: pa.Table) -> pa.Table:
        return pa.Table.from_pylist(list(_group_rows(batch, now_s)), schema=_schema())

    return runs.groupBy(*_GROUP).applyInArrow(factors, _FACTORS).orderBy(*_GROUP, "query", "statistic")


def _group_rows(table: pa.Table, now_s: float) -> Iterator[dict[str, Any]]:
    """Rows of an origin's runs, the widest group first: a side that is too wide there may be narrowed in its parts."""
    from engine.measurement.calibration import AS_STATED, interval_factors, interval_figures

    ordered = table.sort_by("at_s")
    group = {name: ordered[name][0].as_py() for name in _GROUP}
    queries, names = ordered["query"].to_numpy(zero_copy_only=False), ordered["statistic"].to_numpy(False)
    wider = AS_STATED
    for query, statistic in [("", ""), *sorted(set(zip(queries.tolist(), names.tolist(), strict=True)))]:
        chosen = np.ones(len(queries), bool) if not query else (queries == query) & (names == statistic)
        runs = _scored_runs(ordered.filter(pa.array(chosen)))
        found = interval_factors(runs, now_s=now_s, half_life=math.inf, wider=wider)
        if not query:
            wider = found
        figures = interval_figures(runs)
        yield group | {
            "query": query,
            "statistic": statistic,
            "runs": len(runs),
            "concluded": found.is_concluded,
            "lower": found.lower,
            "upper": found.upper,
            "coverage_before": figures.coverage_before,
            "coverage_after": figures.coverage_after,
            "bias": figures.bias,
        }


def _scored_runs(table: pa.Table) -> ScoredRuns:
    from engine.measurement.calibration import ScoredRuns

    names = ("at_s", "estimate_s", "low_s", "high_s", "shown_low_s", "shown_high_s", "realised_s")
    columns = {name: table[name].to_numpy() for name in names}
    query = np.unique(table["query"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    return ScoredRuns(query=query, **columns)


def _schema() -> pa.Schema:
    types = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_(), "double": pa.float64()}
    return pa.schema([(name, types[kind]) for name, kind in (part.split() for part in _FACTORS.split(", "))])
