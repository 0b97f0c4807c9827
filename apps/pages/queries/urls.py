"""Addresses of the pages of queries and of imports."""

from __future__ import annotations

from django.urls import path

from apps.pages.queries import imports, views

_CLUSTER = "c/<str:slug>/"
_QUERIES = f"{_CLUSTER}queries/"
_QUERY = f"{_QUERIES}<str:name>/"

urlpatterns = [
    path(_QUERIES, views.QueriesPage.as_view(), name="queries"),
    # a name begins with a letter or digit, so that no query can be called "-"
    path(f"{_QUERIES}-/new/", views.QueryNew.as_view(), name="query-new"),
    path(f"{_QUERIES}-/example/", views.QueryExample.as_view(), name="query-example"),
    path(f"{_QUERIES}-/operator/", views.OperatorRow.as_view(), name="query-operator-row"),
    path(f"{_QUERIES}-/change/", views.QueriesChange.as_view(), name="queries-change"),
    path(_QUERY, views.PlanTab.as_view(), name="query"),
    path(f"{_QUERY}statistics/", views.StatisticsTab.as_view(), name="query-statistics"),
    path(f"{_QUERY}backlog/", views.QueryBacklog.as_view(), name="query-backlog"),
    path(f"{_QUERY}placement/", views.PlacementTab.as_view(), name="query-placement"),
    path(f"{_QUERY}versions/", views.VersionsTab.as_view(), name="query-versions"),
    path(f"{_QUERY}versions/new/", views.QueryVersionNew.as_view(), name="query-version-new"),
    path(f"{_QUERY}decisions/", views.DecisionsTab.as_view(), name="query-decisions"),
    path(f"{_QUERY}estimates/", views.EstimatesTab.as_view(), name="query-estimates"),
    path(f"{_QUERY}edit/", views.QueryCrud.change_view(), name="query-edit"),
    path(f"{_QUERY}predict/", views.QueryPredict.as_view(), name="query-predict"),
    path(f"{_QUERY}stop/", views.QueryStop.as_view(), name="query-stop"),
    path(f"{_QUERY}delete/", views.QueryCrud.delete_view(), name="query-delete"),
    path(f"{_CLUSTER}import/", imports.DocumentImportPage.as_view(), name="import-new"),
    path(f"{_CLUSTER}import/<uuid:pk>/", imports.ImportRunPage.as_view(), name="import"),
]
