"""Memory of nodes in the browser: the fleet, a node, the attention list, and the forms."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.fleet.models import Cluster, Node, NodePool
from apps.queries.models import Placement
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

GB = 10**9


@pytest.fixture
def crowded(cluster: Cluster) -> Placement:
    """An operator of 9 GB of state on a node of 8 GB."""
    placement = Placement.objects.filter(node__cluster=cluster).select_related("operator", "node").first()
    assert placement is not None
    NodePool.objects.update(memory_bytes=8 * GB)
    placement.operator.extra = {**placement.operator.extra, "state_bytes": float(9 * GB)}
    placement.operator.save()
    return placement


def test_node_with_more_state_than_memory_is_told_where_people_look(browser: Client, crowded: Placement) -> None:
    name = crowded.node.name
    overview = body(browser.get("/c/little/"))
    assert f"{name} holds more state than memory" in overview
    assert f"{name} holds 8.4\u00a0GiB of state, its memory is 7.5\u00a0GiB." in overview
    node = body(browser.get(f"/c/little/fleet/nodes/{name}/"))
    assert "State in memory" in node
    assert "too much" in node
    assert "State in memory" in body(browser.get("/c/little/fleet/"))


def test_memory_that_nobody_states_is_said_to_be_unknown(browser: Client, cluster: Cluster) -> None:
    node = body(browser.get("/c/little/fleet/nodes/b/"))
    assert "of memory that is not stated" in node
    assert "holds more state than memory" not in body(browser.get("/c/little/"))


def test_node_has_the_memory_typed_for_it_or_that_of_its_pool(browser: Client, cluster: Cluster) -> None:
    pool = NodePool.objects.get()
    form = {"pool": pool.pk, "name": "c", "capacity_cps": "", "cores": "", "memory_bytes": "16 GiB", "labels": ""}
    assert browser.post("/c/little/fleet/new/node/", form)["Location"] == "/c/little/fleet/"
    assert Node.objects.get(name="c").memory_bytes == 16 * 2**30
    assert 'value="16 GiB"' in body(browser.get("/c/little/fleet/nodes/c/edit/"))
    browser.post("/c/little/fleet/nodes/c/edit/", form | {"memory_bytes": ""})
    assert Node.objects.get(name="c").memory_bytes is None
    refused = browser.post("/c/little/fleet/nodes/c/edit/", form | {"memory_bytes": "much"})
    assert refused.status_code == 422
