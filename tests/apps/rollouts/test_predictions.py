"""Expected savings count an aggregate's rows by the groups of its windows, as the console's pages do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from math import exp

import pytest

from apps.pages.sources.agent_flows import AgentQueryFlow, OperatorFlow
from apps.pages.sources.agent_predictions import RecentLoad
from apps.rollouts.predictions import KnownOperators, predict
from apps.rollouts.proposals import operators_difference
from apps.telemetry.models import SourcePart
from engine.jarvis.refined_config import OperatorPrior
from engine.jarvis.settings import AdaptationSettings
from engine.rollouts.measures import EpochRow

OPERATORS = [
    {"id": "window", "expression": {"op": "window", "size_s": 10}},
    {"id": "stats", "expression": {"op": "aggregate"}},
]
SOURCE = SourcePart.of(OPERATORS)
ROWS = 500 * (1 - exp(-2))  # of a window of 1,000 records that have 500 groups
KNOWN = KnownOperators(
    (
        OperatorPrior(id="window", cost_s=1e-4, relay=1.0, records=10_000),
        OperatorPrior(
            id="stats",
            cost_s=1e-4,
            relay=ROWS / 1000,
            records=10_000,
            group_cost_s=0.0,
            groups=500.0,
            standard_error=0.01,
        ),
    ),
    (80.0, 80.0, 60.0),
    ("window", "aggregate"),
    SOURCE.window_s,
)


def fixed(theta: float) -> AdaptationSettings:
    return AdaptationSettings(method="fixed", load_factors=(1.0, theta))


def epochs() -> list[EpochRow]:
    names = EpochRow.__dataclass_fields__
    zero = dict.fromkeys(names, 0) | {"records_in": 100, "budget_s": 1.0}
    return [EpochRow(**zero)]


def test_half_of_the_records_are_expected_to_send_more_than_half_of_the_rows() -> None:
    all_of_them, half = (predict(KNOWN, fixed(theta), epochs()).bytes_sent for theta in (1.0, 0.5))
    assert all_of_them == pytest.approx(60 * ROWS / 10)
    assert half == pytest.approx(4000 + 60 * 500 * (1 - exp(-1)) / 10)


def test_expected_bytes_are_those_that_the_page_predicts() -> None:
    window = OperatorFlow("window", 100, 100, 0, 100, 8000, 8000, 0, 0.01)
    stats = OperatorFlow("stats", 100, 100, 0, ROWS / 10, 8000, 60 * ROWS / 10, 0, 0.01)
    page = RecentLoad.of(SOURCE, AgentQueryFlow(1, [window, stats], datetime(2026, 1, 1, tzinfo=UTC)))
    assert page is not None
    for theta in (0.1, 0.5, 0.9):
        assert predict(KNOWN, fixed(theta), epochs()).bytes_sent == pytest.approx(page.second([1.0, theta]).bytes_sent)


def test_gain_of_a_proposal_counts_groups() -> None:
    """From half of the records to all: rows grow by a third, not twice."""
    difference = operators_difference(KNOWN, None, running=(1.0, 0.5), budget_s=1.0, n_records=100.0)
    assert difference is not None
    expected = 1 - 60 * ROWS / 10 / (4000 + 60 * 500 * (1 - exp(-1)) / 10)
    assert difference.size == pytest.approx(expected)


def test_aggregate_whose_groups_are_unknown_goes_by_records() -> None:
    unknown = replace(KNOWN, operators=(KNOWN.operators[0], replace(KNOWN.operators[1], groups=None)))
    assert predict(unknown, fixed(0.5), epochs()).bytes_sent == pytest.approx(4000 + 30 * ROWS / 10)


@pytest.mark.parametrize(
    ("operators", "window_s"),
    [
        (OPERATORS, 10.0),
        ([{"id": "w", "expression": {"op": "window", "size_s": 10, "slide_s": 2}}, OPERATORS[1]], 2.0),
        ([OPERATORS[0], {"id": "f", "expression": {"op": "filter"}}], None),
        ([OPERATORS[1]], None),
    ],
)
def test_window_of_an_aggregate_is_found(operators: list[dict[str, object]], window_s: float | None) -> None:
    assert SourcePart.of(operators).window_s == window_s
