"""Bytes predicted for other load factors follow the groups of a window, not records."""

from __future__ import annotations

from datetime import UTC, datetime
from math import exp

import pytest

from apps.pages.sources.agent_flows import AgentQueryFlow, OperatorFlow
from apps.pages.sources.agent_predictions import RecentLoad
from apps.telemetry.models import SourcePart

OPERATORS = SourcePart(("window", "stats"), ("window", "aggregate"), 10.0)


def flow(rows_s: float) -> AgentQueryFlow:
    """100 records/s of 80 bytes, all processed; the aggregate puts out so many rows of 60 bytes."""
    window = OperatorFlow("window", 100, 100, 0, 100, 8000, 8000, 0, 0.01)
    stats = OperatorFlow("stats", 100, 100, 0, rows_s, 8000, 60 * rows_s, 0, 0.01)
    return AgentQueryFlow(1, [window, stats], datetime(2026, 1, 1, tzinfo=UTC))


def test_half_of_the_records_send_more_than_half_of_the_rows():
    window_rows = 500 * (1 - exp(-1000 / 500))
    load = RecentLoad.of(OPERATORS, flow(window_rows / 10))
    assert load is not None
    assert load.second([1.0, 1.0]).bytes_sent == pytest.approx(60 * window_rows / 10)
    assert load.second([1.0, 0.5]).bytes_sent == pytest.approx(4000 + 60 * 500 * (1 - exp(-1)) / 10)


@pytest.mark.parametrize("rows_s", [0, 150])
def test_rows_without_groups_to_learn_from_go_by_records(rows_s):
    load = RecentLoad.of(OPERATORS, flow(rows_s))
    assert load is not None
    assert load.chain.partials is None
    assert load.second([1.0, 0.5]).bytes_sent == pytest.approx(4000 + 30 * rows_s)
