"""Nothing of the epochs or reports of one test is left to the next; rollouts move when the test says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.rollouts import signals
from apps.telemetry.agents import heartbeats
from apps.telemetry.agents.directory import forget_facts
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.ingest import frames
from apps.telemetry.live.pipelines import pipeline_by_digest


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget_facts()
    pipeline_by_digest.cache_clear()
    heartbeats._heard.clear()
    heartbeats._announced.clear()
    frames._known.clear()
    signals._advanced_at.clear()


@pytest.fixture(autouse=True)
def _led_by_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reports would lead rollouts on by the real clock."""
    if "reports_lead" in request.fixturenames:
        yield
        return
    config_acknowledged.disconnect(dispatch_uid="refinement.heard")
    yield
    signals.connect()


@pytest.fixture
def reports_lead() -> None:
    """Reports of agents lead rollouts on, as in the console."""
