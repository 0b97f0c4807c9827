"""Agents and what they are told, the sources they watch, and queries on live telemetry."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from agent.wire.heartbeat import AgentQueryReport
from apps.core.limits import (
    DIGEST_LENGTH,
    MAX_FAULT,
    MAX_GENERATION,
    MAX_HOST_NAME,
    MAX_KIND,
    MAX_QUERY_PATH,
    MAX_SHORT_NOTE,
    MAX_SLUG,
    MAX_VERSION_TEXT,
    PREFIX_LENGTH,
)
from apps.fleet.models import SLUG, Cluster, Node
from apps.ledger.recorder import Tracked
from apps.queries.models import Query, QueryVersion
from apps.telemetry.collectors import COLLECTORS
from engine.dataflow.types import PipelineOperatorDocument

__all__ = [
    "COLUMN_TYPES",
    "PRODUCER",
    "Agent",
    "AgentKind",
    "AgentState",
    "Assignment",
    "EnrolmentToken",
    "KnownPlan",
    "LiveQuery",
    "LiveState",
    "SourcePart",
    "StaticTable",
    "StreamPlan",
    "TelemetrySource",
]

COLUMN_TYPES = ("int64", "float64", "string", "bool", "timestamp")
PRODUCER = "producer"  # the kind of a source whose records no agent collects


class AgentKind(models.TextChoices):
    """Kind of a sender of telemetry."""

    AGENT = "agent", "Agent"  #: runs collectors and the first operators of queries
    RELAY = "relay", "Relay"  #: merges frames of the agents below it
    PRODUCER = "producer", "Producer"  #: another program that posts records


class AgentState(models.TextChoices):
    """State of an agent, worst first."""

    DISABLED = "disabled", "Disabled"  #: by hand: its frames are refused
    NEVER = "never", "Never reported"  #: enrolled, without a heartbeat yet
    SILENT = "silent", "No report"  #: its last heartbeat is too old
    SPOOL = "spool", "Spool filling"  #: more comes than leaves, or its disk is full
    OVERFLOW = "overflow", "Overflowing"  #: records are sent on unprocessed, or shed, for lack of CPU
    NEAR = "near", "Near its CPU cap"  #: it uses nearly its whole CPU budget
    ADAPTING = "adapting", "Adapting"  #: load factors of a query are changing
    STEADY = "steady", "Steady"  #: none of the above


class LiveState(models.TextChoices):
    """State of a live query."""

    STARTING = "starting", "Starting"  #: requested; not reported by the stream processor yet
    RUNNING = "running", "Running"  #: the stream processor reports its watermark
    STOPPED = "stopped", "Stopped"  #: by hand, or because the query stopped


BUDGET_CORES = 0.2


class EnrolmentToken(Tracked):
    """A secret that lets agents join a cluster. Only its SHA-256 is stored."""

    ledger_kind, ledger_name, ledger_kept = "enrolment", "note", False
    ledger_ignored = frozenset({"digest", "prefix", "uses_left", "used", "last_used_at"})

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="enrolment_tokens")
    note = models.CharField(max_length=MAX_SHORT_NOTE, blank=True)
    prefix = models.CharField(max_length=PREFIX_LENGTH, help_text="First characters, to recognise it.")
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True)
    networks = models.JSONField(default=list, blank=True, help_text="CIDR networks it may be used from; empty = any.")
    agent_name = models.CharField(
        max_length=MAX_SLUG,
        blank=True,
        validators=[SLUG],
        help_text="The one agent that may join with it, also if it is known already; empty = new names.",
    )
    uses_left = models.PositiveIntegerField(help_text="How many more agents may join with it.")
    used = models.PositiveIntegerField(default=0)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.note or 'enrolment'} ({self.prefix}…)"


class Agent(Tracked):
    """A process that sends telemetry of a cluster: an agent, a relay, or a program of somebody else's."""

    ledger_kind, ledger_kept = "agent", False
    ledger_ignored = frozenset(
        {"host", "version", "cores", "capacity_cps", "config_version", "config_digest", "life", "committed"}
        | {"last_seen", "clock_offset_s", "heartbeat"}
    )
    ledger_guarded = frozenset({"source_options"})
    ledger_secret = frozenset({"secret_hash"})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="agents")
    name = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    kind = models.CharField(max_length=10, choices=AgentKind.choices, default=AgentKind.AGENT)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="agents")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    listen = models.CharField(
        max_length=120, blank=True, help_text="host:port at which a relay takes frames of the agents below it."
    )
    secret_hash = models.CharField(max_length=DIGEST_LENGTH, blank=True, db_index=True)
    host = models.CharField(max_length=MAX_HOST_NAME, blank=True)
    version = models.CharField(max_length=MAX_VERSION_TEXT, blank=True)
    cores = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1), MaxValueValidator(1024)])
    capacity_cps = models.FloatField(null=True, blank=True, help_text="Cycles per second of one core, as it measured.")
    budget_cores = models.FloatField(
        default=BUDGET_CORES, validators=[MinValueValidator(0.01), MaxValueValidator(1024)], help_text="CPU it may use."
    )
    source_options = models.JSONField(
        default=dict, blank=True, help_text="By source: options of its collector that differ at this agent."
    )
    enabled = models.BooleanField(default=True)
    enrolled_at = models.DateTimeField(default=timezone.now)
    config_version = models.PositiveBigIntegerField(default=0)
    config_digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    life = models.CharField(
        "generation", max_length=MAX_GENERATION, blank=True, help_text="Agent generation that it reported last."
    )
    committed = models.JSONField(
        default=dict, blank=True, help_text="By agent generation: the committed sequence number."
    )
    last_seen = models.DateTimeField(null=True, blank=True)
    clock_offset_s = models.FloatField(null=True, blank=True, help_text="Clock skew: its clock minus the console's.")
    heartbeat = models.JSONField(default=dict, blank=True, help_text="Its last heartbeat.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="agent_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class TelemetrySource(Tracked):
    """A stream of records that agents collect. `source_id` is the name that operators and arrivals know it by."""

    ledger_kind, ledger_name = "source", "source_id"
    ledger_guarded = frozenset({"options"})
    ledger_labels = {"kind": dict(COLLECTORS)}

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="telemetry_sources")
    source_id = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    kind = models.CharField(max_length=MAX_KIND, help_text="Of the collector, or `producer`.")
    options = models.JSONField(default=dict, blank=True)
    time = models.CharField(max_length=MAX_SLUG, help_text="The column of event time.")
    columns = models.JSONField(default=dict, blank=True, help_text="Type of each column, by name.")
    lateness_s = models.FloatField(default=1.0, validators=[MinValueValidator(0), MaxValueValidator(86_400)])
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["source_id"]
        constraints = [models.UniqueConstraint(fields=["cluster", "source_id"], name="telemetry_source_once")]

    def __str__(self) -> str:
        return self.source_id


class StaticTable(Tracked):
    """A small table that queries join their records with."""

    ledger_kind = "table"
    ledger_ignored = frozenset({"rows"})  # many; its digest stands for them
    ledger_kept_with = frozenset({"digest"})

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="static_tables")
    name = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    columns = models.JSONField(default=dict, blank=True, help_text="Type of each column, by name.")
    order = models.JSONField(default=list, blank=True, help_text="Columns in the order of a row's cells.")
    rows = models.JSONField(default=list, blank=True)
    digest = models.CharField(max_length=DIGEST_LENGTH)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="static_table_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class _LiveManager(models.Manager["LiveQuery"]):
    """Live queries without trials: what merely tries a version out counts nowhere as running."""

    def get_queryset(self) -> models.QuerySet[LiveQuery]:
        return super().get_queryset().filter(trial_until=None)


@dataclass(frozen=True)
class SourcePart:
    """Operators of a live query that may run at its source, by their ids and kinds."""

    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    window_s: float | None  #: from one window's end to the next, where the last operator is their aggregate

    @classmethod
    def of(cls, operators: Sequence[PipelineOperatorDocument]) -> SourcePart:
        """From the operators of a pipeline document."""
        expressions = [operator["expression"] for operator in operators]
        kinds = tuple(expression["op"] for expression in expressions)
        window = expressions[kinds.index("window")] if "window" in kinds and kinds[-1] == "aggregate" else None
        window_s = None if window is None else float(window.get("slide_s") or window["size_s"])
        return cls(tuple(operator["id"] for operator in operators), kinds, window_s)


class LiveQuery(models.Model):
    """A running query on live telemetry, with the pipeline that agents and stream processor execute.

    Or, with `trial_until`, a trial of a version that is not admitted. `objects` has no trials; only what executes
    pipelines, and what must not take their sources away, reads `with_trials`.
    """

    query = models.OneToOneField(Query, on_delete=models.CASCADE, related_name="live")
    version = models.ForeignKey(QueryVersion, on_delete=models.CASCADE, related_name="+")
    source = models.ForeignKey(TelemetrySource, on_delete=models.PROTECT, related_name="live_queries")
    joined = models.ForeignKey(
        TelemetrySource,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="live_joins",
        help_text="The other stream, where the query joins one.",
    )
    plan = models.CharField(max_length=DIGEST_LENGTH, db_index=True, help_text="Digest of the pipeline.")
    pipeline = models.JSONField()
    source_operators = models.PositiveSmallIntegerField(help_text="How many leading operators may run at a source.")
    state = models.CharField(max_length=10, choices=LiveState.choices, default=LiveState.STARTING, db_index=True)
    fault = models.CharField(max_length=MAX_FAULT, blank=True, help_text="Why it was stopped without being asked to.")
    retain_s = models.FloatField(
        default=900.0,
        validators=[MinValueValidator(1), MaxValueValidator(86_400)],
        help_text="How long, in event time, a closed window still takes late records.",
    )
    idle_after_s = models.FloatField(
        default=60.0,
        validators=[MinValueValidator(1), MaxValueValidator(86_400)],
        help_text="An agent silent for longer no longer holds the watermark back.",
    )
    shed_late = models.BooleanField(
        default=False,
        help_text="Under overload, agents lose records that are late wherever they are processed; else they are sent.",
    )
    trial_until = models.DateTimeField(
        null=True, blank=True, help_text="End of a trial of a version that is not admitted; null: a running query."
    )
    started_at = models.DateTimeField(default=timezone.now)
    stopped_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = _LiveManager()
    with_trials = models.Manager["LiveQuery"]()

    class Meta:
        ordering = ["query__name"]
        verbose_name_plural = "live queries"

    def __str__(self) -> str:
        return self.query.name

    @property
    def source_part(self) -> SourcePart:
        return SourcePart.of(self.pipeline["operators"][: self.source_operators])

    @property
    def sources(self) -> list[TelemetrySource]:
        """Sources that agents collect for it."""
        return [self.source] if self.joined is None else [self.source, self.joined]

    @property
    def key(self) -> str:
        """Name of the query in frames."""
        return f"{self.query.cluster.slug}/{self.query.name}"


class Assignment(models.Model):
    """An agent's part in a live query. One that has ended stays, disabled: what it sent may still be on its way."""

    live = models.ForeignKey(LiveQuery, on_delete=models.CASCADE, related_name="assignments")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="assignments")
    settings = models.JSONField(
        default=dict, blank=True, help_text="How its load factors are found; empty: the agent adapts them by itself."
    )
    weight = models.FloatField(default=1.0, validators=[MinValueValidator(0.01), MaxValueValidator(100)])
    enabled = models.BooleanField(default=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["agent__name"]
        constraints = [models.UniqueConstraint(fields=["live", "agent"], name="agent_once_per_live_query")]

    def __str__(self) -> str:
        return f"{self.live} at {self.agent}"

    @property
    def by_hand(self) -> bool:
        """Its load factors are those that a person set; the agent does not move them."""
        return self.settings.get("method") == "fixed"

    @property
    def report(self) -> AgentQueryReport:
        """Last report of its agent for this part with the present plan; empty where there is none."""
        rows: list[AgentQueryReport] = self.agent.heartbeat.get("queries", [])
        mine = (row for row in rows if row["query"] == self.live.key and row.get("plan") == self.live.plan)
        return next(mine, AgentQueryReport())

    @property
    def load_factors(self) -> list[float]:
        """For each operator the share of records that it takes: set by hand, or what its agent said last."""
        return list(self.settings["load_factors"] if self.by_hand else self.report.get("load_factors", ()))


class KnownPlan(models.Model):
    """A pipeline that ran under a query's name. It outlives the query for a while: what was
    computed with it may still arrive."""

    query = models.CharField(max_length=MAX_QUERY_PATH, help_text="cluster/query.")
    digest = models.CharField(max_length=DIGEST_LENGTH, db_index=True)
    pipeline = models.JSONField()
    live = models.ForeignKey(LiveQuery, null=True, on_delete=models.SET_NULL, related_name="plans")
    agents = models.ManyToManyField(Agent, related_name="+", help_text="Agents that ran it.")
    trial = models.BooleanField(default=False, help_text="Only tried out: its results are kept nowhere.")
    created_at = models.DateTimeField(default=timezone.now)
    used_at = models.DateTimeField(default=timezone.now, db_index=True, help_text="When a query last ran it.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["query", "digest"], name="plan_once_per_query")]

    def __str__(self) -> str:
        return f"{self.query} {self.digest[:8]}"


class StreamPlan(models.Model):
    """The single row that numbers what the stream processor is told."""

    version = models.PositiveBigIntegerField(default=0)
    digest = models.CharField(max_length=DIGEST_LENGTH, blank=True)
