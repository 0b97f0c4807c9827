"""Results as files: every row of the windows of a stretch, led by the window's own columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

import pyarrow as pa
from django.http import HttpResponse, StreamingHttpResponse

from agent.wire import batch_bytes
from apps.results.bodies import as_json, table_in
from apps.results.models import ResultWindow
from apps.ui.tables import csv_cell

__all__ = ["ARROW", "results_arrow", "results_csv"]

ARROW = "application/vnd.apache.arrow.stream"
_LEAD = ("revision", "complete")


class _Line:
    """A file that gives back what is written into it."""

    def write(self, text: str) -> str:
        return text


def results_csv(windows: Iterable[ResultWindow], name: str) -> StreamingHttpResponse:
    """One line for each row; the columns are those of the first window."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(_lines(windows), content_type="text/csv; charset=utf-8", headers=headers)


def _lines(windows: Iterable[ResultWindow]) -> Iterator[str]:
    writer = csv.writer(_Line())
    names: list[str] | None = None
    for window in windows:
        table = table_in(window.body)
        if names is None:
            names = table.column_names
            yield writer.writerow([*_LEAD, *names])
        for row in table.to_pylist():
            cells = [csv_cell(as_json(row.get(column))) for column in names]
            yield writer.writerow([window.revision, str(window.complete).lower(), *cells])


def results_arrow(windows: Iterable[ResultWindow], name: str) -> HttpResponse:
    """One Arrow IPC stream; windows of another plan with other columns are left out."""
    tables: list[pa.Table] = []
    for window in windows:
        table = table_in(window.body)
        if not tables or table.schema.equals(tables[0].schema):
            tables.append(table)
    body = batch_bytes(pa.concat_tables(tables).combine_chunks()) if tables else b""
    headers = {"Content-Disposition": f'attachment; filename="{name}.arrow"'}
    return HttpResponse(body, content_type=ARROW, headers=headers)
