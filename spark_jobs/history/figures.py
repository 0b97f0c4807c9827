"""Figures of queries and operators over days: sums, arrivals by subinterval, refitted costs, factors of intervals.

The formulas are those of `engine.measurement.sums.fit_group_cost` and of the standard error in
`engine.jarvis.fits`, in expressions of Spark; the tests hold one against the other.

The console's own factors rest on the newest hours, so that they follow what changes. These weigh by days alone: where
the two differ, the estimates have changed or the newest hours are unlike the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

from agent.wire import SUM_NAMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
from typing import TYPE_CHECKING

from engine.measurement.places import STREAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from typing import TYPE_CHECKING

from engine.measurement.sums import SPREAD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from engine.measurement.calibration import ScoredRuns

__all__ = [
    "OPERATOR",
    "RESULT_KEY",
    "RUNS",
    "STATISTICS_KEY",
    "arrival_counts",
    "arrival_tables",
    "cost_fits",
    "interval_factors_by_group",
    "latest_rows",
    "operator_sums",
]

#: The subinterval of an operator at a place, by which the console keeps rows, too.
STATISTICS_KEY = ("query", "plan", "operator", "place", "window_us")
RESULT_KEY = ("query", "plan", "window_us", "revision")
#: What is summed up; costs and counts of different places are not alike.
OPERATOR = ("query", "plan", "operator", "fingerprint", "place")
_MEASURED = "measured"


def latest_rows(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Of each key the row of the latest batch: a batch says anew what an earlier one said of a subinterval.

    The order of batches is that of (era, batch), for their numbers begin anew when the stream processor has lost its
    state.
    """
    others = [name for name in rows.columns if name not in key]
    newest = sql.max_by(sql.struct(*others), sql.struct("era", "batch")).alias("newest")
    return rows.groupBy(*key).agg(newest).select(*key, "newest.*").select(*rows.columns)


def operator_sums(rows: DataFrame) -> DataFrame:
    """Sums of each operator, plan and place over rows of statistics, one for each subinterval.

    Returns
    -------
    DataFrame
        `OPERATOR`, the columns of `agent.wire.SUMS` summed up, `subintervals` and how many of them took their CPU time
        by operator (`measured_subintervals`), `first_us` and `end_us` of them, and

        selectivity, selectivity_error
            Records out per record processed, and its standard error.
        cost_s, cost_error_s
            CPU seconds per record processed, and its standard error.

        Errors are null with fewer than two subintervals in which the operator processed something; ratios as well
        where it processed nothing.

    Notes
    -----
    Ratios are those of sums, with the linearised standard error of `engine.measurement.statistics.estimate_ratio`,
    where a subinterval is a unit. It takes two passes: residuals added up from squares would cancel.
    """
    cpu_s = sql.col("cpu_ns") / sql.lit(1e9)
    whole = Window.partitionBy(*OPERATOR)
    processed = sql.col("records_processed")
    with_means = rows.withColumns(
        {
            "selectivity": _sum_ratio(sql.col("records_out"), processed, whole),
            "cost_s": _sum_ratio(cpu_s, processed, whole),
        }
    )
    sums = with_means.groupBy(*OPERATOR).agg(
        *(sql.sum(name).alias(name) for name in SUM_NAMES),
        sql.count(sql.lit(1)).alias("subintervals"),
        sql.sum(sql.col(_MEASURED).cast("long")).alias("measured_subintervals"),
        sql.min("window_us").alias("first_us"),
        sql.max(sql.col("window_us") + sql.col("width_us")).alias("end_us"),
        sql.first("selectivity").alias("selectivity"),
        _ratio_error(sql.col("records_out"), processed, sql.col("selectivity")).alias("selectivity_error"),
        sql.first("cost_s").alias("cost_s"),
        _ratio_error(cpu_s, processed, sql.col("cost_s")).alias("cost_error_s"),
    )
    return sums.orderBy(*OPERATOR)


def _sum_ratio(over: Column, under: Column, window: object) -> Column:
    """Ratio of sums over the units whose `under` is above 0."""
    counts = under > 0
    return sql.sum(sql.when(counts, over)).over(window) / sql.sum(sql.when(counts, under)).over(window)


def _ratio_error(over: Column, under: Column, ratio: Column) -> Column:
    units = sql.sum((under > 0).cast("long"))
    squares = sql.sum(sql.when(under > 0, sql.pow(over - ratio * under, sql.lit(2.0))))
    return sql.when(units > 1, sql.sqrt(units / (units - 1) * squares) / sql.sum(under))


_PAIRS = ("fine_pairs", "second_pairs", "slow_pairs")


def arrival_counts(rows: DataFrame) -> DataFrame:
    """Records that came to a query's source in each subinterval, all agents together.

    Parameters
    ----------
    rows : DataFrame
        Of statistics, one for each subinterval of an operator at a place.

    Returns
    -------
    DataFrame
        query, starts_us, width_us, count, agents; a subinterval of which no agent told anything has no row.

    Notes
    -----
    Agents tell how arrivals vary with the first operator of a query and no other, so the one of which most is told is
    the first. A query of which nothing is told, by agents of an earlier release, has no rows.
    """
    pairs = sum((sql.col(name) for name in _PAIRS), sql.lit(0.0))
    of_plan = Window.partitionBy("query", "plan")
    of_operator = Window.partitionBy("query", "plan", "operator")
    of_agents = rows.where(sql.col("place") != STREAM).withColumn("pairs", sql.sum(pairs).over(of_operator))
    ranked = of_agents.withColumn("most", sql.max("pairs").over(of_plan))
    firsts = ranked.where((sql.col("pairs") > 0) & (sql.col("pairs") == sql.col("most")))
    # an agent that changed its plan within a subinterval has a row of each
    counts = firsts.groupBy("query", sql.col("window_us").alias("starts_us"), "width_us").agg(
        sql.sum("records_in").alias("count"), sql.countDistinct("place").alias("agents")
    )
    return counts.orderBy("query", "starts_us")


def arrival_tables(counts: DataFrame) -> DataFrame:
    """The same as the tables that the console imports: query, time (ISO 8601, UTC), count."""
    time = sql.date_format(sql.timestamp_micros("starts_us"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    return counts.select("query", time.alias("time"), "count")


_MIN_EPOCHS = 3


def cost_fits(sums: DataFrame) -> DataFrame:
    """Fits of cost = a n + b g, an epoch having n records and g groups.

    Parameters
    ----------
    sums : DataFrame
        Of `operator_sums`.

    Returns
    -------
    DataFrame
        `OPERATOR`, `cost_count` (epochs) and `sampled` (records) behind the fit, `cost_s` (a, CPU seconds per record),
        `group_cost_s` (b, null where it cannot be told apart), `standard_error` of a as a share of it, and
        `first_us` and `end_us`. Operators with fewer than three epochs that count have no row.

    Notes
    -----
    The sums of a subinterval are of one configuration version, those of days may be of several: what a version does is
    share records between places, and the cost of those that are worked on stays. Where b cannot be told apart, a
    is the whole cost of a record, groups included, as of the versions that were in force.
    """
    a_part = sql.col("sum_wnt") * sql.col("sum_wg2") - sql.col("sum_wgt") * sql.col("sum_wng")
    b_part = sql.col("sum_wgt") * sql.col("sum_wn2") - sql.col("sum_wnt") * sql.col("sum_wng")
    determinant = sql.col("sum_wn2") * sql.col("sum_wg2") - sql.pow("sum_wng", sql.lit(2.0))
    told_apart = (determinant > SPREAD * sql.col("sum_wn2") * sql.col("sum_wg2")) & (a_part >= 0) & (b_part >= 0)
    a = sql.when(told_apart, a_part / determinant).otherwise(sql.col("sum_wnt") / sql.col("sum_wn2"))
    b = sql.when(told_apart, b_part / determinant)
    usable = sums.where((sql.col("cost_count") >= _MIN_EPOCHS) & (sql.col("sum_wn2") > 0))
    return usable.select(
        *OPERATOR,
        "cost_count",
        "sampled",
        a.alias("cost_s"),
        b.alias("group_cost_s"),
        _relative_error(a, b, determinant).alias("standard_error"),
        "first_us",
        "end_us",
    ).orderBy(*OPERATOR)


def _relative_error(a: Column, b: Column, determinant: Column) -> Column:
    """Standard error of a over a; null without a degree of freedom, or where nothing was spent on records."""
    alone = b.isNull()
    degrees = sql.col("cost_count") - sql.when(alone, 1).otherwise(2)
    residual = sql.col("cost_sum2") - a * sql.col("sum_wnt") - sql.coalesce(b, sql.lit(0.0)) * sql.col("sum_wgt")
    spread = sql.when(alone, 1.0 / sql.col("sum_wn2")).otherwise(sql.col("sum_wg2") / determinant)
    error = sql.sqrt(sql.greatest(residual, sql.lit(0.0)) / degrees * spread) / a
    return sql.when((degrees > 0) & (a > 0), error)


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
