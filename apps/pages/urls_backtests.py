"""Addresses of the backtests pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import backtests

_AT = "c/<str:slug>/backtests/"

urlpatterns = [
    path(_AT, backtests.BacktestsPage.as_view(), name="backtests"),
    path(f"{_AT}new/", backtests.BacktestNow.as_view(), name="backtest-now"),
    path(f"{_AT}<uuid:pk>/", backtests.BacktestPage.as_view(), name="backtest"),
    path(f"{_AT}<uuid:pk>/delete/", backtests.BacktestDelete.as_view(), name="backtest-delete"),
]
