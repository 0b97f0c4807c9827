"""Addresses of the forecast pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.forecasts import views

_AT = "c/<str:slug>/provisioning/forecast/"

urlpatterns = [
    path(_AT, views.ForecastPage.as_view(), name="forecast"),
    path(f"{_AT}new/", views.ForecastNow.as_view(), name="forecast-now"),
]
