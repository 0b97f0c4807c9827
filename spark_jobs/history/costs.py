"""Costs of operators refitted over days: a of a record and b of a group, from the sums of the normal equations.

The formulas are those of `engine.measurement.sums.fit_group_cost` and of the standard error in
`engine.jarvis.fits`, in expressions of Spark; the tests hold one against the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from engine.measurement.sums import SPREAD
from spark_jobs.history.sums import OPERATOR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["cost_fits"]

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
