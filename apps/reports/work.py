"""The work of report jobs: facts once, then every rendering of them."""

from __future__ import annotations

from apps.jobs.models import Job
from apps.jobs.running import Outcome, Reporter
from apps.reports.facts.gather import facts_of
from apps.reports.links import page_url
from apps.reports.models import Report
from apps.reports.outline.build import outline
from apps.reports.render.csv_tables import csv_zip
from apps.reports.render.html import html_document
from apps.reports.render.pdf import pdf_document
from apps.reports.writing import report_store

__all__ = ["write_report"]


def write_report(report: Reporter) -> Outcome:
    """Write the report of the job's row. Done again after a killed worker, it is kept and addressed once."""
    rows = Report.objects.select_related("definition__cluster", "definition__schedule", "requested_by")
    row = rows.get(pk=report.job.params["report"])
    facts, parts = facts_of(row, report)
    report(0.88, "Drawing")
    html = html_document(facts, page_url(row))
    report(0.92, "Setting the PDF")
    pdf = pdf_document(facts)
    csv = csv_zip(outline(facts))

    def store(job: Job) -> Outcome:
        report_store(report=row, facts=facts, parts=parts, html=html, pdf=pdf, csv=csv)
        result = {"report": str(row.pk), "finding": row.finding}
        return Outcome(result, f"/c/{row.definition.cluster.slug}/reports/{row.pk}/", f"/api/v1/reports/{row.pk}")

    return Outcome(store=store)
