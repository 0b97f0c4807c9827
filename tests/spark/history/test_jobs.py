"""Batch jobs over small histories: their sums and fits are those of the engine, and a merged day is the same day."""

from __future__ import annotations

import fcntl
import json
import math
from collections import defaultdict
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.wire import SUM_NAMES
from engine.jarvis.fits import EpochSums, fit_operator
from engine.measurement.calibration import ScoredRuns, interval_factors
from engine.measurement.statistics import estimate_ratio
from engine.measurement.sums import CostEquations
from spark_jobs.history import command
from spark_jobs.history.archive import Archive, day_files, day_folder, kept_days
from spark_jobs.history.figures import OPERATOR, RUNS, STATISTICS_KEY
from spark_jobs.history.jobs import JOBS, DaySpan, HistoryContext, output_folder
from tests.spark.history.statistics_rows import DAY_US, NOON_US, random_rows, result_bytes, row, statistics_bytes

RATIOS = [("selectivity", "selectivity_error", "records_out", 1.0), ("cost_s", "cost_error_s", "cpu_ns", 1e-9)]
FIRST, TODAY = date(2026, 11, 24), date(2026, 11, 27)
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Rows that count."""
    return random_rows(3)


@pytest.fixture(scope="module")
def context(spark: Any, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> HistoryContext:
    """A history of batches, each of which says some subintervals anew."""
    folder = tmp_path_factory.mktemp("history")
    archive = Archive(folder, clock=lambda: (NOON_US + 2 * DAY_US) / 1e6)
    for batch, part in enumerate(np.array_split(np.arange(len(rows)), 5), start=1):
        stale = [rows[i] | {"batch": 2 * batch - 1, "cpu_ns": 1, "fine_pairs": 0.5} for i in part]
        archive.put(2 * batch - 1, [statistics_bytes(stale), result_bytes(NOON_US, revision=batch)])
        archive.put(2 * batch, [statistics_bytes([rows[i] | {"batch": 2 * batch} for i in part])])
    assert archive.fault is None
    return HistoryContext(spark, folder, DaySpan(FIRST, TODAY), now=NOW, retention_days=30)


def output(context: HistoryContext, job: str) -> list[dict[str, Any]]:
    return pa.concat_tables(
        map(pq.read_table, sorted(output_folder(context.folder, job).glob("*.parquet")))
    ).to_pylist()


def by_operator(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    grouped = defaultdict(list)
    for values in rows:
        grouped[tuple(values[name] for name in OPERATOR)].append(values)
    return grouped


def test_sums_over_days_are_those_made_directly(context: HistoryContext, rows: list[dict[str, Any]]) -> None:
    figures = JOBS["statistics"](context)
    expected = by_operator(rows)
    assert figures["subintervals"] == len(rows)
    assert figures["cpu_s"] == pytest.approx(sum(values["cpu_ns"] for values in rows) / 1e9)
    for found in output(context, "statistics"):
        parts = expected.pop(tuple(found[name] for name in OPERATOR))
        totals = {name: math.fsum(values[name] for values in parts) for name in SUM_NAMES}
        assert {name: found[name] for name in SUM_NAMES} == pytest.approx(totals, rel=1e-12)
        under = [values["records_processed"] for values in parts]
        for value, error, over, unit in RATIOS:
            ratio = estimate_ratio([values[over] * unit for values in parts], under)
            assert (found[value], found[error]) == pytest.approx((ratio.value, ratio.error), rel=1e-9)
    assert not expected


def epoch_sums(rows: list[dict[str, Any]]) -> EpochSums:
    return EpochSums(
        CostEquations(**{field.name: math.fsum(row[field.name] for row in rows) for field in fields(CostEquations)})
    )


def test_costs_are_those_of_the_engine(context: HistoryContext, rows: list[dict[str, Any]]) -> None:
    JOBS["costs"](context)
    fits = {tuple(found[name] for name in OPERATOR): found for found in output(context, "costs")}
    for key, parts in by_operator(rows).items():
        expected = fit_operator(epoch_sums(parts))
        assert expected is not None
        found = fits.pop(key)
        assert found["cost_s"] == pytest.approx(expected.cost_s, rel=1e-9)
        assert found["group_cost_s"] == pytest.approx(expected.group_cost_s, rel=1e-9)
        assert found["standard_error"] == pytest.approx(expected.standard_error, rel=1e-6)
    assert not fits


def test_costs_that_cannot_be_told_apart_are_put_down_to_records(spark: Any) -> None:
    from spark_jobs.history.figures import cost_fits, operator_sums
    from tests.spark.history.statistics_rows import archived

    alike = {"sum_wn2": 4.0, "sum_wng": 2.0, "sum_wg2": 1.0, "sum_wnt": 8e-6, "sum_wgt": 4e-6}
    spent = {"cost_count": 4, "cost_sum": 8e-6, "cost_sum2": 2e-11}
    few = {"operator": "few", "sum_wn2": 2.0, "cost_count": 2}
    rows = [row(**alike, **spent), row(**few)]
    (found,) = cost_fits(operator_sums(spark.createDataFrame(archived(rows)))).collect()
    expected = fit_operator(epoch_sums(rows[:1]))
    assert expected is not None
    assert (found.cost_s, found.group_cost_s) == (2e-6, None)
    assert found.standard_error == pytest.approx(expected.standard_error)


def test_arrivals_are_counted_at_first_operators_of_agents(context: HistoryContext, rows: list[dict[str, Any]]) -> None:
    figures = JOBS["arrivals"](context)
    expected: dict[int, int] = defaultdict(int)
    for values in rows:
        if values["operator"] == "a":
            expected[values["window_us"]] += values["records_in"]
    found = {values["starts_us"]: values["count"] for values in output(context, "arrivals")}
    assert found == expected
    assert figures["records"] == sum(expected.values())
    (table,) = (context.folder / "outputs" / "arrival-tables" / "query=here%2Fq").glob("*.csv")
    lines = table.read_text().splitlines()
    assert lines[0] == "time,count"
    assert lines[1] == f"2026-11-24T12:00:00.000000Z,{expected[NOON_US]}"


def test_factors_are_those_of_the_engine(context: HistoryContext) -> None:
    generator = np.random.default_rng(1)
    count, newest_s = 200, NOON_US / 1e6
    realised = np.exp(generator.normal(0.0, 0.4, count))
    usual = {"cluster": "here", "origin": "live", "evidence": "measured", "statistic": "mean", "windowed": True}
    runs = [
        usual
        | {"query": f"here/q{i % 3}", "at_s": newest_s - 30.0 * i, "estimate_s": 1.0, "realised_s": float(value)}
        | {"low_s": 0.8, "high_s": 1.25, "shown_low_s": 0.5, "shown_high_s": 2.0}
        for i, value in enumerate(realised)
    ]
    place = day_folder(context.folder, "runs", FIRST)
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(runs, RUNS), place / "runs.parquet")
    figures = JOBS["calibration"](context)
    (whole,) = figures["origins"]
    oldest_first = realised[::-1]
    expected = interval_factors(
        ScoredRuns(
            at_s=np.array([values["at_s"] for values in runs])[::-1],
            query=np.arange(count)[::-1] % 3,
            estimate_s=np.ones(count),
            low_s=np.full(count, 0.8),
            high_s=np.full(count, 1.25),
            shown_low_s=np.full(count, 0.5),
            shown_high_s=np.full(count, 2.0),
            realised_s=oldest_first,
        ),
        now_s=NOW.timestamp(),
        half_life=math.inf,
    )
    assert (whole["runs"], whole["concluded"]) == (count, True)
    assert (whole["lower"], whole["upper"]) == pytest.approx((expected.lower, expected.upper))
    assert len(output(context, "calibration")) == 4


@pytest.mark.night
def test_merged_days_are_the_same_days_in_few_files(context: HistoryContext) -> None:
    key = (*STATISTICS_KEY, "batch", "cpu_ns", "fine_pairs")
    before = sorted(context.statistics.select(*key).collect())
    figures = JOBS["compact"](context)
    assert figures["files_before"] > figures["files_after"] == figures["days"]
    fresh = HistoryContext(context.spark, context.folder, context.span, now=NOW, retention_days=30)
    assert sorted(fresh.rows("statistics").select(*key).collect()) == before
    assert JOBS["compact"](fresh) == dict.fromkeys(figures, 0)
    (place, *_) = [day_folder(context.folder, "statistics", day) for day in kept_days(context.folder, "statistics")]
    late = Archive(context.folder, clock=lambda: (NOON_US + 2 * DAY_US) / 1e6)
    late.put(11, [statistics_bytes([row(batch=11)])])
    assert len(day_files(place)) == 2
    assert "batch-000000-000000000011.parquet" in {path.name for path in day_files(place)}


def test_command_tells_steps_and_figures_and_runs_alone(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_VAR_DIR", str(tmp_path))
    monkeypatch.setattr(spark, "stop", lambda: None)  # it is the session of all tests
    monkeypatch.setattr(command, "spark_session", lambda *_, **__: spark)
    monkeypatch.setitem(JOBS, "costs", lambda context: 1 // 0)  # type: ignore[misc]
    assert command.main(["costs", "arrivals", "--json", "--until", "2026-11-24"]) == 1
    steps = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [step["step"] for step in steps[:-1]] == [
        "Starting Spark",
        "costs: 2026-11-18 to 2026-11-24",
        "arrivals: 2026-11-18 to 2026-11-24",
    ]
    outcome = steps[-1]["jobs"]
    assert "ZeroDivisionError" in outcome["costs"]["fault"]
    assert (outcome["arrivals"]["rows"], steps[-1]["days"]) == (0, {})
    with (tmp_path / "history" / ".jobs.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert command.main(["compact"]) == command.BUSY
    for wrong in (["sums"], ["--days", "0"], ["--since", "2026-11-25", "--until", "2026-11-24"]):
        with pytest.raises(SystemExit, match="2"):
            command.main(wrong)
        assert "allowed" in capfd.readouterr().err
