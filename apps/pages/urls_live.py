"""Addresses of the live pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import alerts, live, live_new

_LIVE = "c/<str:slug>/queries/<str:name>/live/"
_RULE = f"{_LIVE}rules/<int:pk>/"

urlpatterns = [
    path("c/<str:slug>/queries/-/live/", live_new.LiveNew.as_view(), name="live-new"),
    path(_LIVE, live.LiveTab.as_view(), name="query-live"),
    path(f"{_LIVE}start/", live.LiveStart.as_view(), name="live-start"),
    path(f"{_LIVE}stop/", live.LiveStop.as_view(), name="live-stop"),
    path(f"{_LIVE}assign/", live.LiveAssign.as_view(), name="live-assign"),
    path(f"{_LIVE}rules/new/", alerts.RuleNew.as_view(), name="alert-rule-new"),
    path(_RULE, alerts.RuleEdit.as_view(), name="alert-rule"),
    path(f"{_RULE}delete/", alerts.RuleDelete.as_view(), name="alert-rule-delete"),
    path(f"{_LIVE}alerts/<int:pk>/acknowledge/", alerts.AlertAcknowledge.as_view(), name="alert-acknowledge"),
]
