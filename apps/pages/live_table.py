"""The rows of the newest window as a table: searched, sorted, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from django.http import HttpRequest

from apps.pages.live_charts import value_text
from apps.queries.models import Query
from apps.results.bodies import as_json, is_number
from apps.results.columns import WINDOW
from apps.ui.tables import Column, Table

__all__ = ["results_table"]


def results_table(request: HttpRequest, query: Query, rows: pa.Table, groups: Sequence[str], sorted_by: str) -> Table:
    """The columns that name a group come first; the largest of the drawn column leads."""
    others = [name for name in rows.column_names if name not in groups and name != WINDOW]

    def named(row: Mapping[str, Any]) -> str:
        return " ".join(str(row[name]) for name in groups)

    return Table(
        request,
        [_column(rows.schema.field(name), name in groups) for name in [*groups, *others]],
        rows.to_pylist(),
        caption="Newest results",
        default_sort=f"-{sorted_by}" if sorted_by else "",
        search=named if groups else None,
        search_label="Group",
        page_size=10,
        file_name=f"results-{query.name}",
        identify=named,
        empty={
            "icon": "arrivals",
            "title": "The window has no rows",
            "text": "No record passed its filters in that time.",
        },
    )


def _column(field: pa.Field, is_group: bool) -> Column:
    name, numeric = field.name, is_number(field.type)
    return Column(
        name,
        name,
        lambda row: value_text(row[name]),
        sort=lambda row: row[name],
        csv=lambda row: as_json(row[name]),
        num=numeric and not is_group,
        high_first=numeric,
    )
