"""Life of a report: requested, stored with its facts, downloaded, deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import zstandard
from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from django.utils.text import slugify

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.deliveries import Channel, DeliveryState, send_soon
from apps.core.errors import Conflict
from apps.core.events import announce
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.reports.choices import FORMATS, ReportState, Trigger
from apps.reports.models import Delivery, Report, ReportDefinition
from apps.reports.report import AnyReport, read_facts

__all__ = ["REPORT", "report_download", "report_facts", "report_file", "report_file_name"]

_CANCELLED = {"code": "cancelled", "message": "Its job was cancelled.", "faults": []}


class ReportRunKind(RunKind[Report]):
    """A report: facts of the cluster gathered once, then every rendering of them, then its way to readers."""

    model, job, name, path = Report, JobKind.REPORT, "report", "reports"
    asked, answered = ReportState.WRITING, ReportState.READY
    failed = cancelled = ReportState.FAILED
    stamp = "written_at"
    columns = ("result", "html", "pdf", "csv", "snapshot_parts", "finding")
    related = ("definition__cluster", "job", "requested_by")
    bulk = ("result", "html", "pdf", "csv", "snapshot_parts")

    def title(self, run: Report) -> str:
        return f"Report {run.definition.name}"

    def cluster(self, run: Report) -> Cluster:
        return run.definition.cluster

    def page(self, run: Report) -> str:
        return f"/c/{run.definition.cluster.slug}/reports/{run.pk}/"

    def announce(self, run: Report) -> None:
        announce(f"report:{run.pk}")
        announce("reports")

    def visible(self) -> QuerySet[Report]:
        """Every report without its files, newest first, with how many deliveries it has and how many failed."""
        failed = Count("deliveries", filter=Q(deliveries__state=DeliveryState.FAILED), distinct=True)
        return super().visible().annotate(delivery_count=Count("deliveries", distinct=True), failed_count=failed)

    def create(
        self,
        *,
        user: User | None,
        definition: ReportDefinition,
        trigger: str = Trigger.MANUAL,
        due_at: datetime | None = None,
        missed: int = 0,
    ) -> Report:
        """A report that covers the time since the last one, without a job.

        One asked for by hand leaves the schedule alone; while such a one is written, it is returned.
        """
        reports = Report.objects.filter(definition=definition)
        writing = reports.filter(trigger=trigger, state=ReportState.WRITING).first()
        if writing is not None and trigger == Trigger.MANUAL:
            return writing
        written = reports.filter(state=ReportState.READY).order_by("-covers_until")
        return Report.objects.create(
            definition=definition,
            requested_by=user,
            trigger=trigger,
            due_at=due_at,
            missed=missed,
            covers_from=written.values_list("covers_until", flat=True).first(),
            covers_until=shared_now(),
        )

    def answer(self, run: Report, report: JobReporter) -> None:
        from apps.reports.renderings import csv_zip, html_document, pdf_document
        from apps.reports.work import gather_facts  # and with it the engine, which only workers load

        facts, run.snapshot_parts = gather_facts(run, report)
        report(0.88, "Drawing")
        run.html = _packed(html_document(facts, settings.PUBLIC_URL + self.page(run)))
        report(0.92, "Setting the PDF")
        run.pdf, run.csv = pdf_document(facts), csv_zip(facts.blocks)
        run.result, run.finding = facts.to_dict(), facts.finding

    def keep(self, run: Report, answer: None, job: Job) -> Report:
        """Keep a finished report and address it to its readers: once, even of a job that is done again."""
        self.store(run)
        _address(run)
        send_soon()
        return run

    def facts(self, run: Report) -> Mapping[str, object]:
        return {"report": str(run.pk), "finding": run.finding}

    def end(self, job: Job) -> None:
        super().end(job)
        error = job.error if job.state == JobState.FAILED else _CANCELLED
        Report.objects.filter(pk=job.params["report"], state=ReportState.FAILED).update(error=error)


REPORT = register(ReportRunKind())


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
    return None if report.result is None else read_facts(report.result)


def report_html(report: Report) -> bytes | None:
    """The HTML document of a finished report."""
    return None if report.html is None else _unpacked(report.html)


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
