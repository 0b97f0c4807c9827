"""Pages of reports: define with a preview of the schedule, look, download, send again."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from apps.accounts.teams import team_named
from apps.fleet.models import Cluster
from apps.jobs.models import Job
from apps.jobs.runner import run_job
from apps.reports.lifecycle import REPORT
from apps.reports.models import Delivery, Report, ReportDefinition, ReportSchedule, Webhook
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

FORM = {
    "name": "Weekly",
    "kind": "provisioning",
    "sections": ["objectives", "fleet", "changes"],
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


def written(browser: Client) -> Report:
    """Define a report, ask for one, and do its job."""
    browser.post("/c/little/reports/new/", FORM)
    definition = ReportDefinition.objects.get()
    browser.post(f"/c/little/reports/definitions/{definition.pk}/run/")
    report = Report.objects.get()
    assert report.job is not None
    ended = run_job(report.job.pk, REPORT.work)
    assert ended is not None and not ended.error, ended and ended.error
    report.refresh_from_db()
    return report


def test_without_reports_the_page_says_what_to_do(browser: Client, browser_of: Any, cluster: Cluster) -> None:
    html = body(browser.get("/c/little/reports/"))
    assert "No report is defined yet" in html
    assert "button above" not in html
    assert "/c/little/reports/new/" in html
    assert "/c/little/reports/new/" not in body(browser_of("viewer").get("/c/little/reports/"))


def test_the_form_shows_the_next_runs(browser: Client, cluster: Cluster) -> None:
    runs = body(browser.post("/c/little/reports/schedule/", FORM))
    assert "Every Monday at 07:00" in runs
    assert len(re.findall(r"<li>\s*Mon ", runs)) == 5
    never = body(browser.post("/c/little/reports/schedule/", {**FORM, "every": "year", "month": "2", "day": "30"}))
    assert "30 February never comes" in never
    zone = body(browser.post("/c/little/reports/schedule/", {**FORM, "time_zone": "Mars/Olympus"}))
    assert "is not a time zone" in zone
    assert "when somebody asks" in body(browser.post("/c/little/reports/schedule/", {**FORM, "every": ""}))


def test_a_report_is_defined_changed_and_deleted(browser: Client, cluster: Cluster) -> None:
    refused = browser.post("/c/little/reports/new/", {**FORM, "growth": "-1", "emails": "nobody", "at": ""})
    assert refused.status_code == 422
    assert not ReportDefinition.objects.exists()
    html = body(refused)
    assert "is not a mail address" in html
    assert "allowed: a number from 0 to 20" in html
    browser.post("/c/little/reports/new/", FORM)
    definition, schedule = ReportDefinition.objects.get(), ReportSchedule.objects.get()
    assert definition.parameters["growth"] == 0.6
    for name in ("Weekly provisioning", "Weekly provisioning 2"):
        fresh = body(browser.get("/c/little/reports/new/"))
        assert f'value="{name}"' in fresh
        browser.post("/c/little/reports/new/", {**FORM, "name": name})
        ReportDefinition.objects.filter(name=name).exclude(name="Weekly provisioning").delete()
    ReportDefinition.objects.exclude(pk=definition.pk).delete()
    assert "Every Monday at 07:00 Europe/Berlin; next" in body(browser.get("/c/little/reports/"))
    address = f"/c/little/reports/definitions/{definition.pk}/"
    assert 'value="Weekly"' in body(browser.get(address))
    browser.post(address, {**FORM, "name": "Mondays"})
    assert ReportSchedule.objects.get().updated_at == schedule.updated_at, "the same rule keeps its next due time"
    browser.post(address, {**FORM, "every": ""})
    assert not ReportSchedule.objects.exists()
    browser.post(f"{address}delete/")
    assert not ReportDefinition.objects.exists()


def test_a_report_is_shown_and_downloaded(browser: Client, cluster: Cluster) -> None:
    report = written(browser)
    html = body(browser.get(f"/c/little/reports/{report.pk}/"))
    assert report.finding in html
    assert html.count("<svg width=") >= 2, "pictures are drawn into the page"
    assert "Objectives and headroom" in html
    assert "var(--c-estimate)" in html
    pdf = browser.get(f"/c/little/reports/{report.pk}/pdf/")
    assert (pdf.status_code, pdf.content[:5]) == (200, b"%PDF-")
    assert browser.get(f"/c/little/reports/{report.pk}/doc/").status_code == 404
    table = browser.get("/c/little/reports/?export=csv")
    assert report.finding in body(table)
    row = report.deliveries.get()
    assert row.target in html
    Delivery.objects.filter(pk=row.pk).update(state="failed", last_error="The mail server does not take it")
    assert "The mail server does not take it" in body(browser.get(f"/c/little/reports/{report.pk}/"))
    browser.post(f"/c/little/reports/{report.pk}/deliveries/{row.pk}/send/")
    assert report.deliveries.get().state == "waiting"
    browser.post(f"/c/little/reports/{report.pk}/delete/")
    assert not Report.objects.exists()


def test_names_are_text_in_pictures_too(browser: Client, cluster: Cluster) -> None:
    browser.post("/c/little/reports/new/", {**FORM, "name": "<b>&"})
    query = cluster.queries.get(name="late")
    query.team = team_named("<script>alert(1)</script>")
    query.save()
    definition = ReportDefinition.objects.get()
    browser.post(f"/c/little/reports/definitions/{definition.pk}/run/")
    report = Report.objects.get()
    assert report.job is not None
    run_job(report.job.pk, REPORT.work)
    html = body(browser.get(f"/c/little/reports/{report.pk}/"))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_failed_report_says_why(browser: Client, cluster: Cluster) -> None:
    browser.post("/c/little/reports/new/", FORM)
    browser.post(f"/c/little/reports/definitions/{ReportDefinition.objects.get().pk}/run/")
    report = Report.objects.get()
    browser.post(f"/jobs/{report.job_id}/cancel/")
    assert "Its job was cancelled." in body(browser.get(f"/c/little/reports/{report.pk}/"))
    assert Job.objects.get(pk=report.job_id).is_finished


def test_a_webhook_shows_its_secret_once(browser: Client, cluster: Cluster) -> None:
    made = body(browser.post("/c/little/reports/webhooks/", {"name": "chat", "url": "https://hooks.example.org/x"}))
    hook = Webhook.objects.get()
    secret = re.search(r'id="secret">([0-9a-f]{64})<', made)
    assert secret is not None
    assert secret[1] not in body(browser.get("/c/little/reports/webhooks/"))
    assert browser.post("/c/little/reports/webhooks/", {"name": "in", "url": "http://10.0.0.1/"}).status_code == 422
    browser.post(f"/c/little/reports/webhooks/{hook.pk}/delete/")
    assert not Webhook.objects.exists()
