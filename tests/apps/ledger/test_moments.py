"""A cluster at two moments: what differs, and one object taken back to the first."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.estimates.models import EstimateRun
from apps.fleet.models import Cluster
from apps.fleet.services import node_activate, node_drain, node_update
from apps.ledger.models import ObjectChange
from apps.ledger.moments import cluster_compare
from tests.apps import small_cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    """A cluster that was made an hour ago."""
    cluster = small_cluster.small_cluster()
    ObjectChange.objects.update(at=timezone.now() - timedelta(hours=1))
    return cluster


def differences(cluster: Cluster, since: datetime) -> dict[str, Any]:
    found = cluster_compare(cluster.pk, since, timezone.now())
    return {entry.name: (entry.before, entry.after) for entry in found.differences}


def test_differences_are_those_that_are_left(cluster: Cluster) -> None:
    since, node = timezone.now(), cluster.nodes.get(name="a")
    node_drain(node=node)
    node_update(node=node, labels={"rack": "first"})
    node_update(node=node, labels={"rack": "second"})
    assert differences(cluster, since) == {
        "a": ({"state": "active", "labels": {}}, {"state": "draining", "labels": {"rack": "second"}})
    }
    node_activate(node=node)
    node_update(node=node, labels={})
    assert differences(cluster, since) == {}


def test_object_goes_back_to_a_moment_in_one_step(cluster: Cluster, browser: Any) -> None:
    since, node = timezone.now(), cluster.nodes.get(name="a")
    node_update(node=node, labels={"rack": "first"})
    node_update(node=node, labels={"rack": "second"})
    path = f"/c/{cluster.slug}/changes/compare/"
    page = body(browser.get(path))
    assert "Node a" in page and "second" in page and "Take back" in page
    answer = browser.post(path, {"object": f"node:{node.pk}", "since": since.isoformat()})
    assert answer.status_code == 302
    node.refresh_from_db()
    assert node.labels == {} and differences(cluster, since) == {}
    again = browser.post(path, {"object": f"node:{node.pk}", "since": since.isoformat()})
    assert again.status_code == 404  # nothing is left to take back


def test_moments_that_cannot_be_compared_are_refused(cluster: Cluster, browser: Any) -> None:
    path = f"/c/{cluster.slug}/changes/compare/"
    later = browser.get(path, {"since": "2026-03-02T00:00", "until": "2026-03-01T00:00"})
    assert later.status_code == 400 and "allowed: before" in body(later)
    assert browser.post(path, {"object": "node", "since": "yesterday"}).status_code == 400


def test_moments_are_compared_over_rest(cluster: Cluster, api: APIClient) -> None:
    since, node = timezone.now(), cluster.nodes.get(name="a")
    node_update(node=node, labels={"rack": "first"})
    path = "/api/v1/changes/compare"
    answer = api.get(path, {"cluster": "little", "since": since.isoformat()})
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    (found,) = shown["differences"]
    assert (found["kind"], found["name"], found["before"], found["after"]) == (
        "node",
        "a",
        {"labels": {}},
        {"labels": {"rack": "first"}},
    )
    assert found["not_undoable"] == "" and api.get(f"/api/v1/changes/{found['changes'][0]}").status_code == 200
    assert (shown["reaches_back"], shown["left_out"]) == (True, 0)
    for asked, path_of_fault in (({"since": "2999-01-01T00:00:00Z"}, "since"), ({"since": "x", "unti": "y"}, "unti")):
        refused = api.get(path, {"cluster": "little", **asked})
        assert refused.status_code == 400 and path_of_fault in {row["path"] for row in refused.json()["faults"]}
    assert api.get(path, {"cluster": "none", "since": since.isoformat()}).status_code == 404


def test_curve_of_headroom_leads_to_its_moments(cluster: Cluster, browser: Any) -> None:
    path, at = f"/c/{cluster.slug}/changes/compare/", timezone.now().replace(microsecond=0) - timedelta(hours=2)
    assert "Least headroom" not in body(browser.get(path)), "there is no curve yet"
    queries = [small_cluster.make_query(cluster, name, 0.1) for name in ("late", "well")]
    for hours, shares in ((0, (0.5, 0.75)), (1, (-0.25, 0.75))):
        known = {"subinterval_s": 1.0, "slice_s": 0.25, "slices": 4, "result": {}, "duration_s": 0.0}
        run = EstimateRun.objects.create(cluster=cluster, created_at=at + timedelta(hours=hours), **known)
        for query, share in zip(queries, shares, strict=True):
            figures = {"headroom_share": share, "estimate_s": 1.0, "worst_s": 1.0, "mace_s": 1.0, "result": {}}
            run.queries.create(query=query, version=query.versions.get(), statistic="worst", state="holds", **figures)
    page = body(browser.get(path))
    assert "Least headroom of 2 estimates; the lowest is" in page and "25%" in page
    links = re.findall(r'href="([^"]*[?]since=[^"]*)"', page)
    assert len(links) == 2 and browser.get(links[0]).status_code == 200
