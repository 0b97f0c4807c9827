"""Largest rate within a constraint on a real Spark: planned settings, defaults and rules of thumb.

``./sluice lab planner-spark [--query windows] [--constraint 3]``, after figures 6(i), 7(e) and 7(f) of the paper. The
plan is that of `engine.microbatch.sizing` for one core, from the query's own progress at one trigger and two rates.
Then the query runs under each setting with a rate that doubles until the mean latency of a step exceeds the
constraint, and again from the last rate that held, in small steps. A file that is not done counts with its age.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from engine.microbatch.settings import SparkSettings, profile_of_fit
from engine.microbatch.sizing import MicroBatchQuestion, size_microbatch
from lab.benchmarks.machine import machine
from lab.benchmarks.spark_job import calibrated
from lab.benchmarks.spark_queries import QUERIES, FedQuery, FileFeed, spark_session

__all__ = ["main"]

_FIRST_RATE, _LAST_RATE = 1_000.0, 1_024_000.0
_STEP = 1.12
_CALIBRATION_TRIGGER_S, _CALIBRATION_S = 2.0, 20.0
_WARM_UP_S = 20.0  # at the first rate, after the first batch
_SETTLED = 1 / 3  # of a step, whose files do not count
_PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True)
class _Setting:
    """Settings by a name; a trigger of 0 begins a batch as soon as the one before has ended."""

    name: str
    trigger_s: float
    shuffle_partitions: int


#: For a Spark of one core. The tuning guide has 2 to 3 tasks a core; batches of Spark Streaming were of 1 to 5 s.
_RULES = (
    _Setting("Spark's defaults", 0.0, 200),
    _Setting("default trigger, a partition a core", 0.0, 1),
    _Setting("1 s, 2 partitions a core", 1.0, 2),
    _Setting("1 s, a partition a core", 1.0, 1),
    _Setting("5 s, 3 partitions a core", 5.0, 3),
)


@dataclass(frozen=True, slots=True)
class _Sustained:
    """Largest rate that held and its mean latency; 0 and the first one's where none did."""

    rate: float
    mean_s: float


def main(arguments: Sequence[str]) -> int:
    """Plan, then drive every setting; 0 once all is measured, 1 where nothing can be planned."""
    parser = argparse.ArgumentParser(prog="sluice lab planner-spark")
    parser.add_argument("--query", choices=list(QUERIES), default="windows", help="windows, for figures 6(i) and 7(f)")
    parser.add_argument("--constraint", type=float, default=3.0, help="of the mean latency, seconds (3)")
    parser.add_argument("--step", type=float, default=15.0, help="seconds at a rate (15)")
    asked = parser.parse_args(arguments)
    faults = []
    if not 0.1 <= asked.constraint <= 60.0:
        faults.append(f"--constraint is {asked.constraint:g}; allowed: 0.1 to 60")
    if not 5.0 <= asked.step <= 600.0:
        faults.append(f"--step is {asked.step:g}; allowed: 5 to 600")
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 2
    print(f"Machine: {machine()}")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-") as name, spark_session(Path(name)) as spark:
        planned = _planned(spark, Path(name) / "calibration", asked.query, asked.constraint)
        if planned is None:
            return 1
        print("\n| settings | trigger (s) | shuffle partitions | largest rate (rows/s) | mean there (s) |")
        print("|" + " --- |" * 5)
        found = {}
        for number, setting in enumerate((*_RULES, planned)):
            folder = Path(name) / f"setting-{number}"
            sustained = _sustained(spark, folder, asked.query, setting, asked.constraint, asked.step)
            found[setting.name] = sustained
            trigger = f"{setting.trigger_s:g}" if setting.trigger_s else "none"
            rate = f"{sustained.rate:,.0f}" if sustained.rate else f"below {_FIRST_RATE:,.0f}"
            row = [setting.name, trigger, f"{setting.shuffle_partitions}", rate, f"{sustained.mean_s:.2f}"]
            print("| " + " | ".join(row) + " |", flush=True)
    best = found.pop(planned.name).rate
    rules = ", ".join(f"{_times(best, other.rate)} {name}" for name, other in found.items())
    print(f"\nplanned: {rules}. The paper: 1.05 to 1.57 times its rules of thumb (figure 6(i)).")
    print(f"planner-spark: {time.monotonic() - began_s:.0f} s")
    return 0


def _times(rate: float, other: float) -> str:
    return f"{rate / other:.2f} times" if other else f"over {rate / _FIRST_RATE:.0f} times"


def _planned(spark: SparkSession, folder: Path, query: str, constraint_s: float) -> _Setting | None:
    """The settings that bear the highest rate by the model; None, with the reason, where none do."""
    model = calibrated(spark, folder, query, _CALIBRATION_TRIGGER_S, _CALIBRATION_S)
    fitted = SparkSettings(
        executors=1, cores_per_executor=1, input_partitions=1, shuffle_partitions=1, trigger_s=_CALIBRATION_TRIGGER_S
    )
    question = MicroBatchQuestion(
        rate=_FIRST_RATE, constraint_s=constraint_s, max_executors=1, cores_per_executor=1, stateful=query != "enrich"
    )
    plan = size_microbatch(profile_of_fit(model, fitted), question).plan
    print(
        f"{query}, mean within {constraint_s:g} s; fitted at a trigger of {_CALIBRATION_TRIGGER_S:g} s to "
        f"{model.batches} batches: F {model.fixed_s:.3f} s, k {model.per_row_s * 1e6:.2f} us"
    )
    if plan is None:
        print(f"no settings keep it at {_FIRST_RATE:,.0f} rows/s: a batch takes {model.fixed_s:.2f} s without rows")
        return None
    print(f"planned: a trigger of {plan.trigger_s:.2f} s bears {plan.max_rate:,.0f} rows/s, limited by {plan.binding}")
    return _Setting("planned", plan.trigger_s, plan.shuffle_partitions)


def _sustained(
    spark: SparkSession, folder: Path, query: str, setting: _Setting, constraint_s: float, step_s: float
) -> _Sustained:
    """By doubling the rate, then in steps of `_STEP` from what held."""
    coarse = _climb(spark, folder / "coarse", query, setting, constraint_s, step_s, _FIRST_RATE, 2.0)
    if coarse.rate == 0.0:
        return coarse
    fine = _climb(spark, folder / "fine", query, setting, constraint_s, step_s, coarse.rate * _STEP, _STEP)
    return fine if fine.rate else coarse


def _climb(
    spark: SparkSession,
    folder: Path,
    query: str,
    setting: _Setting,
    constraint_s: float,
    step_s: float,
    first: float,
    factor: float,
) -> _Sustained:
    """Run the query from a rate upwards until a step's mean latency exceeds the constraint."""
    feed, held, rate = FileFeed(folder, _FIRST_RATE), _Sustained(0.0, float("nan")), first
    running = FedQuery(spark, query, feed, trigger_s=setting.trigger_s, shuffle_partitions=setting.shuffle_partitions)
    with feed, running:
        _await_first(running)
        time.sleep(_WARM_UP_S)
        while rate <= _LAST_RATE:
            feed.rate, begun_s = rate, time.time()
            time.sleep(step_s)
            mean_s = _mean_s(running, begun_s + _SETTLED * step_s, time.time(), constraint_s)
            if mean_s > constraint_s:
                return held if held.rate else _Sustained(0.0, mean_s)
            held, rate = _Sustained(rate, mean_s), rate * factor
    return held


def _await_first(running: FedQuery) -> None:
    patience_s = time.monotonic() + _PATIENCE_S
    while np.isnan(running.latencies()[0]).all():
        if time.monotonic() > patience_s:
            raise RuntimeError("the query does not start")
        time.sleep(0.2)


def _mean_s(running: FedQuery, since_s: float, until_s: float, constraint_s: float) -> float:
    """Mean latency of what arrived meanwhile, once all is done or so old that the mean exceeds the constraint."""
    while True:
        latency_s, rows = running.latencies()
        now_s, arrived_s = time.time(), np.array(running.feed.arrived_s[: len(latency_s)])
        chosen = (since_s <= arrived_s) & (arrived_s < until_s)
        is_done = ~np.isnan(latency_s)
        mean_s = float(np.average(np.where(is_done, latency_s, now_s - arrived_s)[chosen], weights=rows[chosen]))
        if is_done[chosen].all() or mean_s > constraint_s:
            return mean_s
        time.sleep(0.2)
