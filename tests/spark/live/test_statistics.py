"""Counters become sums: addition, conditions of a fit, replacement."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from agent.wire import (
    ARRIVAL_SUMS,
    COST_SUMS,
    COUNTERS,
    EPOCH_SUMS,
    STATISTICS,
    SUM_NAMES,
    VARIATION,
    table_of,
    variation_extra,
)
from engine.dataflow.pipeline import Pipeline
from engine.measurement.places import PlaceWindow
from engine.measurement.variation import RunSums, cost_sums, measure_costs
from spark_jobs.console import ConsoleClient, ProgressFeed
from spark_jobs.report import read_state
from spark_jobs.statistics.subintervals import (
    SUM_ROWS,
    CounterFrame,
    epoch_rows,
    epoch_sums,
    growing_sums,
    merge_sums,
    statistics_rows,
)
from tests.golden import GoldenRecord
from tests.spark.live.agents import SECOND, START_US, SmallAgent
from tests.spark.live.world import World

MINUTE = 60 * SECOND
STATISTICS_RECORD = GoldenRecord(Path(__file__).with_name("golden"))
ROW: dict[str, Any] = {column.name: "x" if column.type == pa.string() else 0 for column in COUNTERS} | {
    "load_factor": 1.0
}


def row(epoch_s: int, n: int, **more: Any) -> dict[str, Any]:
    return ROW | {"epoch_us": epoch_s * SECOND, "records_in": n, "records_processed": n} | more


def epochs(*rows: dict[str, Any], place: str = "a1", step: int = 1, extra: Mapping[str, Any] | None = None) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), schema=COUNTERS)
    return epoch_rows([CounterFrame(table, place, extra or {})], {"x": MINUTE}, step)


def varied(rows: list[dict[str, Any]], draw: random.Random) -> dict[str, Any]:
    """Sums of runs for every third row, and of steps for every seventh; of as many rows as a header has room for."""
    costs = [[draw.random() for _ in COST_SUMS] if i % 3 == 0 else [] for i in range(len(rows))]
    arrivals = [[draw.random() for _ in ARRIVAL_SUMS] if i % 7 == 0 else [] for i in range(len(rows))]
    return variation_extra(costs, arrivals)


def summed(*tables: pa.Table) -> pa.Table:
    return merge_sums(pa.concat_tables([epoch_sums(table) for table in tables]))


def summed_by_spark(spark: Any, table: pa.Table) -> pa.Table:
    """The same sums by Spark SQL, from the definition of the normal equations."""
    spark.createDataFrame(table).createOrReplaceTempView("epochs")
    n, g, t = "cast(records_processed as double)", "cast(groups_out as double)", "(cpu_ns / 1e9)"
    terms = {
        "sampled": "records_processed",
        "sum_wn2": "1D",
        "sum_wng": f"{g} / {n}",
        "sum_wg2": f"{g} * {g} / ({n} * {n})",
        "sum_wnt": f"{t} / {n}",
        "sum_wgt": f"{g} * {t} / ({n} * {n})",
        "cost_count": "1",
        "cost_sum": f"{t} / {n}",
        "cost_sum2": f"{t} * {t} / ({n} * {n})",
    }
    keys = SUM_ROWS.names[: SUM_ROWS.names.index("epochs")]
    fits = [f"sum(case when records_processed >= 30 then {term} else 0 end) as {name}" for name, term in terms.items()]
    unit = {"epoch_nn": "run_records * run_records", "epoch_nt": "run_records * run_cpu_s"}
    unit |= {"epoch_tt": "run_cpu_s * run_cpu_s", "run_epochs": "case when run_records > 0 then 1D else 0D end"}
    fits += [f"sum({term}) as {name}" for name, term in unit.items()]
    counts = [f"sum({name}) as {name}" for name in SUM_NAMES if name in table.schema.names]
    begins = "epoch_us - pmod(epoch_us, width_us)"
    selected = [f"{begins} as window_us" if key == "window_us" else key for key in keys]
    grouped = [begins if key == "window_us" else key for key in keys]
    query = f"select {', '.join([*selected, 'count(*) as epochs', *counts, *fits, 'max(step) as step'])} "
    found = spark.sql(f"{query} from epochs group by {', '.join(grouped)}").toArrow()
    return found.select(SUM_ROWS.names).cast(SUM_ROWS)


def test_sums_by_arrow_equal_those_by_spark(spark: Any) -> None:
    draw = random.Random(11)
    rows = []
    for second in range(3_000):
        records = draw.choice((0, 1, 29, 30, 31, 500, 2**30))
        rows.append(
            row(
                second // 4,
                records,
                operator=draw.choice("abc"),
                config_version=draw.randrange(3),
                cpu_ns=draw.randrange(10**9),
                groups_out=draw.randrange(records + 1),
                bytes_out=draw.randrange(2**30),
                records_out=draw.randrange(records + 1),
            )
        )
    table = pa.concat_tables(
        epochs(*rows[begin::2], place=place, step=begin, extra=varied(rows[begin::2], draw))
        for begin, place in enumerate(("a1", "a2"))
    )
    keys = [(name, "ascending") for name in SUM_ROWS.names[: SUM_ROWS.names.index("epochs")]]
    ours, theirs = summed(table).sort_by(keys), summed_by_spark(spark, table).sort_by(keys)
    assert ours.num_rows == theirs.num_rows > 200
    for name in SUM_ROWS.names:
        if pa.types.is_floating(SUM_ROWS.field(name).type):
            assert ours[name].to_pylist() == pytest.approx(theirs[name].to_pylist(), rel=1e-12), name
        else:
            assert ours[name].to_pylist() == theirs[name].to_pylist(), name


def test_sums_and_fits_of_one_subinterval() -> None:
    table = epochs(
        row(1, 100, cpu_ns=2_000_000, groups_out=10, records_out=50, bytes_out=7),
        row(2, 50, cpu_ns=2_000_000, groups_out=10, records_out=20, records_shed=3),
        row(3, 29, cpu_ns=9_000_000),  # too few records to say what one costs
        row(4, 0) | {"records_in": 400, "records_drained": 390, "records_overflow": 10},  # drained only
    )
    (found,) = statistics_rows(summed(table), 0).to_pylist()
    assert (found["window_us"], found["width_us"], found["place"], found["measured"]) == (0, MINUTE, "a1", True)
    assert (found["epochs"], found["records_in"], found["records_processed"], found["records_out"]) == (4, 579, 179, 70)
    assert (found["records_drained"], found["records_overflow"], found["records_shed"]) == (390, 10, 3)
    assert (found["cpu_ns"], found["bytes_out"], found["sampled"], found["cost_count"]) == (13_000_000, 7, 150, 2)
    assert found["sum_wn2"] == 2
    assert found["sum_wng"] == pytest.approx(10 / 100 + 10 / 50)
    assert found["sum_wg2"] == pytest.approx(0.01 + 0.04)
    assert found["sum_wnt"] == found["cost_sum"] == pytest.approx(2e-5 + 4e-5)
    assert found["sum_wgt"] == pytest.approx(10 * 0.002 / 100**2 + 10 * 0.002 / 50**2)
    assert found["cost_sum2"] == pytest.approx(4e-10 + 16e-10)


def test_versions_are_never_mixed_in_a_fit_and_load_factors_add_up() -> None:
    table = epochs(
        row(1, 100, cpu_ns=1_000_000, config_version=1),
        row(2, 300, cpu_ns=6_000_000, config_version=2),
        row(3, 100, cpu_ns=5_000_000, config_version=2, load_factor=0.5),
    )
    (found,) = statistics_rows(summed(table), 0).to_pylist()
    assert (found["records_in"], found["epochs"]) == (500, 3)
    assert (found["sampled"], found["cost_count"]) == (400, 2)
    assert found["cost_sum"] == pytest.approx(2e-5 + 5e-5)


def test_load_factors_that_move_every_epoch_make_no_more_rows() -> None:
    table = epochs(*(row(second, 100, load_factor=second / 60, config_version=3) for second in range(60)))
    assert summed(table).num_rows == 1


def test_order_and_cut_of_batches_do_not_matter() -> None:
    rows = [row(second, 30 + second, cpu_ns=1000 * second) for second in range(1, 120)]
    whole = statistics_rows(summed(epochs(*rows)), 0).sort_by("window_us")
    parts = statistics_rows(summed(epochs(*rows[70:]), epochs(*rows[:70])), 0).sort_by("window_us")
    assert whole.num_rows == 2
    for one, other in zip(whole.to_pylist(), parts.to_pylist(), strict=True):
        assert one == pytest.approx(other)


def test_finished_subintervals_are_dropped_and_unchanged_ones_not_posted_again() -> None:
    old = epochs(*(row(60 * minute, 40) for minute in range(5)), step=1)
    new = epochs(row(60 * 5, 40), step=2)
    sums = summed(old, new)
    assert statistics_rows(sums, 1)["window_us"].to_pylist() == [5 * MINUTE]
    assert sorted(growing_sums(sums)["window_us"].to_pylist()) == [3 * MINUTE, 4 * MINUTE, 5 * MINUTE]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cpu_ns": -1}, "cpu_ns has null, negative or too large values"),
        ({"records_in": None}, "records_in has null, negative or too large values"),
        ({"epoch_us": 2**53}, "epoch_us has null, negative or too large values"),
        ({"operator": None}, "operator has null, empty or too long texts; allowed: 1 to 120 characters"),
        ({"fingerprint": "f" * 65}, "fingerprint has null, empty or too long texts"),
        ({"records_in": 7}, "records_in is more than the sum"),
        ({"records_queued": -1}, "records_queued has null, negative or too large values"),
    ],
)
def test_impossible_counters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        epochs(row(1, 5) | wrong)


def test_queued_records_balance_the_counters_and_are_not_summed() -> None:
    """In, and queued before, is processed, drained, overflow and queued after."""
    waits = row(1, 100) | {"records_processed": 40, "records_queued": 60}
    goes_on = row(2, 10) | {"records_processed": 50, "records_drained": 15, "records_overflow": 5, "records_queued": 0}
    (found,) = statistics_rows(summed(epochs(waits, goes_on)), 0).to_pylist()
    assert (found["records_in"], found["records_processed"], found["sampled"]) == (110, 90, 90)
    assert "records_queued" not in found
    with pytest.raises(ValueError, match="records_in is more than the sum"):
        epochs(waits | {"records_queued": 59})


def test_variation_of_costs_comes_out_of_the_sums_of_epochs_as_it_went_in() -> None:
    draw = np.random.default_rng(3)
    tables = []
    for second in range(120):
        sizes = draw.integers(50, 500, 8).astype(float)
        times = np.array([draw.gamma(size / 0.5, 0.5e-6) for size in sizes])  # cv2 0.5 of independent records of 1 us
        told = variation_extra([list(astuple(cost_sums(sizes, times)))], [[]])
        cpu_ns = int(times.sum() * 1e9)
        tables.append(epochs(row(second, int(sizes.sum()), cpu_ns=cpu_ns), extra=told, step=second))
    rows = statistics_rows(summed(*tables), -1).to_pylist()
    names = ("records_processed", "records_out", "cpu_ns", "run_records", "run_cpu_s")
    windows = [PlaceWindow("a1", told["window_us"] / 1e6, *(told[name] for name in names)) for told in rows]
    assert len(windows) == 2
    runs, epoch_runs = ([sum(told[name] for told in rows) for name in group] for group in (COST_SUMS, EPOCH_SUMS))
    found = measure_costs({"a1": RunSums.of_values(runs, epoch_runs)}, windows, {"a1": 1e9})
    assert found is not None and found.unit == "runs" and found.count == 960
    assert found.value == pytest.approx(0.5, rel=0.25)


def test_sums_of_variation_do_not_depend_on_how_epochs_are_cut_into_batches() -> None:
    draw = random.Random(5)
    rows = [row(second, 40) for second in range(90)]
    tables = [epochs(one, extra=variation_extra([[draw.random() for _ in COST_SUMS]], [[]])) for one in rows]
    whole = statistics_rows(summed(*tables), 0).sort_by("window_us")
    early, late = summed(*tables[:31]), summed(*tables[31:])
    parts = statistics_rows(merge_sums(pa.concat_tables([late, early])), 0).sort_by("window_us")
    for one, other in zip(whole.to_pylist(), parts.to_pylist(), strict=True):
        assert one == pytest.approx(other, rel=1e-12)
    assert min(whole["run_epochs"].to_pylist()) == 30


def test_variation_of_which_nothing_is_said_is_zero() -> None:
    (found,) = statistics_rows(summed(epochs(row(1, 100))), 0).to_pylist()
    assert {found[name] for name in VARIATION} == {0.0}


def test_variation_that_cannot_be_isolates_its_frame_and_the_others_count(world: World, pairs: Pipeline) -> None:
    world.console.add("here/pairs", pairs, ["a0"])
    agent, operator = SmallAgent("a0", "here/pairs", pairs), pairs.operators[0]
    told = {"query": "here/pairs", "plan": pairs.digest, "operator": operator.id, "fingerprint": operator.fingerprint}
    good = agent.counters([row(START_US // SECOND, 100, **told)])
    bad = agent.counters([row(START_US // SECOND + 1, 100, **told)])
    right = variation_extra([[2.0, 100.0, 1e-3, 5e3, 5e-2, 5e-7]], [[]])
    twice = variation_extra([[1.0] * 6] * 2, [[]] * 2)
    world.send([replace(good, extra=right), replace(bad, extra=twice)])
    world.process()
    (isolated,) = world.quarantined()
    assert "costs has 2 items; allowed: 1, the rows of the body" in isolated
    sums = world.statistics().sums
    assert sums is not None
    assert [sums[name].to_pylist() for name in ("records_in", "runs", "epoch_nn")] == [[100], [2.0], [1e4]]


def test_statistics_are_posted_for_agents_and_for_the_stream_processor(world: World, pairs: Pipeline) -> None:
    agent = SmallAgent("a0", "here/pairs", pairs)
    world.console.add("here/pairs", pairs, ["a0"])
    frames = agent.run(6, factor=0.5)
    operator = pairs.operators[1]
    told = {"query": "here/pairs", "plan": pairs.digest, "operator": operator.id, "fingerprint": operator.fingerprint}
    frames.append(agent.counters([row(START_US // SECOND, 100, cpu_ns=5, **told)]))
    world.send(frames)
    world.drain()
    tables = [table_of(frame.body) for frame in world.console.statistics]
    rows = pa.concat_tables(tables).to_pylist()
    assert all(table.schema.equals(STATISTICS) for table in tables)
    (mine,) = [line for line in rows if line["place"] == "a0"]
    assert (mine["operator"], mine["records_in"], mine["measured"]) == ("answered", 100, True)
    own = {line["operator"]: line for line in rows if line["place"] == "stream"}
    assert set(own) == {operator.id for operator in pairs.operators}
    assert own["window"]["records_in"] == own["window"]["records_out"] > 0
    assert own["answered"]["records_in"] > own["answered"]["records_out"] > 0
    assert own["pairs"]["records_out"] == own["enough"]["records_in"]
    assert all(line["cpu_ns"] > 0 for line in own.values() if line["records_in"])
    assert not any(line["measured"] for line in own.values())
    operators_have_names(world)
    state_can_be_read(world, pairs)


def operators_have_names(world: World) -> None:
    feed = ProgressFeed(ConsoleClient(world.console.url, "a-token"), "local[2]", 2.0, 2)
    for progress in world.query.recentProgress:
        feed.batch_taken(progress["batchId"], 60)
    feed.look(world.query)
    feed.post()
    kinds = {
        operator["operatorName"]: operator["customMetrics"]["numMapStateVars"] > 0
        for progress in world.console.progress
        for operator in progress["stateOperators"]
    }
    assert kinds == {"flows": True, "generations": False}
    for operator in feed.figures.report()["operators"]:
        assert operator["rows"] > 0
        assert operator["output_rows_total"] >= operator["output_rows"] > 0
        assert operator["output_bytes"] > 100
        assert operator["disk_bytes"] > 0


def state_can_be_read(world: World, pairs: Pipeline) -> None:
    path = f"{world.folder}/keyed/checkpoint-0"
    last = world.query.lastProgress["batchId"]
    reading = read_state(world.session(), path, last)
    rows = {(item["operator"], item["variable"]): item["rows"] for item in reading["variables"]}
    assert (rows["generations", "positions"], rows["flows", "flow"], rows["flows", "sides"]) == (1, 1, 0)
    assert rows["flows", "windows"] >= 1
    assert (reading["batch"], reading["complete"]) == (last, True)
    largest = [key["key"] for key in reading["keys"] if key["variable"] == "windows"]
    assert largest == [f"here/pairs|{pairs.digest}|0"]
    assert [key["bytes"] for key in reading["keys"]] == sorted((key["bytes"] for key in reading["keys"]), reverse=True)


def test_statistics_of_fixed_counters_are_as_recorded() -> None:
    """To the byte: they are added to what an installation already has. RECORD_GOLDEN=1 writes the record anew."""
    draw = random.Random(5)
    rows = [
        row(
            second // 4,
            records := draw.choice((0, 1, 29, 30, 31, 500, 2**30)),
            operator=draw.choice("abc"),
            config_version=draw.randrange(3),
            cpu_ns=draw.randrange(10**9),
            groups_out=draw.randrange(records + 1),
            bytes_out=draw.randrange(2**30),
            records_out=draw.randrange(records + 1),
        )
        for second in range(600)
    ]
    table = pa.concat_tables(
        epochs(*rows[begin::2], place=place, step=begin, extra=varied(rows[begin::2], draw))
        for begin, place in enumerate(("a1", "a2"))
    )
    sums = summed(table)
    tables = {"sums": sums, "statistics": statistics_rows(sums, 0)}
    STATISTICS_RECORD.check(
        "statistics", {name: sorted(map(json.dumps, table.to_pylist())) for name, table in tables.items()}
    )
