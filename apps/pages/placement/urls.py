"""Addresses of the placement pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.placement import views
from apps.pages.placement import views as placement_run
from apps.pages.placement import views as placement_views

_PAGE = "c/<str:slug>/placement/"
_RUN = f"{_PAGE}<uuid:pk>/"

urlpatterns = [
    path(_PAGE, views.PlacementPage.as_view(), name="placement"),
    path(f"{_PAGE}runs/", views.PlacementRunsPage.as_view(), name="placement-runs"),
    path(f"{_PAGE}rule/", views.PlacementRulePart.as_view(), name="placement-rule"),
    path(f"{_PAGE}pick/", views.PlacementPickPart.as_view(), name="placement-pick"),
    path(_RUN, placement_run.PlacementRunPage.as_view(), name="placement-run"),
    path(f"{_RUN}live/", placement_run.PlacementLivePart.as_view(), name="placement-live"),
    path(f"{_RUN}standing/", placement_run.PlacementStandingPart.as_view(), name="placement-standing"),
    path(f"{_RUN}stop/", placement_views.PlacementStop.as_view(), name="placement-stop"),
    path(f"{_RUN}apply/", placement_views.PlacementApply.as_view(), name="placement-apply"),
    path(f"{_RUN}abort/", placement_views.PlacementAbort.as_view(), name="placement-abort"),
    path(f"{_RUN}undo/", placement_views.PlacementUndo.as_view(), name="placement-undo"),
    path(f"{_RUN}again/", placement_views.PlacementSearchAgain.as_view(), name="placement-again"),
    path(f"{_RUN}delete/", placement_views.PlacementDelete.as_view(), name="placement-delete"),
]
