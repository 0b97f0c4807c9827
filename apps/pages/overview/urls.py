"""Addresses of the overview of a cluster."""

from __future__ import annotations

from django.urls import path

from apps.pages.overview import views

urlpatterns = [
    path("", views.Home.as_view(), name="home"),
    path("c/<str:slug>/", views.Overview.as_view(), name="overview"),
    path("c/<str:slug>/estimate/", views.EstimateNow.as_view(), name="estimate-now"),
]
