"""Addresses of the pages of Spark queries."""

from __future__ import annotations

from django.urls import path

from apps.pages.microbatch import views

_SPARK = "c/<str:slug>/provisioning/spark/"

urlpatterns = [
    path(_SPARK, views.SparkQueriesPage.as_view(), name="spark-queries"),
    path(f"{_SPARK}new/", views.SparkQueryNew.as_view(), name="spark-query-new"),
    path(f"{_SPARK}<int:pk>/", views.SparkQueryPage.as_view(), name="spark-query"),
    path(f"{_SPARK}<int:pk>/progress/", views.SparkQueryUpload.as_view(), name="spark-query-progress"),
    path(f"{_SPARK}<int:pk>/refit/", views.SparkQueryRefit.as_view(), name="spark-query-refit"),
    path(f"{_SPARK}<int:pk>/apply/", views.SparkQueryApply.as_view(), name="spark-query-apply"),
    path(f"{_SPARK}<int:pk>/edit/", views.SparkQueryCrud.change_view(), name="spark-query-edit"),
    path(f"{_SPARK}<int:pk>/delete/", views.SparkQueryCrud.delete_view(), name="spark-query-delete"),
]
