"""The simulated source itself: its invariant, its least, the paper's figures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.jarvis.adaptation.control import AdaptationDecision, EpochObservation, EpochState, Phase
from lab.jarvis.simulation import CHANGES, LAWS, QUERIES, WorkloadPhase, min_bytes, simulate, with_window
from tests.engine.jarvis.epochs import adapting


class Given:
    """Load factors at random, and everything that was seen."""

    def __init__(self, operators: int, *factors: float) -> None:
        self._random, self._operators, self._factors = np.random.default_rng(0), operators, factors
        self.seen: list[EpochObservation] = []
        self.load_factors = self._next()

    def _next(self) -> tuple[float, ...]:
        return self._factors or tuple(self._random.random(self._operators).tolist())

    def decide(self, seen: EpochObservation) -> AdaptationDecision:
        self.seen.append(seen)
        self.load_factors = self._next()
        return AdaptationDecision(self.load_factors, Phase.PROBE, EpochState.STABLE, "given", False)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", QUERIES)
def test_processed_drained_and_overflow_sum_to_the_input_at_every_proxy(name, law):
    query, given_controller = QUERIES[name], Given(len(QUERIES[name].operators))
    simulate(query, given_controller, [WorkloadPhase(30, cores) for cores in (0.0, 0.1, 1.0)], 1, law=law)
    for seen in given_controller.seen:
        assert seen.used_s <= seen.budget_s
        for operator in seen.operators:
            assert operator.processed + operator.drained + operator.overflow == operator.records_in
            assert min(operator.processed, operator.drained, operator.overflow) >= 0
            assert operator.groups <= operator.processed


def test_simulated_source_overflows_before_the_first_operator_to_keep_its_budget():
    given_controller = Given(2, 1.0, 1.0)
    simulate(QUERIES["s2s"], given_controller, [WorkloadPhase(5, 0.5)], 0)
    for seen in given_controller.seen:
        assert seen.used_s == pytest.approx(0.5, rel=0.01)
        assert seen.operators[0].overflow > 0
        assert seen.operators[1].overflow == 0


def test_window_emits_once_for_all_its_epochs():
    query, given_controller = with_window(QUERIES["t2t"], 5.0), Given(3, 1.0, 1.0, 1.0)
    simulate(query, given_controller, [WorkloadPhase(20, 2.0)], 0)
    rows = [seen.operators[-1].records_out for seen in given_controller.seen]
    assert [number for number, count in enumerate(rows) if count] == [4, 9, 14, 19]
    assert set(rows[4::5]) == {500}


def test_equal_seeds_give_equal_runs():
    query = QUERIES["log"]
    first, again, other = (
        simulate(query, adapting(query), [WorkloadPhase(20, 0.2)], seed, law="mismatched") for seed in (3, 3, 4)
    )
    assert np.array_equal(first.bytes_sent, again.bytes_sent)
    assert not np.array_equal(first.bytes_sent, other.bytes_sent)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("name", "cores"), list(itertools.product(QUERIES, (0.05, 0.2, 0.5, 0.9))))
def test_no_grid_plan_sends_less_than_the_minimum(name, cores, law):
    query = QUERIES[name]
    least = min_bytes(query, query.records_s, cores, law)
    for factors in itertools.product((0.0, 0.25, 0.5, 0.75, 1.0), repeat=len(query.operators)):
        cpu_s, sent, comes, size = 0.0, 0.0, query.records_s, query.record_bytes
        for operator, p in zip(query.operators, factors, strict=True):
            works = comes * p
            cpu_s += operator.cpu_s(works, law)
            sent += (comes - works) * size
            comes, size = operator.rows(works, 1.0, law), operator.bytes_out
        if cpu_s <= cores:
            assert sent + comes * size >= least * (1 - 1e-9)


@pytest.mark.parametrize(
    ("name", "cores"), [("s2s", 0.93), ("t2t", 1.76), ("log", 0.31)], ids=["13 + 80 %", "13 + 110 + 53 %", "31 %"]
)
def test_simulated_queries_need_the_papers_cores(name, cores):
    query = QUERIES[name]
    everything = min_bytes(query, query.records_s, 10 * cores)
    assert min_bytes(query, query.records_s, cores * 1.001) == pytest.approx(everything)
    assert min_bytes(query, query.records_s, cores * 0.97) > everything * 1.02


def test_each_of_the_six_changes_disturbs_a_stable_run():
    for change in CHANGES:
        query = change.query
        run = simulate(query, adapting(query), change.schedule, 0)
        assert run.stable[change.at - 5 : change.at].all()
        assert not run.stable[change.at]


def test_unsettled_run_reports_no_settling_time():
    run = simulate(QUERIES["s2s"], Given(2, 1.0, 1.0), [WorkloadPhase(10, 0.3)], 0)
    assert run.epochs_to_stable(0) is None
    assert run.congested.all()
