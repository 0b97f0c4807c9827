"""REST: definitions, schedules, runs, files, webhooks, and who may do what."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.reports.api import DeliverySerializer
from apps.reports.lifecycle import REPORT
from apps.reports.models import Delivery, Report, ReportDefinition
from apps.reports.report import read_facts

pytestmark = pytest.mark.django_db

NEW = {"cluster": "little", "kind": "provisioning", "name": "Monday", "parameters": {"growth": 0.3}}


def test_a_definition_is_made_changed_and_deleted(api: APIClient, cluster: Any) -> None:
    made = api.post("/api/v1/report-definitions", NEW, format="json")
    assert made.status_code == 201, made.data
    assert made.data["parameters"]["growth"] == 0.3
    assert made.data["parameters"]["horizon_days"] == 28
    address = f"/api/v1/report-definitions/{made.data['id']}"
    changed = api.patch(address, {"emails": ["a@example.org"]}, format="json")
    assert changed.data["emails"] == ["a@example.org"]
    assert api.post("/api/v1/report-definitions", NEW, format="json").status_code == 409
    assert api.delete(address).status_code == 204


def test_every_fault_of_a_definition_is_named(api: APIClient, cluster: Any) -> None:
    wrong = {
        **NEW,
        "parameters": {"growth": "much", "horizon_days": 0, "sections": ["all"], "colour": 1},
        "emails": ["no address", "a@example.org\nBcc: b@example.org"],
        "formats": ["doc"],
    }
    answer = api.post("/api/v1/report-definitions", wrong, format="json")
    assert answer.status_code == 400
    paths = {fault["path"] for fault in answer.data["faults"]}
    of_parameters = {f"parameters.{name}" for name in ("growth", "horizon_days", "sections", "colour")}
    assert paths == {*of_parameters, "emails[0]", "emails[1]", "formats"}
    latency = {"cluster": "little", "kind": "latency", "name": "x", "parameters": {"query": "none"}}
    assert "'none' is no query" in api.post("/api/v1/report-definitions", latency, format="json").data["detail"]


def test_a_schedule_is_previewed_set_and_replaced(api: APIClient, definition: ReportDefinition) -> None:
    rule = {"rule": {"every": "month", "day": 31, "at": "07:00"}, "time_zone": "Europe/Berlin"}
    runs = api.post("/api/v1/report-schedules/preview", rule, format="json")
    assert len(runs.data) == 5
    made = api.post("/api/v1/report-schedules", {**rule, "definition": definition.pk}, format="json")
    assert made.status_code == 201, made.data
    assert made.data["next_at"] == runs.data[0]["at"]
    assert made.data["sentence"].startswith("day 31 of every month at 07:00 (left out where there is no such day)")
    never = {"rule": {"every": "year", "month": 2, "day": 30, "at": "07:00"}}
    refused = api.patch(f"/api/v1/report-schedules/{made.data['id']}", never, format="json")
    assert refused.status_code == 400
    assert "30 February never comes" in refused.data["detail"]
    assert api.get("/api/v1/report-definitions").data["results"][0]["schedule"] == made.data["id"]


def test_report_runs_and_downloads_in_every_format(
    api: APIClient, definition: ReportDefinition, write: Callable[[Report], Report]
) -> None:
    asked = api.post(f"/api/v1/report-definitions/{definition.pk}/run")
    assert asked.status_code == 202
    assert asked["Location"].startswith("/api/v1/jobs/")
    address = asked.json()["result_api_url"]
    assert api.get(f"{address}/pdf").status_code == 409
    report = write(Report.objects.get())
    shown = api.get(address).data
    assert (shown["state"], shown["facts"]["finding"]) == ("ready", report.finding)
    files = {form: api.get(f"{address}/{form}") for form in ("html", "pdf", "csv", "json")}
    assert {answer.status_code for answer in files.values()} == {200}
    assert files["pdf"]["Content-Disposition"].endswith('.pdf"')
    with zipfile.ZipFile(io.BytesIO(files["csv"].content)) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("objectives.csv").decode())))
    facts = json.loads(files["json"].content)
    assert read_facts(facts).to_dict() == facts == shown["facts"]
    by_query = {row["query"]: row for row in facts["objectives"]["rows"]}
    assert {row["query"]: float(row["estimate_s"]) for row in rows} == {
        name: row["estimate_s"] for name, row in by_query.items()
    }
    assert report.finding in files["html"].content.decode()


def test_latency_report_covers_the_users_of_a_query(
    api: APIClient, cluster: Any, write: Callable[[Report], Report]
) -> None:
    body = {"cluster": "little", "kind": "latency", "name": "For late", "parameters": {"query": "late"}}
    made = api.post("/api/v1/report-definitions", body, format="json")
    report = write(REPORT.request(definition=ReportDefinition.objects.get(pk=made.data["id"]))[0])
    assert report.finding.startswith("In the worst case an event of late takes ")
    assert report.finding.endswith("The objective is 2\u00a0s: it is expected to be missed.")
    facts = api.get(f"/api/v1/reports/{report.pk}").data["facts"]
    assert [row["query"] for row in facts["objectives"]["rows"]] == ["late"]
    assert facts["curves"]["late"]["flow_s"]
    assert facts["parameters"] == facts["subject"] == {"query": "late"}
    assert read_facts(facts).to_dict() == facts


def test_failed_delivery_is_sent_again_on_request(api: APIClient, definition: ReportDefinition) -> None:
    report = REPORT.request(definition=definition)[0]
    row = Delivery.objects.create(report=report, channel="email", target="a@example.org", state="failed", attempts=8)
    answer = api.post(f"/api/v1/reports/{report.pk}/deliveries/{row.pk}/send")
    assert (answer.data["state"], answer.data["attempts"]) == ("waiting", 0)
    assert api.post(f"/api/v1/reports/{report.pk}/deliveries/999/send").status_code == 404


def test_webhook_secret_is_shown_once(api: APIClient, cluster: Any) -> None:
    body = {"cluster": "little", "name": "chat", "url": "https://hooks.example.org/x"}
    made = api.post("/api/v1/webhooks", body, format="json")
    assert made.status_code == 201
    assert len(made.data["secret"]) == 64
    address = f"/api/v1/webhooks/{made.data['id']}"
    assert "secret" not in api.get(address).data
    renewed = api.post(f"{address}/renew-secret").data["secret"]
    assert renewed != made.data["secret"]
    inside = api.post("/api/v1/webhooks", {**body, "name": "in", "url": "http://10.0.0.1/"}, format="json")
    assert inside.status_code == 400


def test_only_the_host_of_a_webhook_is_shown(definition: ReportDefinition) -> None:
    report = REPORT.request(definition=definition)[0]
    told = [
        DeliverySerializer(Delivery(report=report, channel=channel, target=target)).data["target"]
        for channel, target in (("webhook", "https://hooks.example/T0/secret"), ("email", "ops@example.org"))
    ]
    assert told == ["hooks.example", "ops@example.org"]
