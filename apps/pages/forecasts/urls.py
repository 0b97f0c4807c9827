"""Addresses of the forecast pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.arrivals import histories
from apps.pages.forecasts import views

_AT = "c/<str:slug>/provisioning/forecast/"

urlpatterns = [
    path(_AT, views.ForecastPage.as_view(), name="forecast"),
    path(f"{_AT}new/", views.ForecastNow.as_view(), name="forecast-now"),
    path(f"{_AT}histories/", histories.HistoriesPage.as_view(), name="histories"),
    path(f"{_AT}histories/new/", histories.HistoryUpload.as_view(), name="history-new"),
    path(f"{_AT}histories/columns/", histories.HistoryColumns.as_view(), name="history-columns"),
    path(f"{_AT}histories/generate/", histories.HistoryGenerator.as_view(), name="history-generator"),
    path(f"{_AT}histories/<int:pk>/", histories.HistoryDetail.as_view(), name="history"),
    path(f"{_AT}histories/<int:pk>/delete/", histories.HistoryDelete.as_view(), name="history-delete"),
]
