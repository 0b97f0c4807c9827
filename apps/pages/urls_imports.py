"""Addresses of the import pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.queries import imports

urlpatterns = [
    path("c/<str:slug>/import/", imports.DocumentImportPage.as_view(), name="import-new"),
    path("c/<str:slug>/import/<uuid:pk>/", imports.ImportRunPage.as_view(), name="import"),
]
