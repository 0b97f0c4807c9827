"""Pages of incidents: what the list, one incident, the bell, the routing and the overview say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.estimates.services import ESTIMATE
from apps.fleet.models import Cluster
from apps.incidents.models import Incident
from apps.incidents.selectors import routing_of
from apps.reports.models import Webhook
from tests.apps import small_cluster
from tests.apps.incidents.states import STREAM, after, away_engine, late
from tests.apps.pages.html import body

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


@pytest.fixture
def incident(cluster: Cluster) -> Incident:
    """Two queries late by the stream processor; `late` is late by its node."""
    for name in ("north", "south"):
        small_cluster.start_query(cluster, name, 0.1, "a", bound_s=15.0)
        late(cluster, name, STREAM)
    after(cluster, 0)
    return Incident.objects.get(cause_kind="stream_behind")


def page(browser: Client, address: str) -> str:
    return body(browser.get(address)).replace("\xa0", " ")


def test_list_says_what_is_open_and_filters(browser: Client, incident: Incident) -> None:
    html = page(browser, "/c/little/incidents/")
    assert "The stream processor is behind" in html and "north and south" in html
    assert "2 incidents are open, 2 of them critical; 2 are not acknowledged." in html
    assert "No incidents" not in html
    assert "north and south" not in page(browser, "/c/little/incidents/?state=resolved")
    assert "north and south" in page(browser, "/c/little/incidents/?q=south")


def test_list_without_incidents_says_when_one_opens(browser: Client, cluster: Cluster) -> None:
    html = page(browser, "/c/little/incidents/")
    assert (
        "No incident is open: no objective is breached or at risk, and every engine answers." in html
        and "One opens by itself" in html
    )


def test_page_shows_cause_queries_and_timeline(browser: Client, incident: Incident) -> None:
    html = page(browser, f"/c/little/incidents/{incident.pk}/")
    assert "The stream processor is 71 s behind: 4,812 frames wait for it. It makes 2 queries late" in html
    assert "Measured 78.7 s over the last 10 min against 15 s" in html and "Opened" in html and "Query is late" in html
    assert "Nobody was told." in html


def test_engine_that_is_away_is_named_with_its_connection(browser: Client, cluster: Cluster) -> None:
    row = away_engine(cluster)
    after(cluster, 301)
    incident = Incident.objects.get(cause_kind="engine_away")
    html = page(browser, f"/c/little/incidents/{incident.pk}/")
    assert "shop does not answer" in html and "shop has answered nothing for 301 s" in html
    assert f"/c/little/connections/{row.pk}/" in html and "Connection refused" in html and "Well again" not in html
    assert "Open incident" in page(browser, "/c/little/") and "0 queries" not in page(browser, "/incidents/menu/")


def test_operator_acknowledges_with_a_note_and_the_bell_is_silent(browser: Client, incident: Incident) -> None:
    assert "Incidents: 2 not acknowledged" in page(browser, "/incidents/menu/")
    answer = browser.post(f"/c/little/incidents/{incident.pk}/acknowledge/", {"note": "restarting it"})
    assert answer.status_code == 302
    html = page(browser, f"/c/little/incidents/{incident.pk}/")
    assert "has seen it" in html and "restarting it" in html
    menu = page(browser, "/incidents/menu/")
    assert "Incidents: 1 not acknowledged" in menu and "The stream processor is behind" not in menu


def test_viewer_reads_an_incident(browser_of: Callable[[str], Client], incident: Incident) -> None:
    viewer = browser_of("viewer")
    assert "Nobody has acknowledged it yet." in page(viewer, f"/c/little/incidents/{incident.pk}/")


def test_overview_groups_late_queries_by_cause(browser: Client, incident: Incident, cluster: Cluster) -> None:
    ESTIMATE.request(cluster=cluster)
    small_cluster.run_jobs()
    for name in ("north", "south"):
        late(cluster, name, STREAM)
    html = page(browser, "/c/little/")
    assert "The stream processor is behind: 2 queries late" in html
    assert "Nobody has acknowledged it." in html and f"/c/little/incidents/{incident.pk}/" in html


def test_routing_is_stored_and_faults_are_shown(browser: Client, cluster: Cluster) -> None:
    webhook = Webhook.objects.create(cluster=cluster, name="pager", url="https://a.example/", salt="s")
    address = "/c/little/incidents/routing/"
    said = {"emails": "ops@example.org\n", "webhooks": [str(webhook.pk)], "severity": "warning", "keep_days": "30"}
    assert browser.post(address, said).status_code == 302
    routing = routing_of(cluster)
    assert (routing.emails, routing.severity, routing.keep_days) == (["ops@example.org"], "warning", 30)
    assert list(routing.webhooks.all()) == [webhook]
    refused = browser.post(address, said | {"emails": "nobody"})
    assert refused.status_code == 422 and "is not a mail address" in body(refused)


def test_menu_of_clusters_marks_the_worst_state(browser: Client, cluster: Cluster) -> None:
    assert "1 breached" in page(browser, "/c/little/")
