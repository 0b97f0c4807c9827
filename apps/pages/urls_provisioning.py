"""Addresses of the provisioning pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import provisioning, provisioning_actions, provisioning_nodes, what_ifs

_BENCH = "c/<str:slug>/provisioning/"

urlpatterns = [
    path(_BENCH, provisioning.BenchPage.as_view(), name="provisioning"),
    path(f"{_BENCH}refine/", provisioning.Refine.as_view(), name="provisioning-refine"),
    path(f"{_BENCH}find/", provisioning_actions.FindNow.as_view(), name="provisioning-find"),
    path(f"{_BENCH}nodes/", provisioning_nodes.PlannedNodes.as_view(), name="provisioning-nodes"),
    path(f"{_BENCH}scenarios/new/", provisioning_actions.ScenarioSave.as_view(), name="scenario-new"),
    path(f"{_BENCH}scenarios/compare/", provisioning_actions.Compare.as_view(), name="scenarios-compare"),
    path(f"{_BENCH}scenarios/<int:pk>/", provisioning_actions.ScenarioOpen.as_view(), name="scenario"),
    path(f"{_BENCH}scenarios/<int:pk>/delete/", provisioning_actions.ScenarioDelete.as_view(), name="scenario-delete"),
    path(f"{_BENCH}what-ifs/", what_ifs.WhatIfsPage.as_view(), name="what-ifs"),
    path(f"{_BENCH}what-ifs/<uuid:pk>/", what_ifs.WhatIfPage.as_view(), name="what-if"),
]
