"""Planned events: made, changed, deleted, their check-lists; and their REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Fault, Malformed, fault_count, field_faults
from apps.core.events import announce
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_NAME, MAX_NOTE, MAX_REASON, MAX_TIME_ZONE
from apps.core.reach import row_visible
from apps.core.rest.api import ServiceViewSet, StrictSerializer
from apps.core.rest.serializers import field_type, read_body
from apps.fleet.models import Cluster
from apps.fleet.serializers import InClusterSerializer, NumberField
from apps.ledger.recorder import recorded
from apps.planning.choices import EventRepeat
from apps.planning.event_checklists import check_add, check_set, checklist_of
from apps.planning.event_factors import LoadOwners, factors_read
from apps.planning.event_outcomes import EventOutcome, event_outcome
from apps.planning.event_times import local_moment, occurrence_at, span_faults
from apps.planning.models import PlannedEvent
from apps.queries.arrivals.times import zone_of

__all__ = [
    "PlannedEventFilter",
    "PlannedEventViewSet",
    "event_create",
    "event_delete",
    "event_of",
    "event_update",
    "events_visible",
]

_RANGES = {"lead_time_days": (0.0, 365.0), "cost_per_violation_hour": (0.0, 1e12)}
_TIMES = ("starts_at", "ends_at", "trace_starts_at")
#: Fields that have been read, with their faults, when the model checks the others.
_READ_BEFORE = ["cluster", "created_by", "owner", "factors", "starts_at", "ends_at", "time_zone", "checklist"]


def events_visible(cluster: Cluster | None = None) -> QuerySet[PlannedEvent]:
    """Events by their beginnings, with owner."""
    rows = PlannedEvent.objects.select_related("cluster", "owner", "created_by")
    return rows.filter(cluster=cluster) if cluster is not None else rows


def event_of(pk: int) -> PlannedEvent:
    """The event of that number.

    Raises
    ------
    Missing
        There is none.
    """
    return row_visible(events_visible(), "event", pk=pk)


@recorded()
def event_create(*, cluster: Cluster, name: str, user: User | None, **fields: Any) -> PlannedEvent:
    """Create an event; `fields` as of the model, times as text or moments, the owner by name.

    Raises
    ------
    Malformed
        With every fault: times, factors, names that are unknown, numbers out of range.
    Conflict
        The cluster has an event of that name.
    """
    event = PlannedEvent(cluster=cluster, created_by=user, time_zone=cluster.time_zone)
    owner = fields.pop("owner", None) or (user.username if user is not None else None)
    return _event_store(event, {"name": name, "owner": owner, "factors": [], **fields}, is_new=True)


@recorded()
def event_update(*, event: PlannedEvent, **fields: Any) -> PlannedEvent:
    """Change an event; answers stay, and say that it was changed."""
    return _event_store(event, fields)


@recorded()
def event_delete(*, event: PlannedEvent) -> None:
    """Delete an event with its answers."""
    announce(f"planned-events:{event.cluster.slug}")
    event.delete()


def _event_store(event: PlannedEvent, fields: Mapping[str, Any], *, is_new: bool = False) -> PlannedEvent:
    faults: list[Fault] = []
    given = dict(fields)
    if "factors" in given:
        factors = factors_read(given["factors"], LoadOwners(event.cluster), faults)
        given["factors"] = [factor.to_dict() for factor in factors]
    if "owner" in given:
        given["owner"] = _owner(given["owner"], faults)
    _read_times(event, given, faults, is_new)
    for name, (least, most) in _RANGES.items():
        if name in given and not (isinstance(given[name], (int, float)) and least <= given[name] <= most):
            faults.append(Fault(name, f"{name} is {given[name]!r}; allowed: {least:g} to {most:g}"))
            del given[name]
    for name, value in given.items():
        setattr(event, name, value)
    try:
        event.clean_fields(exclude=_READ_BEFORE)
    except ValidationError as error:
        faults += field_faults(error)
    if event.starts_at and event.ends_at and event.repeat in EventRepeat.values:
        faults += span_faults(event.starts_at, event.ends_at, event.repeat)
    if not faults and not event.follows_trace and not event.factors:
        message = "factors is empty, and it follows no trace; allowed: at least one factor, or follows_trace"
        faults.append(Fault("factors", message))
    if faults:
        raise Malformed(f"The event has {fault_count(faults)}; first: {faults[0].message}", faults)
    if PlannedEvent.objects.filter(cluster=event.cluster, name=event.name).exclude(pk=event.pk).exists():
        message = f"{event.cluster.slug} has an event {event.name!r} already; allowed: another name"
        raise Conflict(f"name: {message}.", [("name", message)])
    kept = {"id"} | ({"checklist"} - given.keys())  # somebody may tick an item off meanwhile
    event.save(update_fields=None if is_new else {field.name for field in event._meta.concrete_fields} - kept)
    announce(f"planned-events:{event.cluster.slug}")
    return event


def _read_times(event: PlannedEvent, given: dict[str, Any], faults: list[Fault], is_new: bool) -> None:
    """Times in place of their texts, on the clock of the event's zone."""
    zone_name = given.get("time_zone") or event.time_zone
    try:
        zone = zone_of(zone_name)
    except Malformed as error:
        faults.extend(error.faults)
        zone = zone_of("UTC")
    given["time_zone"] = zone_name
    for name in _TIMES:
        is_needed = name != "trace_starts_at"
        if given.get(name):
            given[name] = local_moment(given[name], zone, name, faults)
        elif name in given or (is_new and is_needed):
            given[name] = None
            if is_needed:
                faults.append(Fault(name, f"{name} is missing; allowed: a time such as 2026-11-27T08:00"))


def _owner(name: Any, faults: list[Fault]) -> User | None:
    if not name:
        return None
    found = User.objects.filter(username=name, is_active=True).first() if isinstance(name, str) else None
    if found is None:
        faults.append(Fault("owner", f"owner is {str(name)[:80]!r}; allowed: the name of somebody who may sign in"))
    return found


class PlannedEventFilter(ListFilter):
    """`?cluster=eu-1&starts_at__gte=2026-11-01T00:00:00Z&repeat=yearly`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    owner = TextFilter("owner__username", label="Name of its owner")
    repeat = ChoiceFilter(choices=EventRepeat.choices)
    starts_at = TimeFilter()
    ends_at = TimeFilter()
    sorts = sort_paths("name", "starts_at", "ends_at", "created_at", "updated_at", cluster="cluster__slug")


@extend_schema_field(OpenApiTypes.STR)
class _MomentField(serializers.Field):
    """ISO 8601; without an offset on the clock of `time_zone`."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or "\0" in data or len(data) > 40:
            raise serializers.ValidationError("not a time; allowed: ISO 8601 such as 2026-11-27T08:00")
        return data

    def to_representation(self, value: Any) -> Any:
        return value.isoformat().replace("+00:00", "Z")


class PlannedEventSerializer(InClusterSerializer):
    """An event: factors of loads over a stretch of time, once or repeated, and what is to be done for it."""

    name = serializers.CharField(max_length=MAX_NAME)
    description = serializers.CharField(required=False, allow_blank=True, max_length=MAX_REASON)
    factors = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text='[{"of": "source", "name": "orders", "by": 3}]; of source, team, class (a priority) or rest.',
    )
    follows_trace = serializers.BooleanField(
        required=False,
        help_text="Sources without a factor of their own come as the last time, where that is on record.",
    )
    trace_starts_at = _MomentField(required=False, allow_null=True, help_text="When it began the last time.")
    starts_at = _MomentField(help_text="ISO 8601; without an offset on the clock of time_zone.")
    ends_at = _MomentField(help_text="ISO 8601; without an offset on the clock of time_zone.")
    time_zone = serializers.CharField(
        required=False, max_length=MAX_TIME_ZONE, help_text="IANA name; the cluster's unless given."
    )
    repeat = serializers.ChoiceField(EventRepeat.choices, required=False)
    lose_one = serializers.BooleanField(required=False, help_text="Objectives are to hold with any one node lost.")
    lead_time_days = NumberField(required=False, help_text="From an order of nodes until they run; 0 to 365.")
    cost_per_violation_hour = NumberField(required=False, help_text="Of an hour over an objective.")
    owner = serializers.CharField(
        source="owner.username", required=False, allow_null=True, default=None, help_text="Who made it, unless given."
    )
    checklist = serializers.SerializerMethodField(help_text="[{text, key, due_at, done_at, done_by}]")
    next_starts_at = serializers.SerializerMethodField(help_text="Of the occurrence that is on or comes next.")
    created_by = serializers.CharField(source="created_by.username", read_only=True, default=None)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def validate(self, values: Any) -> Any:
        if "owner" in values:
            owner = values.pop("owner")
            name = owner.get("username") if isinstance(owner, Mapping) else owner
            return values if name is None and self.instance is None else {**values, "owner": name}
        return values

    @field_type(list[dict[str, Any]])
    def get_checklist(self, event: PlannedEvent) -> list[dict[str, object]]:
        return [item.to_dict() for item in checklist_of(event)]

    @field_type(str)
    def get_next_starts_at(self, event: PlannedEvent) -> str:
        return occurrence_at(event, timezone.now()).starts_at.isoformat().replace("+00:00", "Z")


class CheckSerializer(StrictSerializer):
    """An item of a check-list: added where `done` is missing, else ticked off or not."""

    text = serializers.CharField(max_length=MAX_NOTE)
    done = serializers.BooleanField(required=False)


class PlannedEventViewSet(ServiceViewSet):
    """Events: stretches of time at other loads. `event-runs` answers what the next occurrence of one breaks."""

    queryset = PlannedEvent.objects.none()
    serializer_class = PlannedEventSerializer
    filterset_class = PlannedEventFilter
    ordering = "starts_at"
    row_keyword = "event"
    creator_keyword = "user"
    service_create = staticmethod(event_create)
    service_update = staticmethod(event_update)
    service_delete = staticmethod(event_delete)

    def get_queryset(self) -> Any:
        return events_visible()

    @extend_schema(request=CheckSerializer, responses=PlannedEventSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def checklist(self, request: Request, pk: str | None = None) -> Response:
        """Add an item to the check-list, or tick one off."""
        event, asked = self.get_object(), read_body(CheckSerializer, request)
        if "done" in asked:
            check_set(event=event, text=asked["text"], done=asked["done"], user=signed_in_user(request))
        else:
            check_add(event=event, text=asked["text"])
        return Response(self._shown(event))

    @extend_schema(responses=EventOutcome, filters=False)
    @action(detail=True, methods=["get"])
    def outcome(self, request: Request, pk: str | None = None) -> Response:
        """The newest occurrence that is over, held against what was planned: factors, objectives, nodes."""
        return Response(event_outcome(self.get_object()).to_dict())
