"""What was set before there was a choice of how load factors are found stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.databases import django_on

BEFORE, AFTER = "0003_when_a_plan_was_used", "0004_how_load_factors_are_found"
PIPELINE: dict[str, Any] = {"plan": "0" * 64, "pipeline": {}, "source_operators": 2}


def migrated(name: str) -> Callable[[str, str], Any]:
    """Move the tables of telemetry there; returns how to look up models as they are then."""
    executor = MigrationExecutor(connection)
    executor.migrate([("telemetry", name)])
    return MigrationExecutor(connection).loader.project_state([("telemetry", name)]).apps.get_model


def _load_factors_stay() -> None:
    model = migrated(BEFORE)
    cluster = model("fleet", "Cluster").objects.create(slug="c", name="C", subinterval_s=1.0, horizon_s=60.0)
    query = model("queries", "Query").objects.create(cluster=cluster, name="q")
    version = model("queries", "QueryVersion").objects.create(query=query, number=1)
    source = model("telemetry", "TelemetrySource").objects.create(cluster=cluster, source_id="s", kind="x", time="ts")
    live = model("telemetry", "LiveQuery").objects.create(query=query, version=version, source=source, **PIPELINE)
    for name, factors in (("a", [1.0, 0.5]), ("b", [])):
        agent = model("telemetry", "Agent").objects.create(cluster=cluster, name=name)
        model("telemetry", "Assignment").objects.create(live=live, agent=agent, load_factors=factors)
    parts = migrated(AFTER)("telemetry", "Assignment").objects.order_by("agent__name")
    assert [part.settings for part in parts] == [{"method": "fixed", "load_factors": [1.0, 0.5]}, {}]
    parts = migrated(BEFORE)("telemetry", "Assignment").objects.order_by("agent__name")
    assert [part.load_factors for part in parts] == [[1.0, 0.5], []]


def test_on_sqlite(tmp_path: Path, django_db_blocker: Any) -> None:
    with django_db_blocker.unblock(), django_on(f"sqlite:///{tmp_path / 'old.sqlite3'}"):
        _load_factors_stay()


@pytest.mark.postgres
def test_on_postgres(postgres_url: str, django_db_blocker: Any) -> None:
    with django_db_blocker.unblock(), django_on(postgres_url):
        _load_factors_stay()
