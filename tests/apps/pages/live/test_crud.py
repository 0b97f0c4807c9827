"""Alert rules are created, changed and deleted in the browser."""

from __future__ import annotations

import pytest

from apps.fleet.models import Cluster
from apps.results.models import AlertRule
from tests.apps.pages.crud import CrudTests
from tests.apps.results.rows import live_query


class TestAlertRules(CrudTests):
    model = AlertRule
    key = {"name": "slow"}
    create_url = "/c/little/queries/probes/live/rules/new/"
    change_url = "/c/little/queries/probes/live/rules/{pk}/"
    delete_url = "/c/little/queries/probes/live/rules/{pk}/delete/"
    valid = {
        "name": "slow",
        "column": "rtt",
        "comparison": "gt",
        "threshold": "20",
        "for_windows": "1",
        "severity": "warning",
        "enabled": "on",
    }
    changed = {"threshold": 30.0}
    invalid = {"threshold": "high"}

    @pytest.fixture(autouse=True)
    def prepare(self, cluster: Cluster) -> None:
        self.cluster = cluster
        live_query(cluster)
