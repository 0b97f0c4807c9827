"""Sums of operators over days: rows of statistics that count, and what follows from their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

from agent.wire import SUM_NAMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["OPERATOR", "RESULT_KEY", "STATISTICS_KEY", "latest_rows", "operator_sums"]

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
