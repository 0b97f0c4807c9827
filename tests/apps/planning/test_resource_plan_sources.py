"""Profiles taken from the statistics of a query's operators."""

from __future__ import annotations

import pytest

from apps.planning.resource_plan_sources import microbatch_inputs, query_work, stage_inputs
from engine.document.elements import Evidence, Input, InputModel, Operator


def operator(
    name: str, kind: str, *inputs: Input, evidence: str = "measured", bytes_per_event: float = 0.0
) -> Operator:
    return Operator(
        name, (), inputs, bytes_per_event=bytes_per_event, kind=kind, evidence=Evidence(evidence, events=1.0)
    )


def sessions(**evidence: str) -> list[Operator]:
    """Half of the clicks pass a filter of 200 cycles and are counted by key for 1,000 cycles each; a sink takes 50."""
    kept = Input("clicks", selectivity=0.5, cycles_per_event=200.0)
    return [
        operator("sink", "sink", Input("count", 1.0, 50.0), evidence=evidence.get("sink", "measured")),
        operator("filter", "filter", kept, evidence=evidence.get("filter", "measured"), bytes_per_event=40.0),
        operator("count", "window", Input("filter", 0.1, 1000.0), evidence=evidence.get("count", "measured")),
    ]


def test_work_is_split_at_the_first_keyed_operator() -> None:
    work = query_work(sessions(), {"clicks": 1000.0}, 1.0)
    assert (work.rate_eps, work.map_cycles, work.map_outputs, work.output_bytes) == (1000.0, 200.0, 0.5, 40.0)
    # per map output: 1,000 cycles of the count, and a tenth of an event of 50 cycles in the sink
    assert work.reduce_cycles == pytest.approx(1005.0)


def test_seconds_are_those_of_a_core() -> None:
    inputs = stage_inputs(query_work(sessions(), {"clicks": 1000.0}, 1.0), 1e8, "measured")
    values = {path: entry.value for path, entry in inputs.items()}
    assert values == pytest.approx(
        {"profile.c_map": 2e-6, "profile.c_red": 1.005e-5, "profile.alpha": 0.5, "profile.b_out": 40.0}
    )


def test_origin_is_that_of_the_weakest_figure() -> None:
    work = query_work(sessions(count="assumed"), {"clicks": 1000.0}, 1.0)
    inputs = microbatch_inputs(work, 1e8, "measured")
    origins = {path: str(entry.origin) for path, entry in inputs.items()}
    assert origins == {"profile.c_in_s": "measured", "profile.c_sh_s": "assumed", "profile.alpha": "measured"}
    assumed = microbatch_inputs(work, 1e8, "assumed")
    assert str(assumed["profile.c_in_s"].origin) == "assumed"  # seconds hang on the core's capacity as well


def test_query_without_keyed_operators_shuffles_nothing() -> None:
    only = [operator("filter", "filter", Input("clicks", 0.25, 80.0))]
    work = query_work(only, {"clicks": 10.0}, 1.0)
    assert not work.is_keyed
    assert microbatch_inputs(work, 1e6, "measured")["profile.alpha"].value == 0.0
    # a stage always has reducers: what leaves the query is handed to them, and costs them nothing
    stage = stage_inputs(work, 1e6, "measured")
    assert (stage["profile.alpha"].value, stage["profile.c_red"].value) == (0.25, 0.0)


def test_join_of_two_sources_counts_each_source_once() -> None:
    join = operator("join", "join", Input("orders", 1.0, 30.0), Input("payments", 1.0, 90.0))
    again = operator("late", "aggregate", Input("join", 1.0, 5.0), Input("orders", 0.0, 1.0))
    work = query_work([join, again], {"orders": 300.0, "payments": 100.0}, 1.0)
    assert (work.rate_eps, work.map_cycles) == (400.0, 0.0)
    assert work.map_outputs == pytest.approx(700.0 / 400.0)  # orders are handed to both
    assert work.reduce_cycles == pytest.approx((300 * 30 + 100 * 90 + 400 * 5 + 300 * 1) / 700.0)


def test_model_in_place_of_statistics_is_taken_at_the_mean_rate() -> None:
    model = InputModel(output=(0.0, 0.5, 0.0), cycles=(100.0, 10.0, 0.1))
    work = query_work([operator("map", "map", Input("clicks", model=model))], {"clicks": 50.0}, 2.0)
    # 100 events in 2 s: 100 + 1,000 + 1,000 cycles
    assert (work.map_cycles, work.map_outputs) == (pytest.approx(21.0), pytest.approx(0.5))


def test_unknown_arrivals_leave_the_rate_open_but_not_the_work() -> None:
    work = query_work(sessions(), {}, 1.0)
    assert (work.rate_eps, work.map_cycles, work.map_outputs) == (0.0, 200.0, 0.5)


def test_rate_is_open_where_one_of_two_sources_is_not_known() -> None:
    join = operator("join", "join", Input("orders", 1.0, 30.0), Input("payments", 1.0, 90.0))
    assert query_work([join], {"orders": 300.0}, 1.0).rate_eps == 0.0
    assert query_work([join], {"orders": 300.0, "payments": 0.0}, 1.0).rate_eps == 300.0
