"""Addresses of the help pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.help import views

urlpatterns = [
    path("help/", views.HelpPage.as_view(), name="help"),
    path("help/docs/<path:path>", views.GuidePage.as_view(), name="guide"),
    path("help/api/", views.ApiPage.as_view(), name="api"),
]
