"""Addresses of the accuracy pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.accuracy import views

urlpatterns = [
    path("c/<str:slug>/accuracy/", views.AccuracyPage.as_view(), name="accuracy"),
    path("c/<str:slug>/accuracy/simulate/", views.SimulateNow.as_view(), name="accuracy-simulate"),
]
