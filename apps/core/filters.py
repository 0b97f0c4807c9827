"""One grammar for the filters and the order of every list, declared per list and shared by pages and REST.

`field=value` is equality, and one of them where the field is given several times; `field__ne` turns it round; texts
take `field__contains`, numbers and times `field__gt`, `__gte`, `__lt` and `__lte`. `sort=-created_at,name` orders by
the names that a list declares in `sorts`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_, or_
from typing import Any

import django_filters
from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import Q, QuerySet
from django_filters.fields import IsoDateTimeField

from apps.core.errors import Malformed
from apps.core.labels import LabelSelector, selector_parse

__all__ = [
    "BooleanFilter",
    "CallerFilter",
    "ChoiceFilter",
    "FieldFilter",
    "LabelFilter",
    "ListFilter",
    "NumberFilter",
    "PresenceFilter",
    "TextFilter",
    "TimeFilter",
    "sort_paths",
]

MAX_VALUES = 100  # of one field
# Times at the ends of the calendar have no form in UTC.
_CALENDAR = (MinValueValidator(datetime(1900, 1, 1, tzinfo=UTC)), MaxValueValidator(datetime(9000, 1, 1, tzinfo=UTC)))
_RANGES = {"gt": "above", "gte": "at least", "lt": "below", "lte": "at most"}
_WORDS = {"ne": "other than", "contains": "containing, in any case,", **_RANGES}


def sort_paths(*names: str, **paths: str) -> dict[str, str]:
    """Names to sort by: `sort_paths("name", cluster="cluster__slug")`."""
    return {**{name: name for name in names}, **paths}


class ListFilter(django_filters.FilterSet):
    """Filters and orders of one list. Fields are declared once; their operators follow from their kind."""

    sorts: Mapping[str, str] = {}  #: {name: path of the ORM}

    @classmethod
    def get_filters(cls) -> dict[str, object]:
        filters: dict[str, object] = {}
        for name, declared in super().get_filters().items():
            filters[name] = declared
            for operator in declared.operators:
                filters[f"{name}__{operator}"] = declared.variant(operator)
        return filters


class _Values(forms.SelectMultiple):
    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        return list(data.getlist(name))

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data


class _ValuesField(forms.Field):
    """Every value that a parameter was given, each checked; what is wrong with it names it."""

    widget = _Values

    def __init__(self, *, one: forms.Field, allowed: str, many: bool, **options: Any) -> None:
        self.one, self.allowed, self.many = one, allowed, many
        super().__init__(**options)

    def clean(self, value: list[str]) -> list[Any]:
        if len(value) > (MAX_VALUES if self.many else 1):
            allowed = f"at most {MAX_VALUES}" if self.many else "one"
            raise forms.ValidationError(f"{len(value)} values are given; allowed: {allowed}")
        return [self._cleaned(text) for text in value]

    def _cleaned(self, text: str) -> Any:
        try:
            return self.one.clean(text)
        except forms.ValidationError:
            if not self.allowed:  # its own faults say what is
                raise
            raise forms.ValidationError(f"it is {text[:60]!r}; allowed: {self.allowed}") from None


class FieldFilter(django_filters.Filter):
    """One field of a list.

    Parameters
    ----------
    paths
        Paths of the ORM; the field's own name unless given. With several a row passes by any of them.
    label
        The field in words, for the API's description.
    operator
        Of a name that is fixed to one comparison, such as `since`.
    """

    field_class = _ValuesField
    operators: Sequence[str] = ("ne",)
    allowed = "a text"
    many = True
    schema: dict[str, object] = {"type": "string"}

    def __init__(self, *paths: str, label: str = "", operator: str = "", **options: Any) -> None:
        super().__init__(field_name=paths[0] if paths else None, label=label, **options)
        self.paths, self.operator = paths, operator
        if operator:
            self.operators = ()

    def variant(self, operator: str) -> FieldFilter:
        """The same field with another comparison."""
        other = copy.copy(self)
        other.operator, other.extra = operator, dict(self.extra)
        other.label = self.described(operator)
        return other

    def described(self, operator: str) -> str:
        """The comparison in words."""
        return f"{self.label or 'Field'}: {_WORDS[operator]} this."

    @property
    def field(self) -> forms.Field:
        return _ValuesField(one=self.one_value(), allowed=self.allowed, many=self.many, required=False)

    def one_value(self) -> forms.Field:
        """The field of a form that checks one value."""
        return forms.CharField(required=False, strip=False)

    def filter(self, queryset: QuerySet, value: list[Any]) -> QuerySet:
        if not value:
            return queryset
        paths = self.paths or (self.field_name,)
        if self.operator == "ne":
            return queryset.exclude(reduce(or_, (Q(**{f"{path}__in": value}) for path in paths)))
        passing = queryset.filter(reduce(or_, (self._condition(path, value) for path in paths)))
        return passing.distinct() if self.distinct else passing

    def _condition(self, path: str, value: list[Any]) -> Q:
        if self.operator in _RANGES:
            return reduce(and_, (Q(**{f"{path}__{self.operator}": one}) for one in value))
        if self.operator == "contains":
            return reduce(or_, (Q(**{f"{path}__icontains": one}) for one in value))
        return Q(**{f"{path}__in": value})


class TextFilter(FieldFilter):
    """A text."""

    operators = ("ne", "contains")


class ChoiceFilter(FieldFilter):
    """One of a few words."""

    def __init__(self, *paths: str, choices: Sequence[tuple[str, str]], **options: Any) -> None:
        super().__init__(*paths, **options)
        names = [str(name) for name, _ in choices]
        self.choices, self.allowed = choices, ", ".join(names)
        self.schema = {"type": "string", "enum": names}

    def one_value(self) -> forms.Field:
        return forms.ChoiceField(choices=self.choices)


class NumberFilter(FieldFilter):
    """A number; `whole` for ids and counts."""

    operators = ("ne", *_RANGES)
    allowed = "a number"
    schema = {"type": "number"}

    def __init__(self, *paths: str, whole: bool = False, **options: Any) -> None:
        super().__init__(*paths, **options)
        self.whole = whole
        if whole:
            self.allowed, self.schema = "a whole number", {"type": "integer"}

    def one_value(self) -> forms.Field:
        if self.whole:
            return forms.IntegerField(min_value=-(2**53), max_value=2**53)
        return forms.FloatField()


class _SelectorField(forms.CharField):
    """A selector of labels, with every fault of it."""

    def clean(self, value: Any) -> LabelSelector:
        try:
            return selector_parse(str(value))
        except Malformed as error:
            raise forms.ValidationError([fault.message for fault in error.faults]) from None


class LabelFilter(FieldFilter):
    """A selector of labels, in one or several columns: of several the first that has a label counts."""

    operators = ()
    allowed = ""

    def __init__(self, *paths: str, **options: Any) -> None:
        super().__init__(
            *(paths or ("labels",)), label="Selector of labels, such as `env=prod,tier in (a,b)`", **options
        )

    def one_value(self) -> forms.Field:
        return _SelectorField()

    def filter(self, queryset: QuerySet, value: list[LabelSelector]) -> QuerySet:
        return queryset.filter(reduce(or_, (one.condition(*self.paths) for one in value))) if value else queryset


class TimeFilter(FieldFilter):
    """A time, ISO 8601."""

    operators = ("ne", *_RANGES)
    allowed = "a time such as 2026-03-01T08:00:00Z, from 1900 to 9000"
    schema = {"type": "string", "format": "date-time"}

    def one_value(self) -> forms.Field:
        return IsoDateTimeField(validators=_CALENDAR)


class BooleanFilter(FieldFilter):
    """True or false, compared with a column or by a `method` of the list's filters."""

    operators = ()
    allowed = "true or false"
    many = False
    schema = {"type": "boolean"}

    def __init__(self, *paths: str, method: str | None = None, **options: Any) -> None:
        super().__init__(*paths, **options)
        self.by: str | None = method

    def one_value(self) -> forms.Field:
        words = {"true": True, "1": True, "false": False, "0": False}
        return forms.TypedChoiceField(choices=[(word, word) for word in words], coerce=words.__getitem__)

    def filter(self, queryset: QuerySet, value: list[bool]) -> QuerySet:
        return self.kept(queryset, value[0]) if value else queryset

    def kept(self, queryset: QuerySet, value: bool) -> QuerySet:
        """The rows for which it is true, or is false."""
        if self.by is not None:
            choose: Callable[[QuerySet, bool], QuerySet] = getattr(self.parent, self.by)
            return choose(queryset, value)
        return queryset.filter(**{self.field_name: value})


class PresenceFilter(BooleanFilter):
    """Whether a column has a value."""

    def kept(self, queryset: QuerySet, value: bool) -> QuerySet:
        return queryset.filter(**{f"{self.field_name}__isnull": not value})


class CallerFilter(BooleanFilter):
    """Whether a column names the person who asks."""

    def kept(self, queryset: QuerySet, value: bool) -> QuerySet:
        caller = {self.field_name: self.parent.request.user}
        return queryset.filter(**caller) if value else queryset.exclude(**caller)
