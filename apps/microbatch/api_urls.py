"""Addresses of the Spark queries' REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from apps.core.rest.api import Router
from apps.microbatch.api import MicroBatchViewSet, OwnProgressView, SparkQueryViewSet

router = Router()
router.register("spark-queries", SparkQueryViewSet, basename="spark-query")

urlpatterns: list[URLPattern | URLResolver] = [
    path(
        "spark-queries/<int:query_pk>/batches", MicroBatchViewSet.as_view({"get": "list"}), name="spark-query-batches"
    ),
    path("stream-processor/progress", OwnProgressView.as_view(), name="stream-processor-progress"),
    *router.urls,
]
