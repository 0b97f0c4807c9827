"""Addresses of the report pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.reports import views

_PAGE = "c/<str:slug>/reports/"
_DEFINITION = f"{_PAGE}definitions/<int:pk>/"
_HOOK = f"{_PAGE}webhooks/<uuid:pk>/"
_REPORT = f"{_PAGE}<uuid:pk>/"

urlpatterns = [
    path(_PAGE, views.ReportsPage.as_view(), name="reports"),
    path(f"{_PAGE}new/", views.DefinitionCrud.create_view(), name="report-new"),
    path(f"{_PAGE}schedule/", views.SchedulePreview.as_view(), name="report-schedule"),
    path(_DEFINITION, views.DefinitionCrud.change_view(), name="report-definition"),
    path(f"{_DEFINITION}run/", views.DefinitionRun.as_view(), name="report-run"),
    path(f"{_DEFINITION}delete/", views.DefinitionCrud.delete_view(), name="report-definition-delete"),
    path(f"{_PAGE}webhooks/", views.WebhooksPage.as_view(), name="report-webhooks"),
    path(f"{_HOOK}renew/", views.WebhookRenew.as_view(), name="report-webhook-renew"),
    path(f"{_HOOK}delete/", views.WebhookCrud.delete_view(), name="report-webhook-delete"),
    path(_REPORT, views.ReportPage.as_view(), name="report"),
    path(f"{_REPORT}delete/", views.ReportCrud.delete_view(), name="report-delete"),
    path(f"{_REPORT}deliveries/<int:number>/send/", views.DeliverySendAgain.as_view(), name="report-send"),
    path(f"{_REPORT}<str:form>/", views.ReportFile.as_view(), name="report-file"),
]
