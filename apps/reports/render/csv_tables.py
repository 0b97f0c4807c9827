"""A report's tables as CSV files in one zip, with raw values."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable

from apps.reports.blocks import Block, ReportTable
from apps.ui.tables import csv_cell

__all__ = ["csv_zip", "table_csv"]

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
