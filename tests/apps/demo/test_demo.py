"""The demo: every verdict and every state of an objective can be seen, and seeding twice adds nothing."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.estimates.models import EstimateRun
from apps.estimates.selectors import run_latest, run_staleness
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.planning.placements import placement_standing
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query
from tests.apps.demo.command import seed

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def counted() -> list[int]:
    return [model.objects.count() for model in (Query, AdmissionRequest, EstimateRun, Job)]


def test_demo_shows_every_verdict(demo: str) -> None:
    assert "sluice-demo" in demo
    verdicts = dict(AdmissionRequest.objects.order_by("created_at").values_list("query__name", "verdict"))
    assert verdicts == {
        "delivery-eta": Verdict.ADMIT,
        "voucher-abuse": Verdict.ADMIT_WITH_CHANGES,
        "churn-score": Verdict.REVIEW,
        "settlement-check": Verdict.QUEUE,
        "basket-affinity": Verdict.REJECT,
    }
    states = set(AdmissionRequest.objects.values_list("state", flat=True))
    assert states == {AdmissionState.APPLIED, AdmissionState.PREVIEW, AdmissionState.QUEUED}
    rejected = AdmissionRequest.objects.get(query__name="basket-affinity")
    assert len(rejected.result["choices"]) >= 2
    cluster = Cluster.objects.get(slug="eu-1")
    run = run_latest(cluster)
    assert run is not None
    assert not run_staleness(run).is_stale
    found = dict(run.queries.values_list("query__name", "state"))
    assert [name for name, state in found.items() if state == ObjectiveState.BREACHED] == ["geo-fence-alerts"]
    assert [name for name, state in found.items() if state == ObjectiveState.AT_RISK] == ["fraud-rules"]
    assert sum(state == ObjectiveState.HOLDS for state in found.values()) == 7
    assert cluster.nodes.count() == 12
    proposal = cluster.placement_runs.get()
    assert placement_standing(proposal).can_apply
    assert proposal.facts["moves"] > 0
    backtest = cluster.backtests.get()
    assert (backtest.state, backtest.facts["asked"]) == ("answered", 5)
    assert backtest.facts["segments"] in {167, 168}  # hours of a week; one less where an hour began meanwhile
    assert not Query.objects.filter(cluster__slug="eu-2").exists()
    for name in ("demo", "viewer"):
        person = authenticate(username=name, password="sluice-demo")
        assert person is not None
        assert person.time_zone == "Europe/Berlin"


def test_seeding_twice_adds_nothing(demo: str) -> None:
    before = counted()
    seed()
    assert counted() == before
