"""Addresses of the report pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.reports import views
from apps.pages.reports import views as report_webhooks
from apps.pages.reports import views as reports
from apps.pages.reports import views as reports_views

_PAGE = "c/<str:slug>/reports/"
_DEFINITION = f"{_PAGE}definitions/<int:pk>/"
_HOOK = f"{_PAGE}webhooks/<uuid:pk>/"
_REPORT = f"{_PAGE}<uuid:pk>/"

urlpatterns = [
    path(_PAGE, reports.ReportsPage.as_view(), name="reports"),
    path(f"{_PAGE}new/", views.DefinitionNew.as_view(), name="report-new"),
    path(f"{_PAGE}schedule/", views.SchedulePreview.as_view(), name="report-schedule"),
    path(_DEFINITION, views.DefinitionEdit.as_view(), name="report-definition"),
    path(f"{_DEFINITION}run/", views.DefinitionRun.as_view(), name="report-run"),
    path(f"{_DEFINITION}delete/", views.DefinitionDelete.as_view(), name="report-definition-delete"),
    path(f"{_PAGE}webhooks/", report_webhooks.WebhooksPage.as_view(), name="report-webhooks"),
    path(f"{_HOOK}renew/", report_webhooks.WebhookRenew.as_view(), name="report-webhook-renew"),
    path(f"{_HOOK}delete/", report_webhooks.WebhookDelete.as_view(), name="report-webhook-delete"),
    path(_REPORT, reports_views.ReportPage.as_view(), name="report"),
    path(f"{_REPORT}delete/", reports_views.ReportDelete.as_view(), name="report-delete"),
    path(f"{_REPORT}deliveries/<int:number>/send/", reports_views.DeliverySendAgain.as_view(), name="report-send"),
    path(f"{_REPORT}<str:form>/", reports_views.ReportFile.as_view(), name="report-file"),
]
