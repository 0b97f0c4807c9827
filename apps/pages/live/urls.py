"""Addresses of the live pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.live import views

_LIVE = "c/<str:slug>/queries/<str:name>/live/"
_RULE = f"{_LIVE}rules/<int:pk>/"

urlpatterns = [
    path("c/<str:slug>/queries/-/live/", views.LiveNew.as_view(), name="live-new"),
    path(_LIVE, views.LiveTab.as_view(), name="query-live"),
    path(f"{_LIVE}start/", views.LiveStart.as_view(), name="live-start"),
    path(f"{_LIVE}stop/", views.LiveStop.as_view(), name="live-stop"),
    path(f"{_LIVE}assign/", views.LiveAssign.as_view(), name="live-assign"),
    path(f"{_LIVE}rules/new/", views.AlertRuleCrud.create_view(), name="alert-rule-new"),
    path(_RULE, views.AlertRuleCrud.change_view(), name="alert-rule"),
    path(f"{_RULE}delete/", views.AlertRuleCrud.delete_view(), name="alert-rule-delete"),
    path(f"{_LIVE}alerts/<int:pk>/acknowledge/", views.AlertAcknowledge.as_view(), name="alert-acknowledge"),
]
