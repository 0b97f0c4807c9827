"""Addresses of the report pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import report_definitions, report_detail, report_webhooks, reports

_PAGE = "c/<str:slug>/reports/"
_DEFINITION = f"{_PAGE}definitions/<int:pk>/"
_HOOK = f"{_PAGE}webhooks/<uuid:pk>/"
_REPORT = f"{_PAGE}<uuid:pk>/"

urlpatterns = [
    path(_PAGE, reports.ReportsPage.as_view(), name="reports"),
    path(f"{_PAGE}new/", report_definitions.DefinitionNew.as_view(), name="report-new"),
    path(f"{_PAGE}schedule/", report_definitions.SchedulePreview.as_view(), name="report-schedule"),
    path(_DEFINITION, report_definitions.DefinitionEdit.as_view(), name="report-definition"),
    path(f"{_DEFINITION}run/", report_definitions.DefinitionRun.as_view(), name="report-run"),
    path(f"{_DEFINITION}delete/", report_definitions.DefinitionDelete.as_view(), name="report-definition-delete"),
    path(f"{_PAGE}webhooks/", report_webhooks.WebhooksPage.as_view(), name="report-webhooks"),
    path(f"{_HOOK}renew/", report_webhooks.WebhookRenew.as_view(), name="report-webhook-renew"),
    path(f"{_HOOK}delete/", report_webhooks.WebhookDelete.as_view(), name="report-webhook-delete"),
    path(_REPORT, report_detail.ReportPage.as_view(), name="report"),
    path(f"{_REPORT}delete/", report_detail.ReportDelete.as_view(), name="report-delete"),
    path(f"{_REPORT}deliveries/<int:number>/send/", report_detail.DeliverySendAgain.as_view(), name="report-send"),
    path(f"{_REPORT}<str:form>/", report_detail.ReportFile.as_view(), name="report-file"),
]
