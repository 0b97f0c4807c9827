"""Addresses of the results' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path

from apps.core.rest.api import Router
from apps.results.api import AlertRuleViewSet, AlertViewSet, ResultFileView, ResultViewSet

router = Router()
router.register("alert-rules", AlertRuleViewSet, basename="alert-rule")
router.register("alerts", AlertViewSet, basename="alert")

urlpatterns: list[URLPattern | URLResolver] = [
    path("queries/<int:query_pk>/results", ResultViewSet.as_view({"get": "list"}), name="query-results"),
    re_path(
        r"^queries/(?P<query_pk>[0-9]{1,18})/results\.(?P<form>csv|arrow)$",
        ResultFileView.as_view(),
        name="query-results-file",
    ),
    re_path(
        r"^queries/(?P<query_pk>[0-9]{1,18})/results/(?P<window_us>[0-9]{1,18}|latest)$",
        ResultViewSet.as_view({"get": "retrieve"}),
        name="query-result",
    ),
    *router.urls,
]
