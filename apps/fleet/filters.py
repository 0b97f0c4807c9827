"""Filters of the fleet's lists, shared by pages and REST."""

from __future__ import annotations

from apps.core.filters import ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.fleet.choices import Evidence, NodeState

__all__ = ["ClusterFilter", "LinkFilter", "NodeFilter", "PoolFilter"]


class ClusterFilter(ListFilter):
    """`?environment=production&name__contains=west`."""

    slug = TextFilter(label="Its slug")
    name = TextFilter(label="Its name")
    environment = TextFilter(label="Its environment")
    created_at = TimeFilter()
    sorts = sort_paths("slug", "name", "environment", "created_at", "updated_at")


class PoolFilter(ListFilter):
    """`?cluster=eu-1&cores__gte=4`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    cores = NumberFilter(whole=True)
    capacity_cps = NumberFilter()
    sorts = sort_paths("name", "cores", "capacity_cps", "price_per_hour", "updated_at", cluster="cluster__slug")


class NodeFilter(ListFilter):
    """`?cluster=eu-1&pool=standard&state=active&state=draining`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    pool = TextFilter("pool__name", label="Name of the pool")
    state = ChoiceFilter(choices=NodeState.choices)
    evidence = ChoiceFilter(choices=Evidence.choices, label="What its capacity rests on")
    name = TextFilter(label="Its name")
    cores = NumberFilter(whole=True)
    capacity_cps = NumberFilter()
    sorts = sort_paths(
        "name", "state", "cores", "capacity_cps", "created_at", "updated_at", pool="pool__name", cluster="cluster__slug"
    )


class LinkFilter(ListFilter):
    """`?cluster=eu-1&node=n1`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    node = TextFilter("source__name", "target__name", label="Name of the node at either end")
    delay_s = NumberFilter()
    sorts = sort_paths("bandwidth_bytes_s", "delay_s", "updated_at", **{"from": "source__name", "to": "target__name"})
