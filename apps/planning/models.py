"""Runs of planning with their answers: placements, evacuations, comparisons of plans, what-ifs, resource plans,
forecasts and backtests.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from apps.core.limits import (
    DIGEST_LENGTH,
    MAX_ELEMENT_NAME,
    MAX_NAME,
    MAX_NOTE,
    MAX_OPERATOR_PATH,
    MAX_PLAN_KEY,
    MAX_REASON,
    MAX_SLUG,
    MAX_TIME_ZONE,
)
from apps.core.models import PackedJSONField
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, Run
from apps.ledger.recorder import Tracked
from apps.microbatch.models import SparkQuery
from apps.planning.choices import (
    ANSWER_STATES,
    COMPARISON_STATES,
    EVACUATION_STATES,
    PLACEMENT_STATES,
    ComparisonReason,
    EvacuationOrder,
    EvacuationStepState,
    EventRepeat,
    Find,
    HistoryOrigin,
    MoveKind,
    MoveState,
    PlacementAlgorithm,
    PlacementObjective,
    PlanChoice,
    PlanEngine,
    PlanPlacement,
    RequestTiming,
    RunState,
    ScenarioPlacement,
)
from apps.queries.models import Query, QueryVersion

__all__ = [
    "BacktestRun",
    "Evacuation",
    "EvacuationStep",
    "EventRun",
    "Forecast",
    "LoadHistory",
    "PlacementMove",
    "PlacementRun",
    "PlanComparison",
    "PlannedEvent",
    "PlanningRun",
    "ResourcePlan",
    "Scenario",
    "WhatIf",
]


class PlanningRun(Run):
    """Base of all planning runs: a run with the snapshot of the cluster that it was computed on."""

    snapshot = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Digest of the cluster it was computed on."
    )
    snapshot_parts = models.JSONField(default=dict, help_text="{part: digest}, to tell what changed since.")

    class Meta(Run.Meta):
        abstract = True

    @property
    def answered_at(self) -> datetime | None:
        """When the answer was stored."""
        return self.finished_at if self.state == RunState.ANSWERED else None


def _state_field(choices: list[tuple[str, str]]) -> Any:
    """The state of one kind of run; it begins in the first."""
    return models.CharField(max_length=12, choices=choices, default=choices[0][0], db_index=True)


class PlacementRun(PlanningRun):
    """Search for a better placement of a cluster's running queries: the request, the proposal, and how far it is
    applied.
    """

    state = _state_field(PLACEMENT_STATES)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="placement_runs")
    moves_job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="placement_moves")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    algorithm = models.CharField(max_length=10, choices=PlacementAlgorithm.choices, default=PlacementAlgorithm.SEARCH)
    objective = models.CharField(max_length=10, choices=PlacementObjective.choices, default=PlacementObjective.WORST)
    budget_s = models.FloatField(default=5.0, help_text="How long it may search, in seconds.")
    seed = models.BigIntegerField(default=0)
    constraints = models.JSONField(default=dict, help_text="pin, forbid, apart, max_moves, may_split.")
    fixed = models.JSONField(default=list, help_text="Operators that stay where they are, on draining nodes too.")
    stop_requested = models.BooleanField(default=False, help_text="Stop the search and keep the best so far.")
    live = models.JSONField(default=dict, help_text="Best so far, shown while it searches.")
    facts = models.JSONField(default=dict, help_text="The proposal in a few numbers, for lists.")
    pace = models.FloatField(default=1.0, help_text="Pause after a batch as a multiple of its estimated duration.")
    batches = models.PositiveIntegerField(default=0, help_text="How many batches its moves are made in.")
    expected = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Digest of the cluster the last batch left."
    )
    expected_parts = models.JSONField(default=dict)
    resume_at = models.DateTimeField(null=True, blank=True, help_text="When the next batch is due.")
    applied_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="applied_placements"
    )
    proposed_at = models.DateTimeField(null=True, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True, help_text="When applying began.")
    done_at = models.DateTimeField(null=True, blank=True, help_text="When a person said so of its moves.")
    done_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    done_note = models.CharField(max_length=MAX_NOTE, blank=True, help_text="How they were made.")

    def __str__(self) -> str:
        return f"Placement of {self.cluster}, {str(self.pk)[:8]}"


class PlacementMove(models.Model):
    """One move of a proposal: an operator changes its node, is split, or becomes one again."""

    run = models.ForeignKey(PlacementRun, on_delete=models.CASCADE, related_name="moves")
    number = models.PositiveIntegerField(help_text="Its place in the order, from 1.")
    batch = models.PositiveIntegerField(default=0, help_text="Moves of a batch are made together; 0 before applying.")
    operator = models.CharField(max_length=MAX_OPERATOR_PATH, help_text="{query}/{operator}")
    query = models.CharField(max_length=MAX_SLUG)
    before = models.JSONField(default=list, help_text="[{node, core, fraction}]; empty: it had no place.")
    after = models.JSONField(default=list, help_text="[{node, core, fraction}]")
    kind = models.CharField(max_length=6, choices=MoveKind.choices, default=MoveKind.MOVE)
    why = models.CharField(max_length=MAX_REASON, blank=True)
    state_bytes = models.FloatField(null=True)
    duration_s = models.FloatField(default=0.0, help_text="Duration of its state transfer.")
    bump_s = models.FloatField(default=0.0, help_text="Latency it adds while it moves, by Flow.")
    bump_query = models.CharField(max_length=MAX_SLUG, blank=True, help_text="The query that is delayed most.")
    state = models.CharField(max_length=8, choices=MoveState.choices, default=MoveState.PENDING)
    applied_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="move_number_once_per_run")]

    def __str__(self) -> str:
        return f"{self.number}. {self.operator}"


class Evacuation(PlanningRun):
    """Nodes that are to be away for a time: the plan that empties them, and how far it is carried out."""

    state = _state_field(EVACUATION_STATES)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="evacuations")
    nodes = models.JSONField(default=list, help_text="Names of the nodes, in order.")
    order = models.CharField(max_length=8, choices=EvacuationOrder.choices, default=EvacuationOrder.TOGETHER)
    domain = models.CharField(max_length=MAX_NAME, blank=True, help_text="Label whose values are failure domains.")
    starts_at = models.DateTimeField(null=True, blank=True, help_text="Empty: as soon as it is confirmed.")
    ends_at = models.DateTimeField(null=True, blank=True, help_text="When the nodes are to be back. Empty: when told.")
    hold_s = models.FloatField(default=0.0, help_text="How long the nodes of a step are away, one after the other.")
    back = models.BooleanField(default=True, help_text="Whether operators return with their nodes.")
    constraints = models.JSONField(default=dict, help_text="pin, forbid, apart.")
    pace = models.FloatField(default=1.0, help_text="Pause after a batch as a multiple of its estimated duration.")
    batch_size = models.PositiveIntegerField(default=1)
    facts = models.JSONField(default=dict, help_text="The plan in a few numbers, for lists, and what its load is.")
    confirmed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    confirmed_at = models.DateTimeField(null=True, blank=True)
    begun_at = models.DateTimeField(null=True, blank=True, help_text="When its first step began.")
    watched = models.JSONField(default=list, help_text="Nodes that the plan counts on, and those that are back.")

    def __str__(self) -> str:
        return f"Evacuation of {', '.join(self.nodes[:5])}"


class EvacuationStep(models.Model):
    """Nodes of an evacuation that are away together, and the run that moves what is on them."""

    evacuation = models.ForeignKey(Evacuation, on_delete=models.CASCADE, related_name="steps")
    number = models.PositiveIntegerField(help_text="Its place in the order, from 1.")
    nodes = models.JSONField(default=list)
    state = models.CharField(max_length=10, choices=EvacuationStepState.choices, default=EvacuationStepState.WAITING)
    placement = models.ForeignKey(
        PlacementRun, null=True, blank=True, on_delete=models.SET_NULL, related_name="evacuation_steps"
    )
    tries = models.PositiveIntegerField(default=0, help_text="Searches so far: the cluster may move meanwhile.")
    begun_at = models.DateTimeField(null=True, blank=True)
    emptied_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=MAX_REASON, blank=True, help_text="What did not come back, and why.")

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["evacuation", "number"], name="step_number_once_per_evacuation")]

    def __str__(self) -> str:
        return f"{self.number}. {', '.join(self.nodes[:5])}"


class PlanComparison(PlanningRun):
    """Comparison of a query's plans: versions and their rewritings, ranked on one snapshot of the cluster."""

    ledger_kept = True

    state = _state_field(COMPARISON_STATES)
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="comparisons")
    reason = models.CharField(max_length=10, choices=ComparisonReason.choices, default=ComparisonReason.ASKED)
    versions = models.JSONField(default=list, help_text="Numbers of the versions compared.")
    capacity_cps = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Judged on one node of this capacity; null: within the cluster.",
    )
    hop_cycles = models.FloatField(
        default=0.0, validators=[MinValueValidator(0)], help_text="Cycles an event spends in a queue; 0: not known."
    )
    places = models.CharField(max_length=4, choices=PlanPlacement.choices, default=PlanPlacement.KEEP)
    basis = models.JSONField(default=dict, help_text="{version: digest of its operators and statistics}.")
    running = models.PositiveIntegerField(null=True, blank=True, help_text="Number of the version that ran.")
    samples = models.JSONField(
        default=list, help_text="[{operator, input, batches}] of the version that drift is measured against."
    )
    recommended = models.CharField(
        max_length=MAX_PLAN_KEY, blank=True, help_text="Key of the plan that is significantly faster."
    )
    drift = models.JSONField(null=True, blank=True, help_text="Newest check of its statistics against the present.")
    drift_digest = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, help_text="Digest of the statistics last checked."
    )
    drift_at = models.DateTimeField(null=True, blank=True)
    adopted = models.ForeignKey(
        QueryVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="adopted_from"
    )
    adopted_key = models.CharField(max_length=MAX_PLAN_KEY, blank=True)

    def __str__(self) -> str:
        return f"Plans of {self.query.name} ({self.get_state_display()})"


class Scenario(Tracked):
    """A named set of changes to a cluster: nodes, loads, objectives, queries."""

    ledger_kind = "scenario"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="scenarios")
    name = models.CharField(max_length=MAX_NAME)
    description = models.CharField(max_length=MAX_REASON, blank=True)
    changes = models.JSONField(default=list, blank=True, help_text="As engine.provisioning reads them.")
    place = models.CharField(max_length=8, choices=ScenarioPlacement.choices, default=ScenarioPlacement.FILL)
    inputs = models.JSONField(
        default=dict, blank=True, help_text="Inputs of the bench it was saved from, to open it there again."
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="scenario_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class WhatIf(PlanningRun):
    """A question about fleets, loads or objectives that are not there yet, and the engine's answer.

    The answer stays readable at any age, with the snapshot of the cluster it was computed on.
    """

    state = _state_field(ANSWER_STATES)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="what_ifs")
    find = models.CharField(max_length=16, choices=Find.choices, default=Find.COMPARE)
    scenarios = models.JSONField(default=list, help_text="[{name, changes, place, id?}] as they were when asked.")
    options = models.JSONField(default=dict, blank=True, help_text="Parameters of what is looked for.")
    fingerprint = models.CharField(max_length=DIGEST_LENGTH, db_index=True, help_text="Digest of the question.")
    from_bench = models.BooleanField(default=False, help_text="Asked by moving the bench; kept for a day.")
    duration_s = models.FloatField(null=True)

    class Meta(PlanningRun.Meta):
        indexes = [models.Index(fields=["cluster", "fingerprint", "-created_at"], name="what_if_asked_before")]

    def __str__(self) -> str:
        return f"{self.get_find_display()} ({self.get_state_display()})"


class ResourcePlan(PlanningRun):
    """Nodes or executors, parallelism and batch intervals that keep a latency constraint at a rate."""

    state = _state_field(ANSWER_STATES)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="resource_plans")
    engine = models.CharField(max_length=12, choices=PlanEngine.choices)
    query = models.ForeignKey(
        Query,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="resource_plans",
        help_text="The query whose statistics its profile was taken from.",
    )
    spark_query = models.ForeignKey(
        SparkQuery,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="resource_plans",
        help_text="The Spark query whose fit its profile was taken from, and which its settings are for.",
    )
    basis = models.JSONField(default=dict, blank=True, help_text="Version, nodes and fit that inputs were taken from.")
    question = models.JSONField(default=dict, help_text="Profile, settings or hardware, rate and constraint.")
    origins = models.JSONField(default=dict, help_text="{path of an input: measured, predicted, assumed or default}.")
    facts = models.JSONField(default=dict, blank=True, help_text="The answer in a few numbers, for lists.")
    model_version = models.CharField(max_length=MAX_NAME, blank=True, help_text="Model that the answer is from.")
    duration_s = models.FloatField(null=True)
    applied_choice = models.CharField(max_length=10, choices=PlanChoice.choices, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True, help_text="When its settings were taken.")
    applied_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    def __str__(self) -> str:
        return f"Resource plan of {self.cluster_id}, {str(self.pk)[:8]}"


class LoadHistory(models.Model):
    """Events of one source per bucket (an hour, mostly) over days or weeks.

    `data` is packed as `apps.queries.arrivals.series` does; buckets of which nothing is known are NaN.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="load_histories")
    source_id = models.CharField(max_length=MAX_ELEMENT_NAME, help_text="The source whose load it is.")
    origin = models.CharField(max_length=10, choices=HistoryOrigin.choices)
    evidence = models.CharField(max_length=10, choices=Evidence.choices, default=Evidence.ASSUMED)
    description = models.CharField(max_length=MAX_NOTE, blank=True)
    spec = models.JSONField(default=dict, help_text="File and columns, or the generator's parameters.")
    bucket_s = models.PositiveIntegerField(help_text="Length of a bucket, seconds.")
    starts_at = models.DateTimeField(help_text="Where the first bucket begins.")
    buckets = models.PositiveIntegerField()
    missing = models.PositiveIntegerField(default=0, help_text="Buckets of which nothing is known.")
    events = models.FloatField(help_text="Total of the known buckets.")
    data = models.BinaryField()
    digest = models.CharField(max_length=DIGEST_LENGTH, help_text="SHA-256 of the uncompressed data.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["source_id"]
        verbose_name_plural = "load histories"
        constraints = [models.UniqueConstraint(fields=["cluster", "source_id"], name="history_once_per_source")]

    def __str__(self) -> str:
        return self.source_id

    @property
    def ends_at(self) -> datetime:
        return self.starts_at + timedelta(seconds=self.bucket_s * self.buckets)

    @property
    def mean_eps(self) -> float:
        return self.events / max(1, (self.buckets - self.missing) * self.bucket_s)


class Forecast(PlanningRun):
    """Forecast of the load of a cluster's sources, and of its effect on objectives."""

    id = models.BigAutoField(primary_key=True)
    state = models.CharField(max_length=12, choices=ANSWER_STATES, default=RunState.ANSWERED, db_index=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="forecasts")
    histories = models.JSONField(default=dict, help_text="{source: digest} of the histories it was made of.")
    bucket_s = models.PositiveIntegerField()
    starts_at = models.DateTimeField(help_text="Where the first future bucket begins: the newest history's end.")
    horizon = models.PositiveIntegerField(help_text="Buckets forecast.")
    seed = models.PositiveIntegerField(default=0)
    series: Any = PackedJSONField(null=True, help_text="The curves.")
    duration_s = models.FloatField()

    class Meta(PlanningRun.Meta):
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.created_at:%Y-%m-%d %H:%M:%S}"

    @property
    def ends_at(self) -> datetime:
        return self.at(self.horizon)

    @property
    def is_over(self) -> bool:
        """Whether its horizon has passed: the histories ended long before it was made, or none came since."""
        return self.ends_at <= timezone.now()

    def at(self, index: int) -> datetime:
        """Where a future bucket begins."""
        return self.starts_at + timedelta(seconds=self.bucket_s * index)


class BacktestRun(PlanningRun):
    """Replay of a cluster's records through another policy, beside the real decisions."""

    state = _state_field(ANSWER_STATES)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="backtests")
    since = models.DateTimeField(help_text="Beginning of the period, as asked for.")
    until = models.DateTimeField(help_text="End of the period, as asked for.")
    policy = models.JSONField(default=dict, help_text="As engine.backtest.policy reads it, with every field.")
    ask = models.CharField(
        max_length=8,
        choices=RequestTiming.choices,
        default=RequestTiming.RECORDED,
        help_text="When requests are asked in the replay.",
    )
    facts = models.JSONField(default=dict, blank=True, help_text="The answer in a few numbers, for lists.")
    duration_s = models.FloatField(null=True)

    def __str__(self) -> str:
        return f"Backtest of {self.cluster_id}, {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M}"


class PlannedEvent(Tracked):
    """An event: a stretch of time at other loads, once or again and again, with its check-list."""

    ledger_kind = "event"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="planned_events")
    name = models.CharField(max_length=MAX_NAME)
    description = models.CharField(max_length=MAX_REASON, blank=True)
    factors = models.JSONField(default=list, help_text="[{of, name, by}]")
    follows_trace = models.BooleanField(
        default=False, help_text="Sources without a factor of their own come as they did the last time."
    )
    trace_starts_at = models.DateTimeField(
        null=True, blank=True, help_text="When it began the last time; null: 52 weeks, or one repeat, before."
    )
    starts_at = models.DateTimeField(help_text="Its beginning; of one that repeats, that of the first.")
    ends_at = models.DateTimeField(help_text="Its end; of one that repeats, that of the first.")
    time_zone = models.CharField(max_length=MAX_TIME_ZONE, help_text="On whose clock it repeats.")
    repeat = models.CharField(max_length=8, choices=EventRepeat.choices, default=EventRepeat.ONCE)
    lose_one = models.BooleanField(default=True, help_text="Objectives are to hold with any one node lost.")
    lead_time_days = models.FloatField(default=14.0, help_text="From an order of nodes until they run.")
    cost_per_violation_hour = models.FloatField(default=100.0, help_text="Of an hour over an objective.")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="planned_events"
    )
    checklist = models.JSONField(default=list, blank=True, help_text="[{key, text, due_at, done_at, done_by}]")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["starts_at", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="event_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class EventRun(PlanningRun):
    """Answer about one occurrence of an event: what breaks when, what to buy until when, and what to delay."""

    state = _state_field(ANSWER_STATES)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="event_runs")
    event = models.ForeignKey(PlannedEvent, on_delete=models.CASCADE, related_name="runs")
    starts_at = models.DateTimeField(help_text="Beginning of the occurrence that it is about.")
    ends_at = models.DateTimeField()
    question = models.JSONField(default=dict, help_text="The event as it was when asked.")
    basis = models.JSONField(default=dict, blank=True, help_text="What its loads rest on.")
    facts = models.JSONField(default=dict, blank=True, help_text="The answer in a few numbers, for lists.")
    duration_s = models.FloatField(null=True)

    def __str__(self) -> str:
        return f"{self.event} at {self.starts_at:%Y-%m-%d %H:%M}"
