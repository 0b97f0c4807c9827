"""StepWise-Adapt as published, with an end."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.jarvis.adaptation.control import EpochObservation, EpochState, Phase
from lab.jarvis.simulation import CHANGES, QUERIES, WorkloadPhase, simulate
from lab.jarvis.stepwise import DETECT_EPOCHS, STEPWISE_METHODS, RuntimeMachine, _StepSearch
from tests.engine.jarvis.epochs import Meddled, adapting

DETECTED = 4  # epochs: three to detect, one to profile


@pytest.mark.parametrize("change", CHANGES, ids=lambda entry: entry.name)
def test_stepwise_lp_settles_soon_after_profiling(change):
    query = change.query
    run = simulate(query, adapting(query, method="stepwise-lp"), change.schedule, 0)
    assert run.epochs_to_stable(change.at) <= DETECTED + 5


def test_stepwise_without_lp_searches_each_operator():
    change = CHANGES[0]
    query = change.query
    run = simulate(query, adapting(query, method="stepwise"), change.schedule, 0)
    assert DETECTED < run.epochs_to_stable(change.at) <= DETECTED + 2 * math.ceil(math.log2(100))


def test_profiling_epoch_admits_all_records():
    query = QUERIES["s2s"]
    run = simulate(query, adapting(query, method="stepwise-lp"), [WorkloadPhase(10, 0.6)], 0)
    profiled = [decision.phase for decision in run.decisions].index(Phase.PROFILE)
    assert profiled == 3
    assert run.load_factors[profiled + 1].tolist() == [1.0, 1.0]


def test_load_factors_are_whole_levels():
    query = QUERIES["t2t"]
    for method in ("stepwise-lp", "stepwise"):
        run = simulate(query, adapting(query, method=method), [WorkloadPhase(60, 0.6)], 0)
        assert run.load_factors * 100 == pytest.approx((run.load_factors * 100).round())


@pytest.mark.parametrize("method", STEPWISE_METHODS)
@pytest.mark.parametrize("name", QUERIES)
def test_stepwise_ends_under_any_budget(name, method):
    """Moves stop, or become rare as the pauses double."""
    query = QUERIES[name]
    for cores in (0.05, 0.2, 0.6, 1.0):
        run = simulate(query, adapting(query, method=method), [WorkloadPhase(500, cores)], 0, dips=0.02)
        assert run.moved[250:].sum() <= run.moved.sum() / 2 + 40
        assert run.moved.sum() < 200


def test_unsettled_search_holds_the_best_plan_with_a_reason():
    """A profile as misleading as can be: operators cost half as much once it is over."""

    def halved(_: int, seen: EpochObservation) -> EpochObservation:
        profiling = all(operator.load_factor == 1 for operator in seen.operators)
        return seen if profiling else replace(seen, used_s=seen.used_s / 2)

    query = QUERIES["s2s"]
    run = simulate(query, Meddled(adapting(query, method="lp"), halved), [WorkloadPhase(100, 0.5)], 0)
    held = [decision.reason for decision in run.decisions if "best plan seen is held" in decision.reason]
    assert held
    assert "for 8 epochs" in held[0]
    assert any("for 16 epochs" in entry for entry in held)


@pytest.mark.parametrize("most", range(11))
def test_binary_search_finds_the_highest_uncongested_level(most):
    search, steps = _StepSearch(0, 0, 10), 0
    while not search.over:
        search.learn(EpochState.CONGESTED if search.middle > most else EpochState.IDLE)
        steps += 1
    assert search.low == most
    assert steps <= math.ceil(math.log2(11))


def test_published_method_reaches_every_phase():
    query = QUERIES["s2s"]
    controller_ = adapting(query, method="stepwise-lp")
    assert controller_.report()["phase"] == Phase.STARTUP
    run = simulate(query, controller_, [WorkloadPhase(20, 0.6)], 0)
    assert {decision.phase for decision in run.decisions} == {Phase.PROBE, Phase.PROFILE, Phase.ADAPT}


@pytest.mark.parametrize("method", STEPWISE_METHODS)
def test_published_method_runs_nothing_here_without_budget(method):
    query = QUERIES["s2s"]
    phases = [WorkloadPhase(20, 0.6), WorkloadPhase(3, 0.0), WorkloadPhase(20, 0.6)]
    run = simulate(query, adapting(query, method=method), phases, 0)
    assert run.load_factors[19].any() and run.load_factors[-1].any()
    assert not run.load_factors[21:23].any()


def test_machine_reaches_every_phase_and_profiles_after_three_unstable_epochs():
    machine, idle, stable = RuntimeMachine(), EpochState.IDLE, EpochState.STABLE
    assert machine.phase is Phase.STARTUP
    assert [machine.after(idle) for _ in range(DETECT_EPOCHS)] == [Phase.PROBE] * DETECT_EPOCHS
    assert [machine.after(entry) for entry in (idle, stable, idle, idle)] == [
        Phase.PROFILE,
        Phase.ADAPT,
        Phase.ADAPT,
        Phase.ADAPT,
    ]
    assert machine.after(stable) is Phase.PROBE


def test_only_consecutive_unstable_epochs_start_profiling():
    machine = RuntimeMachine()
    states = [EpochState.CONGESTED, EpochState.CONGESTED, EpochState.STABLE] * 5
    assert {machine.after(state) for state in states} == {Phase.PROBE}
