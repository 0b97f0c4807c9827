"""Addresses of the pages of clusters, nodes, pools and links."""

from __future__ import annotations

from django.urls import path

from apps.pages.fleet import views

_CLUSTER = "c/<str:slug>/"
_FLEET = f"{_CLUSTER}fleet/"
_NODE = f"{_FLEET}nodes/<str:name>/"
_POOL = f"{_FLEET}pools/<int:pk>/"
_LINK = f"{_FLEET}links/<int:pk>/"

urlpatterns = [
    path("clusters/new/", views.ClusterCrud.create_view(), name="cluster-new"),
    path(f"{_CLUSTER}settings/", views.ClusterCrud.change_view(), name="cluster-edit"),
    path(f"{_CLUSTER}settings/delete/", views.ClusterCrud.delete_view(), name="cluster-delete"),
    path(_FLEET, views.FleetPage.as_view(), name="fleet"),
    path(f"{_FLEET}change/", views.NodesChange.as_view(), name="nodes-change"),
    path(f"{_FLEET}import/", views.FleetImport.as_view(), name="fleet-import"),
    path(f"{_FLEET}new/node/", views.NodeCrud.create_view(), name="node-new"),
    path(_NODE, views.NodePage.as_view(), name="node"),
    path(f"{_NODE}edit/", views.NodeCrud.change_view(), name="node-edit"),
    path(f"{_NODE}state/", views.NodeStateChange.as_view(), name="node-state"),
    path(f"{_NODE}delete/", views.NodeCrud.delete_view(), name="node-delete"),
    path(f"{_FLEET}pools/", views.PoolsPage.as_view(), name="pools"),
    path(f"{_FLEET}new/pool/", views.PoolCrud.create_view(), name="pool-new"),
    path(_POOL, views.PoolCrud.change_view(), name="pool-edit"),
    path(f"{_POOL}delete/", views.PoolCrud.delete_view(), name="pool-delete"),
    path(f"{_POOL}plan/", views.PoolPlan.as_view(), name="pool-plan"),
    path(f"{_FLEET}links/", views.LinksPage.as_view(), name="links"),
    path(f"{_FLEET}new/link/", views.LinkCrud.create_view(), name="link-new"),
    path(_LINK, views.LinkCrud.change_view(), name="link-edit"),
    path(f"{_LINK}delete/", views.LinkCrud.delete_view(), name="link-delete"),
]
