"""Activity of the stream processor from its reports: away, warming up, catching up, at work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.measurements.models import StreamStretch
from apps.measurements.stream_processor import (
    CATCH_UP,
    STRETCHES_KEPT,
    stream_disturbances,
    stream_observe,
    stretches_purge,
)

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def ready(since_s: float, behind_s: float | None = 1.0) -> dict[str, Any]:
    return {"state": "ready", "since": at(since_s).timestamp(), "trigger_s": 2.0, "behind_s": behind_s}


def stretches() -> list[tuple[str, float, float]]:
    rows = StreamStretch.objects.order_by("begins_at", "pk")
    return [(row.work, (row.begins_at - NOW).total_seconds(), (row.ends_at - NOW).total_seconds()) for row in rows]


def test_start_is_warming_up_then_catching_up_then_steady() -> None:
    stream_observe(at(0), {"state": "away"})
    stream_observe(at(10), {"state": "starting"})
    stream_observe(at(20), {"state": "warming"})
    assert stream_observe(at(30), ready(25, behind_s=4.1)) == "catching_up"
    assert stream_observe(at(40), ready(25, behind_s=4.0)) == "steady"
    stream_observe(at(50), ready(25))
    assert stretches() == [
        ("away", 0, 0),
        ("warming", 0, 20),
        ("catching_up", 20, 40),
        ("steady", 40, 50),
    ]


def test_backlog_after_steady_work_is_overload() -> None:
    stream_observe(at(0), ready(-60))
    assert stream_observe(at(10), ready(-60, behind_s=50.0)) == "steady"


def test_lasting_backlog_is_overload() -> None:
    stream_observe(at(0), {"state": "warming"})
    end = 10 + CATCH_UP.total_seconds()
    assert stream_observe(at(end), ready(10, behind_s=99.0)) == "catching_up"
    assert stream_observe(at(end + 1), ready(10, behind_s=99.0)) == "steady"


def test_unknown_backlog_is_not_caught_up() -> None:
    assert stream_observe(at(0), ready(-5, behind_s=None)) == "catching_up"


def test_restart_between_observations_counts_as_away() -> None:
    stream_observe(at(0), ready(-60))
    stream_observe(at(10), ready(-60))
    stream_observe(at(40), ready(30))
    assert stretches()[1:] == [("steady", 0, 10), ("away", 10, 40), ("steady", 40, 40)]
    assert [row.work for row in stream_disturbances(at(5), at(30))] == ["away"]
    assert stream_disturbances(at(40.5), at(50)) == []


def test_first_observation_at_work_includes_the_start() -> None:
    stream_observe(at(0), ready(-60))
    assert stretches() == [("warming", -60, 0), ("steady", 0, 0)]


def test_missing_observations_are_no_disturbance() -> None:
    """The same start tells that it ran all the time."""
    stream_observe(at(0), ready(-60))
    stream_observe(at(3600), ready(-60))
    assert stretches()[-1] == ("steady", 0, 3600)


def test_old_states_are_purged() -> None:
    stream_observe(at(0), {"state": "away"})
    stream_observe(at(10), {"state": "warming"})
    assert stretches_purge(at(5) + STRETCHES_KEPT) == 1 and [work for work, _, _ in stretches()] == ["warming"]
