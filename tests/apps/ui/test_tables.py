"""Lists: search, filters, sort, pages and export, all from the address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import AsyncRequestFactory, RequestFactory

from apps.ui.tables import Choice, Column, Filter, Table

ROWS = [
    SimpleNamespace(pk=i, name=f"q{i:02d}", size=size, state="ok" if i % 2 else "bad")
    for i, size in enumerate([5, None, 3, 9, 1])
]


def table(query: str = "", **options: Any) -> Table:
    columns = [
        Column("name", "Name", lambda row: row.name, sort=lambda row: row.name),
        Column("size", "Size", lambda row: row.size, sort=lambda row: row.size, num=True, high_first=True),
        Column("note", "Note", lambda row: "<b>", csv=lambda row: "=1+1"),
    ]
    state = Filter(
        "state",
        [Choice("ok", "Fine", 2, "ok", "ok"), Choice("bad", "Bad", 3)],
        lambda rows, value: [row for row in rows if row.state == value],
    )
    request = RequestFactory().get(f"/list/{query}")
    defaults = {
        "caption": "Rows",
        "default_sort": "name",
        "filters": [state],
        "search": lambda row: row.name,
        **options,
    }
    return Table(request, columns, ROWS, **defaults)


def names(shown: Table) -> list[str]:
    return [row.name for row in shown.page]


def test_sort_both_ways_with_missing_values_last() -> None:
    assert names(table("?sort=size")) == ["q04", "q02", "q00", "q03", "q01"]
    assert names(table("?sort=-size")) == ["q03", "q00", "q02", "q04", "q01"]
    assert names(table("?sort=nonsense")) == ["q00", "q01", "q02", "q03", "q04"]


def test_headers_lead_to_the_other_direction() -> None:
    first = {header.column.key: header for header in table().headers}
    assert (first["name"].direction, first["name"].url) == ("ascending", "/list/?sort=-name")
    assert (first["size"].direction, first["size"].url) == ("", "/list/?sort=-size")
    assert first["note"].url == ""
    assert {h.column.key: h.direction for h in table("?sort=-size").headers}["size"] == "descending"


def test_search_and_filter_are_combined() -> None:
    filtered = table("?q=Q0&state=bad&page=1")
    assert names(filtered) == ["q00", "q02", "q04"]
    assert filtered.is_filtered
    assert [(choice.label, current) for choice, _, current in filtered.chips[0]] == [
        ("All", False),
        ("Fine", False),
        ("Bad", True),
    ]
    assert table("?state=other").chosen == {}


def test_rows_are_paginated() -> None:
    second = table("?page=2&state=bad", page_size=2)
    assert names(second) == ["q04"]
    assert second.previous_url == "/list/?state=bad&page=1"
    assert second.next_url == ""
    assert names(table("?page=99", page_size=2)) == ["q04"]


def test_export_has_every_row_and_escapes_formulas() -> None:
    response = table("?export=csv&sort=size", page_size=2, file_name="rows").csv_response()
    lines = response.content.decode().splitlines()
    assert lines[0] == "Name,Size,Note"
    assert len(lines) == 6
    assert lines[1] == "q04,1,'=1+1"
    assert lines[-1] == "q01,,'=1+1"
    assert response["Content-Disposition"] == 'attachment; filename="rows.csv"'


def many(request: Any) -> Any:
    rows = [SimpleNamespace(pk=i, name=f"q{i:04d}", size=i, state="ok") for i in range(8000)]
    columns = [Column("name", "Name", lambda row: row.name), Column("size", "Size", lambda row: row.size)]
    return Table(request, columns, rows, caption="Rows").csv_response()


def test_export_of_many_rows_is_sent_in_parts() -> None:
    response = many(RequestFactory().get("/list/?export=csv"))
    parts = [part.decode() for part in response.streaming_content]
    assert len(parts) == 2
    assert "".join(parts).splitlines() == ["Name,Size", *(f"q{i:04d},{i}" for i in range(8000))]


async def test_export_of_many_rows_is_awaited_part_by_part() -> None:
    response = many(AsyncRequestFactory().get("/list/?export=csv"))
    assert response.is_async
    parts = [part.decode() async for part in response.streaming_content]
    assert len(parts) == 2 and "".join(parts).count("\n") == 8001


@pytest.mark.parametrize("query", ["", "?q=nothing-like-it"])
def test_table_template_renders_headers_rows_and_empty_states(query: str) -> None:
    rendered = table(query)
    html = render_to_string("ui/table.html", {"table": rendered, "request": rendered.request})
    assert "<b>" not in html.replace("<b>2</b>", "").replace("<b>3</b>", "")
    if query:
        assert "Nothing matches" in html
        assert 'href="/list/"' in html
    else:
        assert 'aria-sort="ascending"' in html
        assert "&lt;b&gt;" in html
        assert 'data-l="Size"' in html
