"""`/metrics`: what is known of the whole console, bounded, guarded, and in the formats that Prometheus reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from apps.accounts.models import User
from apps.estimates.models import QueryEstimate
from apps.estimates.objectives import objectives_refresh
from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.incidents.models import Incident
from apps.jobs.models import Job, JobKind
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db

OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"}


@pytest.fixture
def cluster(db: None) -> Cluster:
    return estimated("little")


@pytest.fixture(autouse=True)
def _known_network(settings: Any) -> None:
    settings.METRICS_NETWORKS = ["127.0.0.0/8"]


def estimated(slug: str, queries: int = 2) -> Cluster:
    """A cluster with queries that hold, and one that cannot."""
    cluster = small_cluster(slug)
    for number in range(queries):
        start_query(cluster, f"holds-{number}", 0.1, "a", bound_s=15.0)
    start_query(cluster, "late", 0.4, "b", bound_s=0.001)
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    objectives_refresh(cluster, now=timezone.now())
    return cluster


def scraped(client: Client) -> dict[tuple[str, ...], float]:
    """Samples by name and values of labels, in the order of their names."""
    answer = client.get("/metrics", headers=OPENMETRICS)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(answer.content.decode())
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
    }


def test_scrape_tells_estimate_objective_and_state_of_every_query(cluster: Cluster, client: Client) -> None:
    found = scraped(client)
    row = QueryEstimate.objects.get(query__name="holds-0")
    labels = ("little", "holds-0")
    assert found["sluice_query_estimate_seconds", *labels] == pytest.approx(row.estimate_s)
    assert found["sluice_query_estimate_high_seconds", *labels] == pytest.approx(row.high_s)
    assert found["sluice_query_objective_seconds", *labels, "worst"] == 15.0
    assert found["sluice_query_headroom_ratio", *labels] == pytest.approx(1 - row.estimate_s / 15.0)
    assert found["sluice_query_objective_state", "little", "estimate", "holds-0", "holds"] == 1.0
    assert found["sluice_query_headroom_seconds", "little", "late"] < 0
    assert found["sluice_objectives", "little", "breached"] == 1.0
    assert found["sluice_queries", "little", "running"] == 3.0
    assert found["sluice_node_estimated_mean_load_ratio", "little", "a"] == pytest.approx(0.2)
    assert found["sluice_healthy", "database"] == 1.0
    assert found["sluice_jobs_finished", "estimate_cluster", "succeeded"] == 1.0


def test_age_of_a_queue_is_that_of_its_oldest_job(cluster: Cluster, client: Client, admin_user: User) -> None:
    assert scraped(client)["sluice_queue_age_seconds", "interactive"] == 0.0
    for age_s, user in ((40, admin_user), (90, admin_user), (500, None)):
        since = timezone.now() - timedelta(seconds=age_s)
        Job.objects.create(kind=JobKind.ESTIMATE, cluster=cluster, requested_by=user, created_at=since)
    found = scraped(client)
    assert found["sluice_queue_age_seconds", "interactive"] == pytest.approx(90.0, abs=30.0)
    assert found["sluice_queue_age_seconds", "background"] == pytest.approx(500.0, abs=30.0)


def test_what_is_not_known_is_missing_and_never_zero(cluster: Cluster, client: Client) -> None:
    QueryEstimate.objects.filter(query__name="holds-0").update(certainty="unknown")
    found = scraped(client)
    assert ("sluice_query_estimate_seconds", "little", "holds-0") not in found
    assert found["sluice_query_estimate_missing", "little", "holds-0", "unknown"] == 1.0
    assert not any(key[0] == "sluice_query_measured_seconds" for key in found), "nothing was measured"
    assert not any(key[0] == "sluice_accuracy_coverage_ratio" for key in found)


def test_scrape_lists_the_least_headroom_and_counts_the_rest(cluster: Cluster, client: Client, settings: Any) -> None:
    settings.METRICS_LISTED = 1
    found = scraped(client)
    assert [key[1:] for key in found if key[0] == "sluice_query_estimate_seconds"] == [("little", "late")]
    assert found["sluice_scrape_left_out", "queries"] == 2.0
    assert found["sluice_scrape_left_out", "nodes"] == 1.0
    assert found["sluice_objectives", "little", "holds"] == 2.0, "counts have all"


def test_scrape_of_more_takes_no_more_statements(cluster: Cluster, client: Client) -> None:
    scraped(client)
    with CaptureQueriesContext(connection) as few:
        scraped(client)
    more = estimated("more", queries=5)
    Incident.objects.create(
        cluster=more, cause_kind="node_busy", severity="warning", opened_at=timezone.now(), last_late_at=timezone.now()
    )
    with CaptureQueriesContext(connection) as many:
        found = scraped(client)
    assert len(many) == len(few), [query["sql"][:80] for query in many]
    assert found["sluice_incidents_open", "no", "node_busy", "more", "warning"] == 1.0
    assert not any(query["sql"].startswith(("INSERT", "UPDATE", "DELETE")) for query in many.captured_queries)


def test_scrape_needs_a_token_or_a_listed_network(cluster: Cluster, settings: Any, client: Client, api_of: Any) -> None:
    settings.METRICS_NETWORKS = ["10.0.0.0/8"]
    refused = client.get("/metrics", headers=OPENMETRICS)
    assert refused.status_code == 401 and refused.json()["code"] == "not_authenticated"
    assert api_of("viewer", scopes=["read"]).get("/metrics", headers=OPENMETRICS).status_code == 200
    assert api_of("operator", scopes=["ingest"]).get("/metrics").status_code == 403


def test_older_text_format_is_the_default(cluster: Cluster, client: Client) -> None:
    answer = client.get("/metrics")
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"# TYPE sluice_query_estimate_seconds gauge" in answer.content
