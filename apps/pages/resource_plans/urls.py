"""Addresses of the resource plans' pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.resource_plans import views

_AT = "c/<str:slug>/provisioning/resource-plans/"

urlpatterns = [
    path(_AT, views.ResourcePlansPage.as_view(), name="resource-plans"),
    path(f"{_AT}new/", views.ResourcePlanNew.as_view(), name="resource-plan-new"),
    path(f"{_AT}<uuid:pk>/", views.ResourcePlanPage.as_view(), name="resource-plan"),
    path(f"{_AT}<uuid:pk>/apply/", views.ResourcePlanApply.as_view(), name="resource-plan-apply"),
    path(f"{_AT}<uuid:pk>/delete/", views.ResourcePlanCrud.delete_view(), name="resource-plan-delete"),
]
