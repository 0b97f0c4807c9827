"""Addresses of the accuracy pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import accuracy

urlpatterns = [path("c/<str:slug>/accuracy/", accuracy.AccuracyPage.as_view(), name="accuracy")]
