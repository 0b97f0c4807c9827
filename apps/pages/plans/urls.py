"""Addresses of the plan pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.plans import views

_PLANS = "c/<str:slug>/queries/<str:name>/plans/"

urlpatterns = [
    path(_PLANS, views.PlansTab.as_view(), name="query-plans"),
    path(f"{_PLANS}compare/", views.PlansCompare.as_view(), name="query-plans-compare"),
    path(f"{_PLANS}adopt/", views.PlanAdopt.as_view(), name="query-plan-adopt"),
]
