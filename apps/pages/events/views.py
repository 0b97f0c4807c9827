"""Events: the list, one with its answer and what came, and its form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.core.errors import SluiceError
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage, done
from apps.pages.crud import Crud
from apps.pages.events.facts import EventFacts, event_when
from apps.pages.events.forms import EventForm
from apps.planning.choices import EventRepeat, RunState
from apps.planning.event_answers import EVENT, event_runs_newest
from apps.planning.event_checklists import check_add, check_set, checklist_of
from apps.planning.event_factors import factors_text
from apps.planning.event_times import occurrence_at
from apps.planning.events import PlannedEventFilter, event_create, event_delete, event_update, events_visible
from apps.planning.models import EventRun, PlannedEvent
from apps.ui.marks import state_mark
from apps.ui.numbers import money
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.words import counted

__all__ = ["EventAsk", "EventCheck", "EventCrud", "EventPage", "EventsPage"]


def events_table(request: HttpRequest, cluster: Cluster) -> Table:
    """Events by their beginnings."""
    runs = event_runs_newest(cluster)

    def finding(event: PlannedEvent) -> SafeString | str:
        return _finding(event, runs.get(event.pk))

    return Table(
        request,
        [
            Column("name", "Event", _name, sort="name", csv=lambda event: event.name),
            Column("starts", "When", _when, sort="starts_at", csv=_when, full=True),
            Column("factors", "Load", _factors, csv=_factors, full=True),
            Column("finding", "Finding", finding, csv=finding, full=True),
            Column("todo", "To do", _todo, csv=_todo),
            Column("owner", "Owner", lambda event: event.owner or "–", csv=lambda event: event.owner or ""),
        ],
        events_visible(cluster),
        caption="Events",
        default_sort="starts",
        filters=[Filter("repeat", [Choice(value, label) for value, label in EventRepeat.choices], all_label="Any")],
        filterset=PlannedEventFilter,
        file_name=f"events-{cluster.slug}",
        empty={
            "icon": "queue",
            "title": "No event yet",
            "text": "Plan one: whose load comes at how many times the ordinary one, from when to when.",
        },
    )


def _name(event: PlannedEvent) -> SafeString:
    url = reverse("pages:event", args=[event.cluster.slug, event.pk])
    return format_html('<a class="name" href="{}">{}</a>', url, event.name)


def _when(event: PlannedEvent) -> str:
    return event_when(event, occurrence_at(event, timezone.now()))


def _factors(event: PlannedEvent) -> str:
    return factors_text(event.factors) or "as the last time"


def _finding(event: PlannedEvent, run: EventRun | None) -> SafeString | str:
    if run is None:
        return "Not asked yet"
    if run.state != RunState.ANSWERED:
        return run.get_state_display()
    facts = run.facts
    if not facts["breaks"]:
        words = "Nothing breaks"
    else:
        words = f"{counted(facts['breaks'], 'objective breaks', 'objectives break')}"
    if facts["nodes"] is None:
        return f"{words}; no number of nodes is enough"
    bought = f"order {counted(facts['added'], facts['type'] + ' node')}" if facts["added"] else "no node to order"
    cost = "" if not facts["cost"] else f", {money(facts['cost'], event.cluster.currency)}"
    text = f"{words}; {bought}{cost}"
    if facts["first_at"] is None:
        return text
    return format_html("{}; first {}", text, time_tag(datetime.fromisoformat(facts["first_at"]).astimezone(UTC)))


def _todo(event: PlannedEvent) -> SafeString | str:
    items = checklist_of(event)
    left = sum(not item.done_at for item in items)
    if any(item.is_overdue for item in items):
        return state_mark("at_risk", f"{left} of {len(items)}, overdue")
    return f"{left} of {len(items)}" if items else "–"


class EventsPage(ClusterPage):
    """`/c/<slug>/events/`"""

    template_name = "pages/events/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"table": events_table(request, self.cluster)})


class _OfEvent(ClusterPage):
    """A page of one event."""

    template_name = "pages/events/page.html"

    def found(self, pk: int) -> PlannedEvent:
        return self.find(events_visible(self.cluster), "event", pk=pk)

    def shown(self, event: PlannedEvent, refusal: SluiceError | None = None) -> HttpResponse:
        """The page of the event; with `refusal`, why what was just asked could not be done."""
        facts = EventFacts(event)
        context: dict[str, object] = {
            "event": event,
            "facts": facts,
            "run": facts.run,
            "topic": f"event-run:{facts.run.pk}" if facts.run else f"planned-events:{self.slug}",
            "refusal": refusal.message if refusal else "",
        }
        return self.page(context, refusal.status if refusal else 200)


class EventPage(_OfEvent):
    """`/c/<slug>/events/<pk>/`"""

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        return self.shown(self.found(pk))


class EventAsk(_OfEvent):
    """POST: ask what its next occurrence breaks."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        event = self.found(pk)
        try:
            EVENT.request(user=signed_in_user(request), event=event)
        except SluiceError as refusal:
            return self.shown(event, refusal)
        return done(request, "The event is worked out; the answer appears here by itself.", "pages:event", slug, pk)


class EventCheck(_OfEvent):
    """POST: add an item to the check-list, or tick one off."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        event, text = self.found(pk), request.POST.get("text", "")
        try:
            if "done" in request.POST:
                done_now = request.POST["done"] == "1"
                check_set(event=event, text=text, done=done_now, user=signed_in_user(request))
                said = "Done." if done_now else "It is to be done again."
            else:
                check_add(event=event, text=text)
                said = "It is on the list."
        except SluiceError as refusal:
            return self.shown(event, refusal)
        return done(request, said, "pages:event", slug, pk)


class EventCrud(Crud):
    """Events are made, changed and deleted."""

    noun = "event"
    template_name = "pages/events/form.html"
    form_class = EventForm
    back = "pages:events"
    delete_name = "pages:event-delete"
    text_saved = "{row} is saved. Work it out to see what it breaks."
    service_create = staticmethod(event_create)
    service_update = staticmethod(event_update)
    service_delete = staticmethod(event_delete)

    def rows(self) -> QuerySet[PlannedEvent]:
        return events_visible(self.cluster)

    def owner(self) -> Mapping[str, object]:
        return {"cluster": self.cluster, "user": signed_in_user(self.request)}

    def saved(self, row: Any) -> HttpResponse:
        return done(self.request, self.text_saved.format(row=row), "pages:event", self.slug, row.pk)

    def form_arguments(self, row: Any) -> dict[str, Any]:
        return {"cluster": self.cluster, "user": signed_in_user(self.request)}
