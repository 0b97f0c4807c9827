"""Forms of report definitions with their schedule, and of webhooks. Rules are the services'."""

from __future__ import annotations

from itertools import count
from typing import Any

from django import forms

from apps.core.limits import MAX_NAME, MAX_URL
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.reports.calendar import DAYS, HOURS, MONTHS
from apps.reports.choices import FORMATS, SECTIONS, ReportKind
from apps.reports.models import ReportDefinition, Webhook
from apps.reports.report import ProvisioningParameters
from apps.ui.forms import choice_field, row_field
from apps.ui.name_search import name_attributes

__all__ = ["DefinitionForm", "WebhookForm"]

_EVERY = [
    ("", "By hand alone"),
    ("day", "Every day"),
    ("week", "On days of the week"),
    ("month", "On a day of the month"),
    ("weekday", "On a weekday of the month"),
    ("year", "Once a year"),
    ("hours", "Every few hours"),
    ("rrule", "By an RFC 5545 rule"),
]
_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAYS = list(zip(DAYS, _NAMES, strict=True))
_NTH = [("1", "First"), ("2", "Second"), ("3", "Third"), ("4", "Fourth"), ("5", "Fifth"), ("-1", "Last")]
#: Which fields of a rule each choice of `every` shows and sends.
_FIELDS = {
    "day": ("at",),
    "week": ("at", "days"),
    "month": ("at", "day", "short_month"),
    "weekday": ("at", "nth", "weekday"),
    "year": ("at", "month", "day", "short_month"),
    "hours": ("at", "hours"),
    "rrule": ("rrule",),
}
_NAME = "Weekly provisioning"
_CONTENTS = ("sections", "horizon_days", "growth", "query", "team")


def _when(every: tuple[str, ...]) -> dict[str, str]:
    return {"data-when": "every:" + ",".join(every)}


def _shown_for(name: str) -> dict[str, str]:
    return _when(tuple(every for every, names in _FIELDS.items() if name in names))


def _free_name(cluster: Cluster) -> str:
    taken = set(ReportDefinition.objects.filter(cluster=cluster).values_list("name", flat=True))
    return next(name for k in count(1) if (name := _NAME if k == 1 else f"{_NAME} {k}") not in taken)


class DefinitionForm(forms.Form):
    """Report definitions: content, recipients, schedule."""

    name = forms.CharField(max_length=MAX_NAME, help_text="As it stands on the report and in the subject of its mails.")
    kind = forms.ChoiceField(
        label="About",
        choices=[
            (ReportKind.PROVISIONING, "The fleet: headroom, shortage, what to buy"),
            (ReportKind.LATENCY, "Latency, for the users of a query or a team"),
        ],
    )
    sections = forms.MultipleChoiceField(
        choices=list(SECTIONS.items()),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    horizon_days = forms.IntegerField(label="Forecast", required=False, help_text="1 to 366 days ahead.")
    growth = forms.FloatField(
        label="Purchases for",
        required=False,
        help_text="More load than now, 0 to 2000 %, with any one node lost.",
    )
    query = forms.CharField(required=False)
    team = forms.ChoiceField(required=False, help_text="Every query of the team.")
    emails = forms.CharField(
        label="Mail to", required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="Addresses, one per line."
    )
    formats = forms.MultipleChoiceField(
        label="Attached",
        choices=[(name, name.upper()) for name in FORMATS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    webhooks = forms.ModelMultipleChoiceField(
        label="Tell webhooks", queryset=Webhook.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )
    every = forms.ChoiceField(label="Written", choices=_EVERY, required=False)
    days = forms.MultipleChoiceField(
        choices=_WEEKDAYS, required=False, widget=forms.CheckboxSelectMultiple(attrs=_shown_for("days"))
    )
    month = forms.TypedChoiceField(
        choices=[(k + 1, name) for k, name in enumerate(MONTHS)],
        coerce=int,
        required=False,
        widget=forms.Select(attrs=_shown_for("month")),
    )
    day = forms.ChoiceField(
        choices=[*((str(k), str(k)) for k in range(1, 32)), ("last", "Last day")],
        required=False,
        widget=forms.Select(attrs=_shown_for("day")),
    )
    short_month = forms.ChoiceField(
        label="Where a month has no such day",
        required=False,
        choices=[("skip", "Leave it out"), ("last", "Take its last day")],
        widget=forms.Select(attrs=_shown_for("short_month")),
    )
    nth = forms.TypedChoiceField(
        label="Which", choices=_NTH, coerce=int, required=False, widget=forms.Select(attrs=_shown_for("nth"))
    )
    weekday = forms.ChoiceField(choices=_WEEKDAYS, required=False, widget=forms.Select(attrs=_shown_for("weekday")))
    hours = forms.TypedChoiceField(
        label="Hours between",
        choices=[(k, str(k)) for k in HOURS],
        coerce=int,
        required=False,
        widget=forms.Select(attrs=_shown_for("hours")),
    )
    at = forms.CharField(
        label="At",
        required=False,
        widget=forms.TextInput(attrs={"type": "time", **_shown_for("at")}),
        help_text="Of the clock in the time zone.",
    )
    rrule = forms.CharField(
        label="Rule",
        required=False,
        widget=forms.TextInput(attrs=_shown_for("rrule")),
        help_text="Such as FREQ=MONTHLY;BYDAY=2MO;BYHOUR=7.",
    )
    time_zone = forms.CharField(
        required=False, help_text="Such as Europe/Berlin.", widget=forms.TextInput(attrs=_when(tuple(_FIELDS)))
    )
    enabled = forms.BooleanField(
        label="The schedule runs", required=False, widget=forms.CheckboxInput(attrs=_when(tuple(_FIELDS)))
    )

    def __init__(
        self, *arguments: Any, cluster: Cluster, definition: ReportDefinition | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.queries = queries = Query.objects.filter(cluster=cluster)
        teams = queries.exclude(team=None).order_by("team__name").values_list("team__name", flat=True).distinct()
        self.fields["query"].widget.attrs |= name_attributes(cluster.slug, "queries")
        choice_field(self, "team").choices = [("", "–"), *((name, name) for name in teams)]
        row_field(self, "webhooks").queryset = Webhook.objects.filter(cluster=cluster)
        if not row_field(self, "webhooks").queryset.exists():
            del self.fields["webhooks"]
        if definition is not None:
            del self.fields["kind"]
        kind = definition.kind if definition is not None else ""
        for name in _CONTENTS:
            own = ReportKind.LATENCY if name in {"query", "team"} else ReportKind.PROVISIONING
            self.fields[name].widget.attrs["data-when"] = f"kind:{own}"
            if kind and own != kind:
                del self.fields[name]

    @classmethod
    def beginning(cls, cluster: Cluster) -> dict[str, object]:
        """Initial values of a new report: the fleet's, on Mondays at seven."""
        defaults = ProvisioningParameters()
        return {
            "name": _free_name(cluster),
            "kind": ReportKind.PROVISIONING,
            "sections": defaults.sections,
            "horizon_days": defaults.horizon_days,
            "growth": 100 * defaults.growth,
            "formats": ["pdf"],
            "every": "week",
            "days": ["mon"],
            "day": "1",
            "hours": 6,
            "at": "07:00",
            "time_zone": cluster.time_zone,
            "enabled": True,
        }

    @classmethod
    def shown(cls, definition: ReportDefinition) -> dict[str, object]:
        """A definition as the form shows it."""
        parameters = dict(definition.parameters)
        if "growth" in parameters:
            parameters["growth"] = round(100 * parameters["growth"], 6)
        values = {
            **{
                name: value
                for name, value in cls.beginning(definition.cluster).items()
                if name in {"at", "day", "days"}
            },
            **parameters,
            "name": definition.name,
            "kind": definition.kind,
            "emails": "\n".join(definition.emails),
            "formats": definition.formats,
            "webhooks": [hook.pk for hook in definition.webhooks.all()],
            "enabled": definition.enabled,
            "time_zone": definition.cluster.time_zone,
            "every": "",
        }
        schedule = getattr(definition, "schedule", None)
        if schedule is not None:
            rule = dict(schedule.rule)
            every = rule.pop("every")
            values |= rule | {"every": "weekday" if "nth" in rule else every, "time_zone": schedule.time_zone}
        return values

    @property
    def values(self) -> dict[str, object]:
        """Arguments of `definition_create` and `definition_update`."""
        typed = self.cleaned_data
        values = {
            "name": typed["name"],
            "parameters": self._parameters(),
            "formats": typed["formats"],
            "emails": [email.strip() for email in typed["emails"].replace(",", "\n").splitlines() if email.strip()],
            "webhooks": typed.get("webhooks", []),
            "enabled": typed["enabled"] or not typed["every"],
        }
        return values | ({"kind": typed["kind"]} if "kind" in typed else {})

    def clean_query(self) -> str:
        name = str(self.cleaned_data["query"])
        if name and not self.queries.filter(name=name).exists():
            raise forms.ValidationError("There is no query of that name.")
        return name

    def _parameters(self) -> dict[str, object]:
        typed = self.cleaned_data
        if typed.get("kind", ReportKind.LATENCY if "query" in typed else "") == ReportKind.LATENCY:
            return {name: typed[name] for name in ("query", "team") if typed[name]}
        parameters = {name: typed[name] for name in ("sections", "horizon_days") if typed[name] not in (None, "")}
        return parameters | ({} if typed["growth"] is None else {"growth": typed["growth"] / 100})

    @property
    def rule(self) -> dict[str, object] | None:
        """The calendar rule, or None for a report that is written by hand alone."""
        typed = self.cleaned_data
        every = typed.get("every")
        if not every:
            return None
        rule: dict[str, object] = {"every": "month" if every == "weekday" else every}
        for name in _FIELDS[every]:
            value = typed.get(name)
            rule[name] = int(value) if name == "day" and str(value).isdigit() else value
        return rule


class WebhookForm(forms.Form):
    """An address that is told of finished reports."""

    name = forms.CharField(max_length=MAX_NAME)
    url = forms.CharField(
        label="Address",
        max_length=MAX_URL,
        help_text="https://… or http://…; it gets a signed POST for each finished report.",
    )
    sends_decisions = forms.BooleanField(
        label="Decisions, too",
        required=False,
        help_text="A signed POST for each decision applied to an imported query, with its settings and their reverse.",
    )
