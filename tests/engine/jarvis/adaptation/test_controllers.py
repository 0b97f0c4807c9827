"""Properties of every method's controller."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.jarvis.adaptation.control import EpochObservation, EpochState, OperatorEpoch, Phase, SourceOperator
from engine.jarvis.adaptation.controllers import make_controller
from engine.jarvis.refined_config import RefinedAdaptation
from engine.jarvis.settings import METHODS, AdaptationSettings
from lab.jarvis.simulation import QUERIES, WorkloadPhase, simulate
from tests.engine.jarvis.epochs import Meddled, adapting, crashed, epoch, worked
from tests.engine.jarvis.refined_documents import document

OPERATORS = (
    SourceOperator("errors", "filter"),
    SourceOperator("pairs", "aggregate", stateful=True, window_s=3.0),
)
ADAPTING = ("scalar", "best-op")
NOTHING = OperatorEpoch(0.0, *(0,) * 9, 0.0)

counts = st.integers(-5, 10**9) | st.sampled_from([0, 29, 30, 1_000])
seconds = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1e3) | st.sampled_from([0.0, -1.0, 1e-12])
operators = st.builds(
    OperatorEpoch, st.floats(0, 1), counts, counts, counts, counts, counts, counts, counts, counts, counts, seconds
)
observations = st.builds(
    EpochObservation,
    st.integers(-(10**12), 10**18),
    seconds,
    st.lists(operators, min_size=0, max_size=3).map(tuple) | st.tuples(operators, operators),
    seconds,
    seconds,
)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40, deadline=None)
@given(seen=st.lists(observations, max_size=20), prior=st.booleans())
def test_controller_accepts_odd_observations(method, seen, prior):
    """Load factors stay M shares of one, a reason is given, nothing is raised."""
    controller_ = make_controller(
        AdaptationSettings(method=method), OPERATORS, RefinedAdaptation.parse(document()) if prior else None
    )
    for entry in seen:
        decision = controller_.decide(entry)
        assert decision.load_factors == controller_.load_factors
        assert len(decision.load_factors) == 2
        assert all(0 <= p <= 1 for p in decision.load_factors)
        assert decision.reason
        assert decision.phase in Phase
        assert decision.state in EpochState
    assert len(controller_.report()["changes"]) <= 10


@pytest.mark.parametrize("method", ADAPTING)
def test_budget_below_clock_resolution_counts_as_zero(method):
    controller_ = make_controller(AdaptationSettings(method=method), OPERATORS, RefinedAdaptation.parse(document()))
    for budget_s in (1.0, 5e-324):
        decision = controller_.decide(epoch(worked(1_000), worked(1_000, groups=10), budget_s=budget_s))
    assert decision.load_factors == (0.0, 0.0)
    assert decision.reason.startswith("no CPU time is granted")


@pytest.mark.parametrize("method", METHODS)
def test_controller_without_runnable_operators_drains_everything(method):
    decision = make_controller(AdaptationSettings(method=method), (), None).decide(
        EpochObservation(0, 1.0, (), 0.5, 0.0)
    )
    assert decision.load_factors == ()


@pytest.mark.parametrize("method", ADAPTING)
def test_controller_without_prior_begins_at_the_stream_processor(method):
    assert make_controller(AdaptationSettings(method=method), OPERATORS, None).load_factors == (0.0, 0.0)


@pytest.mark.parametrize(
    ("given", "factors"),
    [
        ({"method": "all-sp"}, (0, 0)),
        ({"method": "all-src"}, (1, 1)),
        ({"method": "filter-src"}, (1, 0)),
        ({"method": "fixed", "load_factors": (0.5, 0.25)}, (0.5, 0.25)),
        ({"method": "fixed", "load_factors": (0.5,)}, (0.5, 0)),
        ({"method": "fixed", "load_factors": (0.5, 0.2, 0.1)}, (0.5, 0.2)),
    ],
)
def test_static_methods_keep_their_load_factors(given, factors):
    controller_ = make_controller(AdaptationSettings(**given), OPERATORS, None)
    decision = controller_.decide(epoch(worked(1_000, overflow=1_000, records_in=2_000), NOTHING))
    assert decision.load_factors == factors
    assert decision.state is EpochState.CONGESTED
    assert not decision.moved


@pytest.mark.parametrize("method", ADAPTING)
def test_zero_budget_sends_everything_to_the_stream_processor_next_epoch(method):
    query = QUERIES["s2s"]
    run = simulate(
        query,
        adapting(query, method=method),
        [WorkloadPhase(20, 0.6), WorkloadPhase(3, 0.0), WorkloadPhase(20, 0.6)],
        0,
    )
    assert run.load_factors[19].any()
    assert not run.load_factors[21:23].any()
    assert "no CPU time" in run.decisions[21].reason
    assert run.load_factors[-1].any()


@pytest.mark.parametrize(
    ("name", "cores", "factors"),
    [("s2s", 0.10, [0, 0]), ("s2s", 0.60, [1, 0]), ("s2s", 1.00, [1, 1]), ("log", 0.20, [1, 1, 0, 0])],
)
def test_best_op_runs_whole_operators_that_fit(name, cores, factors):
    query = QUERIES[name]
    run = simulate(query, adapting(query, method="best-op"), [WorkloadPhase(60, cores)], 0)
    assert run.load_factors[-1].tolist() == factors
    assert not run.moved[20:].any()


class TestPrior:
    REFINED = RefinedAdaptation.parse(document())

    def test_controller_begins_from_the_priors_plan(self):
        assert make_controller(AdaptationSettings(), OPERATORS, self.REFINED).load_factors == (1.0, 0.8)

    def test_controller_does_not_retry_operators_known_from_the_prior(self):
        controller_ = make_controller(AdaptationSettings(), OPERATORS, self.REFINED)
        decision = controller_.decide(epoch(replace(NOTHING, records_in=10_000, drained=10_000), NOTHING))
        assert decision.phase is not Phase.PROFILE


class TestAdopting:
    def test_learned_costs_outlive_a_change_of_method(self):
        query = QUERIES["s2s"]
        controller_ = adapting(query)
        simulate(query, controller_, [WorkloadPhase(10, 0.6)], 0)
        controller_.adopt(AdaptationSettings(method="all-sp"), None)
        assert controller_.load_factors == (0.0, 0.0)
        controller_.adopt(AdaptationSettings(), None)
        run = simulate(query, controller_, [WorkloadPhase(4, 0.6)], 0)
        assert run.epochs_to_stable(0) == 1

    def test_changed_parameters_alone_do_not_move_the_plan(self):
        query = QUERIES["s2s"]
        controller_ = adapting(query)
        simulate(query, controller_, [WorkloadPhase(10, 0.6)], 0)
        before = controller_.load_factors
        controller_.adopt(AdaptationSettings(margin=0.96), None)
        assert controller_.load_factors == before


def test_report_lists_each_finished_change_once():
    query = QUERIES["s2s"]
    controller_ = adapting(query)
    simulate(query, controller_, [WorkloadPhase(20, 0.9), WorkloadPhase(20, 0.6)], 0)
    report = controller_.report()
    change = report["changes"][-1]
    assert report["phase"] == "probe"
    assert report["state"] == "stable"
    assert report["stable_epochs"] >= 15
    assert report["z"] == pytest.approx(1, abs=0.1)
    assert change["epoch_us"] == 20_000_000
    assert change["epochs"] == 1
    assert change["bytes_after"] > change["bytes_before"] > 0
    assert change["from"] != change["to"] == list(controller_.load_factors)
    assert "overflowed" in change["why"]
    assert "lowered from" in change["why"]


def test_failing_operator_is_retried_after_growing_pauses():
    query = QUERIES["t2t"]
    meddled = Meddled(adapting(query), lambda number, seen: crashed(seen, 1) if 10 <= number < 60 else seen)
    run = simulate(query, meddled, [WorkloadPhase(110, 0.6)], 0)
    tried = [number for number in range(10, 80) if run.load_factors[number][1] > 0]
    assert tried[:5] == [10, 11, 12, 21, 38]  # watched for three epochs, then pauses of 8 and 16 epochs, then 32
    assert not run.load_factors[13:21, 1:].any()
    assert run.load_factors[20, 0] == 1.0  # what is before it goes on
    assert "join left all of its records" in run.decisions[10].reason
    assert "tried again in" in run.decisions[14].reason
    assert run.load_factors[-1][1] == pytest.approx(run.load_factors[9][1], rel=0.1)


def test_minutes_without_records_change_nothing():
    query = QUERIES["t2t"]
    run = simulate(
        query,
        adapting(query),
        [WorkloadPhase(10, 0.6), WorkloadPhase(200, 0.6, records_s=0.0), WorkloadPhase(5, 0.6)],
        0,
    )
    assert not run.moved[11:].any()
    assert run.stable[210:].all()
    assert "no records" in run.decisions[100].reason
