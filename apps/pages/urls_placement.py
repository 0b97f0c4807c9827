"""Addresses of the placement pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import placement, placement_actions, placement_run

_PAGE = "c/<str:slug>/placement/"
_RUN = f"{_PAGE}<uuid:pk>/"

urlpatterns = [
    path(_PAGE, placement.PlacementPage.as_view(), name="placement"),
    path(f"{_PAGE}runs/", placement.RunsPage.as_view(), name="placement-runs"),
    path(f"{_PAGE}rule/", placement.RulePart.as_view(), name="placement-rule"),
    path(f"{_PAGE}pick/", placement.PickPart.as_view(), name="placement-pick"),
    path(_RUN, placement_run.RunPage.as_view(), name="placement-run"),
    path(f"{_RUN}live/", placement_run.LivePart.as_view(), name="placement-live"),
    path(f"{_RUN}standing/", placement_run.StandingPart.as_view(), name="placement-standing"),
    path(f"{_RUN}stop/", placement_actions.Stop.as_view(), name="placement-stop"),
    path(f"{_RUN}apply/", placement_actions.Apply.as_view(), name="placement-apply"),
    path(f"{_RUN}abort/", placement_actions.Abort.as_view(), name="placement-abort"),
    path(f"{_RUN}undo/", placement_actions.Undo.as_view(), name="placement-undo"),
    path(f"{_RUN}again/", placement_actions.SearchAgain.as_view(), name="placement-again"),
    path(f"{_RUN}delete/", placement_actions.Delete.as_view(), name="placement-delete"),
]
