"""Addresses of the help pages and the search."""

from __future__ import annotations

from django.urls import path

from apps.pages.help import views

urlpatterns = [
    path("c/<str:slug>/search/", views.SearchPage.as_view(), name="search"),
    path("help/", views.HelpPage.as_view(), name="help"),
    path("help/docs/<path:path>", views.GuidePage.as_view(), name="guide"),
    path("help/api/", views.ApiPage.as_view(), name="api"),
]
