"""Addresses of exports, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from apps.exports.api import AdmissionExportView, PlacementExportView

urlpatterns = [
    path("admissions/<uuid:pk>/export", AdmissionExportView.as_view(), name="admission-export"),
    path("placements/<uuid:pk>/export", PlacementExportView.as_view(), name="placement-export"),
]
