"""Addresses of the placement pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.placement import views

_PAGE = "c/<str:slug>/placement/"
_RUN = f"{_PAGE}<uuid:pk>/"

urlpatterns = [
    path(_PAGE, views.PlacementPage.as_view(), name="placement"),
    path(f"{_PAGE}runs/", views.PlacementRunsPage.as_view(), name="placement-runs"),
    path(f"{_PAGE}rule/", views.PlacementRulePart.as_view(), name="placement-rule"),
    path(f"{_PAGE}pick/", views.PlacementPickPart.as_view(), name="placement-pick"),
    path(_RUN, views.PlacementRunPage.as_view(), name="placement-run"),
    path(f"{_RUN}live/", views.PlacementLivePart.as_view(), name="placement-live"),
    path(f"{_RUN}standing/", views.PlacementStandingPart.as_view(), name="placement-standing"),
    path(f"{_RUN}stop/", views.PlacementStop.as_view(), name="placement-stop"),
    path(f"{_RUN}apply/", views.PlacementApply.as_view(), name="placement-apply"),
    path(f"{_RUN}abort/", views.PlacementAbort.as_view(), name="placement-abort"),
    path(f"{_RUN}undo/", views.PlacementUndo.as_view(), name="placement-undo"),
    path(f"{_RUN}again/", views.PlacementSearchAgain.as_view(), name="placement-again"),
    path(f"{_RUN}delete/", views.PlacementDelete.as_view(), name="placement-delete"),
]
