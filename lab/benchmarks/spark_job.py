"""Predicted against measured latency of Spark queries as users write them: ``./sluice lab spark-job [--seconds 24]``.

Three Structured Streaming queries read files that arrive every 100 ms: one joins rows with a table and keeps no state,
one counts them by key, one counts them by key and window. A query's own StreamingQueryProgress at one trigger and two
rates is all that the micro-batch model is fitted to; then every trigger and rate is predicted, with a 90 % interval,
and run. Latency is measured, file by file: from its arrival to the end of the batch that took it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from engine.arrays import FloatArray, IntArray, event_quantile
from engine.microbatch.model import BatchModel, fit_batches
from engine.microbatch.progress import BatchProgress, read_progress
from lab.benchmarks.machine import machine
from lab.benchmarks.spark_queries import QUERIES, FedQuery, FileFeed, spark_session

__all__ = ["calibrated", "main", "run_query"]

_MAX_ERROR, _MIN_HELD = 0.15, 0.85
_STATISTICS = ("mean", "q0.95")
_TRIGGERS_S = (2.0, 4.0, 6.0)
_RATES = (2_000, 10_000, 40_000)
_CALIBRATION_TRIGGER_S, _CALIBRATION_RATES = 4.0, (2_000, 20_000)
_WARM_UP_S = 60.0  # the Java process compiles
_QUERY_WARM_UP_S = 15.0
_PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class _Cell:
    """One run: its predicted statistic with interval and what came, seconds."""

    query: str
    rate: int
    trigger_s: float
    statistic: str
    predicted_s: float
    interval_s: tuple[float, float]
    measured_s: float

    @property
    def error(self) -> float:
        return abs(self.predicted_s / self.measured_s - 1.0)

    @property
    def is_held(self) -> bool:
        return self.interval_s[0] <= self.measured_s <= self.interval_s[1]


def main(arguments: Sequence[str]) -> int:
    """Calibrate, predict, run; 1 when the median error is above 15 % or too few intervals hold."""
    parser = argparse.ArgumentParser(prog="sluice lab spark-job")
    parser.add_argument("--queries", nargs="+", default=list(QUERIES), metavar="NAME", help=f"{', '.join(QUERIES)}")
    parser.add_argument("--triggers", type=float, nargs="+", default=_TRIGGERS_S, metavar="S", help="2 4 6")
    parser.add_argument("--rates", type=int, nargs="+", default=_RATES, metavar="ROWS_S", help="2000 10000 40000")
    parser.add_argument("--seconds", type=float, default=24.0, help="length of a run (24)")
    asked = parser.parse_args(arguments)
    faults = [f"--queries has {name!r}; allowed: {', '.join(QUERIES)}" for name in asked.queries if name not in QUERIES]
    faults += [f"--triggers has {value:g}; allowed: 0.1 to 60" for value in asked.triggers if not 0.1 <= value <= 60.0]
    faults += [f"--rates has {rate}; allowed: 10 to 1,000,000" for rate in asked.rates if not 10 <= rate <= 1_000_000]
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 2
    print(f"Machine: {machine()}")
    cells = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-") as name, spark_session(Path(name)) as spark:
        run_query(spark, Path(name) / "warm-up", asked.queries[0], _CALIBRATION_RATES[-1], 2.0, _WARM_UP_S)
        print(
            "\n| query | rows/s | trigger (s) | statistic | predicted (s) | 90 % | measured (s) | error | load |\n"
            "|" + " --- |" * 9
        )
        for query in asked.queries:
            for cell in _cells(spark, Path(name) / query, query, asked.rates, asked.triggers, asked.seconds):
                row = [cell.query, f"{cell.rate:,}", f"{cell.trigger_s:g}", cell.statistic, f"{cell.predicted_s:.2f}"]
                row += ["-".join(f"{end_s:.2f}" for end_s in cell.interval_s), f"{cell.measured_s:.2f}"]
                row += [f"{cell.error:.1%}", f"{os.getloadavg()[0]:.1f}"]
                print("| " + " | ".join(row) + " |", flush=True)
                cells.append(cell)
    return 0 if _is_met(cells) else 1


def calibrated(spark: SparkSession, folder: Path, query: str, trigger_s: float, seconds: float) -> BatchModel:
    """The model of a query by its own progress, at one trigger and two rates."""
    run_query(spark, folder / "warm-up", query, _CALIBRATION_RATES[-1], 2.0, _QUERY_WARM_UP_S)
    batches: list[BatchProgress] = []
    for rate in _CALIBRATION_RATES:
        documents, _, _ = run_query(spark, folder / f"calm-{rate}", query, rate, trigger_s, seconds)
        batches += read_progress(documents).batches
    return fit_batches(batches, warm_up=1)


def run_query(
    spark: SparkSession, folder: Path, query: str, rate: float, trigger_s: float, seconds: float
) -> tuple[list[dict[str, Any]], FloatArray, IntArray]:
    """One run: progress, and latency and rows of its files but for those of the first two triggers and the last."""
    feed = FileFeed(folder, rate)
    with feed, FedQuery(spark, query, feed, trigger_s=trigger_s) as running:
        began_s = time.time()
        time.sleep(2 * trigger_s + seconds)
        until_s = time.time() - trigger_s
        latency_s, rows = _settled(running, until_s)
        documents = running.progress()
    arrived_s = np.array(feed.arrived_s[: len(latency_s)])
    chosen = (began_s + 2 * trigger_s <= arrived_s) & (arrived_s < until_s)
    return documents, latency_s[chosen], rows[chosen]


def _settled(running: FedQuery, until_s: float) -> tuple[FloatArray, IntArray]:
    """Latencies once every file that arrived before `until_s` is done. Raises `RuntimeError` if that takes too long."""
    patience_s = time.monotonic() + _PATIENCE_S
    while True:
        latency_s, rows = running.latencies()
        arrived_s = np.array(running.feed.arrived_s[: len(latency_s)])
        if not np.isnan(latency_s[arrived_s < until_s]).any():
            return latency_s, rows
        if time.monotonic() > patience_s:
            raise RuntimeError("the query does not keep up with what it is sent")
        time.sleep(0.2)


def _cells(
    spark: SparkSession, folder: Path, query: str, rates: Sequence[int], triggers_s: Sequence[float], seconds: float
) -> Iterator[_Cell]:
    model = calibrated(spark, folder, query, _CALIBRATION_TRIGGER_S, seconds)
    for rate, trigger_s in itertools.product(rates, triggers_s):
        _, latency_s, rows = run_query(spark, folder / f"{rate}-{trigger_s:g}", query, rate, trigger_s, seconds)
        measured: Mapping[str, float] = {
            "mean": float(np.average(latency_s, weights=rows)),
            "q0.95": event_quantile(latency_s, rows, 0.95) or math.nan,
        }
        for statistic in _STATISTICS:
            latency = model.latency(rate, trigger_s, statistic)
            interval = model.latency_interval(rate, trigger_s, statistic, fitted_trigger_s=_CALIBRATION_TRIGGER_S)
            assert interval is not None, "the model rests on batches"
            predicted_s = math.inf if latency is None else latency.statistic_s
            yield _Cell(query, rate, trigger_s, statistic, predicted_s, interval, measured[statistic])


def _is_met(cells: Sequence[_Cell]) -> bool:
    """Print what came of all; whether it is within the targets."""
    errors, held = [cell.error for cell in cells], sum(cell.is_held for cell in cells)
    median = statistics.median(errors)
    is_met = median <= _MAX_ERROR and held >= _MIN_HELD * len(cells)
    print(
        f"\nmedian error {median:.1%} (target {_MAX_ERROR:.0%}), largest {max(errors):.1%}; {held} of {len(cells)} "
        f"intervals hold (target {_MIN_HELD:.0%}): {'met' if is_met else 'missed'}"
    )
    return is_met
