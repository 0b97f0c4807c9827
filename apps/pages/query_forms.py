"""What people type to describe a query: its facts, and its operators as a document or line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.http import QueryDict

from apps.core.errors import Fault, Malformed
from apps.core.parsers import strict_json
from apps.pages.query_detail import statistic_words
from apps.queries.choices import OperatorKind
from apps.queries.models import Query

__all__ = ["EXAMPLE", "DocumentForm", "OperatorLine", "QueryForm", "VersionForm", "example_document", "operator_lines"]

_STATISTICS = ("worst", "q0.999", "q0.99", "q0.95", "q0.9", "q0.5", "mean")
_NONE = "none"
_FIELDS = ("id", "kind", "from", "selectivity", "cycles_per_event", "bytes_per_event", "stateless")

EXAMPLE: list[dict[str, Any]] = [
    {
        "id": "parse",
        "kind": "map",
        "stateless": True,
        "bytes_per_event": 180,
        "inputs": [{"from": "", "selectivity": 1.0, "cycles_per_event": 60_000}],
    },
    {
        "id": "relevant",
        "kind": "filter",
        "stateless": True,
        "bytes_per_event": 180,
        "inputs": [{"from": "parse", "selectivity": 0.4, "cycles_per_event": 20_000}],
    },
    {
        "id": "per-minute",
        "kind": "window",
        "stateless": False,
        "bytes_per_event": 60,
        "window": {"policy": "time", "type": "tumbling", "size": 60, "slide": 60},
        "inputs": [{"from": "relevant", "selectivity": 0.02, "cycles_per_event": 90_000}],
    },
    {
        "id": "alert",
        "kind": "sink",
        "stateless": True,
        "bytes_per_event": 60,
        "inputs": [{"from": "per-minute", "selectivity": 1.0, "cycles_per_event": 40_000}],
    },
]


def example_document(source: str) -> str:
    """A query of four operators that reads `source`."""
    first = {**EXAMPLE[0], "inputs": [{**EXAMPLE[0]["inputs"][0], "from": source}]}
    return json.dumps({"operators": [first, *EXAMPLE[1:]]}, indent=2)


class QueryForm(forms.Form):
    """Name, owner and objective."""

    name = forms.CharField(max_length=64, help_text="Lower-case letters, digits, dots, hyphens and underscores.")
    team = forms.CharField(max_length=80, required=False, help_text="Who is asked when it needs a hand.")
    statistic = forms.ChoiceField(label="Objective for", help_text="Which latency the objective is about.")
    bound_s = forms.FloatField(
        label="Objective", required=False, help_text='At most this. For none, choose "No objective" above.'
    )
    priority = forms.IntegerField(
        initial=0,
        help_text="A whole number. Each step doubles the query's weight in placements by objectives; "
        "admission does not use it.",
    )
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, query: Query | None = None, **kwargs: Any) -> None:
        if query is not None:
            kwargs["initial"] = _known(query)
        super().__init__(*args, **kwargs)
        statistics = dict.fromkeys([*_STATISTICS, *([query.objective_statistic] if query else [])])
        choices = [(one, statistic_words(one).capitalize()) for one in statistics if one]
        self.fields["statistic"].choices = [*choices, (_NONE, "No objective")]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("statistic", _NONE) != _NONE and data.get("bound_s") is None and "bound_s" not in self.errors:
            self.add_error("bound_s", "Enter a number of seconds above 0, or choose no objective.")
        return data

    @property
    def values(self) -> dict[str, Any]:
        """What the services take."""
        data = dict(self.cleaned_data)
        statistic, bound_s = data.pop("statistic"), data.pop("bound_s")
        return {**data, "objective": {"statistic": statistic, "bound_s": bound_s} if statistic != _NONE else None}


def _known(query: Query) -> dict[str, Any]:
    return {
        "name": query.name,
        "team": query.team,
        "statistic": query.objective_statistic or _NONE,
        "bound_s": query.objective_bound_s,
        "priority": query.priority,
        "description": query.description,
    }


class DocumentForm(forms.Form):
    """A query's operators as JSON, pasted or as a file."""

    document = forms.CharField(
        label="Operators",
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false"}),
        help_text='{"operators": [...]} as in the deployment document; a node is optional.',
        error_messages={"required": "Paste the operators, or choose a file."},
    )
    file = forms.FileField(
        label="Or a file", required=False, help_text="A .json file with the same content. It goes before the text."
    )

    # a file may stand for the text, which the browser cannot know
    use_required_attribute = False

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        given = data.get("file")
        if given:
            self.errors.pop("document", None)
            # the text stays in the form when the document is refused, so that it can be mended there
            data["document"] = given.read().decode("utf-8-sig", errors="replace")
            self.data = self.data.copy()
            self.data[self.add_prefix("document")] = data["document"]
        return data

    def body(self) -> Any:
        """The document as read. Malformed, with line and column, if it is no JSON."""
        try:
            return strict_json(self.cleaned_data["document"].encode())
        except Malformed as error:
            message = error.message.replace("The body", "The text")
            raise Malformed(message, [Fault("document", message)]) from None


class VersionForm(DocumentForm):
    """A further version of a query."""

    note = forms.CharField(max_length=200, required=False, help_text="What is different, in a few words.")
    carry_statistics = forms.BooleanField(
        label="Carry over statistics",
        required=False,
        initial=True,
        help_text="Inputs that the newest version has too keep what is known of them.",
    )
    field_order = ["note", "document", "file", "carry_statistics"]


@dataclass
class OperatorLine:
    """An operator as typed, with what is wrong with each field."""

    key: str
    values: dict[str, str] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    kinds: Sequence[tuple[str, str]] = tuple(OperatorKind.choices)

    @classmethod
    def read(cls, key: str, data: QueryDict) -> OperatorLine:
        return cls(key, {name: data.get(f"{key}-{name}", "").strip() for name in _FIELDS})

    @property
    def is_empty(self) -> bool:
        typed = ("id", "from", "selectivity", "cycles_per_event", "bytes_per_event")
        return not any(self.values.get(name) for name in typed)

    @property
    def document(self) -> dict[str, Any]:
        """As the deployment document has it; what is no number is passed on, so that the refusal can name it."""
        values = self.values
        numbers = {name: _number(values[name]) for name in ("selectivity", "cycles_per_event") if values[name]}
        names = [name.strip() for name in values["from"].split(",") if name.strip()]
        operator: dict[str, Any] = {"id": values["id"], "kind": values["kind"] or OperatorKind.OTHER.value}
        operator["inputs"] = [{"from": name, **numbers} for name in names]
        if values["bytes_per_event"]:
            operator["bytes_per_event"] = _number(values["bytes_per_event"])
        if values["stateless"]:
            operator["stateless"] = values["stateless"] == "yes"
        return operator

    def blame(self, path: str, message: str) -> None:
        """Keep a fault at the field its path ends with."""
        name = re.sub(r"\[\d+\]", "", path).rpartition(".")[2]
        self.errors.setdefault(name if name in _FIELDS else "from" if name == "inputs" else "id", []).append(message)


def operator_lines(data: QueryDict) -> list[OperatorLine]:
    """The typed operators in order, empty ones left out unless they are all."""
    lines = [OperatorLine.read(key, data) for key in data.getlist("row")[:500] if re.fullmatch(r"o\d{1,6}", key)]
    return [line for line in lines if not line.is_empty] or lines[:1]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
