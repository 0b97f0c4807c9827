"""Connections to engines, the jobs that were imported over them, and polls of their counters."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from apps.connections.choices import ConnectionEngine, ConnectionOrigin, ConnectionState
from apps.connections.looks import KeptLook, RoundCost
from apps.core.limits import (
    DIGEST_LENGTH,
    MAX_ELEMENT_NAME,
    MAX_GENERATION,
    MAX_MESSAGE,
    MAX_NOTE,
    MAX_SLUG,
    MAX_STATE_TEXT,
    MAX_URL,
    MAX_VERSION_TEXT,
)
from apps.core.models import PackedJSONField
from apps.core.secrets import SealedField
from apps.fleet.models import SLUG, Cluster
from apps.ledger.recorder import Tracked
from apps.queries.models import Query, QueryVersion
from engine.connectors.finding_groups import fold_findings
from engine.connectors.picture import Finding

__all__ = ["TOKEN_PURPOSE", "Connection", "ImportedJob", "KeptAnswers", "KeptPoll"]

TOKEN_PURPOSE = "connections.token"
MIN_POLL_S, MAX_POLL_S = 2.0, 3600.0


class Connection(Tracked):
    """An engine, or what watches one, whose jobs are queries of a cluster."""

    ledger_kind, ledger_kept = "connection", False
    ledger_ignored = frozenset(
        {"state", "state_since", "state_words", "engine_version", "findings", "look", "cost", "checked_at"}
        | {"imported_at", "asked_at", "answered_at"}
    )
    ledger_guarded = frozenset({"url", "prometheus_url"})
    ledger_secret = frozenset({"sealed_token"})

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="connections")
    name = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    engine = models.CharField(max_length=12, choices=ConnectionEngine.choices)
    origin = models.CharField(max_length=8, choices=ConnectionOrigin.choices, default=ConnectionOrigin.URL)
    url = models.CharField(max_length=MAX_URL, blank=True, help_text="Address of the engine; empty: answers by upload.")
    sealed_token = SealedField(
        purpose=TOKEN_PURPOSE,
        blank=True,
        help_text="Bearer token, encrypted with the installation's key.",
    )
    verify_tls = models.BooleanField(default=True, help_text="Whether its certificate has to be valid.")
    ca_pem = models.TextField(blank=True, help_text="Certificates that its own must be signed by; empty: the system's.")

    job_names = models.JSONField(
        default=list, blank=True, help_text="Names or ids of the jobs to import; empty: every job that runs."
    )
    latency_metric = models.CharField(
        max_length=MAX_NOTE,
        blank=True,
        help_text="End of the name of an operator metric that holds the measured latency in seconds.",
    )
    latency_query = models.TextField(
        blank=True, max_length=2000, help_text="PromQL of the measured latency in seconds, in place of a metric."
    )
    lag_query = models.TextField(
        blank=True, max_length=2000, help_text="PromQL of the events that arrive at its topics, such as Kafka's."
    )
    prometheus_url = models.CharField(
        max_length=MAX_URL, blank=True, help_text="Prometheus that both are asked of; needed unless it is this one."
    )

    operators = models.JSONField(
        default=list,
        blank=True,
        help_text="Of a Prometheus: [{name, reads, rate, cost, outputs, kind, parallelism, place}]; three are PromQL.",
    )

    poll_interval_s = models.FloatField(
        default=15.0, validators=[MinValueValidator(MIN_POLL_S), MaxValueValidator(MAX_POLL_S)]
    )
    state = models.CharField(max_length=10, choices=ConnectionState.choices, default=ConnectionState.NEW)
    state_since = models.DateTimeField(default=timezone.now)
    state_words = models.CharField(max_length=MAX_MESSAGE, blank=True, help_text="Why it is in this state.")
    engine_version = models.CharField(max_length=MAX_VERSION_TEXT, blank=True)
    findings = PackedJSONField(default=list, help_text="[{level, code, subject, message}] of the last look.")
    look = PackedJSONField(default=dict, help_text="Places and jobs of the last look (`apps.connections.looks`).")
    cost = models.JSONField(
        default=dict, blank=True, help_text="What a round asks of the engine: {requests, bytes, seconds}."
    )
    checked_at = models.DateTimeField(null=True, blank=True, help_text="When it was last checked in full.")
    imported_at = models.DateTimeField(null=True, blank=True, help_text="When its jobs became queries.")
    asked_at = models.DateTimeField(null=True, blank=True, help_text="When a round of questions last began.")
    answered_at = models.DateTimeField(null=True, blank=True, help_text="When a round was last answered in full.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="connection_once_per_cluster")]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def ledger_expressions(cls) -> dict[str, models.Expression]:
        """Whether it is paused, which people say; its other states are what is observed."""
        return {"paused": models.ExpressionWrapper(models.Q(state=ConnectionState.PAUSED), models.BooleanField())}

    @property
    def kept_look(self) -> KeptLook | None:
        """Places and jobs of the last look; None before the first."""
        return KeptLook.parse(self.look) if self.look else None

    @property
    def kept_findings(self) -> list[Finding]:
        """Findings of the last look."""
        return [Finding.parse(finding) for finding in self.findings]

    @property
    def finding_kinds(self) -> list[dict[str, object]]:
        """Findings of the last look by kind, those that change the answer first."""
        return [kind.to_dict() for kind in fold_findings(self.kept_findings)]

    @property
    def round_cost(self) -> RoundCost | None:
        """Cost of a round to the engine; None where nothing was asked yet, as of an upload."""
        return RoundCost.parse(self.cost) if self.cost else None

    @property
    def runs_jobs(self) -> bool:
        """Whether jobs run there, which become queries; a Kafka tells of its topics and groups alone."""
        return self.engine != ConnectionEngine.KAFKA

    @property
    def pool_name(self) -> str:
        """Pool of the nodes that are this engine's places, within a slug's length."""
        return f"{self.engine}-{self.name}"[:MAX_SLUG].rstrip("-._")


class ImportedJob(models.Model):
    """A job of an engine, and the query that it is here: joined by its name, which a redeploy keeps."""

    connection = models.ForeignKey(Connection, on_delete=models.CASCADE, related_name="jobs")
    query = models.OneToOneField(Query, on_delete=models.CASCADE, related_name="imported_job")
    version = models.ForeignKey(
        QueryVersion,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The version that is of its present shape.",
    )
    engine_id = models.CharField(max_length=MAX_GENERATION, help_text="The engine's own id of its newest run.")
    name = models.CharField(max_length=MAX_NOTE, help_text="Its name in the engine.")
    state = models.CharField(max_length=MAX_STATE_TEXT, help_text="In the engine's word, in lower case.")
    shape = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of operators, parallelism and exchanges.")
    attempt = models.CharField(max_length=MAX_ELEMENT_NAME, blank=True, help_text="Of its counters, as last polled.")
    vertices = PackedJSONField(default=dict, help_text="{name of an operator: id of its vertex}.")
    places = PackedJSONField(default=dict, help_text="{name of a node: id of its place}.")
    settings = models.JSONField(default=dict, help_text="Settings of the engine that the statistics were taken under.")
    events = models.JSONField(default=list, help_text="[{at, kind, words}] of the newest recognised changes.")
    versions_seen = models.PositiveIntegerField(default=1)
    restarts_seen = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(help_text="When its newest run began.")
    seen_at = models.DateTimeField(help_text="When the engine last listed it.")
    measured_at = models.DateTimeField(null=True, blank=True, help_text="When its statistics were last refined.")
    latencies = models.JSONField(default=list, help_text="[time, seconds] of the stretch that is not scored yet.")
    scored_at = models.DateTimeField(null=True, blank=True, help_text="End of the last stretch that was scored.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "pk"]
        constraints = [models.UniqueConstraint(fields=["connection", "name"], name="imported_job_once")]

    def __str__(self) -> str:
        return self.name


class KeptPoll(models.Model):
    """Counters of an imported job at one moment (`engine.connectors.picture.CounterPoll`)."""

    job = models.ForeignKey(ImportedJob, on_delete=models.CASCADE, related_name="polls")
    at = models.DateTimeField(help_text="By the engine's clock.")
    attempt = models.CharField(max_length=MAX_ELEMENT_NAME)
    version = models.ForeignKey(QueryVersion, null=True, on_delete=models.SET_NULL, related_name="+")
    data = PackedJSONField(help_text="As `CounterPoll.to_dict` makes it.")
    received_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["at", "pk"]
        constraints = [models.UniqueConstraint(fields=["job", "at"], name="one_poll_at_a_moment")]

    def __str__(self) -> str:
        return f"{self.job} at {self.at:%Y-%m-%d %H:%M:%S}"


class KeptAnswers(models.Model):
    """Answers of an engine, {path asked: answer} a round: those uploaded last, or of a URL those of the last picture,
    so that a refresh asks anew only for what changes.
    """

    connection = models.OneToOneField(Connection, on_delete=models.CASCADE, related_name="kept_answers")
    name = models.CharField(max_length=MAX_NOTE, blank=True, help_text="Of the uploaded file.")
    rounds = models.PositiveIntegerField(default=1)
    size = models.BigIntegerField(default=0, help_text="Bytes unpacked.")
    answers = PackedJSONField(help_text="A list of rounds.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "kept answers"

    def __str__(self) -> str:
        return self.name or f"answers of {self.connection_id}"
