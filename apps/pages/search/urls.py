"""Addresses of the search over a cluster."""

from __future__ import annotations

from django.urls import path

from apps.pages.search import views

urlpatterns = [
    path("c/<str:slug>/search/", views.SearchPage.as_view(), name="search"),
    path("c/<str:slug>/search/suggestions/", views.SearchSuggestions.as_view(), name="search-suggestions"),
]
