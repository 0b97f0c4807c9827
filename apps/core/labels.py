"""Labels of queries, sources, pools and nodes, and selectors of them: the syntax of Kubernetes, in one place.

A label is a name with a value. A selector is a list of requirements, all of which have to hold, as `kubectl -l` takes
it: `env=prod`, `env!=dev`, `tier in (a,b)`, `tier notin (c)`, `canary`, `!canary`. As there, `!=` and `notin` hold of
what does not have the label at all. A database decides them by `LabelSelector.condition`, one row in memory by
`LabelSelector.matches`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import Any

from django.db.models import Count, F, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import In, IsNull

from apps.core.errors import Fault, Malformed, fault_count

__all__ = [
    "MAX_SELECTOR",
    "LabelComparison",
    "LabelSelector",
    "label_faults",
    "label_pairs",
    "labels_parse",
    "labels_text",
    "merged_labels",
    "selector_parse",
]

MAX_SELECTOR = 500  # characters
MAX_LABELS = 64  # of one object
_MAX_VALUES = 50  # of one requirement
_PREFIX = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_NAME = re.compile(rf"(?:(?=[^/]{{1,253}}/){_PREFIX}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")
# As Kubernetes has them, and beside that the colon and more characters: engines call the places of their jobs so.
_VALUE = re.compile(r"(?:[A-Za-z0-9:](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9:])?)?")
_NAME_ALLOWED = (
    "1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit at both ends; before it, with a slash, "
    "a DNS name such as example.com/"
)
_VALUE_ALLOWED = (
    "up to 253 letters, digits, dots, hyphens, underscores and colons, no dot, hyphen or underscore at an end; or empty"
)
_SHAPES = "such as env=prod, env!=dev, tier in (a,b), tier notin (c), canary or !canary"
_REQUIREMENT = re.compile(
    r"(?P<absent>!)?\s*(?P<name>[^\s=!<>(),]+)\s*"
    r"(?:(?P<sign>==|=|!=)\s*(?P<value>[^\s=!<>(),]*)|(?<=\s)(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?\s*"
)


class LabelComparison(StrEnum):
    """Comparison of one label."""

    IN = "in"  #: it has one of some values
    NOT_IN = "notin"  #: it has none of them, or is not there
    EXISTS = "exists"
    ABSENT = "absent"


class LabelValue(Func):
    """Text of the label of a name in a JSON column, NULL where there is none; no part of a path of keys is meant."""

    output_field = TextField()

    def __init__(self, column: Any, name: Any) -> None:
        super().__init__(
            F(column) if isinstance(column, str) else column, Value(name) if isinstance(name, str) else name
        )

    def as_sqlite(self, compiler: Any, connection: Any, **options: Any) -> Any:
        """The name quoted, so that dots and digits are no path."""
        column, name = self.get_source_expressions()
        quoted = LabelValue(column, Value(f'$."{name.value}"'))  # type: ignore[attr-defined]
        return super(LabelValue, quoted).as_sql(compiler, connection, function="JSON_EXTRACT", **options)

    def as_postgresql(self, compiler: Any, connection: Any, **options: Any) -> Any:
        """By the function, since `->>` takes a name of digits for a place in a list."""
        return super().as_sql(compiler, connection, function="jsonb_extract_path_text", **options)


@dataclass(frozen=True, order=True)
class LabelRequirement:
    """One comparison of a selector; `values` in order, each once."""

    name: str
    test: LabelComparison
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.test in {LabelComparison.EXISTS, LabelComparison.ABSENT}:
            return self.name if self.test == LabelComparison.EXISTS else f"!{self.name}"
        if len(self.values) == 1:
            return f"{self.name}{'=' if self.test == LabelComparison.IN else '!='}{self.values[0]}"
        return f"{self.name} {self.test} ({','.join(self.values)})"

    @property
    def words(self) -> str:
        """The comparison as one says it."""
        if self.test in {LabelComparison.EXISTS, LabelComparison.ABSENT}:
            return f"{self.name} is {'set' if self.test == LabelComparison.EXISTS else 'not set'}"
        values = " or ".join(value or "empty" for value in self.values)
        return f"{self.name} is {values}" if self.test == LabelComparison.IN else f"{self.name} is not {values}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it holds of some labels."""
        if self.test in {LabelComparison.EXISTS, LabelComparison.ABSENT}:
            return (self.name in labels) == (self.test == LabelComparison.EXISTS)
        return (labels.get(self.name) in self.values) == (self.test == LabelComparison.IN)

    def condition(self, paths: Sequence[str]) -> Q:
        """The same for a database."""
        columns = [LabelValue(path, self.name) for path in paths]
        value = columns[0] if len(columns) == 1 else Coalesce(*columns)
        if self.test in {LabelComparison.EXISTS, LabelComparison.ABSENT}:
            return Q(IsNull(value, self.test == LabelComparison.ABSENT))
        if self.test == LabelComparison.IN:
            return Q(In(value, self.values))
        return Q(IsNull(value, True)) | ~Q(In(value, self.values))


@dataclass(frozen=True)
class LabelSelector:
    """Requirements that all have to hold; in text it has one form, whichever way it was typed.

    >>> str(selector_parse(" tier in (b, a),env == prod"))
    'env=prod,tier in (a,b)'
    >>> selector_parse("env=prod,!canary").matches({"env": "prod", "tier": "a"})
    True
    """

    requirements: tuple[LabelRequirement, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    @property
    def words(self) -> str:
        """The requirements as one says them: "env is prod, and canary is not set"."""
        return ", and ".join(requirement.words for requirement in self.requirements)

    @property
    def equal(self) -> dict[str, str]:
        """Labels that it asks for with one value: something with these alone may match it."""
        return {
            each.name: each.values[0]
            for each in self.requirements
            if each.test == LabelComparison.IN and len(each.values) == 1
        }

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all requirements hold of some labels."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def condition(self, *paths: str) -> Q:
        """The same for a database, of the labels at a path of the ORM; of several the first with a label counts."""
        return reduce(and_, (requirement.condition(paths) for requirement in self.requirements))


def selector_parse(text: str, path: str = "labels") -> LabelSelector:
    """Read a selector.

    Raises
    ------
    Malformed
        With every fault of every requirement, at `path`.
    """
    faults: list[Fault] = []
    found: set[LabelRequirement] = set()
    if len(text) > MAX_SELECTOR:
        faults.append(Fault(path, f"it has {len(text)} characters; allowed: {MAX_SELECTOR}"))
    else:
        for part in re.split(r",(?![^(]*\))", text):
            messages = list(_requirement_faults(part, found))
            faults += [Fault(path, message) for message in messages]
    if faults:
        raise Malformed(f"The selector has {fault_count(faults)}; first: {faults[0].message}.", faults)
    return LabelSelector(tuple(sorted(found)))


def _requirement_faults(part: str, found: set[LabelRequirement]) -> Iterator[str]:
    """Faults of one requirement, which is added to those found where it has none."""
    match = _REQUIREMENT.fullmatch(part.strip())
    if match is None or (match["absent"] and (match["sign"] or match["word"])):
        yield f"{part.strip()[:60]!r} is no requirement; allowed: {_SHAPES}"
        return
    name, values = match["name"], _values_of(match)
    messages = [] if _NAME.fullmatch(name) else [f"{name[:80]!r} is no name of a label; allowed: {_NAME_ALLOWED}"]
    messages += [
        f"{v[:80]!r} is no value of {name[:80]}; allowed: {_VALUE_ALLOWED}" for v in values if not _is_value(v)
    ]
    if len(values) > _MAX_VALUES:
        messages.append(f"{name[:80]} has {len(values)} values; allowed: {_MAX_VALUES}")
    yield from messages
    if not messages:
        found.add(LabelRequirement(name, _comparison_of(match), tuple(sorted(set(values)))))


def _values_of(match: re.Match[str]) -> list[str]:
    if match["word"]:
        return [value.strip() for value in match["values"].split(",")]
    return [match["value"]] if match["sign"] else []


def _comparison_of(match: re.Match[str]) -> LabelComparison:
    if match["sign"] or match["word"]:
        return LabelComparison.NOT_IN if match["sign"] == "!=" or match["word"] == "notin" else LabelComparison.IN
    return LabelComparison.ABSENT if match["absent"] else LabelComparison.EXISTS


def _is_value(value: str) -> bool:
    return _VALUE.fullmatch(value) is not None


def label_faults(labels: Any, path: str = "labels") -> list[Fault]:
    """Faults of labels, {name: value}, that something is given."""
    if not isinstance(labels, dict):
        return [Fault(path, f'it is {labels!r:.80}; allowed: an object of texts such as {{"rack": "r7"}}')]
    faults = []
    if len(labels) > MAX_LABELS:
        faults.append(Fault(path, f"there are {len(labels)}; allowed: {MAX_LABELS}"))
    for name, value in labels.items():
        if not _NAME.fullmatch(name):
            faults.append(Fault(path, f"{name[:80]!r} is no name of a label; allowed: {_NAME_ALLOWED}"))
        elif not isinstance(value, str) or not _is_value(value):
            faults.append(Fault(f"{path}.{name}", f"{name} is {value!r:.80}; allowed: {_VALUE_ALLOWED}"))
    return faults


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as forms take them: `env=prod tier=a`."""
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def labels_parse(text: str, path: str = "labels") -> dict[str, str]:
    """Labels as forms take them, between spaces or commas.

    Raises
    ------
    Malformed
        With every fault, at `path`.
    """
    labels: dict[str, str] = {}
    faults: list[Fault] = []
    for part in text.replace(",", " ").split():
        name, equals, value = part.partition("=")
        if not equals:
            faults.append(Fault(path, f"{part[:80]!r} is no label; allowed: labels such as rack=r7 zone=b"))
            continue
        if labels.setdefault(name, value) != value:
            faults.append(Fault(path, f"{name[:80]} is {labels[name][:80]!r} and {value[:80]!r}; allowed: one of them"))
    faults += [Fault(path, fault.message) for fault in label_faults(labels)]
    if faults:
        raise Malformed(f"The labels have {fault_count(faults)}; first: {faults[0].message}.", faults)
    return labels


def label_pairs(rows: QuerySet[Any], *paths: str) -> Counter[str]:
    """Labels that some rows have, as `name=value`, by how many of them have each; paths as of `condition`."""
    pairs: Counter[str] = Counter()
    for *columns, n in rows.order_by().values_list(*paths).annotate(n=Count("pk")):
        labels = merged_labels(columns)
        pairs.update({f"{name}={value}": n for name, value in labels.items() if _is_value(value)})
    return pairs


def merged_labels(columns: Sequence[Mapping[str, str] | None]) -> dict[str, str]:
    """Labels of several columns, of which the first with a label counts."""
    return {name: value for column in reversed(columns) for name, value in (column or {}).items()}
