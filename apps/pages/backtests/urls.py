"""Addresses of the backtests pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.backtests import views

_AT = "c/<str:slug>/backtests/"

urlpatterns = [
    path(_AT, views.BacktestsPage.as_view(), name="backtests"),
    path(f"{_AT}new/", views.BacktestNow.as_view(), name="backtest-now"),
    path(f"{_AT}<uuid:pk>/", views.BacktestPage.as_view(), name="backtest"),
    path(f"{_AT}<uuid:pk>/delete/", views.BacktestCrud.delete_view(), name="backtest-delete"),
]
