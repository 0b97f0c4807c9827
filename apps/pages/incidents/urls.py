"""Addresses of the pages of incidents."""

from __future__ import annotations

from django.urls import path

from apps.pages.incidents import views

_INCIDENTS = "c/<str:slug>/incidents/"

urlpatterns = [
    path("incidents/menu/", views.IncidentsMenu.as_view(), name="incidents-menu"),
    path(_INCIDENTS, views.IncidentsPage.as_view(), name="incidents"),
    path(f"{_INCIDENTS}routing/", views.RoutingPage.as_view(), name="incident-routing"),
    path(f"{_INCIDENTS}<int:pk>/", views.IncidentPage.as_view(), name="incident"),
    path(f"{_INCIDENTS}<int:pk>/acknowledge/", views.IncidentAcknowledge.as_view(), name="incident-acknowledge"),
]
