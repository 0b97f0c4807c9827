"""Addresses of the provisioning pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.provisioning import views

_BENCH = "c/<str:slug>/provisioning/"

urlpatterns = [
    path(_BENCH, views.BenchPage.as_view(), name="provisioning"),
    path(f"{_BENCH}refine/", views.BenchRefine.as_view(), name="provisioning-refine"),
    path(f"{_BENCH}find/", views.WhatIfNow.as_view(), name="provisioning-find"),
    path(f"{_BENCH}nodes/", views.PlannedNodes.as_view(), name="provisioning-nodes"),
    path(f"{_BENCH}scenarios/new/", views.ScenarioSave.as_view(), name="scenario-new"),
    path(f"{_BENCH}scenarios/compare/", views.ScenariosCompare.as_view(), name="scenarios-compare"),
    path(f"{_BENCH}scenarios/<int:pk>/", views.ScenarioOpen.as_view(), name="scenario"),
    path(f"{_BENCH}scenarios/<int:pk>/delete/", views.ScenarioCrud.delete_view(), name="scenario-delete"),
    path(f"{_BENCH}what-ifs/", views.WhatIfsPage.as_view(), name="what-ifs"),
    path(f"{_BENCH}what-ifs/<uuid:pk>/", views.WhatIfPage.as_view(), name="what-if"),
]
