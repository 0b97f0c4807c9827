"""Report definitions are created, changed and deleted in the browser; reports and webhooks are deleted."""

from __future__ import annotations

from django.test import Client

from apps.reports.lifecycle import REPORT
from apps.reports.models import Report, ReportDefinition, Webhook
from apps.reports.services import definition_create, webhook_create
from tests.apps.pages.crud import CrudTests, DeleteTests


class TestDefinitions(CrudTests):
    model = ReportDefinition
    key = {"name": "Weekly"}
    create_url = "/c/little/reports/new/"
    change_url = "/c/little/reports/definitions/{pk}/"
    delete_url = "/c/little/reports/definitions/{pk}/delete/"
    valid = {
        "name": "Weekly",
        "kind": "provisioning",
        "sections": ["objectives", "fleet"],
        "horizon_days": "28",
        "growth": "60",
        "formats": ["pdf"],
        "emails": "ops@example.org",
        "every": "week",
        "days": ["mon"],
        "at": "07:00",
        "time_zone": "Europe/Berlin",
        "enabled": "on",
    }
    changed = {"name": "Every week"}
    invalid = {"at": "25:00"}


class TestReports(DeleteTests):
    model = Report
    delete_url = "/c/little/reports/{pk}/delete/"

    def address(self, url: str, row: Report) -> str:
        return f"/c/little/reports/{row.pk}/delete/"

    def gone(self, url: str) -> str:
        return "/c/little/reports/00000000-0000-0000-0000-000000000000/delete/"

    def make(self, browser: Client) -> Report:
        definition = definition_create(cluster=self.cluster, kind="provisioning", name="Weekly")
        report = REPORT.request(definition=definition, user=None)[0]
        Report.objects.filter(pk=report.pk).update(state="failed")
        return report


class TestWebhooks(DeleteTests):
    model = Webhook
    delete_url = "/c/little/reports/webhooks/{pk}/delete/"

    def gone(self, url: str) -> str:
        return url.format(pk="00000000-0000-0000-0000-000000000000")

    def make(self, browser: Client) -> Webhook:
        return webhook_create(cluster=self.cluster, name="chat", url="https://hooks.example.org/sluice")
