"""Work of report jobs: facts once, then every rendering of them."""

from __future__ import annotations

from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.reports.deliveries import page_url
from apps.reports.facts.report import gather_facts
from apps.reports.lifecycle import report_store
from apps.reports.models import Report
from apps.reports.outline.report import report_blocks
from apps.reports.render.csv_tables import csv_zip
from apps.reports.render.html import html_document
from apps.reports.render.pdf import pdf_document

__all__ = ["write_report"]


def write_report(report: JobReporter) -> JobOutcome:
    """Write the report of the job's row. Done again after a killed worker, it is kept and addressed once."""
    rows = Report.objects.select_related("definition__cluster", "definition__schedule", "requested_by")
    row = rows.get(pk=report.job.params["report"])
    facts, parts = gather_facts(row, report)
    report(0.88, "Drawing")
    html = html_document(facts, page_url(row))
    report(0.92, "Setting the PDF")
    pdf = pdf_document(facts)
    csv = csv_zip(report_blocks(facts))

    def store(job: Job) -> JobOutcome:
        report_store(report=row, facts=facts, parts=parts, html=html, pdf=pdf, csv=csv)
        result = {"report": str(row.pk), "finding": row.finding}
        return JobOutcome(result, f"/c/{row.definition.cluster.slug}/reports/{row.pk}/", f"/api/v1/reports/{row.pk}")

    return JobOutcome(store=store)
