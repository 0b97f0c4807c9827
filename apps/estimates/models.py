"""Estimates of a cluster, its queries and documents, observations of their accuracy, and states of objectives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db import models
from django.utils import timezone

from apps.core.limits import DIGEST_LENGTH, MAX_KIND, MAX_QUERY_PATH, MAX_SLUG
from apps.core.models import PackedJSONField
from apps.estimates.answers import StoredEstimate, StoredFacts
from apps.estimates.bases import BaseFacts
from apps.estimates.choices import (
    CalibrationScope,
    Certainty,
    DecidedBy,
    MeasurementLack,
    RunOrigin,
    TrustState,
    UnscoredReason,
)
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, Run
from apps.measurements.models import StreamWork
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query, QueryVersion
from apps.ui.marks import judged_state
from engine.measurement.causes import UNEXPLAINED, LatenessCause

__all__ = [
    "AccuracyObservation",
    "DocumentEstimate",
    "EstimateRun",
    "IntervalCalibration",
    "NodeEstimate",
    "ObjectiveStatus",
    "QueryEstimate",
    "UnscoredInterval",
]


class AccuracyObservation(models.Model):
    """The estimate in force and the latency measured in one interval, of the same statistic."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="accuracy")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="accuracy")
    estimate = models.ForeignKey(
        "estimates.QueryEstimate", null=True, on_delete=models.SET_NULL, related_name="observations"
    )
    version = models.PositiveIntegerField(help_text="Number of the version that ran.")
    estimated_at = models.DateTimeField(help_text="When the estimate was made.")
    starts_at = models.DateTimeField(db_index=True)
    ends_at = models.DateTimeField()
    statistic = models.CharField(max_length=8, help_text="worst, mean or q0.99, of the objective.")
    evidence = models.CharField(
        max_length=10, choices=Evidence.choices, help_text="Origin of the statistics behind the estimate."
    )
    expected_s = models.FloatField()
    low_s = models.FloatField(null=True, help_text="The 90 % interval as it was shown, scaled by its factors.")
    high_s = models.FloatField(null=True)
    stated_low_s = models.FloatField(null=True, help_text="The interval as the model stated it.")
    stated_high_s = models.FloatField(null=True)
    lower_factor = models.FloatField(default=1.0, help_text="By which the lower side was scaled.")
    upper_factor = models.FloatField(default=1.0, help_text="By which the upper side was scaled.")
    origin = models.CharField(max_length=10, choices=RunOrigin.choices, default=RunOrigin.LIVE)
    seed = models.PositiveIntegerField(default=0, help_text="Of the simulation; 0 of what was measured.")
    windowed = models.BooleanField(default=True, help_text="Whether the version that ran has windows.")
    observed_s = models.FloatField()
    windows = models.PositiveIntegerField(help_text="Windows whose latency was measured.")
    left_out = models.PositiveIntegerField(
        default=0, help_text="Windows that were incomplete, revised, or of clocks that contradict each other."
    )
    disturbed = models.CharField(
        max_length=12,
        blank=True,
        choices=StreamWork.choices,
        help_text="State of the stream processor while not processing; such an interval is left out of every figure.",
    )
    set_aside = models.BooleanField(
        default=False, help_text="A person said that what was measured says nothing of estimates; it is left out, too."
    )
    covered = models.BooleanField(null=True, help_text="Whether the interval held; null: there was none.")
    parts = models.JSONField(
        null=True, help_text="Parts of the estimate in seconds: processing, epoch, trigger, overhead, work."
    )
    kinds = models.JSONField(default=dict, help_text="{operator kind: [cycles/s expected, cycles/s measured]}.")

    class Meta:
        ordering = ["-starts_at", "query__name"]
        constraints = [
            models.UniqueConstraint(
                fields=["query", "origin", "seed", "starts_at"], name="one_observation_per_interval_and_origin"
            )
        ]
        indexes = [models.Index(fields=["cluster", "-starts_at"], name="accuracy_by_time")]

    def __str__(self) -> str:
        return f"{self.query_id} at {self.starts_at:%Y-%m-%d %H:%M:%S}"

    @property
    def is_judged(self) -> bool:
        """Whether it counts in any figure."""
        return not self.disturbed and not self.set_aside

    @property
    def counts(self) -> bool:
        """Whether it counts in the factors of intervals: it had one, and neither was it disturbed nor set aside."""
        return self.is_judged and self.stated_low_s is not None and self.stated_high_s is not None

    @property
    def error_s(self) -> float:
        """Expected less observed: above 0 the estimate was too high."""
        return self.expected_s - self.observed_s


class UnscoredInterval(models.Model):
    """An interval in which results of a live query came, but its estimate was not held against them."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="unscored_intervals")
    starts_at = models.DateTimeField(db_index=True)
    reason = models.CharField(max_length=11, choices=UnscoredReason.choices)
    windows = models.PositiveIntegerField(help_text="Windows whose results came in it.")

    class Meta:
        ordering = ["-starts_at", "query__name"]
        constraints = [models.UniqueConstraint(fields=["query", "starts_at"], name="one_unscored_per_interval")]
        indexes = [models.Index(fields=["cluster", "-starts_at"], name="unscored_by_time")]

    def __str__(self) -> str:
        return f"{self.query_id} at {self.starts_at:%Y-%m-%d %H:%M:%S}: {self.reason}"


class IntervalCalibration(models.Model):
    """Factors of the intervals of a group of scored runs, in force from `since` to `until`.

    A group is a query's runs; without a query those of a kind (statistic, with windows or without); without either
    all of an origin.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="calibrations")
    query = models.ForeignKey(Query, null=True, on_delete=models.CASCADE, related_name="calibrations")
    origin = models.CharField(max_length=10, choices=RunOrigin.choices)
    evidence = models.CharField(max_length=10, choices=Evidence.choices)
    statistic = models.CharField(max_length=8, blank=True, help_text="worst, mean, or quantile; of a query q0.99, too.")
    windowed = models.BooleanField(null=True)
    lower = models.FloatField(help_text="Factor of the lower side, on the logarithm of latency.")
    upper = models.FloatField(help_text="Factor of the upper side.")
    scope = models.CharField(
        max_length=6, choices=CalibrationScope.choices, blank=True, help_text="Whose runs they are of; empty: too few."
    )
    runs = models.PositiveIntegerField(help_text="Runs that the factors rest on.")
    own_runs = models.PositiveIntegerField(help_text="Runs of the group itself, at most those that still weigh.")
    left_out = models.PositiveIntegerField(help_text="Runs without an interval, or while nothing was processed.")
    coverage_before = models.FloatField(null=True, help_text="Share of its runs that the stated interval held.")
    coverage_after = models.FloatField(null=True, help_text="Share that the interval held as it was shown.")
    width_before = models.FloatField(null=True, help_text="Median of the stated interval's width over the estimate.")
    width_after = models.FloatField(null=True, help_text="Median of the shown interval's width over the estimate.")
    bias = models.FloatField(null=True, help_text="Median of measured over estimated.")
    held = models.PositiveSmallIntegerField(null=True, help_text="How many of the last judged intervals held.")
    judged = models.PositiveSmallIntegerField(null=True, help_text="Of a query: the newest intervals, at most 40.")
    trust = models.CharField(max_length=8, choices=TrustState.choices, blank=True, help_text="Of a query alone.")
    first_at = models.DateTimeField(help_text="Of the oldest of its runs.")
    last_at = models.DateTimeField(help_text="Of the newest.")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, help_text="When others took their place; null: in force.")
    updated_at = models.DateTimeField(help_text="When its runs were last looked at.")

    class Meta:
        ordering = ["-since", "-pk"]
        indexes = [
            models.Index(fields=["cluster", "until"], name="calibration_in_force"),
            models.Index(fields=["query", "-since"], name="calibration_by_query"),
        ]

    def __str__(self) -> str:
        return f"{self.query or self.statistic or self.origin} since {self.since:%Y-%m-%d %H:%M:%S}"

    @property
    def group(self) -> CalibrationScope:
        """Kind of its group; `scope` says whose runs its factors are of."""
        if self.query_id is not None:
            return CalibrationScope.QUERY
        return CalibrationScope.KIND if self.statistic else CalibrationScope.ORIGIN


class EstimateRun(models.Model):
    """One estimate of everything that runs in a cluster, on one snapshot."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="estimates")
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="estimate_run")
    snapshot = models.CharField(max_length=DIGEST_LENGTH, help_text="Hash of the snapshot it was computed on.")
    snapshot_parts = models.JSONField(default=dict, help_text="{part: digest}, to tell what changed since.")
    base: Any = models.JSONField(null=True, help_text="Facts of the base it rests on (apps.estimates.bases).")
    subinterval_s = models.FloatField()
    slice_s = models.FloatField()
    slices = models.PositiveIntegerField()
    result = models.JSONField(help_text="Numbers of the whole cluster: mace, bounds, bottleneck, alarm.")
    duration_s = models.FloatField()
    by_telemetry = models.BooleanField(default=False, help_text="Asked for by what was measured; thinned with age.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.created_at:%Y-%m-%d %H:%M:%S}"

    @cached_property
    def facts(self) -> StoredFacts:
        """The stored facts of the cluster as a whole."""
        return StoredFacts.parse(self.result)

    @property
    def base_facts(self) -> BaseFacts | None:
        """The base that it rests on; None of one that was kept without."""
        return BaseFacts.parse(self.base) if self.base else None

    @property
    def horizon_s(self) -> float:
        """Length of what was estimated, which is taken to begin with the run."""
        return self.slices * self.slice_s


class QueryEstimate(models.Model):
    """One query's latency in a run. `series` holds the curves of the chart (`apps.queries.arrivals.series`)."""

    run = models.ForeignKey(EstimateRun, on_delete=models.CASCADE, related_name="queries")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="estimates")
    version = models.ForeignKey(QueryVersion, on_delete=models.CASCADE)
    statistic = models.CharField(max_length=8)
    bound_s = models.FloatField(null=True)
    estimate_s = models.FloatField(help_text="Median of the objective's statistic (worst where there is none).")
    low_s = models.FloatField(null=True, help_text="Lower end of the 90 % interval; null where it is not known.")
    high_s = models.FloatField(null=True)
    worst_s = models.FloatField(help_text="Median of the worst case, whatever the objective's statistic is.")
    headroom_share = models.FloatField(null=True, help_text="(bound - estimate) / bound; null without an objective.")
    mace_s = models.FloatField(help_text="The paper's Mace over the servers the query uses.")
    state = models.CharField(max_length=10, choices=ObjectiveState.choices)
    certainty = models.CharField(max_length=16, choices=Certainty.choices, default=Certainty.KNOWN)
    bottleneck_server = models.CharField(max_length=MAX_QUERY_PATH, blank=True, help_text="Of the result, for lists.")
    bottleneck_node = models.CharField(max_length=MAX_SLUG, blank=True, help_text="Empty where that is a link.")
    bottleneck_load = models.FloatField(null=True, help_text="Its highest load as a share of capacity.")
    trust = models.CharField(max_length=8, choices=TrustState.choices, blank=True, help_text="Of the result, too.")
    result = models.JSONField(help_text="The engine's answer for the query: statistics, bottleneck, contributors.")
    series = models.BinaryField(null=True, help_text="The mean path per subinterval, compressed.")

    class Meta:
        ordering = ["headroom_share", "query__name"]
        constraints = [models.UniqueConstraint(fields=["run", "query"], name="one_estimate_per_query_and_run")]
        indexes = [
            # Of all that lists filter and sort by: they read the rows, which hold whole answers, of one page alone.
            models.Index(
                fields=["run", "query", "state", "certainty", "headroom_share", "bound_s", "estimate_s", "trust"],
                name="estimates_listed",
            )
        ]

    @cached_property
    def answer(self) -> StoredEstimate:
        """The stored answer."""
        return StoredEstimate.parse(self.result)

    @property
    def standing(self) -> ObjectiveStatus | None:
        """Status of the query that was judged with this estimate; None of one that a newer took the place of."""
        return getattr(self, "status", None)

    @property
    def judged_state(self) -> str:
        """State by measurement and estimate; of an estimate of the past its own."""
        return str(self.standing.state if self.standing else self.state)

    @property
    def mark(self) -> str:
        """Key of the mark of its state, which tells measured from estimated."""
        return self.standing.mark if self.standing else judged_state(self.state, DecidedBy.ESTIMATE)

    @property
    def is_expected(self) -> bool:
        """Whether an estimate alone says how it stands."""
        return self.standing is None or self.standing.is_expected

    @property
    def headroom(self) -> tuple[float | None, float | None]:
        """Objective minus the larger of measurement and estimate: in seconds, and as a share of the objective.

        None where there is no objective, nothing is known of the latency, or it only grows.
        """
        gap_s = None if not self.bound_s else self.bound_s - self.judged_s
        is_open = self.judged_state in (ObjectiveState.UNKNOWN, ObjectiveState.BREACHED)
        if gap_s is None or (is_open and gap_s >= 0.0):
            return None, None
        return gap_s, gap_s / (self.bound_s or 1.0)

    @property
    def judged_s(self) -> float:
        """The latency that headroom is counted from: the larger of measurement and estimate."""
        standing = self.standing
        return self.estimate_s if standing is None or standing.value_s is None else standing.value_s

    @property
    def measured_s(self) -> float | None:
        """The latency measured lately; None where that does not count."""
        standing = self.standing
        return standing.measured_s if standing is not None and not standing.lacking else None


class ObjectiveStatus(models.Model):
    """State of a running query's objective, by what was measured lately and by its newest estimate.

    It is stored so that lists can filter and sort by it; `objectives_refresh` alone writes it.
    """

    query = models.OneToOneField(Query, on_delete=models.CASCADE, related_name="objective_status")
    estimate = models.OneToOneField(QueryEstimate, null=True, on_delete=models.SET_NULL, related_name="status")
    state = models.CharField(max_length=10, choices=ObjectiveState.choices)
    since = models.DateTimeField(help_text="When the state became what it is.")
    decided_by = models.CharField(max_length=11, choices=DecidedBy.choices)
    statistic = models.CharField(max_length=8)
    bound_s = models.FloatField(null=True)
    value_s = models.FloatField(null=True, help_text="The larger of measurement and estimate.")
    headroom_share = models.FloatField(null=True, help_text="(bound - value) / bound; null without an objective.")
    measured_s = models.FloatField(null=True, help_text="The objective's statistic over the recent past.")
    measured_at = models.DateTimeField(null=True, help_text="When the newest result came.")
    results = models.PositiveIntegerField(default=0, help_text="Results behind the measurement.")
    results_needed = models.PositiveIntegerField(default=0)
    span_s = models.FloatField(default=0.0, help_text="How far back they reach.")
    left_out = models.PositiveIntegerField(default=0, help_text="While the stream processor was not at work.")
    lacking = models.CharField(max_length=10, blank=True, choices=MeasurementLack.choices)
    causes = models.JSONField(
        default=list, help_text="What makes it late, the cause to name first; why it is not known."
    )
    cause_kind = models.CharField(
        max_length=MAX_KIND, blank=True, help_text="Of the first cause; empty: neither late nor unobserved."
    )
    cause_subject = models.CharField(
        max_length=MAX_QUERY_PATH, blank=True, help_text="Of the first cause; the query where nothing explains it."
    )
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["headroom_share", "query__name"]
        verbose_name_plural = "objective statuses"
        indexes = [models.Index(fields=["state"], name="objective_by_state")]

    def __str__(self) -> str:
        return f"{self.query_id}: {self.state}"

    @property
    def mark(self) -> str:
        """Key of the mark of its state, which tells measured from estimated."""
        return judged_state(self.state, self.decided_by)

    @property
    def is_expected(self) -> bool:
        """Whether an estimate alone says so."""
        return self.decided_by == DecidedBy.ESTIMATE

    @property
    def lateness(self) -> list[LatenessCause]:
        """The stored causes, the one to name first."""
        return [LatenessCause.parse(cause) for cause in self.causes]

    def set_causes(self, causes: Sequence[LatenessCause]) -> None:
        """Keep what makes it late, and what lists group it by: what is not explained is each query's own."""
        first = next(iter(causes), LatenessCause(UNEXPLAINED))
        self.causes = [cause.to_dict() for cause in causes]
        self.cause_kind = first.kind
        self.cause_subject = self.query.name if first.kind == UNEXPLAINED else first.subject

    @property
    def cause_key(self) -> tuple[str, str]:
        """Kind and subject that a late query is grouped by."""
        return self.cause_kind, self.cause_subject


class NodeEstimate(models.Model):
    """One server's load and excess in a run."""

    run = models.ForeignKey(EstimateRun, on_delete=models.CASCADE, related_name="nodes")
    server = models.CharField(max_length=MAX_QUERY_PATH)
    node_name = models.CharField(max_length=MAX_SLUG, blank=True, help_text="Empty for a link.")
    mean_load = models.FloatField(help_text="Mean load as a share of capacity.")
    peak_load = models.FloatField(help_text="Largest load of a subinterval as a share of capacity.")
    excess_s = models.FloatField(help_text="Largest cumulative excess, in seconds to clear it.")
    excess = models.JSONField(help_text="Excess in seconds, the maximum of each of at most 96 parts of the horizon.")

    class Meta:
        ordering = ["-excess_s", "server"]
        indexes = [
            models.Index(fields=["run", "-excess_s"], name="servers_by_excess"),
            # Of all that nodes are ranked by: their rows hold strips of excess, and those drawn alone are read.
            models.Index(
                fields=["run", "node_name", "server", "excess_s", "peak_load", "mean_load"], name="servers_listed"
            ),
        ]


class DocumentEstimate(Run):
    """An estimate of a deployment document that belongs to no cluster: the question and the engine's whole answer."""

    digest = models.CharField(max_length=DIGEST_LENGTH, help_text="The deployment's digest.")
    flow_slices = models.PositiveSmallIntegerField(default=1)
    document: Any = PackedJSONField()
