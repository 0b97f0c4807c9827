"""Promises in a provisioning report: counted by verdict, with those that did not hold, in each rendering."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from zipfile import ZipFile

import pytest
from django.utils import timezone

from apps.admission.models import Promise, Receipt
from apps.fleet.models import Cluster
from apps.reports.lifecycle import REPORT, report_file
from apps.reports.models import Report
from apps.reports.services import definition_create

pytestmark = pytest.mark.django_db


@pytest.fixture
def write_promises(cluster: Cluster, write: Callable[[Report], Report]) -> Callable[[], Report]:
    """Write a report of this section alone."""
    parameters = {"sections": ["promises"]}
    definition = definition_create(cluster=cluster, kind="provisioning", name="Promises", parameters=parameters)
    return lambda: write(REPORT.request(definition=definition)[0])


def came_back(cluster: Cluster, outcome: str, measured_s: float | None, days_ago: float) -> None:
    due_at = timezone.now() - timedelta(days=days_ago)
    promise = Promise.objects.create(
        cluster=cluster,
        query_name="calm",
        version=1,
        verdict="admit",
        model="flow",
        evidence="measured",
        statistic="worst",
        bound_s=1.0,
        promised_s=0.32,
        low_s=0.2,
        high_s=0.9,
        state="holds",
        decided_at=due_at - timedelta(hours=1),
    )
    held = None if measured_s is None else outcome == "held"
    Receipt.objects.create(
        promise=promise,
        span="hour",
        due_at=due_at,
        outcome=outcome,
        measured_s=measured_s,
        interval_held=held,
        is_wrong=outcome == "missed",
    )


def test_section_counts_what_came_back_in_its_time(cluster: Cluster, write_promises: Callable[[], Report]) -> None:
    for outcome, measured_s, days in (("held", 0.41, 1), ("missed", 1.5, 2), ("not_known", None, 3), ("held", 0.4, 9)):
        came_back(cluster, outcome, measured_s, days)
    report = write_promises()
    facts = report.result["promises"]
    assert {name: facts["total"][name] for name in ("receipts", "held", "missed", "not_known", "wrong")} == {
        "receipts": 3,
        "held": 1,
        "missed": 1,
        "not_known": 1,
        "wrong": 1,
    }
    assert [(row["query"], row["measured_s"], row["span"]) for row in facts["failed"]] == [("calm", 1.5, "an hour")]
    said = "1 of 2 receipts kept the objective, 1 of 2 intervals held; of 1 more nothing is known."
    html = (report_file(report, "html") or b"").decode()
    assert said in html and "Objective missed" in html
    with ZipFile(BytesIO(report_file(report, "csv") or b"")) as tables:
        (name,) = [name for name in tables.namelist() if "failed_promises" in name]
        assert "calm" in tables.read(name).decode()


def test_section_without_a_decision_says_so(write_promises: Callable[[], Report]) -> None:
    assert b"No decision came back" in (report_file(write_promises(), "html") or b"")
