"""Queries, their versions, operators, statistics, and the arrivals of their sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from apps.accounts.models import Team
from apps.core.limits import DIGEST_LENGTH, MAX_ELEMENT_NAME, MAX_NOTE, MAX_SLUG
from apps.core.models import PackedJSONField
from apps.fleet.choices import CostEvidence, CycleUnit, Evidence
from apps.fleet.models import SLUG, Cluster, Node
from apps.jobs.models import Run
from apps.ledger.recorder import Tracked, TrackedPart
from apps.queries.choices import ArrivalOrigin, OperatorKind, QueryState

__all__ = [
    "ArrivalSeries",
    "ClusterParts",
    "ImportRun",
    "Operator",
    "OperatorInput",
    "Placement",
    "Query",
    "QueryVersion",
    "RowChange",
]


class ArrivalSeries(Tracked):
    """Events per slice (a quarter of a subinterval) of one source, over the cluster's horizon.

    `data` is a zstd-compressed little-endian float64 array of `slices` values (`apps.queries.arrivals.series`).
    """

    ledger_kind, ledger_name = "arrivals", "source_id"
    ledger_kept_with = frozenset({"digest"})

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="arrivals")
    source_id = models.CharField(max_length=MAX_ELEMENT_NAME, help_text="The name operators read it by.")
    origin = models.CharField(max_length=10, choices=ArrivalOrigin.choices)
    evidence = models.CharField(max_length=10, choices=Evidence.choices, default=Evidence.ASSUMED)
    description = models.CharField(max_length=MAX_NOTE, blank=True)
    spec = models.JSONField(default=dict, help_text="File, columns and time range, or the generator's parameters.")
    slice_s = models.FloatField()
    slices = models.PositiveIntegerField()
    data = models.BinaryField()
    digest = models.CharField(max_length=DIGEST_LENGTH, help_text="SHA-256 of the uncompressed data.")
    events = models.FloatField(help_text="Total over the horizon.")
    peak_eps = models.FloatField(help_text="Highest rate of one slice, events/s.")
    starts_at = models.DateTimeField(null=True, blank=True, help_text="Start of the time range, where it was recorded.")
    step_s = models.FloatField(
        null=True, blank=True, help_text="Width at which counts are really known, where it is more than a slice."
    )
    dispersion = models.FloatField(null=True, blank=True, help_text="Index of dispersion of the counts, where stated.")
    dispersion_step_s = models.FloatField(
        null=True, blank=True, help_text="Width of the counts that the dispersion is of."
    )
    event_fields = models.JSONField(
        default=dict, blank=True, help_text="Fields of an event by type, {ints, strings, doubles}; empty: not stated."
    )
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="sources", help_text="Team that owns it."
    )
    labels = models.JSONField(default=dict, blank=True, help_text="{name: value}, chosen by selectors.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["source_id"]
        verbose_name_plural = "arrival series"
        constraints = [models.UniqueConstraint(fields=["cluster", "source_id"], name="source_once_per_cluster")]

    def __str__(self) -> str:
        return self.source_id

    @property
    def mean_eps(self) -> float:
        return self.events / (self.slices * self.slice_s)

    @classmethod
    def ledger_is_routine(cls, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
        """Whether arrivals that were measured take the place of others that were."""
        both = {row["origin"] if row else "" for row in (before, after)}
        return both == {ArrivalOrigin.TELEMETRY}


class Query(Tracked):
    """A continuous query with its latency objective."""

    ledger_kind = "query"
    ledger_ignored = frozenset({"backlogs"})  # measured

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="queries")
    name = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="queries", help_text="Team that owns it."
    )
    labels = models.JSONField(default=dict, blank=True, help_text="{name: value}, chosen by selectors.")
    description = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=QueryState.choices, default=QueryState.DRAFT, db_index=True)
    objective_statistic = models.CharField(max_length=8, blank=True, help_text="worst, mean or q0.99.")
    objective_bound_s = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.000001)])
    priority = models.IntegerField(default=0)
    rate_share = models.FloatField(
        default=1.0,
        help_text="Share of its sources' events it was admitted with, for planning: its sources have to hold back the "
        "rest, nobody else does.",
    )
    backlogs = models.JSONField(
        default=list,
        blank=True,
        help_text="Events that wait at its inputs: [{operator, from, events, behind_s, origin, read_at}].",
    )
    running_version = models.ForeignKey(
        "QueryVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="running_as"
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "queries"
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="query_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name

    @property
    def reads_privately(self) -> bool:
        """Whether it reads copies of its sources instead of the whole of them."""
        return self.rate_share != 1.0

    @classmethod
    def ledger_expressions(cls) -> Mapping[str, Any]:
        """Number of its newest version: a new one is a change of the query."""
        newest = QueryVersion.objects.filter(query=models.OuterRef("pk")).order_by("-number")
        return {"newest_version": models.Subquery(newest.values("number")[:1])}

    @classmethod
    def ledger_more(cls, images: Mapping[Any, dict[str, Any]]) -> None:
        """Add the placement of queries that run: {operator: [{node, core, fraction}]}."""
        running = [key for key, image in images.items() if image["running_version"] is not None]
        placements: dict[Any, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
        names = ("operator__version__query", "operator__name", "node__name", "core", "fraction")
        rows = Placement.objects.filter(operator__version__query__in=running) if running else Placement.objects.none()
        for key, operator, node, core, fraction in rows.order_by("operator__position", "pk").values_list(*names):
            placements[key].setdefault(operator, []).append({"node": node, "core": core, "fraction": fraction})
        for key, image in images.items():
            image["placement"] = placements.get(key, {})


class QueryVersion(TrackedPart):
    """One plan of a query. A version never changes in shape; its statistics are refined."""

    ledger_root = ("query",)

    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    note = models.CharField(max_length=MAX_NOTE, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(default=timezone.now)
    costs_known_at = models.DateTimeField(
        null=True, blank=True, help_text="When the last cost of a version that never ran came to be known."
    )

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["query", "number"], name="version_number_once_per_query")]

    def __str__(self) -> str:
        return f"{self.query.name} v{self.number}"


class Operator(models.Model):
    """An operator of a version. Its id in documents is `{query}/{name}`."""

    ledger_kept = True

    version = models.ForeignKey(QueryVersion, on_delete=models.CASCADE, related_name="operators")
    position = models.PositiveSmallIntegerField(help_text="Listing order; breaks ties of the topological order.")
    name = models.CharField(max_length=MAX_ELEMENT_NAME)
    kind = models.CharField(max_length=10, choices=OperatorKind.choices, default=OperatorKind.OTHER)
    stateless = models.BooleanField(null=True, blank=True, help_text="Empty: not known.")
    bytes_per_event = models.FloatField(default=0.0, validators=[MinValueValidator(0)])
    requested = models.JSONField(
        default=list, help_text="Replicas its document asks for: [{node, core, fraction}]; empty: anywhere."
    )
    extra = models.JSONField(default=dict, help_text="Optional parts of the document kept as given: window, state, …")

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["version", "name"], name="operator_name_once_per_version"),
            models.UniqueConstraint(fields=["version", "position"], name="operator_position_once_per_version"),
        ]

    def __str__(self) -> str:
        return self.name


class OperatorInput(models.Model):
    """One input of an operator and the statistics known of it."""

    ledger_kept = True

    operator = models.ForeignKey(Operator, on_delete=models.CASCADE, related_name="inputs")
    position = models.PositiveSmallIntegerField()
    upstream = models.ForeignKey(Operator, null=True, blank=True, on_delete=models.CASCADE, related_name="readers")
    source_id = models.CharField(
        max_length=MAX_ELEMENT_NAME, blank=True, help_text="Set instead of upstream for a source."
    )
    selectivity = models.FloatField(validators=[MinValueValidator(0)], help_text="Events out per event in (sigma).")
    cycles_per_event = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="CPU cycles per event (omega); empty: never ran.",
    )
    model = models.JSONField(
        null=True, blank=True, help_text="{output, cycles}: polynomials in the events of a slice, in place of both."
    )
    evidence = models.CharField(max_length=10, choices=CostEvidence.choices, default=CostEvidence.ASSUMED)
    events = models.BigIntegerField(default=0, help_text="Events the statistics were taken from.")
    measured_at = models.DateTimeField(null=True, blank=True)
    batches = models.JSONField(default=list, help_text="[{events, outputs, cycles}] of the sample, for the interval.")
    cycle_unit = models.CharField(
        max_length=10,
        choices=CycleUnit.choices,
        default=CycleUnit.NOMINAL,
        help_text="What its cycles count: cycles of a clock, or nanoseconds of CPU.",
    )
    cost_cv2 = models.FloatField(
        null=True, blank=True, help_text="Variance over squared mean of one event's cost; empty: assumed."
    )
    cost_dispersion = models.FloatField(
        null=True, blank=True, help_text="Events of a mean times the relative variance of such means of costs."
    )
    cost_dispersion_events = models.FloatField(null=True, blank=True, help_text="Consecutive events of such a mean.")

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["operator", "position"], name="input_position_once_per_operator"),
            models.CheckConstraint(
                condition=models.Q(upstream__isnull=True) ^ models.Q(source_id=""), name="input_reads_one_thing"
            ),
        ]


class Placement(TrackedPart):
    """Place of a replica of a running version's operator: the whole of it, or a fraction of a stateless one."""

    ledger_root = ("operator", "version", "query")

    operator = models.ForeignKey(Operator, on_delete=models.CASCADE, related_name="placements")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="placements")
    core = models.PositiveSmallIntegerField(default=0)
    fraction = models.FloatField(default=1.0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operator", "node", "core"], name="one_replica_per_core"),
            models.CheckConstraint(
                condition=models.Q(fraction__gt=0) & models.Q(fraction__lte=1), name="fraction_in_0_1"
            ),
        ]


class ClusterParts(models.Model):
    """Parts of a large cluster's snapshot as a worker read them last: pages compare with them, and read no rows.

    `apps.queries.snapshots.parts` alone writes it; answers that something is done by compare with the rows themselves.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="parts")
    digest = models.CharField(max_length=DIGEST_LENGTH)
    parts: Any = PackedJSONField()
    read_at = models.DateTimeField()


class RowChange(models.Model):
    """Mark that a part of a cluster's snapshot has changed, written by triggers (`apps.queries.snapshots.row_changes`).

    Keys grow: on SQLite a mark takes the place of the one before it. On PostgreSQL the transaction that wrote it says
    who has seen it.
    """

    kind = models.CharField(max_length=8)
    key = models.BigIntegerField()
    cluster = models.BigIntegerField(help_text="Key of the cluster, which may be gone.")
    writer = models.BigIntegerField(default=0, help_text="Number of the transaction; 0 on SQLite.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "key", "writer"], name="one_mark_per_writer")]
        indexes = [models.Index(fields=["cluster", "writer"], name="marks_of_a_cluster")]


class ImportRun(Run):
    """A deployment document that was to be imported into a cluster, and what was, or would be, created and updated."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="imports")
    document: Any = PackedJSONField()
    options = models.JSONField(default=dict, help_text="dry_run, fill, query, start.")
    counts = models.JSONField(default=dict, help_text="Nodes, queries and operators of the document.")
