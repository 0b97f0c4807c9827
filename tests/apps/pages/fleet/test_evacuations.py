"""Pages of evacuations: a node planned, confirmed and stopped; what draining leaves; refusals in the form."""

from __future__ import annotations

from typing import Any

import pytest

from apps.fleet.models import Cluster
from apps.planning.models import Evacuation
from tests.apps.pages.html import body
from tests.apps.small_cluster import run_jobs, start_query

pytestmark = pytest.mark.django_db


def test_node_is_planned_confirmed_and_stopped(browser: Any, cluster: Cluster) -> None:
    node = cluster.nodes.order_by("name").first()
    assert node is not None
    start_query(cluster, "moving", 0.1, node.name)
    base = f"/c/{cluster.slug}/fleet/evacuations/"
    assert f'value="{node.name}"' in body(browser.get(f"{base}new/?nodes={node.name}"))
    browser.post(f"{base}new/", {"nodes": node.name, "order": "together", "back": "on"})
    run_jobs()
    run = Evacuation.objects.get()
    page = body(browser.get(f"{base}{run.pk}/"))
    assert "moving/work" in page and "Confirm and begin" in page
    assert "there is no forecast" in page
    assert "Sluice moves moving/work to" in body(browser.get(f"{base}{run.pk}/commands/"))
    browser.post(f"{base}{run.pk}/confirm/", {"accept_late": "1"})
    assert "Stop and take back" in body(browser.get(f"{base}{run.pk}/"))
    browser.post(f"{base}{run.pk}/stop/")
    run.refresh_from_db()
    assert run.state == "stopping"


def test_refusals_stand_at_their_fields(browser: Any, cluster: Cluster) -> None:
    asked = {"nodes": "nowhere", "order": "together", "ends_at": "2001-01-01T00:00"}
    answer = browser.post(f"/c/{cluster.slug}/fleet/evacuations/new/", asked)
    assert answer.status_code == 422
    page = body(answer)
    assert "which is no node of" in page and "allowed: after it begins" in page
    assert not Evacuation.objects.exists()


def test_draining_names_what_stays(browser: Any, cluster: Cluster) -> None:
    node = cluster.nodes.order_by("name").first()
    assert node is not None
    start_query(cluster, "staying", 0.1, node.name)
    answer = browser.post(f"/c/{cluster.slug}/fleet/nodes/{node.name}/state/", {"change": "drain"}, follow=True)
    page = body(answer)
    assert "staying/work" in page and "Draining moves nothing" in page
