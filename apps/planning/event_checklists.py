"""Check-lists of events: what an answer says is to be done until when, what people add, and what is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Fault, Malformed, Missing
from apps.core.events import announce
from apps.core.limits import MAX_NOTE
from apps.planning.choices import EventRepeat
from apps.planning.models import PlannedEvent
from engine.events.answer import EventAnswer
from engine.records import Record
from engine.words import counted, listed

__all__ = ["CheckItem", "check_add", "check_set", "checklist_fill", "checklist_of"]

MAX_ITEMS = 50
_NAMED = 6


@dataclass(frozen=True)
class CheckItem(Record):
    """Something to do for an event; `key` is of one that an answer asks for, and empty of one that people added."""

    TITLE: ClassVar[str] = "an item"

    text: str
    key: str = ""
    due_at: str = ""  #: ISO 8601
    done_at: str = ""
    done_by: str = ""

    @property
    def due(self) -> datetime | None:
        return datetime.fromisoformat(self.due_at) if self.due_at else None

    @property
    def done(self) -> datetime | None:
        return datetime.fromisoformat(self.done_at) if self.done_at else None

    @property
    def is_overdue(self) -> bool:
        return not self.done_at and self.due is not None and self.due < timezone.now()


def checklist_of(event: PlannedEvent) -> list[CheckItem]:
    """The check-list of an event, the earliest due first and what is due at no time last."""
    items = [CheckItem.parse(item) for item in event.checklist]
    return sorted(items, key=lambda item: (not item.due_at, item.due_at))


@transaction.atomic
def check_add(*, event: PlannedEvent, text: str) -> PlannedEvent:
    """Add an item that is due at no time.

    Raises
    ------
    Malformed
        A text that is empty, too long, or there already; or too many items.
    """
    event = PlannedEvent.objects.select_for_update().get(pk=event.pk)
    text = text.strip()
    faults = []
    if not 0 < len(text) <= MAX_NOTE:
        faults.append(Fault("text", f"text has {len(text)} characters; allowed: 1 to {MAX_NOTE}"))
    if any(item["text"] == text for item in event.checklist):
        faults.append(Fault("text", f"text is {text!r}, which is on the list already"))
    if len(event.checklist) >= MAX_ITEMS:
        faults.append(Fault("text", f"the list has {len(event.checklist)} items; allowed: at most {MAX_ITEMS}"))
    if faults:
        raise Malformed(f"{faults[0].message}.", faults)
    event.checklist = [*event.checklist, CheckItem(text).to_dict()]
    return _stored(event)


@transaction.atomic
def check_set(*, event: PlannedEvent, text: str, done: bool, user: User | None) -> PlannedEvent:
    """Tick an item off, or take that back.

    Raises
    ------
    Missing
        There is no such item.
    """
    event = PlannedEvent.objects.select_for_update().get(pk=event.pk)
    if text not in [item["text"] for item in event.checklist]:
        raise Missing(f"The check-list of {event.name} has no item {text[:80]!r}; it was changed since.")
    mark = {"done_at": timezone.now().isoformat() if done else "", "done_by": user.username if done and user else ""}
    event.checklist = [{**item, **mark} if item["text"] == text else item for item in event.checklist]
    return _stored(event)


def checklist_fill(event: PlannedEvent, answer: EventAnswer) -> PlannedEvent:
    """Put on the list what an answer asks for, in the place of what the one before asked for and nobody did.

    What was done for an earlier occurrence is to be done again for this one.
    """
    event = PlannedEvent.objects.select_for_update().get(pk=event.pk)
    done = {item.text: item for item in checklist_of(event) if item.done_at}
    asked = [_as_it_stands(event, item, done.get(item.text)) for item in _asked(answer)]
    texts = {item.text for item in asked}
    rest = [item for item in event.checklist if item["text"] not in texts]
    own, earlier = (
        [item for item in rest if not item["key"]],
        [item for item in rest if item["key"] and item["done_at"]],
    )
    event.checklist = [*(item.to_dict() for item in asked), *own]
    event.checklist += earlier[: max(0, MAX_ITEMS - len(event.checklist))]
    return _stored(event)


def _as_it_stands(event: PlannedEvent, asked: CheckItem, done: CheckItem | None) -> CheckItem:
    """The item that was done if it is the one asked for, and not that of an earlier occurrence, a week apart."""
    if done is None or event.repeat == EventRepeat.ONCE or done.due is None or asked.due is None:
        return done or asked
    return done if abs(asked.due - done.due) < _APART else asked


def _asked(answer: EventAnswer) -> Iterator[CheckItem]:
    """Items that an answer asks for."""
    starts, ends = (datetime.fromtimestamp(at, UTC) for at in (answer.starts_s, answer.ends_s))
    purchase = answer.purchase
    if purchase is not None and purchase.added:
        nodes = counted(purchase.added, f"{purchase.name} node")
        order = datetime.fromtimestamp(purchase.order_by_s, UTC)
        yield CheckItem(f"Order {nodes}", "order", order.isoformat())
        yield CheckItem(f"Activate {nodes} and place operators anew", "activate", (starts - _DAY).isoformat())
        yield CheckItem(f"Give {nodes} back", "return", (ends + _DAY).isoformat())
    if answer.delay.queries:
        names = listed(list(answer.delay.queries), _NAMED)
        yield CheckItem(f"If no nodes come: stop {names}", "delay", starts.isoformat())
        yield CheckItem(f"Start again what was stopped: {names}", "resume", ends.isoformat())
    yield CheckItem("Hold the plan against what came", "review", (ends + _DAY).isoformat())


_DAY = timedelta(days=1)
_APART = timedelta(days=3, hours=12)  # half of the shortest repeat


def _stored(event: PlannedEvent) -> PlannedEvent:
    event.save(update_fields=["checklist", "updated_at"])
    announce(f"planned-events:{event.cluster.slug}")
    return event
