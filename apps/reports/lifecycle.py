"""Life of a report: requested, stored with its facts, downloaded, deleted."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import zstandard
from django.db import transaction
from django.http import HttpResponse
from django.utils.text import slugify

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.deliveries import Channel, send_soon
from apps.core.errors import Conflict
from apps.core.events import announce
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.services import job_submit, on_unanswered
from apps.reports.choices import FORMATS, ReportState, Trigger
from apps.reports.models import Delivery, Report, ReportDefinition
from apps.reports.report import AnyReport, read_facts

__all__ = [
    "connect",
    "report_delete",
    "report_download",
    "report_facts",
    "report_file",
    "report_file_name",
    "report_for",
    "report_request",
    "report_store",
]

_CANCELLED = {"code": "cancelled", "message": "Its job was cancelled.", "faults": []}


@transaction.atomic
def report_request(
    *,
    definition: ReportDefinition,
    trigger: str = Trigger.MANUAL,
    due_at: datetime | None = None,
    missed: int = 0,
    user: User | None = None,
) -> Report:
    """Ask for a report. One asked for by hand leaves the schedule alone; while such a one is written, it is returned.

    Raises
    ------
    Unavailable
        No job can be queued; nothing is stored.
    """
    if trigger == Trigger.MANUAL:
        writing = Report.objects.filter(definition=definition, trigger=trigger, state=ReportState.WRITING).first()
        if writing is not None:
            return writing
    report = report_for(definition=definition, user=user, trigger=trigger, due_at=due_at, missed=missed)
    report.job = job_submit(
        kind=JobKind.REPORT,
        title=f"Report {definition.name}",
        params={"report": str(report.pk)},
        cluster=definition.cluster,
        user=user,
    )
    report.save(update_fields=["job"])
    announce("reports")
    return report


def report_for(*, definition: ReportDefinition, user: User | None = None, **fields: Any) -> Report:
    """A report that covers the time since the last one, still without a job."""
    written = Report.objects.filter(definition=definition, state=ReportState.READY).order_by("-covers_until")
    fields.setdefault("trigger", Trigger.MANUAL)
    return Report.objects.create(
        definition=definition,
        requested_by=user if user is not None and user.pk else None,
        covers_from=written.values_list("covers_until", flat=True).first(),
        covers_until=shared_now(),
        **fields,
    )


def report_store(*, report: Report, facts: AnyReport, parts: dict[str, str], html: str, pdf: bytes, csv: bytes) -> None:
    """Keep a finished report and address it to its readers. Called inside the job's transaction, so once."""
    report.facts, report.html = _packed(json.dumps(facts.to_dict(), allow_nan=False)), _packed(html)
    report.pdf, report.csv, report.snapshot_parts = pdf, csv, parts
    report.finding, report.state, report.written_at = facts.finding, ReportState.READY, shared_now()
    report.error = None
    report.save()
    _address(report)
    announce("reports")
    announce(f"report:{report.pk}")
    send_soon()


def _address(report: Report) -> None:
    """One delivery for each reader; a reader who has one already gets no second one."""
    now = shared_now()
    for address in report.definition.emails:
        Delivery.objects.get_or_create(
            report=report, channel=Channel.EMAIL, target=address, defaults={"next_try_at": now}
        )
    for hook in report.definition.webhooks.all():
        Delivery.objects.get_or_create(
            report=report, channel=Channel.WEBHOOK, target=hook.url, defaults={"webhook": hook, "next_try_at": now}
        )


def report_facts(report: Report) -> AnyReport | None:
    """The facts of a finished report."""
    return None if report.facts is None else read_facts(json.loads(_unpacked(report.facts)))


def report_html(report: Report) -> bytes | None:
    """The HTML document of a finished report."""
    return None if report.html is None else _unpacked(report.html)


@transaction.atomic
def report_delete(*, report: Report) -> None:
    """Delete a report with its files; what was sent is with its readers."""
    report.delete()
    announce("reports")


def _packed(text: str) -> bytes:
    return zstandard.compress(text.encode())


def _unpacked(data: bytes | memoryview) -> bytes:
    return zstandard.decompress(bytes(data))


def report_file_name(report: Report, kind: str) -> str:
    """weekly-provisioning-2026-11-23.pdf."""
    return f"{slugify(report.definition.name) or 'report'}-{report.covers_until:%Y-%m-%d}.{FORMATS[kind][1]}"


def report_file(report: Report, kind: str) -> bytes | None:
    """A finished report in one of `FORMATS`; None if it has none."""
    if kind == "json":
        facts = report_facts(report)
        return None if facts is None else json.dumps(facts.to_dict(), indent=1, ensure_ascii=False).encode()
    data = report_html(report) if kind == "html" else getattr(report, kind)
    return None if data is None else bytes(data)


def report_download(report: Report, form: str) -> HttpResponse:
    """A finished report as a file to keep."""
    data = report_file(report, form) if report.state == ReportState.READY else None
    if data is None:
        raise Conflict(f"The report is {report.get_state_display().lower()}; it has no files.")
    headers = {"Content-Disposition": f'attachment; filename="{report_file_name(report, form)}"'}
    return HttpResponse(data, content_type=FORMATS[form][0], headers=headers)


def connect() -> None:
    """Called once, when the app is ready: a report whose job ends without one fails with it."""
    on_unanswered(JobKind.REPORT, _end_report)


def _end_report(job: Job) -> None:
    error = job.error if job.state == JobState.FAILED else _CANCELLED
    writing = Report.objects.filter(pk=job.params["report"], state=ReportState.WRITING)
    if writing.update(state=ReportState.FAILED, error=error):
        announce(f"report:{job.params['report']}")
        announce("reports")
