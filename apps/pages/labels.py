"""Labels on pages: the field of forms, the chips of lists with their filter and search, and the column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import QuerySet, TextField, Value
from django.db.models.functions import Cast, Replace
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.errors import Malformed
from apps.core.labels import MAX_SELECTOR, label_pairs, labels_parse, labels_text, selector_parse
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, address

__all__ = [
    "LABELS_TEXT",
    "SelectorField",
    "TypedLabelsField",
    "label_filters",
    "labels_cell",
    "labels_column",
    "list_of",
    "named_with_labels",
    "with_labels_text",
]

LABELS_TEXT = "labels_text"  #: labels as a text, of the rows of `with_labels_text`
_MOST = 6  # chips of a list, the most frequent ones
_HELP = "Such as domain=payments tier=a. Lists are filtered by them, and roles are given by them."


class TypedLabelsField(forms.CharField):
    """`rack=r7 zone=b` as {"rack": "r7", "zone": "b"}."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "help_text": _HELP, **options})

    def prepare_value(self, value: Any) -> Any:
        """The labels as they would be typed."""
        return labels_text(value) if isinstance(value, dict) else value

    def clean(self, value: Any) -> dict[str, str]:
        """The labels that were typed."""
        try:
            return labels_parse(super().clean(value))
        except Malformed as error:
            raise forms.ValidationError([fault.message for fault in error.faults]) from None


class SelectorField(forms.CharField):
    """A selector of labels in its one form; blanks alone are no selector, and nothing typed is none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "strip": False, "max_length": MAX_SELECTOR, **options})

    def clean(self, value: Any) -> str:
        """The selector that was typed."""
        text = super().clean(value)
        try:
            return str(selector_parse(text)) if text else ""
        except Malformed as error:
            raise forms.ValidationError([fault.message for fault in error.faults]) from None


def label_filters(request: HttpRequest, rows: QuerySet[Any], *paths: str) -> list[Filter]:
    """The filter of a list by its most frequent labels, and by a selector in its address."""
    choices = [
        Choice(pair, pair.removesuffix("="), n)
        for pair, n in label_pairs(rows, *(paths or ("labels",))).most_common(_MOST)
    ]
    typed = request.GET.get("labels", "")
    if typed and typed not in {choice.value for choice in choices} and _is_selector(typed):
        choices.append(Choice(typed, typed))
    return [Filter("labels", choices, all_label="Any label")] if choices else []


def _is_selector(text: str) -> bool:
    try:
        selector_parse(text)
    except Malformed:
        return False
    return True


def labels_cell(labels: Mapping[str, str], leads_to: Callable[[str], str]) -> Any:
    """Labels, each with a link: `leads_to` gives the address of the rows that a selector of it chooses."""
    pairs = [
        (leads_to(f"{name}={value}"), f"{name}={value}" if value else name) for name, value in sorted(labels.items())
    ]
    shown: SafeString = format_html_join(" ", '<a class="badge" href="{}">{}</a>', pairs)
    return shown if pairs else MISSING


def named_with_labels(name: SafeString, labels: Mapping[str, str], leads_to: Callable[[str], str]) -> SafeString:
    """A row's heading with its labels below."""
    return format_html("{}<div>{}</div>", name, labels_cell(labels, leads_to)) if labels else name


def list_of(page: str, slug: str) -> Callable[[str], str]:
    """Addresses of a cluster's list with a selector."""
    return lambda selector: f"{reverse(page, args=[slug])}?{urlencode({'labels': selector})}"


def labels_column(
    request: HttpRequest,
    filters: Sequence[Filter] = (),
    of: Callable[[Any], Mapping[str, str]] = lambda row: row.labels,
) -> Column:
    """The column of labels, in the file alone where no filter says that rows have any; `of` gives those of a line."""
    return Column(
        "labels",
        "Labels",
        lambda row: labels_cell(of(row), lambda selector: address(request, labels=selector)),
        csv=lambda row: labels_text(of(row)),
        file_only=not any(filter_.param == "labels" for filter_ in filters),
    )


def with_labels_text(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows with their labels as a text such as `{"env=prod", "tier=a"}`, to be searched."""
    as_typed = Replace(Cast("labels", TextField()), Value('": "'), Value("="), output_field=TextField())
    return rows.annotate(**{LABELS_TEXT: as_typed})
