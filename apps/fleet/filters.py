"""Filters of the fleet's lists, shared by pages and REST."""

from __future__ import annotations

import django_filters as filters
from django.db.models import QuerySet

from apps.fleet.choices import NodeState
from apps.fleet.models import Cluster, Link, Node, NodePool

__all__ = ["ClusterFilter", "LinkFilter", "NodeFilter", "PoolFilter"]


class ClusterFilter(filters.FilterSet):
    name = filters.CharFilter(lookup_expr="icontains", help_text="Part of the name.")
    environment = filters.CharFilter()

    class Meta:
        model = Cluster
        fields: list[str] = []


class PoolFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    name = filters.CharFilter(lookup_expr="icontains", help_text="Part of the name.")

    class Meta:
        model = NodePool
        fields: list[str] = []


class NodeFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    pool = filters.CharFilter(field_name="pool__name", help_text="Name of the pool.")
    state = filters.ChoiceFilter(choices=NodeState.choices)
    name = filters.CharFilter(lookup_expr="icontains", help_text="Part of the name.")

    class Meta:
        model = Node
        fields: list[str] = []


class LinkFilter(filters.FilterSet):
    cluster = filters.CharFilter(field_name="cluster__slug", help_text="Slug of the cluster.")
    node = filters.CharFilter(method="at_node", help_text="Name of the node at either end.")

    class Meta:
        model = Link
        fields: list[str] = []

    def at_node(self, links: QuerySet[Link], name: str, value: str) -> QuerySet[Link]:
        return links.filter(source__name=value) | links.filter(target__name=value)
