"""Predicted against measured latency of a Spark query as users write them: ``./sluice lab spark-job [--seconds 24]``.

A Structured Streaming query reads files that arrive every 100 ms, does some work on each row, counts rows by the time
of their arrival and hands the counts over. Its own StreamingQueryProgress at one trigger and two rates is all that the
micro-batch model is fitted to; then other triggers are predicted and run. Latency is measured, row by row: from the
arrival of its file to the end of the batch that counted it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from engine.microbatch.model import BatchModel, fit_batches
from engine.microbatch.progress import read_progress
from lab.benchmarks.machine import machine
from launcher.java import java_environment

__all__ = ["main"]

_MAX_ERROR = 0.15
_STATISTICS = ("mean", "q0.95")
_TRIGGERS_S = (2.0, 4.0, 6.0)
_RATES = (2_000, 20_000)
_CALIBRATION_TRIGGER_S = 4.0
_FILE_S = 0.1
_WARM_UP_S = 60.0  # the Java process compiles
_ROUNDS = 40  # of hashing a row


def main(arguments: Sequence[str]) -> int:
    """Calibrate, predict, run; 1 when a median error is above 15 %."""
    parser = argparse.ArgumentParser(prog="sluice lab spark-job")
    parser.add_argument("--seconds", type=float, default=24.0, help="length of a run (24)")
    seconds = parser.parse_args(arguments).seconds
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-") as name, _session(Path(name)) as spark:
        _run(spark, Path(name) / "warm-up", _RATES[-1], 2.0, _WARM_UP_S)
        runs = [_run(spark, Path(name) / f"calm-{rate}", rate, _CALIBRATION_TRIGGER_S, seconds)[0] for rate in _RATES]
        batches = [batch for progress in runs for batch in read_progress(progress).batches]
        model = fit_batches(batches, warm_up=1)
        found = {}
        for rate, trigger_s in itertools.product(_RATES, _TRIGGERS_S):
            latencies = _run(spark, Path(name) / f"{rate}-{trigger_s:g}", rate, trigger_s, seconds)[1]
            found[rate, trigger_s] = {"mean": float(latencies.mean()), "q0.95": float(np.quantile(latencies, 0.95))}
    print(machine())
    print(
        f"calibrated at a trigger of {_CALIBRATION_TRIGGER_S:g} s from {model.batches} batches: "
        f"F {model.fixed_s:.3f} s, "
        f"k {model.per_row_s * 1e6:.2f} us, standard deviation {model.sd_s:.3f} s\n"
    )
    return 0 if _report(model, found) else 1


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    os.environ |= java_environment()
    builder = SparkSession.builder.master("local[1]").appName("bench-spark-job")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _run(
    spark: SparkSession, folder: Path, rate: int, trigger_s: float, seconds: float
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """One run of the query: its progress, and latencies of its rows but for those of the first two triggers."""
    arrivals, batches = folder / "arrivals", dict[int, list[tuple[float, int]]]()
    arrivals.mkdir(parents=True)

    def hand_over(counts: DataFrame, batch: int) -> None:
        batches[batch] = [(row["arrived"], row["count"]) for row in counts.collect()]

    digest = "value"
    for _ in range(_ROUNDS):
        digest = f"xxhash64({digest})"
    rows = spark.readStream.schema("arrived DOUBLE, value BIGINT").csv(str(arrivals))
    counts = rows.selectExpr("arrived", f"{digest} AS digest").where("digest != 0").groupBy("arrived").count()
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(hand_over)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{trigger_s:g} seconds")
        .start()
    )
    began_s = time.time()
    stop = threading.Event()
    sender = threading.Thread(target=_send, args=(arrivals, rate, stop))
    sender.start()
    try:
        time.sleep(2 * trigger_s + seconds)
    finally:
        stop.set()
        sender.join()
    until_s = time.time() - trigger_s
    query.processAllAvailable()
    documents = [json.loads(progress.json) for progress in query.recentProgress]
    query.stop()
    ends_s = {batch.batch: batch.begins_at.timestamp() + batch.duration_s for batch in read_progress(documents).batches}
    latencies = [
        np.full(count, ends_s[number] - arrived)
        for number, stamps in batches.items()
        if number in ends_s
        for arrived, count in stamps
        if began_s + 2 * trigger_s <= arrived < until_s
    ]
    return documents, np.concatenate(latencies)


def _send(folder: Path, rate: int, stop: threading.Event) -> None:
    """Files of rows at even intervals, each there at once."""
    per_file = round(rate * _FILE_S)
    due_s = time.time()
    for number in itertools.count():
        if stop.is_set():
            return
        due_s += _FILE_S
        time.sleep(max(0.0, due_s - time.time()))
        arrived_s = time.time()
        part = folder.with_name("next.csv")
        part.write_text("".join(f"{arrived_s},{number * per_file + i}\n" for i in range(per_file)))
        part.rename(folder / f"{number:06}.csv")


def _report(model: BatchModel, found: Mapping[tuple[int, float], Mapping[str, float]]) -> bool:
    """Print the table; whether the median error is within the target."""
    errors = []
    print("| rows/s | trigger (s) | statistic | predicted (s) | measured (s) | error |\n" + "|" + " --- |" * 6)
    for (rate, trigger_s), measured in found.items():
        for statistic in _STATISTICS:
            latency = model.latency(rate, trigger_s, statistic)
            predicted_s = math.inf if latency is None else latency.statistic_s
            errors.append(abs(predicted_s / measured[statistic] - 1.0))
            print(
                f"| {rate:,} | {trigger_s:g} | {statistic} | {predicted_s:.2f} | {measured[statistic]:.2f} "
                f"| {errors[-1]:.1%} |"
            )
    median = statistics.median(errors)
    verdict = "met" if median <= _MAX_ERROR else "missed"
    print(f"\nmedian error {median:.1%} (target {_MAX_ERROR:.0%}: {verdict}), largest {max(errors):.1%}")
    return median <= _MAX_ERROR
