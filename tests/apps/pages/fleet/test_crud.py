"""Pools, nodes and links are created, changed and deleted in the browser."""

from __future__ import annotations

from typing import Any

import pytest

from apps.fleet.models import Cluster, Link, Node, NodePool
from tests.apps.pages.crud import CrudTests


class TestPools(CrudTests):
    model = NodePool
    key = {"name": "large"}
    create_url = "/c/little/fleet/new/pool/"
    change_url = "/c/little/fleet/pools/{pk}/"
    delete_url = "/c/little/fleet/pools/{pk}/delete/"
    valid = {"name": "large", "capacity_cps": "4e9", "cores": "8", "labels": ""}
    changed = {"cores": 16}
    invalid = {"cores": "0"}


class TestNodes(CrudTests):
    model = Node
    key = {"name": "c"}
    create_url = "/c/little/fleet/new/node/"
    change_url = "/c/little/fleet/nodes/{name}/edit/"
    delete_url = "/c/little/fleet/nodes/{name}/delete/"
    valid = {"name": "c", "cores": "3", "labels": "rack=r7"}
    changed = {"cores": 4}
    invalid = {"name": "A B"}

    def typed(self, **values: Any) -> dict[str, Any]:
        return super().typed(pool=self.cluster.pools.get().pk, **values)


class TestLinks(CrudTests):
    model = Link
    key = {"source__name": "a"}
    create_url = "/c/little/fleet/new/link/"
    change_url = "/c/little/fleet/links/{pk}/"
    delete_url = "/c/little/fleet/links/{pk}/delete/"
    valid = {"bandwidth_bytes_s": "", "delay_s": "0.002"}
    changed = {"delay_s": 0.01}
    invalid = {"delay_s": "-1"}

    def typed(self, **values: Any) -> dict[str, Any]:
        a, b = self.cluster.nodes.order_by("name")
        return super().typed(source=a.name, target=b.name, **values)


@pytest.mark.django_db
def test_link_from_a_node_to_itself_is_refused(browser: Any, cluster: Cluster) -> None:
    node = cluster.nodes.get(name="a")
    response = browser.post("/c/little/fleet/new/link/", {"source": node.name, "target": node.name, "delay_s": "0"})
    assert response.status_code == 422
