"""Forms of admission: a registered query or a document to preview, and reasons of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.admission.questions import AdmissionQuestion, LatencyObjective
from apps.core.errors import Malformed
from apps.core.limits import MAX_REASON, MAX_SLUG, MAX_WAIT_S
from apps.fleet.models import Cluster
from apps.pages.queries.forms import DocumentForm
from apps.predictions.choices import TargetMetric
from apps.ui.forms import choice_field
from apps.ui.name_search import name_attributes
from engine.words import statistic_words

__all__ = ["FAULT_FIELDS", "DescribedForm", "RegisteredForm", "placement_of"]

_TARGETS = (TargetMetric.END_TO_END_LATENCY, TargetMetric.PROCESSING_LATENCY, TargetMetric.THROUGHPUT)
_STATISTICS = ("worst", "q0.999", "q0.99", "q0.95", "q0.9", "q0.5", "mean")
_NODE = "node-"

#: Which field a fault of the service belongs to, where its path says something else.
FAULT_FIELDS = {
    "objective.statistic": "statistic",
    "objective": "bound_s",
    "may_wait_s": "may_wait_min",
    "document.query": "name",
    "document.name": "name",
}


class _AskForm(forms.Form):
    """The objective to hold, patience and reason."""

    statistic = forms.ChoiceField(label="Objective for", required=False)
    bound_s = forms.FloatField(label="Objective", required=False, help_text="The latency may be at most this.")
    may_wait_min = forms.FloatField(
        label="May wait",
        required=False,
        min_value=0,
        max_value=int(MAX_WAIT_S // 60),
        help_text="If a later start would pass within this time, a year at most, it is queued rather than rejected.",
    )
    target = forms.ChoiceField(
        label="First placement by",
        required=False,
        choices=[(metric.value, metric.label) for metric in _TARGETS],
        help_text="Of a query that never ran: which predicted cost its placement is chosen by.",
    )
    reason = forms.CharField(
        max_length=MAX_REASON, required=False, help_text="Why it is wanted; kept with the decision."
    )

    own_objective = "As the query has it"
    _OPTIONS = ("statistic", "bound_s", "may_wait_min", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(statistic, statistic_words(statistic, begins=True)) for statistic in _STATISTICS]
        choice_field(self, "statistic").choices = [("", self.own_objective), *choices]

    @property
    def has_options(self) -> bool:
        """Whether something is asked for beyond the query, or wrong there: it is shown then."""
        return any(self.errors.get(name) or self[name].value() for name in self._OPTIONS)

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        statistic, bound_s = data.get("statistic"), data.get("bound_s")
        if statistic and bound_s is None and "bound_s" not in self.errors:
            self.add_error("bound_s", "Enter a number of seconds above 0.")
        if bound_s is not None and not statistic and "statistic" not in self.errors:
            self.add_error("statistic", f"Say which latency may be at most {bound_s:g} s.")
        if bound_s is not None and not 0 < bound_s < float("inf"):
            self.add_error("bound_s", f"{bound_s:g} s is not allowed; enter a number of seconds above 0.")

    @property
    def objective(self) -> LatencyObjective | None:
        """The objective that is asked for."""
        data = self.cleaned_data
        return LatencyObjective(data["statistic"], data["bound_s"]) if data["statistic"] else None

    def _asked(self, **own: Any) -> AdmissionQuestion:
        """The question with what both forms share."""
        data = self.cleaned_data
        target = data["target"] or TargetMetric.END_TO_END_LATENCY.value
        may_wait_s = 60.0 * (data["may_wait_min"] or 0.0)
        return AdmissionQuestion(may_wait_s=may_wait_s, reason=data["reason"], target=target, **own)


class RegisteredForm(_AskForm):
    """About a query that is registered. Nodes are chosen per operator, in fields named after them."""

    query = forms.CharField(error_messages={"required": "Choose a query."})
    version = forms.TypedChoiceField(coerce=int, required=False, empty_value=None)

    field_order = ["query", "version"]

    def __init__(self, *args: Any, cluster: Cluster, query: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.of = query
        self.fields["query"].widget.attrs |= name_attributes(cluster.slug, "queries")
        numbers = list(query.versions.values_list("number", flat=True)) if query else []
        choice_field(self, "version").choices = [(number, f"Version {number}") for number in numbers]

    def clean_query(self) -> str:
        if self.of is None:
            raise forms.ValidationError("There is no query of that name.")
        return str(self.cleaned_data["query"])

    @property
    def placement(self) -> dict[str, str]:
        """{operator: node} of those that are not left to Sluice."""
        return placement_of(self.data)

    @property
    def question(self) -> AdmissionQuestion:
        data = self.cleaned_data
        return self._asked(
            query=data["query"], version=data["version"], placement=self.placement, objective=self.objective
        )


class DescribedForm(_AskForm, DocumentForm):
    """About a query described here: a document, its name, and its objective."""

    name = forms.CharField(
        label="Name",
        max_length=MAX_SLUG,
        required=False,
        help_text='A new query, or one that is registered for a new version. Empty: the "query" of the document.',
    )
    own_objective = "As the document has it"
    field_order = ["name", "document", "file"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["document"].label = "Document"
        self.fields["document"].help_text = (
            '`{"query": …, "operators": […]}`, and if wanted `sources`, `objective`, `priority`, `team`, '
            "`description`. "
            "Without `cycles_per_event` it never ran, and is predicted."
        )

    @property
    def question(self) -> AdmissionQuestion:
        """With the document as read; Malformed, with line and column, if it is no JSON object."""
        document = self.body()
        if not isinstance(document, dict):
            message = "it is a list or a single value; allowed is an object with query and operators"
            raise Malformed(f"The document cannot be read: {message}.", [("document", message)])
        if self.cleaned_data["name"]:
            document = {"query": self.cleaned_data["name"], **{k: v for k, v in document.items() if k != "query"}}
        if self.objective is not None:
            document = {**document, "objective": self.objective.to_dict()}
        return self._asked(document=document)


def placement_of(data: Mapping[str, str]) -> dict[str, str]:
    """The nodes chosen in fields `node-<operator>`."""
    return {name.removeprefix(_NODE): data[name] for name in data if name.startswith(_NODE) and data[name]}
