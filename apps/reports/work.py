"""Work of report jobs: facts once, then every rendering of them; tables as CSV files in one zip."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable

from apps.jobs.models import Job
from apps.jobs.runner import JobOutcome, JobReporter
from apps.reports.blocks import Block, ReportTable
from apps.reports.deliveries import page_url
from apps.reports.facts.report import gather_facts
from apps.reports.lifecycle import report_store
from apps.reports.models import Report
from apps.reports.outline.report import report_blocks
from apps.reports.render.html import html_document
from apps.reports.render.pdf import pdf_document
from apps.ui.tables import csv_cell

__all__ = ["csv_zip", "table_csv", "write_report"]


_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same report gives the same file


def csv_zip(blocks: Iterable[Block]) -> bytes:
    """One file per table, named by its key."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for block in blocks:
            if isinstance(block, ReportTable):
                entry = zipfile.ZipInfo(f"{block.key}.csv", _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, table_csv(block))
    return file.getvalue()


def table_csv(table: ReportTable) -> str:
    """Every row with its raw values; texts that a spreadsheet would take for a formula are quoted."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow([column.csv for column in table.columns])
    for cells in table.rows:
        rows.writerow([csv_cell(cell.raw) for cell in cells])
    return text.getvalue()


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
