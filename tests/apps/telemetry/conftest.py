"""Nothing that one test's process remembers of agents is left to the next."""

from __future__ import annotations

import pytest

from apps.telemetry import frames, heartbeats
from apps.telemetry.directory import forget_facts
from apps.telemetry.pipelines import pipeline_by_digest


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget_facts()
    pipeline_by_digest.cache_clear()
    heartbeats._heard.clear()
    heartbeats._announced.clear()
    frames._known.clear()
