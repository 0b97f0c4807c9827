"""Nothing of the epochs or reports of one test is left to the next; rollouts move when the test says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.rollouts import rollout_services
from apps.telemetry import frames, heartbeats
from apps.telemetry.configs import config_acknowledged
from apps.telemetry.directory import forget_facts
from apps.telemetry.pipelines import pipeline_by_digest


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget_facts()
    pipeline_by_digest.cache_clear()
    heartbeats._heard.clear()
    heartbeats._announced.clear()
    frames._known.clear()
    rollout_services._advanced_at.clear()


@pytest.fixture(autouse=True)
def _led_by_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reports would lead rollouts on by the real clock."""
    if "reports_lead" in request.fixturenames:
        yield
        return
    config_acknowledged.disconnect(dispatch_uid="refinement.heard")
    yield
    config_acknowledged.connect(rollout_services.advance_acknowledged, dispatch_uid="refinement.heard")


@pytest.fixture
def reports_lead() -> None:
    """Reports of agents lead rollouts on, as in the console."""
