"""Pages of incidents: the list, one with its timeline, acknowledging, routing, and the menu of the bell."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import Count, F, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.connections.models import Connection
from apps.connections.selectors import AWAY_POLLS
from apps.core.reach import AskedOn
from apps.estimates.words import cause_sentence
from apps.fleet.models import Cluster
from apps.incidents.choices import IncidentCause, IncidentSeverity, IncidentState
from apps.incidents.models import Incident, IncidentEvent, IncidentQuery
from apps.incidents.notices import incident_title
from apps.incidents.selectors import (
    IncidentFilter,
    incident_rows,
    incidents_open,
    incidents_with_members,
    routing_of,
)
from apps.incidents.services import MAX_KEEP_DAYS, incident_acknowledge, incident_done, incident_routing_update
from apps.pages.base import ClusterPage, Page, done, try_service
from apps.pages.queries.remedies import best_remedy_words
from apps.planning.remedies import remedies_by_query
from apps.queries.choices import ObjectiveState
from apps.reports.models import Webhook
from apps.ui.marks import Mark, icon
from apps.ui.numbers import MISSING, Quantity, seconds
from apps.ui.sentences import sentence
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.remedies.answer import QueryRemedies
from engine.words import duration_words, listed

__all__ = [
    "IncidentAcknowledge",
    "IncidentDone",
    "IncidentFacts",
    "IncidentPage",
    "IncidentsMenu",
    "IncidentsPage",
    "RoutingPage",
]

_NAMED = 4
_SHOWN = 100  # queries and events of an incident
_SEVERITIES = {
    IncidentSeverity.CRITICAL: Mark("bad", "bad", "Critical"),
    IncidentSeverity.WARNING: Mark("watch", "watch", "Warning"),
}


def incident_mark(incident: Incident) -> Mark:
    """Severity while it is open; a ring once it is resolved."""
    if not incident.is_open:
        return Mark("ok", "ok", "Resolved")
    mark = _SEVERITIES[IncidentSeverity(incident.severity)]
    if incident.measured or incident.severity != IncidentSeverity.CRITICAL:
        return mark
    return mark._replace(drawing="bad_expected", label="Critical, expected")


def lasted_words(incident: Incident) -> str:
    """12 min; empty while it is open."""
    if incident.resolved_at is None:
        return ""
    return duration_words((incident.resolved_at - incident.opened_at).total_seconds())


def incidents_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Newest first; chips by state and severity."""
    rows = Incident.objects.filter(cluster=cluster).order_by()
    by_state = dict(rows.values_list("state").annotate(number=Count("pk")))
    by_severity = dict(rows.values_list("severity").annotate(number=Count("pk")))
    states = [Choice(value, label, by_state.get(value, 0)) for value, label in IncidentState.choices]
    severities = [
        Choice(value, label, by_severity.get(value, 0), mark.drawing, mark.tone)
        for (value, label), mark in zip(IncidentSeverity.choices, _SEVERITIES.values(), strict=True)
    ]
    total = sum(by_state.values())
    return Table(
        request,
        _columns(cluster.slug),
        incident_rows().filter(cluster=cluster).distinct(),  # a search by query joins rows of members
        caption="Incidents",
        default_sort="-opened",
        filters=[
            Filter("state", states, all_count=total),
            Filter("severity", severities, all_label="Every severity", all_count=total),
        ],
        filterset=IncidentFilter,
        search=["cause_subject", "members__query__name", "note"],
        search_label="Query, agent, node, connection or note",
        page_size=25,
        load=lambda rows: _with_members(rows, None if request.GET.get("export") else _NAMED),
        file_name=f"incidents-{cluster.slug}",
        empty={
            "icon": "ok",
            "title": "No incidents yet",
            "text": "One opens by itself when an objective is breached or at risk, or an engine stays away; queries "
            "that are late by one cause share it.",
        },
    )


def _columns(slug: str) -> list[Column]:
    def title(incident: Incident) -> SafeString:
        mark, url = incident_mark(incident), reverse("pages:incident", args=[slug, incident.pk])
        name = format_html('<a class="name" href="{}">{}</a>', url, incident_title(incident))
        shape = icon(mark.drawing, mark.tone or "muted")
        return format_html('<span class="nm">{}{}<span class="vh">{}</span></span>', shape, name, mark.label)

    return [
        Column("incident", "Incident", title, csv=incident_title),
        Column("state", "State", lambda row: row.get_state_display(), sort="state", csv=lambda row: row.state),
        Column("severity", "Severity", lambda row: row.get_severity_display(), sort="severity"),
        Column("queries", "Queries", _queries, csv=lambda row: " ".join(_names(row)), full=True),
        Column(
            "opened",
            "First seen",
            lambda row: time_tag(row.opened_at),
            sort="opened_at",
            csv=lambda row: row.opened_at,
            high_first=True,
        ),
        Column(
            "resolved",
            "Resolved",
            _resolved,
            sort="resolved_at",
            csv=lambda row: row.resolved_at,
            high_first=True,
        ),
        Column("seen", "Acknowledged", _acknowledged, csv=lambda row: row.acknowledged_at),
    ]


def _with_members(rows: list[Incident], first: int | None) -> list[Incident]:
    incidents_with_members(rows, first)
    return rows


def _queries(incident: Any) -> Any:
    names = _names(incident)
    if incident.total <= _NAMED:
        return listed(names, _NAMED) or MISSING
    return f"{', '.join(names[: _NAMED - 1])} and {incident.total - _NAMED + 1:,} more"


def _names(incident: Any) -> list[str]:
    return [member.query.name for member in incident.named]


def _resolved(incident: Incident) -> Any:
    if incident.resolved_at is None:
        return format_html('<span class="muted">{}</span>', "not yet")
    lasted = lasted_words(incident)
    return format_html('{} <span class="muted sm">after {}</span>', time_tag(incident.resolved_at), lasted)


def _acknowledged(incident: Incident) -> Any:
    if incident.acknowledged_at is None:
        return format_html('<span class="muted">{}</span>', "not yet" if incident.is_open else MISSING)
    who = incident.acknowledged_by.get_username() if incident.acknowledged_by else "somebody"
    return format_html("{} {}", who, time_tag(incident.acknowledged_at))


class RoutingForm(forms.Form):
    """Where incidents of a cluster are reported to."""

    emails = forms.CharField(
        label="Mail to", required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="One address a line."
    )
    webhooks = forms.ModelMultipleChoiceField(
        Webhook.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Each gets a signed POST when an incident opens, becomes critical, and is resolved.",
    )
    severity = forms.ChoiceField(
        label="Report",
        choices=[
            (IncidentSeverity.CRITICAL, "Critical incidents: an objective is breached"),
            (IncidentSeverity.WARNING, "Warnings too: an objective is at risk"),
        ],
    )
    keep_days = forms.IntegerField(
        label="Keep resolved ones, days", min_value=1, max_value=MAX_KEEP_DAYS, help_text="Then they are deleted."
    )

    def __init__(self, cluster: Cluster, *args: Any, **kwargs: Any) -> None:
        routing = routing_of(cluster)
        initial = {
            "emails": "\n".join(routing.emails),
            "webhooks": list(routing.webhooks.all()) if routing.pk else [],
            "severity": routing.severity,
            "keep_days": routing.keep_days,
        }
        super().__init__(*args, initial=initial, **kwargs)
        self.cluster = cluster
        field: Any = self.fields["webhooks"]
        field.queryset = Webhook.objects.filter(cluster=cluster)

    def save(self) -> bool:
        """Store the routing; False with the faults shown."""
        if not self.is_valid():
            return False
        values = self.cleaned_data
        emails = [line.strip() for line in values["emails"].splitlines() if line.strip()]
        _, is_stored = try_service(
            self,
            lambda: incident_routing_update(
                cluster=self.cluster,
                emails=emails,
                webhooks=values["webhooks"],
                severity=values["severity"],
                keep_days=values["keep_days"],
            ),
        )
        return is_stored


class IncidentsPage(ClusterPage):
    """`/c/<slug>/incidents/`"""

    template_name = "pages/incidents/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = incidents_table(request, self.cluster)
        context = {"table": table, "sentence": _sentence(self.cluster), "routing": routing_of(self.cluster)}
        return self.page({**context, "away_polls": AWAY_POLLS})


class IncidentPage(ClusterPage):
    """`/c/<slug>/incidents/<id>/`: cause, queries and timeline."""

    template_name = "pages/incidents/page.html"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        incident = self.find(incident_rows().filter(cluster=self.cluster), "incident", pk=pk)
        return self.page({"facts": IncidentFacts(incident)})


class IncidentAcknowledge(ClusterPage):
    """POST: somebody has seen it, with a note."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        incident = self.find(Incident.objects.filter(cluster=self.cluster), "incident", pk=pk)
        note = request.POST.get("note", "").strip()
        incident_acknowledge(incident=incident, user=signed_in_user(request), note=note)
        return done(request, f"Acknowledged: {incident_title(incident)}.", "pages:incident", slug, pk)


class IncidentDone(ClusterPage):
    """POST: what was mended on paper was done, with how."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        incident = self.find(Incident.objects.filter(cluster=self.cluster), "incident", pk=pk)
        incident_done(incident=incident, user=signed_in_user(request), reason=request.POST.get("reason", ""))
        return done(request, "Noted as done: its queries leave at the next round.", "pages:incident", slug, pk)


class RoutingPage(ClusterPage):
    """`/c/<slug>/incidents/routing/`: mail, webhooks and retention."""

    template_name = "pages/incidents/routing.html"
    write_scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self._show(RoutingForm(self.cluster))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = RoutingForm(self.cluster, request.POST)
        if form.save():
            return done(request, "The routing of incidents is stored.", "pages:incidents", slug)
        return self._show(form, 422)

    def _show(self, form: RoutingForm, status: int = 200) -> HttpResponse:
        context = {
            "form": form,
            "rest": f"{reverse('api-index')}clusters/{self.slug}/incident-routing",
            "mail_missing": not settings.EMAIL_CONFIGURED,
        }
        return self.page(context, status)


class IncidentsMenu(Page):
    """Open incidents of the bell in the top bar."""

    asked_on = AskedOn.NARROWED

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "ui/top_incidents.html")


class IncidentFacts:
    """One incident, in the words and numbers of its page."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.mark = incident_mark(incident)
        self.title = incident_title(incident)

    @cached_property
    def members(self) -> list[MemberLine]:
        """The first queries that took part, those that are late still first."""
        rows = self.incident.members.select_related("query__cluster").order_by(
            F("ended_at").asc(nulls_first=True), "first_at", "pk"
        )
        members = list(rows[:_SHOWN])
        late = [member.query for member in members if member.ended_at is None and self.incident.is_open]
        known = remedies_by_query(late)
        return [MemberLine(member, known.get(member.query_id)) for member in members]

    @cached_property
    def member_count(self) -> int:
        return self.incident.members.count()

    @cached_property
    def events(self) -> list[IncidentEvent]:
        """The newest events of the timeline, in order."""
        newest = self.incident.events.select_related("user").order_by("-at", "-pk")
        return list(newest[:_SHOWN])[::-1]

    @cached_property
    def events_left(self) -> int:
        """Number of events before those shown."""
        return self.incident.events.count() - len(self.events) if len(self.events) == _SHOWN else 0

    @property
    def is_of_engine(self) -> bool:
        """Whether it is an engine that is away, which makes no query late."""
        return self.incident.cause_kind == IncidentCause.ENGINE_AWAY

    @cached_property
    def connection(self) -> Connection | None:
        """Connection to the engine that is away; None of other incidents, and where it was deleted."""
        rows = self.incident.cluster.connections.defer("findings", "look")
        return rows.filter(name=self.incident.cause_subject).first() if self.is_of_engine else None

    @cached_property
    def late_count(self) -> int:
        return self.incident.members.filter(ended_at=None).count()

    @cached_property
    def unconfirmed_count(self) -> int:
        """Number of its queries that are well on paper alone."""
        return self.incident.members.filter(ended_at=None, unconfirmed_at__isnull=False).count()

    @property
    def cause(self) -> str:
        """Sentence on the cause with its newest figures."""
        return cause_sentence(self.incident.lateness)

    @property
    def lasted(self) -> str:
        return lasted_words(self.incident)

    @property
    def deliveries(self) -> list[Any]:
        """Messages that were addressed, the first first."""
        notices = self.incident.notices.prefetch_related("deliveries__notice")
        return [delivery for notice in notices for delivery in notice.deliveries.all()]

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/incidents/sentences/finding.html", facts=self)


class MemberLine:
    """A query's part in an incident."""

    def __init__(self, row: IncidentQuery, remedies: QueryRemedies | None = None) -> None:
        self.row, self._remedies = row, remedies

    @property
    def helps(self) -> str:
        """The best remedy in a sentence; empty where nobody has looked, or none was found."""
        return "" if self._remedies is None else best_remedy_words(self._remedies)

    @property
    def tone(self) -> str:
        if self.row.ended_at is not None:
            return ""
        return "bad" if self.row.state == ObjectiveState.BREACHED else "watch"

    @property
    def late_words(self) -> str:
        """Whether it was measured late, or is expected to be."""
        return "measured" if self.row.measured else "expected"

    @property
    def worst(self) -> Quantity:
        return seconds(self.row.worst_s, apart_from=self.row.bound_s)

    @property
    def bound(self) -> Quantity:
        return seconds(self.row.bound_s)


def _sentence(cluster: Cluster) -> SafeString:
    rows = incidents_open(cluster)
    counts = rows.order_by().aggregate(
        n=Count("pk"),
        critical=Count("pk", filter=Q(severity=IncidentSeverity.CRITICAL)),
        unseen=Count("pk", filter=Q(acknowledged_at=None)),
    )
    return sentence("pages/incidents/sentences/open.html", first=rows.first() if counts["n"] else None, **counts)
