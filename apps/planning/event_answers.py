"""Answers about events: what an occurrence breaks, what to buy until when, and what to delay; asked, kept, and REST."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils import timezone
from rest_framework import serializers

from apps.accounts.models import User
from apps.core.errors import Impossible
from apps.core.filters import ChoiceFilter, ListFilter, NumberFilter, TextFilter, TimeFilter, sort_paths
from apps.core.rest.api import StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import RowField, field_type
from apps.fleet.models import Cluster, NodePool
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.jobs.viewsets import RunDeletion, RunRowSerializer, RunViewSet, describe_create
from apps.planning.choices import ANSWER_STATES, RunState
from apps.planning.event_checklists import checklist_fill
from apps.planning.event_factors import EventFactor
from apps.planning.event_loads import event_loads
from apps.planning.event_times import Occurrence, occurrence_at
from apps.planning.models import EventRun, PlannedEvent
from apps.planning.sweeps import bench_question
from apps.planning.what_if_options import Inputs
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL, Snapshot, snapshot_changes
from apps.queries.snapshots.parts import is_large, parts_shown, snapshot_take
from engine.document.cycles import common_unit
from engine.events.answer import EventAnswer
from engine.events.question import EventQuestion

__all__ = ["EVENT", "EventRunViewSet", "event_answer", "event_changes", "event_run_latest", "event_runs_newest"]

_MAX_TYPES = 3
_SEARCH_S = 40.0  # of each search for a pool: there are as many as types, and two more
_DAY_S = 86_400.0


class EventKind(RunKind[EventRun]):
    """Question about the next occurrence of an event, on the cluster as it is when a worker takes it."""

    model, job, name, path = EventRun, JobKind.EVENT, "event_run", "event-runs"
    topics = ("event-run", "planned-events")
    related = ("cluster", "job", "requested_by", "event")
    columns = ("result", "basis", "facts", "snapshot", "snapshot_parts", "duration_s")
    retention = timedelta(days=400)  # so that the plan of last year can be held against what came

    def title(self, run: EventRun) -> str:
        return f"Event {run.event.name}, {run.cluster.slug}"[:200]

    def page(self, run: EventRun) -> str:
        return f"/c/{run.cluster.slug}/events/{run.event_id}/"

    def is_long(self, run: EventRun) -> bool:
        return is_large(run.cluster)

    @transaction.atomic
    def create(self, *, user: User | None, event: PlannedEvent) -> EventRun:
        """Write a question about the occurrence that is on or comes next, as the event is now.

        Raises
        ------
        Impossible
            The event is over, or the cluster has no nodes.
        """
        occurrence = occurrence_at(event, timezone.now())
        if occurrence.ends_at <= timezone.now():
            message = f"{event.name} ended on {occurrence.ends_at:%d %B %Y, %H:%M} UTC"
            raise Impossible(f"{message}: there is nothing left to plan. Give it new times.", [("event", message)])
        if not event.cluster.nodes.exists():
            message = f"{event.cluster.slug} has no nodes"
            raise Impossible(f"{message}; register at least one first.", [("cluster", message)])
        return EventRun.objects.create(
            cluster=event.cluster,
            event=event,
            starts_at=occurrence.starts_at,
            ends_at=occurrence.ends_at,
            question=event_question(event),
            requested_by=user,
        )

    def answer(self, run: EventRun, report: JobReporter) -> None:
        from engine.events.event import answer_event  # and with it the engine, which only workers load
        from engine.provisioning.question import watch_work

        report(0.0, "Taking a snapshot")
        snapshot = snapshot_take(run.cluster)
        started, event = time.perf_counter(), run.event
        factors = [EventFactor.parse(item) for item in run.question["factors"]]
        occurrence = Occurrence(run.starts_at, run.ends_at)
        loads, notes = event_loads(event, factors, occurrence, snapshot.deployment)
        bench = bench_question(run.cluster, Inputs(lose_one=event.lose_one), snapshot)
        question = EventQuestion(
            types=node_types(run.cluster, snapshot),
            limits=bench.deployment.objectives,
            like=bench.like,
            lose_one=run.question["lose_one"],
            lead_time_s=run.question["lead_time_days"] * _DAY_S,
            cost_per_violation_hour=run.question["cost_per_violation_hour"],
            currency=run.cluster.currency,
            ends_s=run.ends_at.timestamp(),
            mace_every=SLICES_PER_SUBINTERVAL,
            closed=snapshot.closed_nodes,
            budget_s=_SEARCH_S,
            most=max(64, 3 * len(snapshot.deployment.nodes)),
        )
        answer = watch_work(
            lambda tell: answer_event(snapshot.deployment, loads, question, tell),
            lambda share, step: report(0.02 + 0.97 * share, step),
        )
        run.result, run.facts = answer.to_dict(), _facts(answer)
        run.basis = {"notes": [str(note) for note in notes]}
        run.snapshot, run.snapshot_parts = snapshot.digest, dict(snapshot.parts)
        run.duration_s = time.perf_counter() - started

    def keep(self, run: EventRun, answer: Any, job: Job) -> EventRun:
        """Store the answer, and what it says is to be done on the event's check-list."""
        self.store(run)
        checklist_fill(run.event, EventAnswer.parse(run.result))
        return run

    def facts(self, run: EventRun) -> Mapping[str, object]:
        return {"event_run": str(run.pk), "event": run.event_id, **run.facts}


EVENT = register(EventKind())


def event_question(event: PlannedEvent) -> dict[str, Any]:
    """The question about an event, as it is kept with the answer."""
    names = ("factors", "follows_trace", "lose_one", "lead_time_days", "cost_per_violation_hour", "time_zone", "repeat")
    began = event.trace_starts_at
    return {name: getattr(event, name) for name in names} | {"trace_starts_at": began and began.isoformat()}


def node_types(cluster: Cluster, snapshot: Snapshot) -> dict[str, dict[str, object]]:
    """Types that may be bought: those of the cluster's pools that count cycles as its nodes do, at most three; those
    with a price first, and of these the cheapest for their capacity.
    """
    unit = common_unit(snapshot.deployment.nodes)

    def rank(pool: NodePool) -> tuple[bool, float, str]:
        price = float(pool.price_per_hour or 0.0)
        return pool.price_per_hour is None, price / (pool.capacity_cps * pool.cores), pool.name

    pools = sorted((pool for pool in cluster.pools.all() if pool.cycle_unit == unit), key=rank)[:_MAX_TYPES]
    return {
        pool.name: {
            "name": pool.name,
            "capacity_cps": pool.capacity_cps,
            "cores": pool.cores,
            "cycle_unit": pool.cycle_unit,
            **({"memory_bytes": float(pool.memory_bytes)} if pool.memory_bytes else {}),
            **({"price_per_hour": float(pool.price_per_hour)} if pool.price_per_hour is not None else {}),
        }
        for pool in pools
    }


def _facts(answer: EventAnswer) -> dict[str, object]:
    """The answer in a few numbers, for lists."""
    purchase, breaking = answer.purchase, answer.breaking
    first = breaking[0].forecast.first_mean if breaking else None
    return {
        "breaks": len(breaking),
        "first_at": None if first is None else datetime.fromtimestamp(answer.at_s(first.index), UTC).isoformat(),
        "nodes": None if purchase is None else purchase.nodes,
        "added": None if purchase is None else purchase.added,
        "type": "" if purchase is None else purchase.name,
        "cost": None if purchase is None else purchase.cost,
        "delay": len(answer.delay.queries),
    }


def event_answer(run: EventRun) -> EventAnswer:
    """The engine's answer of a run that has one."""
    return EventAnswer.parse(run.result)


def event_run_latest(event: PlannedEvent, *states: str) -> EventRun | None:
    """The newest run of an event, of those in some states where they are named."""
    rows = EventRun.objects.filter(event=event).select_related("cluster", "job", "event", "requested_by")
    return (rows.filter(state__in=states) if states else rows).first()


def event_runs_newest(cluster: Cluster) -> dict[int, EventRun]:
    """The newest run of each event of a cluster, without its answer."""
    newest = EventRun.objects.filter(event=OuterRef("pk")).order_by("-created_at").values("pk")[:1]
    picked = PlannedEvent.objects.filter(cluster=cluster).annotate(run=Subquery(newest)).values("run")
    return {run.event_id: run for run in EventRun.objects.filter(pk__in=picked).defer("result", "snapshot_parts")}


def event_changes(run: EventRun) -> list[str]:
    """Changes of the cluster and of the event since a run was answered, in words; empty where it still holds."""
    if run.state != RunState.ANSWERED:
        return []
    present = parts_shown(run.cluster, lambda: run.job)
    changes = [] if present.digest == run.snapshot else list(snapshot_changes(run.snapshot_parts, present.parts))
    if event_question(run.event) != run.question:
        changes.append("the event was changed")
    occurrence = occurrence_at(run.event, min(timezone.now(), run.starts_at))
    if (occurrence.starts_at, occurrence.ends_at) != (run.starts_at, run.ends_at):
        changes.append("its times were changed")
    elif occurrence_at(run.event, timezone.now()).starts_at != run.starts_at:
        changes.append("that occurrence is over, and the next one was not worked out")
    return changes


class EventRunFilter(ListFilter):
    """`?cluster=eu-1&event=3&state=answered`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    event = NumberFilter("event_id", whole=True, label="Number of the event")
    state = ChoiceFilter(choices=ANSWER_STATES)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "starts_at", "state", cluster="cluster__slug", answered_at="finished_at")


class EventRunCreateSerializer(StrictSerializer):
    """Request for an answer about the next occurrence of an event."""

    event = RowField(queryset=PlannedEvent.objects.select_related("cluster"), help_text="Number of the event.")


class EventRunSerializer(RunRowSerializer):
    """An answer about an event in a list: what was asked, and the answer in a few numbers."""

    event = serializers.IntegerField(source="event_id")
    name = serializers.CharField(source="event.name")
    question = serializers.JSONField()
    facts = serializers.JSONField(help_text="breaks, first_at, nodes, added, type, cost, delay; empty without answer.")

    class Meta:
        model = EventRun
        fields = ["id", "cluster", "event", "name", "starts_at", "ends_at", "question", "state", "job", "facts"]
        fields += ["snapshot", "requested_by", "created_at", "answered_at", "duration_s"]


class EventRunDetailSerializer(EventRunSerializer):
    """An answer about an event, with what has changed since."""

    result = StoredRecordField(EventAnswer, allow_null=True)  # type: ignore[assignment]
    notes = serializers.SerializerMethodField(help_text="What its loads rest on besides.")
    changes = serializers.SerializerMethodField(help_text="What has changed since it was answered, in words.")

    class Meta(EventRunSerializer.Meta):
        fields = [*EventRunSerializer.Meta.fields, "result", "notes", "changes"]

    @field_type(list[str])
    def get_notes(self, run: EventRun) -> list[str]:
        return list(run.basis.get("notes", ()))

    @field_type(list[str])
    def get_changes(self, run: EventRun) -> list[str]:
        return event_changes(run)


@describe_create(
    "Ask what the next occurrence of an event breaks, what to buy for it, and what to delay. 202 with a job, or the "
    "answer with `Prefer: wait=N`."
)
class EventRunViewSet(RunDeletion, RunViewSet):
    """Answers about events, newest first."""

    kind = EVENT
    queryset = EventRun.objects.none()
    filterset_class = EventRunFilter
    serializer_class, detail_class = EventRunSerializer, EventRunDetailSerializer
    question_class = EventRunCreateSerializer
