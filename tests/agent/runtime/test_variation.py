"""Variation of costs and arrivals at an agent: sums of runs and of steps, and those that counters carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from agent.runtime.intake import Intake, StepCounts
from agent.runtime.query.control_proxy import RunCosts
from agent.wire import ARRIVAL_SUMS, COST_SUMS, Frame, FrameKind, decode_frames, table_of, variation_columns
from engine.jarvis.settings import AdaptationSettings
from engine.measurement.variation import (
    CostSums,
    CountSums,
    add_counts,
    arrivals_dispersion,
    cost_dispersion,
    measure_arrivals,
    step_counts,
)
from tests.agent.runtime.doubles import SECOND_US, TableSource
from tests.agent.runtime.hosts import PIPELINE, QUERY, Host
from tests.agent.runtime.pipelines import probe_records, probes_pipeline

POLL_US = 100_000


def counts_of(steps: StepCounts) -> dict[str, CountSums]:
    """By scale."""
    told = steps.take() or [0.0] * len(ARRIVAL_SUMS)
    return dict(zip(("fine", "second", "slow"), step_counts(told), strict=True))


def polled(records: Sequence[float], *, late_us: Sequence[int] | None = None) -> dict[str, CountSums]:
    """Sums of polls every tenth of a second, or later by so much, that give so many records."""
    steps, late = StepCounts(), late_us if late_us is not None else [0] * len(records)
    for i, (count, by) in enumerate(zip(records, late, strict=True)):
        steps.count(SECOND_US + POLL_US * i + by, int(count), emptied=True)
    return counts_of(steps)


def test_first_runs_of_an_operator_are_left_out() -> None:
    runs = RunCosts()
    for _ in range(8):
        runs.add(10, 1_000_000_000)
    assert runs.take() == []
    runs.add(100, 2_000_000)
    runs.add(300, 4_000_000)
    assert runs.take() == pytest.approx([2, 400, 0.006, 100_000, 1.4, 2e-5])
    assert runs.take() == []


@pytest.mark.parametrize(("clump", "scale", "step_s"), [(1, "fine", 0.2), (1, "second", 1.0), (6, "fine", 0.2)])
def test_steps_tell_the_dispersion_of_what_came(clump: int, scale: str, step_s: float) -> None:
    records = clump * np.random.default_rng(1).poisson(20, 20_000)
    found = arrivals_dispersion([polled(records)[scale]])
    assert found is not None
    assert found.value == pytest.approx(clump, rel=0.15)
    assert found.scale == pytest.approx(step_s, rel=0.01)


def test_polls_that_come_late_are_no_bursts() -> None:
    rng = np.random.default_rng(2)
    late_us = rng.integers(0, 30_000, 20_001)
    seconds = (POLL_US + np.diff(late_us)) / SECOND_US
    found = polled([0, *rng.poisson(50_000 * seconds)], late_us=late_us.tolist())
    # Of 10,000 records in a step, 15 % of jitter would be a dispersion of hundreds.
    dispersion = arrivals_dispersion([found["fine"]])
    assert dispersion is not None and dispersion.value == pytest.approx(1.0, abs=0.1)


def test_no_pair_reaches_over_a_poll_that_left_something_or_over_a_pause() -> None:
    steps = StepCounts()
    for i in range(4):
        steps.count(POLL_US * i, 10, emptied=True)  # two steps of 0.2 s less the first poll
    steps.count(POLL_US * 4, 10, emptied=False)
    steps.count(POLL_US * 5, 500, emptied=True)  # what was left came with it
    assert counts_of(steps)["fine"].pairs == 0
    for i in range(6, 10):
        steps.count(POLL_US * i, 10, emptied=True)
    assert counts_of(steps)["fine"] == CountSums(1.0, 0.0, 100.0, 0.2)
    steps.count(POLL_US * 90, 10, emptied=True)
    for i in range(91, 93):
        steps.count(POLL_US * i, 10, emptied=True)
    assert counts_of(steps)["fine"].pairs == 0


def test_polls_rarer_than_a_step_tell_nothing_of_it() -> None:
    steps = StepCounts()
    for i in range(100):
        steps.count(SECOND_US * i, 10, emptied=True)
    found = counts_of(steps)
    assert (found["fine"].pairs, found["second"].pairs, found["slow"].pairs) == (0, 98, 18)


def test_polls_of_a_source_that_gives_all_it_is_asked_for_are_not_counted() -> None:
    records = probe_records(probes_pipeline(), 20_000)
    intake = Intake("probes", TableSource(records, [10]))
    for i in range(40):
        assert intake.poll(POLL_US * i, 1e9) is not None
    assert counts_of(intake.steps)["fine"].pairs > 0
    for i in range(40, 80):
        intake.poll(POLL_US * i, 0.0)
    assert counts_of(intake.steps)["fine"].pairs == 0


class RandomCosts(dict[str, float]):
    """Costs of a record that differ from run to run by a tenth."""

    def __getitem__(self, name: str) -> float:
        factor = self.rng.normal(1.0, 0.1)
        return super().__getitem__(name) * max(factor, 0.1)

    rng = np.random.default_rng(4)


def frames_of(host: Host, epochs: int) -> list[Frame]:
    """The COUNTERS frames of so many epochs."""
    found: list[Frame] = []
    take = host.reference.take

    def keep(data: Any) -> None:
        found.extend(frame for frame, _ in decode_frames(data) if frame.kind is FrameKind.COUNTERS)
        take(data)

    host.reference.take = keep  # type: ignore[method-assign]
    host.epochs(epochs)
    return found


def fixed(*load_factors: float) -> AdaptationSettings:
    return AdaptationSettings(method="fixed", load_factors=load_factors)


def test_counters_carry_sums_from_which_the_costs_variation_comes_back(tmp_path: Any) -> None:
    host = Host(tmp_path, rate_per_s=2000, cores=0.9, settings=fixed(1, 1, 1, 1))
    host.costs_us = RandomCosts(host.costs_us)
    by_operator: dict[str, list[CostSums]] = {}
    steps: list[list[CountSums]] = []
    for frame in frames_of(host, 40):
        rows = table_of(frame.body).to_pylist()
        columns = variation_columns(frame.extra, len(rows))
        for i, row in enumerate(rows):
            sums = CostSums(*(columns[name][i] for name in COST_SUMS))
            assert sums.n <= row["records_processed"]
            assert sums.t <= row["cpu_ns"] / 1e9 + 1e-9
            by_operator.setdefault(row["operator"], []).append(sums)
            steps.append(step_counts([columns[name][i] for name in ARRIVAL_SUMS]))
    for operator in ("ok", "tors", "stats"):
        found = cost_dispersion(by_operator[operator])
        assert found is not None and found.count > 200
        assert found.value / found.scale == pytest.approx(0.01, rel=0.4)
    arrivals = measure_arrivals({"here": [add_counts(parts) for parts in zip(*steps, strict=True)]}, 0.25)
    assert arrivals is not None
    assert arrivals.value == pytest.approx(0.0, abs=0.2), "as many records in every step"


def test_an_agent_at_rest_says_nothing_of_variation(tmp_path: Any) -> None:
    host = Host(tmp_path, rate_per_s=0, settings=fixed(1, 1, 1, 1))
    frames = frames_of(host, 3)
    assert frames and all(not any(variation_columns(frame.extra, 4)["runs"]) for frame in frames)


def test_variation_goes_with_the_first_operators_of_all_queries(tmp_path: Any) -> None:
    host = Host(tmp_path, rate_per_s=500, settings=fixed(1, 1, 1, 1), pipelines=(PIPELINE, PIPELINE))
    frame = frames_of(host, 30)[-1]
    rows = table_of(frame.body).to_pylist()
    columns = variation_columns(frame.extra, len(rows))
    told = [row["entry"] for i, row in enumerate(rows) if columns["fine_pairs"][i]]
    assert told == [0, 0]
    assert {row["query"] for row in rows} == {QUERY, f"{QUERY}-1"}
