"""Policies of a reducer under overload: what each does with the same tuples, and the benchmark that compares them."""

from __future__ import annotations

import numpy as np
import pytest

from engine.deadlines.subset import Task, largest_subset
from lab.benchmarks import deadlines
from lab.deadlines.policies import POLICIES, ReducerTrace, d_over, earliest_batch, in_order
from lab.deadlines.reducer import ReducerLoad, draw_trace, miss_share


def trace(*tuples: tuple[float, float, int], costs_s: tuple[float, ...] = (1.0, 3.0)) -> ReducerTrace:
    release_s, deadline_s, level = zip(*tuples, strict=True)
    return ReducerTrace(np.array(release_s, float), np.array(deadline_s, float), np.array(level), costs_s)


def test_every_policy_does_everything_in_time_where_there_is_time() -> None:
    drawn = draw_trace(ReducerLoad(horizon_s=1.0), seed=1)
    assert {policy(drawn, 0.005) for policy in POLICIES.values()} == {len(drawn)}


def test_order_of_arrival_processes_late_tuples_as_well() -> None:
    assert in_order(trace((0, 3, 1), (0, 3, 0), (0, 9, 1))) == 2  # ends at 3, 4 and 7


def test_batch_is_left_where_it_would_end_late() -> None:
    assert earliest_batch(trace((0, 3, 1), (0, 3, 0), (1, 4, 0), (1, 9, 1))) == 3  # the dear one first, then what fits


def test_d_over_preempts_for_an_earlier_deadline_if_both_can_be_done() -> None:
    assert d_over(trace((0, 10, 1), (1, 2.5, 0))) == 2
    assert d_over(trace((0, 3.5, 1), (1, 2.5, 0))) == 1


def test_d_over_drops_what_can_no_longer_be_done() -> None:
    assert d_over(trace((0, 3, 1), (0, 3.5, 0), (0, 3.9, 0), (0, 7.2, 1))) == 2


def test_tuples_of_one_release_are_done_as_the_largest_subset_by_the_grouped_array_only() -> None:
    draw = np.random.default_rng(2)
    tuples = [(0.0, draw.integers(2, 40), int(draw.random() < 0.4)) for _ in range(30)]
    best = largest_subset([Task(deadline, (1.0, 3.0)[level]) for _, deadline, level in tuples]).size
    found = {name: policy(trace(*tuples), 1.0) for name, policy in POLICIES.items()}
    assert found["cost-aware"] == best
    assert max(found.values()) == best


def test_order_of_policies_under_quarter_memory() -> None:
    drawn = draw_trace(ReducerLoad(memory_mb=50, horizon_s=3.0, tied_s=0.1), seed=1)
    shares = {name: policy(drawn, 0.005) / len(drawn) for name, policy in POLICIES.items()}
    assert shares["none"] < shares["batch EDF"] < shares["cost-aware"]
    assert shares["D-over"] < shares["cost-aware"] - 0.2  # as deadlines are tied
    assert shares["cost-aware"] > 1 - miss_share(ReducerLoad(memory_mb=50))


def test_drawn_trace_is_deterministic_and_ordered() -> None:
    load = ReducerLoad(memory_mb=100, horizon_s=0.5, window_s=0.25, lag_deviation_s=0.1)
    first, again, other = (draw_trace(load, seed) for seed in (1, 1, 2))
    assert (first.deadline_s == again.deadline_s).all()
    assert len(first) != len(other)
    assert (np.diff(first.release_s) >= 0).all()
    assert set(first.deadline_s.tolist()) == {1.25, 1.5}


def test_benchmark_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "reducer", lambda seeds, horizon_s, run=deadlines.reducer: run(seeds, 0.2))
    monkeypatch.setattr(deadlines, "cost", lambda blocks, counts, run=deadlines.cost: run(1, (5_000,)))
    monkeypatch.setattr(deadlines, "_RELEASES", 2)
    assert deadlines.main(["--quick", "--parts", "reducer,cost"]) in (0, 1)
    printed = capsys.readouterr().out
    assert printed.count("cost-aware") > 15
    assert "times the grouped array: heap" in printed
    with pytest.raises(SystemExit):
        deadlines.main(["--parts", "none"])
