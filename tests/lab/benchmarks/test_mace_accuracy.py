"""The accuracy benchmark: data, learning, comparison."""

import numpy as np
import pytest

from engine.estimation.flow import flow
from engine.estimation.mace import mace
from lab.benchmarks.mace_accuracy import main
from lab.benchmarks.workloads import BATCHES, build, run, with_sampled_statistics


@pytest.fixture(scope="module")
def system():
    return build(queries=3, nodes=5, seed=1)


@pytest.fixture(scope="module")
def simulation(system):
    return run(system)


def test_systems_are_those_of_section_8(system, simulation):
    load = mace(system.deployment).load.sum(axis=1) / 200.0 / system.deployment.nodes[0].capacity_cps
    assert load.max() == pytest.approx(0.75)
    assert simulation.source_events == pytest.approx(75_000, rel=0.02)
    assert len(system.deployment.operators) == 42 and system.deployment.subinterval_s == 0.25


def test_statistics_are_learned_in_batches_near_the_true_ones(system, simulation):
    trained = with_sampled_statistics(system.deployment, simulation.sampled)
    pairs = [
        (true, result)
        for operator, other in zip(system.deployment.operators, trained.operators, strict=True)
        for true, result in zip(operator.inputs, other.inputs, strict=True)
    ]
    assert all(len(result.batches) == BATCHES for _, result in pairs)
    for true, result in pairs:
        seen = sum(batch.events for batch in result.batches)
        assert result.cycles_per_event == pytest.approx(true.cycles_per_event, rel=5 * 0.5 / np.sqrt(seen))
        assert result.selectivity == pytest.approx(true.selectivity, abs=5 * 0.5 / np.sqrt(seen))


def test_flow_by_input_is_within_3_percent(system, simulation):
    assert flow(system.deployment, by_input=True).wc == pytest.approx(simulation.worst_s, rel=0.03)


def test_flow_by_input_is_closer_where_an_input_is_delayed():
    late = build(queries=3, nodes=9, seed=5)
    worst_s = run(late).worst_s
    assert flow(late.deployment).wc < 0.85 * worst_s
    assert flow(late.deployment, by_input=True).wc == pytest.approx(worst_s, rel=0.03)


def test_too_few_systems_are_printed_but_not_judged(capsys):
    assert main(["--runs", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("too few systems to judge") == 5
    assert "MISSED" not in printed
