"""Patterns and scores of the benchmark on a real Flink; its runs need one, and are no test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.__main__ import main
from lab.benchmarks.flink.patterns import CALM_S, PATTERNS
from lab.benchmarks.flink.prediction import Score

SCORE = Score("burst", 1, "worst", estimate_s=9.0, low_s=8.0, high_s=11.0, measured_s=10.0, under_s=12.0)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_begins_and_ends_calm(name: str) -> None:
    rates = PATTERNS[name].means
    assert set(rates[:CALM_S]) == {rates[-1]}


def test_arrivals_of_a_seed_are_the_same_each_time() -> None:
    assert PATTERNS["burst"].arrivals(1) == PATTERNS["burst"].arrivals(1) != PATTERNS["burst"].arrivals(2)


def test_score_tells_error_and_whether_its_words_held() -> None:
    assert SCORE.error == pytest.approx(-0.1)
    assert SCORE.is_held and not SCORE.is_false_under
    late = replace(SCORE, measured_s=13.0)
    assert not late.is_held and late.is_false_under


def test_unknown_pattern_is_named_with_those_that_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flink", "--patterns", "storm"]) == 2
    assert "patterns are storm; allowed: calm, burst" in capsys.readouterr().err
