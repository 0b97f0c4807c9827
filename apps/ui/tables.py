"""List pages: columns, search, filters, sort and page all live in the address, and every list exports to CSV.

A view puts a `Table` into its page's context, whose template renders `{% include "ui/table.html" %}`; asked for as CSV,
the page is `csv_response()`. Rows may be a queryset or a list.
"""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, reduce
from io import StringIO
from itertools import islice
from operator import or_
from typing import Any
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.core.paginator import Page, Paginator
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.safestring import SafeString
from django_filters import FilterSet

from apps.ui.marks import STATES, icon, judged_state
from apps.ui.times import time_tag

__all__ = [
    "ALL_ROWS",
    "Choice",
    "Column",
    "Filter",
    "Table",
    "address",
    "csv_cell",
    "judged_choice",
    "request_columns",
    "state_choices",
]


ALL_ROWS = "all"  # of the parameter `view`: neither a saved view nor a default
_LOADED = 500  # rows at once, where all are exported
_CSV_PART = 64_000  # characters sent at once
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def address(request: HttpRequest, **changes: Any) -> str:
    """The present address with some query parameters changed; None removes one. The page restarts at 1.

    Where nothing but the view stays that the parameters came from, all rows are meant, not the view again.
    """
    query = request.GET.copy()
    for name in ("page", "export"):
        query.pop(name, None)
    for name, value in changes.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = value
    if "view" in query and len(query) == 1:
        query["view"] = ALL_ROWS
    encoded = query.urlencode()
    return f"{request.path}?{encoded}" if encoded else request.path


@dataclass(frozen=True)
class Column:
    """A column of a list.

    `cell` gives what is shown (text is escaped, SafeString is not), `csv` the raw value for export (default: `cell`).
    `sort` is a database field for querysets, or an expression, whose nulls come last, or a key function for lists.
    `num` aligns right; on phones `full` takes the whole width at the top of the record, `hide` is left out and `short`
    replaces the label; `file_only` is in the export alone. The first column is the row's heading.
    """

    key: str
    label: str
    cell: Callable[[Any], Any]
    sort: str | F | Callable[[Any], Any] | None = None
    csv: Callable[[Any], Any] | None = None
    num: bool = False
    full: bool = False
    hide: bool = False
    high_first: bool = False
    short: str = ""
    file_only: bool = False
    css: Callable[[Any], str] = lambda row: ""


@dataclass(frozen=True)
class Choice:
    """One value of a filter. `count` is shown in its chip; `drawing` and `tone` draw its mark.

    `besides` is a part of its rows that has a mark of its own and is not counted in `count`.
    """

    value: str
    label: str
    count: int | None = None
    drawing: str = ""
    tone: str = ""
    besides: Choice | None = None

    @property
    def mark(self) -> SafeString:
        return icon(self.drawing, self.tone) if self.drawing else SafeString("")


def state_choices(states: Iterable[str], counts: Mapping[str, int]) -> list[Choice]:
    """The choices of a filter by state, each with its mark and the number of its rows."""
    marks = {state: STATES[state] for state in states}
    return [
        Choice(state, mark.label, counts.get(state, 0), mark.drawing, mark.tone or "muted")
        for state, mark in marks.items()
    ]


def judged_choice(state: str, count: int, expected: int) -> Choice:
    """The choice of an objective's state: those that were measured, and besides them those that are `expected` by an
    estimate alone, each with its mark. `count` is the number of both.
    """
    own, theirs = STATES[state], STATES[judged_state(state, "estimate")]
    if own == theirs or not expected:
        return Choice(state, own.label, count, own.drawing, own.tone or "muted")
    besides = Choice(state, theirs.label, expected, theirs.drawing, theirs.tone or "muted")
    return besides if count == expected else replace(judged_choice(state, count - expected, 0), besides=besides)


@dataclass(frozen=True)
class Filter:
    """A property that rows are chosen by: a filter of the table's `filterset`, the one of REST.

    `name` is the filter's name there, where the address of the page says another. Lists that are no querysets give
    `keep` instead, which takes (rows, value) and gives the rows that stay.
    """

    param: str
    choices: Sequence[Choice]
    keep: Callable[[Any, str], Any] | None = None
    all_label: str = "All"
    all_count: int | None = None
    as_menu: bool = False
    name: str = ""


@dataclass(frozen=True)
class Header:
    """A column's heading as the template draws it."""

    column: Column
    url: str = ""
    direction: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell as the template draws it."""

    column: Column
    content: Any
    css: str = ""

    @property
    def classes(self) -> str:
        """CSS classes of the cell: those of its column, then its own."""
        flags = [name for name in ("num", "full", "hide") if getattr(self.column, name)]
        return " ".join([*flags, self.css]).strip()


@dataclass
class Table:
    """Rows after search, filters and sort, page by page. `views` are the saved ones, where the list has them.

    `load` makes the lines that columns show of the rows of one page: what only these need is read for them alone.
    `row_count` is the number of all rows, where it is known already.
    """

    request: HttpRequest
    columns: Sequence[Column]
    rows: Any
    caption: str
    default_sort: str = ""
    filters: Sequence[Filter] = ()
    filterset: type[FilterSet] | None = None
    search: Sequence[str] | Callable[[Any], str] | None = None
    search_label: str = "Search"
    page_size: int = 50
    file_name: str = "export"
    select: bool = False
    identify: Callable[[Any], Any] = field(default=lambda row: row.pk)
    empty: Mapping[str, str] = field(default_factory=dict)
    views: Any = None
    load: Callable[[list[Any]], Sequence[Any]] = field(default=lambda rows: rows)
    row_count: int | None = None

    @property
    def query(self) -> str:
        return self.request.GET.get("q", "").strip()

    @cached_property
    def chosen(self) -> dict[str, str]:
        """The filters in force: {param: value}, unknown values left out."""
        typed = {filter_.param: self.request.GET.get(filter_.param, "") for filter_ in self.filters}
        allowed = {filter_.param: {choice.value for choice in filter_.choices} for filter_ in self.filters}
        return {param: value for param, value in typed.items() if value in allowed[param]}

    @property
    def kept(self) -> dict[str, str]:
        """Search, filters and order in force as parameters of the address, for a saved view."""
        typed = self.request.GET.get("sort", "")
        column = self.sort[0]
        in_order = {"sort": typed} if typed and column is not None and column.key == typed.lstrip("-") else {}
        return {**({"q": self.query} if self.query else {}), **self.chosen, **in_order}

    @property
    def kept_query(self) -> str:
        """The same as the query of an address."""
        return urlencode(self.kept)

    @property
    def lost(self) -> list[tuple[str, str]]:
        """(parameter, value) of the saved view in force that this list does not have, or no longer."""
        lost: list[tuple[str, str]] = self.views.lost(self.kept) if self.views is not None else []
        return lost

    @property
    def is_searchable(self) -> bool:
        """Asked by templates: they would call a `search` that is a function."""
        return self.search is not None

    @property
    def is_filtered(self) -> bool:
        return bool(self.query or self.chosen)

    @cached_property
    def sort(self) -> tuple[Column | None, bool]:
        """The sorted column and whether it descends."""
        key = self.request.GET.get("sort", "") or self.default_sort
        sortable = {column.key: column for column in self.columns if column.sort}
        column = sortable.get(key.lstrip("-")) or sortable.get(self.default_sort.lstrip("-"))
        return column, key.startswith("-")

    @cached_property
    def found(self) -> Any:
        """Every row that passes search and filters, sorted."""
        rows = self._searched(self.rows)
        for filter_ in self.filters:
            if filter_.keep is not None and filter_.param in self.chosen:
                rows = filter_.keep(rows, self.chosen[filter_.param])
        return self._sorted(self._filtered(rows))

    def _filtered(self, rows: Any) -> Any:
        """The rows that the filters of REST let pass."""
        names = {filter_.param: filter_.name or filter_.param for filter_ in self.filters if filter_.keep is None}
        data = QueryDict(urlencode({names[param]: value for param, value in self.chosen.items() if param in names}))
        return self.filterset(data, queryset=rows, request=self.request).qs if self.filterset and data else rows

    def _searched(self, rows: Any) -> Any:
        if not self.query or self.search is None:
            return rows
        if callable(self.search):
            text, text_typed = self.search, self.query.lower()
            return [row for row in rows if text_typed in text(row).lower()]
        return rows.filter(reduce(or_, (Q(**{f"{name}__icontains": self.query}) for name in self.search)))

    def _sorted(self, rows: Any) -> Any:
        column, descends = self.sort
        if column is None:
            return rows
        key = column.sort
        if isinstance(key, F):
            return rows.order_by(key.desc(nulls_last=True) if descends else key.asc(nulls_last=True), *_order_of(rows))
        if isinstance(rows, QuerySet):
            return rows.order_by(f"{'-' if descends else ''}{key}", "pk")
        assert callable(key)
        valued = [row for row in rows if key(row) is not None]
        missing = [row for row in rows if key(row) is None]
        return sorted(valued, key=key, reverse=descends) + missing

    @cached_property
    def page(self) -> Page:
        paginator = Paginator(self.found, self.page_size)
        if self.row_count is not None and not self.is_filtered:
            paginator.count = self.row_count  # type: ignore[misc]
        return paginator.get_page(self.request.GET.get("page"))

    @property
    def total(self) -> int:
        return self.page.paginator.count

    @property
    def shown_columns(self) -> list[Column]:
        """Those of the page."""
        return [column for column in self.columns if not column.file_only]

    @property
    def headers(self) -> list[Header]:
        sorted_by, descends = self.sort
        return [self._header(column, sorted_by, descends) for column in self.shown_columns]

    def _header(self, column: Column, sorted_by: Column | None, descends: bool) -> Header:
        if not column.sort:
            return Header(column)
        if column is sorted_by:
            turned = column.key if descends else f"-{column.key}"
            return Header(column, address(self.request, sort=turned), "descending" if descends else "ascending")
        first = f"-{column.key}" if column.high_first else column.key
        return Header(column, address(self.request, sort=first))

    @property
    def lines(self) -> list[tuple[Any, list[Cell]]]:
        """(identity, cells) of the rows on this page."""
        rows = list(self.page)
        return [
            (self.identify(row), [Cell(column, column.cell(line), column.css(line)) for column in self.shown_columns])
            for row, line in zip(rows, self.load(rows), strict=True)
        ]

    @property
    def chips(self) -> list[list[tuple[Choice, str, bool]]]:
        """For each filter: (choice, address, is it in force), led by the one that shows all."""
        rows = []
        for filter_ in self.filters:
            current = self.chosen.get(filter_.param, "")
            everything = Choice("", filter_.all_label, filter_.all_count)
            rows.append(
                [
                    (choice, address(self.request, **{filter_.param: choice.value}), choice.value == current)
                    for choice in (everything, *filter_.choices)
                ]
            )
        return rows

    @property
    def kept_parameters(self) -> list[tuple[str, str]]:
        """Query parameters that the search form sends along."""
        return [(name, str(value)) for name, value in self.request.GET.items() if name not in {"q", "page", "export"}]

    @property
    def clear_url(self) -> str:
        """All rows, also where the list opens with a view."""
        return f"{self.request.path}?view={ALL_ROWS}" if self.views is not None else self.request.path

    @property
    def previous_url(self) -> str:
        return self._page_url(self.page.previous_page_number()) if self.page.has_previous() else ""

    @property
    def next_url(self) -> str:
        return self._page_url(self.page.next_page_number()) if self.page.has_next() else ""

    def _page_url(self, number: int) -> str:
        base = address(self.request)
        return f"{base}{'&' if '?' in base else '?'}page={number}"

    @property
    def csv_url(self) -> str:
        return address(self.request, export="csv")

    @property
    def json_url(self) -> str:
        return address(self.request, export="json")

    @property
    def wants_csv(self) -> bool:
        return self.request.GET.get("export") == "csv"

    def csv_response(self) -> HttpResponseBase:
        """Every found row, not only this page's; many are sent as they are read."""
        return self._export("csv", "text/csv; charset=utf-8", self._csv_parts())

    def json_response(self, write: Callable[[Any], str]) -> HttpResponseBase:
        """Every found row as one JSON array; `write` gives the JSON of a row."""
        return self._export("json", "application/json", self._json_parts(write))

    def _export(self, ending: str, content_type: str, parts: Any) -> HttpResponseBase:
        headers = {"Content-Disposition": f'attachment; filename="{self.file_name}.{ending}"'}
        if self.total <= _LOADED:
            return HttpResponse("".join(parts), content_type=content_type, headers=headers)
        if isinstance(self.request, ASGIRequest):
            parts = _parts_awaited(parts)  # from an iterator of the other kind Django would collect them all first
        return StreamingHttpResponse(parts, content_type=content_type, headers=headers)

    def _json_parts(self, write: Callable[[Any], str]) -> Iterator[str]:
        before = "["
        for row in self._loaded():
            yield before + write(row)
            before = ",\n"
        yield "[]" if before == "[" else "]"

    def _csv_parts(self) -> Iterator[str]:
        text = StringIO()
        writer = csv.writer(text)
        shown = [column for column in self.columns if column.label]
        writer.writerow([column.label for column in shown])
        for row in self._loaded():
            writer.writerow([csv_cell((column.csv or column.cell)(row)) for column in shown])
            if text.tell() > _CSV_PART:
                yield text.getvalue()
                text.seek(0)
                text.truncate()
        yield text.getvalue()

    def _loaded(self) -> Iterator[Any]:
        """Every found row as columns show it, loaded some hundred at a time."""
        rows = self.found.iterator(chunk_size=_LOADED) if isinstance(self.found, QuerySet) else iter(self.found)
        while batch := list(islice(rows, _LOADED)):
            yield from self.load(batch)


async def _parts_awaited(parts: Iterator[str]) -> AsyncIterator[str]:
    read = sync_to_async(lambda: next(parts, None))
    while (part := await read()) is not None:
        yield part


def _order_of(rows: QuerySet[Any]) -> Sequence[Any]:
    """The order that the rows had before they are sorted, which decides between equals."""
    return rows.query.order_by or ("pk",)


def csv_cell(value: Any) -> Any:
    """A value as a CSV file holds it."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    # A spreadsheet would run text that begins like a formula.
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def request_columns() -> list[Column]:
    """Requester and time, of rows with `requested_by` and `created_at`."""
    return [
        Column("by", "Asked by", lambda row: row.requested_by or "–", csv=lambda row: str(row.requested_by or "")),
        Column(
            "created",
            "Asked",
            lambda row: time_tag(row.created_at),
            sort="created_at",
            csv=lambda row: row.created_at,
            high_first=True,
        ),
    ]
