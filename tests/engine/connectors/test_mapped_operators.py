"""Operators mapped to PromQL become a picture and polls; what a query does not tell is left out, and said."""

from __future__ import annotations

import pytest

from engine.connectors.mapped_operators import MappedOperator, mapped_paths, read_mapped
from engine.connectors.statistics import sample_job
from engine.errors import DocumentError
from tests.engine.connectors.test_prometheus import TIMES, WINDOW, matrix, query_of


def test_an_engine_that_is_neither_is_mapped_by_rates_and_costs() -> None:
    operators = [
        MappedOperator("work", 'rate(x_total{stage="a b"}[1m])', reads=("in",), cost="cost", outputs="out", place="w1"),
        MappedOperator("in", "rate(in_total[1m])"),
    ]
    values = {operators[0].rate: 20.0, "cost": 0.01, "out": 5.0, operators[1].rate: 20.0}
    paths = mapped_paths(operators, WINDOW).paths
    answers = {path: matrix(({}, [(t, values[query_of(path)]) for t in TIMES])) for path in paths}
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert [v.id for v in picture.jobs[0].vertices] == ["in", "work"]
    sampled = sample_job(picture.jobs[0], polls, step_s=5.0)
    assert sampled.operators["work"].cost_s == pytest.approx(0.01)
    assert sampled.operators["work"].selectivity == pytest.approx(1.0)  # nobody reads it
    assert sampled.operators["in"].cost_s is None
    assert sampled.arrivals["in"].counts == pytest.approx((100.0,) * 12)


def test_a_mapped_step_without_a_rate_breaks_the_polls_in_two() -> None:
    operators = [MappedOperator("in", "r", cost="c")]
    answers = {
        path: matrix(({}, [(t, 0.01 if query_of(path) == "c" else 20.0) for t in TIMES if t != 1030.0]))
        for path in mapped_paths(operators, WINDOW).paths
    }
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert len({poll.attempt for poll in polls}) == 2
    assert sample_job(picture.jobs[0], polls).operators["in"].cost_s == pytest.approx(0.01)


def test_what_a_prometheus_never_tells_keeps_nothing_else_from_being_counted() -> None:
    operators = [
        MappedOperator("in", "r", cost="c"),
        MappedOperator("no_cost", "r", reads=("in",), cost="none"),
        MappedOperator("no_rate", "none", reads=("in",)),
    ]
    known = {"r": 20.0, "c": 0.01}
    answers = {
        path: matrix(*([({}, [(t, known[query_of(path)]) for t in TIMES])] if query_of(path) in known else []))
        for path in mapped_paths(operators, WINDOW).paths
    }
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert {finding.subject for finding in picture.findings} == {"no_cost", "no_rate"}
    sampled = sample_job(picture.jobs[0], polls).operators
    assert (sampled["in"].cost_s, sampled["no_cost"].cost_s) == (pytest.approx(0.01), None)
    assert (sampled["no_cost"].events, sampled["no_rate"].events) == (1200.0, 0.0)


def test_a_prometheus_that_has_just_begun_is_no_restart() -> None:
    operators = [MappedOperator("in", "r", cost="c")]
    answers = {
        path: matrix(({}, [(t, 0.01 if query_of(path) == "c" else 20.0) for t in TIMES[5:]]))
        for path in mapped_paths(operators, WINDOW).paths
    }
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert len(polls) == 9
    assert "counters_reset" not in {f.code for f in sample_job(picture.jobs[0], polls).operators["in"].findings}


def test_a_mapping_that_reads_what_is_not_there_is_refused() -> None:
    with pytest.raises(DocumentError, match="reads 'x'"):
        read_mapped("shop", [MappedOperator("a", "r", reads=("x",))], {}, WINDOW)


@pytest.mark.parametrize("shift_s", [-2.4, 0.0, 2.4])
def test_answers_beside_the_steps_that_were_asked_for_are_read(shift_s: float) -> None:
    """Servers before a Prometheus answer at multiples of the step, whatever is asked for."""
    operators = [MappedOperator("in", "r", cost="c")]
    answers = {
        path: matrix(({}, [(t + shift_s, 0.01 if query_of(path) == "c" else 20.0) for t in TIMES]))
        for path in mapped_paths(operators, WINDOW).paths
    }
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    sampled = sample_job(picture.jobs[0], polls)
    assert sampled.operators["in"].cost_s == pytest.approx(0.01)
    assert sampled.operators["in"].events == pytest.approx(1200.0)


def test_cost_beyond_the_threads_counts_and_is_told() -> None:
    operators = [MappedOperator("in", "r", cost="c")]
    answers = {
        path: matrix(({}, [(t, 0.1 if query_of(path) == "c" else 20.0) for t in TIMES]))
        for path in mapped_paths(operators, WINDOW).paths
    }
    picture, polls = read_mapped("shop", operators, answers, WINDOW)
    assert sample_job(picture.jobs[0], polls).operators["in"].cost_s == pytest.approx(0.1)
    assert "threads_contradict" in {finding.code for finding in picture.findings}
