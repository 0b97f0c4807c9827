"""Addresses of the plan pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import plans

_PLANS = "c/<str:slug>/queries/<str:name>/plans/"

urlpatterns = [
    path(_PLANS, plans.PlansTab.as_view(), name="query-plans"),
    path(f"{_PLANS}compare/", plans.PlansCompare.as_view(), name="query-plans-compare"),
    path(f"{_PLANS}adopt/", plans.PlanAdopt.as_view(), name="query-plan-adopt"),
]
