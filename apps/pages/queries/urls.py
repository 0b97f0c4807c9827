"""Addresses of the pages of queries and arrivals."""

from __future__ import annotations

from django.urls import path

from apps.pages.arrivals import views
from apps.pages.queries import views as queries_views
from apps.pages.queries import views as query_changes
from apps.pages.queries import views as query_tabs

_QUERY = "c/<str:slug>/queries/<str:name>/"

urlpatterns = [
    path("c/<str:slug>/queries/", queries_views.QueriesPage.as_view(), name="queries"),
    # a name begins with a letter or digit, so that no query can be called "-"
    path("c/<str:slug>/queries/-/new/", query_changes.QueryNew.as_view(), name="query-new"),
    path("c/<str:slug>/queries/-/example/", query_changes.QueryExample.as_view(), name="query-example"),
    path("c/<str:slug>/queries/-/operator/", query_changes.OperatorRow.as_view(), name="query-operator-row"),
    path(_QUERY, query_tabs.PlanTab.as_view(), name="query"),
    path(f"{_QUERY}statistics/", query_tabs.StatisticsTab.as_view(), name="query-statistics"),
    path(f"{_QUERY}placement/", query_tabs.PlacementTab.as_view(), name="query-placement"),
    path(f"{_QUERY}versions/", query_tabs.VersionsTab.as_view(), name="query-versions"),
    path(f"{_QUERY}versions/new/", query_changes.QueryVersionNew.as_view(), name="query-version-new"),
    path(f"{_QUERY}decisions/", query_tabs.DecisionsTab.as_view(), name="query-decisions"),
    path(f"{_QUERY}estimates/", query_tabs.EstimatesTab.as_view(), name="query-estimates"),
    path(f"{_QUERY}edit/", query_changes.QueryEdit.as_view(), name="query-edit"),
    path(f"{_QUERY}stop/", query_changes.QueryStop.as_view(), name="query-stop"),
    path(f"{_QUERY}delete/", query_changes.QueryDelete.as_view(), name="query-delete"),
    # arrivals
    path("c/<str:slug>/arrivals/", views.ArrivalsPage.as_view(), name="arrivals"),
    path("c/<str:slug>/arrivals/new/", views.UploadPage.as_view(), name="arrivals-new"),
    path("c/<str:slug>/arrivals/new/columns/", views.ColumnsPage.as_view(), name="arrivals-columns"),
    path("c/<str:slug>/arrivals/new/generator/", views.GeneratorPage.as_view(), name="arrivals-generator"),
    path("c/<str:slug>/arrivals/<int:pk>/", views.ArrivalsDetail.as_view(), name="arrivals-detail"),
    path("c/<str:slug>/arrivals/<int:pk>/delete/", views.ArrivalsDelete.as_view(), name="arrivals-delete"),
]
