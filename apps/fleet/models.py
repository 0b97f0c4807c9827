"""Clusters, node pools, nodes and links."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Concat
from django.utils import timezone

from apps.core.labels import merged_labels
from apps.core.limits import MAX_NAME, MAX_SLUG, MAX_TIME_ZONE
from apps.fleet.choices import CycleUnit, Evidence, Fallback, NodeState
from apps.ledger.recorder import Tracked

__all__ = ["KUBERNETES_RULES", "SLUG", "Cluster", "Link", "Node", "NodePool"]

MAX_CORES = 1024  # each is a server of the models
SLUG = RegexValidator(
    r"^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z",
    "Use 1 to 64 of a-z, 0-9, dot, dash and underscore; begin and end with a letter or digit.",
)
CURRENCY = RegexValidator(r"^[A-Z]{3}\Z", "Use the three capital letters of ISO 4217, such as EUR or USD.")


#: Fields of a cluster that say what Kubernetes is answered without a verdict that says yes or no.
KUBERNETES_RULES = ("kubernetes_unknown", "kubernetes_late", "kubernetes_review")


MAX_PARTS_BUDGET_S = 600.0


class Cluster(Tracked):
    """A set of nodes that run queries together, and the time grid its estimates use."""

    ledger_kind, ledger_name, ledger_cluster = "cluster", "slug", ""
    ledger_kept = False  # what it holds may be any number of rows

    slug = models.CharField(max_length=MAX_SLUG, unique=True, validators=[SLUG])
    name = models.CharField(max_length=MAX_NAME)
    environment = models.CharField(max_length=20, blank=True, help_text="Such as prod or staging.")
    time_zone = models.CharField(max_length=MAX_TIME_ZONE, default="UTC")
    subinterval_s = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.001), MaxValueValidator(86_400)],
        help_text="Width w of a subinterval, in seconds. Arrivals are kept at w/4.",
    )
    horizon_s = models.FloatField(
        default=3600.0,
        validators=[MinValueValidator(1), MaxValueValidator(31_536_000)],
        help_text="Horizon of estimates, in seconds: a whole number of subintervals.",
    )
    policy_version = models.PositiveIntegerField(
        default=0, editable=False, help_text="Version of its policy that is in force; 0: none was ever set."
    )
    kubernetes_unknown = models.CharField(
        max_length=5,
        choices=Fallback.choices,
        default=Fallback.ALLOW,
        help_text="Answer to Kubernetes about a job of which nothing is known.",
    )
    kubernetes_late = models.CharField(
        max_length=5,
        choices=Fallback.choices,
        default=Fallback.ALLOW,
        help_text="Answer to Kubernetes where no verdict is there in time.",
    )
    kubernetes_review = models.CharField(
        max_length=5,
        choices=Fallback.choices,
        default=Fallback.ALLOW,
        help_text="Answer to Kubernetes where a person has to decide.",
    )
    preview_valid_s = models.PositiveIntegerField(default=900, help_text="How long a preview can be applied.")
    parts_budget_s = models.FloatField(
        default=120.0,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_PARTS_BUDGET_S)],
        help_text="Time that each part of a preview may take after its verdict, in seconds: alternatives, and how much "
        "it stands. What is not found by then is left out; 0: none is computed.",
    )
    currency = models.CharField(
        max_length=3, default="EUR", validators=[CURRENCY], help_text="Of the prices of its pools, such as EUR or USD."
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    @property
    def slice_s(self) -> float:
        """Width of a stimulus slice: a quarter of a subinterval."""
        return self.subinterval_s / 4

    @property
    def slices(self) -> int:
        """Slices in the horizon, a multiple of four."""
        return 4 * round(self.horizon_s / self.subinterval_s)


class NodePool(Tracked):
    """Nodes of one kind."""

    ledger_kind = "pool"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pools")
    name = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    capacity_cps = models.FloatField(validators=[MinValueValidator(1)], help_text="Cycles per second of one core.")
    cores = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1), MaxValueValidator(MAX_CORES)])
    cycle_unit = models.CharField(
        max_length=10,
        choices=CycleUnit.choices,
        default=CycleUnit.NOMINAL,
        help_text="What the capacity counts: cycles of a clock, or nanoseconds of CPU.",
    )
    cycles_per_ns = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.001), MaxValueValidator(1000)],
        help_text="Cycles of a clock that a core does in a nanosecond of CPU; empty: not known.",
    )
    memory_bytes = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    price_per_hour = models.DecimalField(
        max_digits=10, decimal_places=4, null=True, blank=True, validators=[MinValueValidator(0)]
    )
    labels = models.JSONField(default=dict, blank=True)
    team = models.ForeignKey(
        "accounts.Team", null=True, blank=True, on_delete=models.PROTECT, related_name="pools", help_text="Its owner."
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="pool_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name


class Node(Tracked):
    """A machine of a pool. Capacity, cores and memory may differ from its pool's."""

    ledger_kind = "node"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=MAX_SLUG, validators=[SLUG])
    capacity_cps = models.FloatField(validators=[MinValueValidator(1)], help_text="Cycles per second of one core.")
    cores = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1), MaxValueValidator(MAX_CORES)])
    memory_bytes = models.BigIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text="Empty: that of its pool."
    )
    cycle_unit = models.CharField(
        max_length=10,
        choices=CycleUnit.choices,
        default=CycleUnit.NOMINAL,
        help_text="What the capacity counts: cycles of a clock, or nanoseconds of CPU.",
    )
    cycles_per_ns = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.001), MaxValueValidator(1000)],
        help_text="Cycles of a clock that a core does in a nanosecond of CPU; empty: not known.",
    )
    state = models.CharField(max_length=10, choices=NodeState.choices, default=NodeState.ACTIVE)
    evidence = models.CharField(max_length=10, choices=Evidence.choices, default=Evidence.ASSUMED)
    calibrated_at = models.DateTimeField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_name_once_per_cluster")]

    def __str__(self) -> str:
        return self.name

    @property
    def all_labels(self) -> dict[str, str]:
        """Its labels, and those of its pool that it does not have itself."""
        return merged_labels([self.labels, self.pool.labels])

    @property
    def memory_for_state(self) -> int | None:
        """Bytes that the state of its operators may take: its own, or those of its pool; None where nobody knows."""
        return self.pool.memory_bytes if self.memory_bytes is None else self.memory_bytes


class Link(Tracked):
    """A directed network connection. A missing link costs nothing."""

    ledger_kind = "link"
    ledger_name = Concat("source__name", models.Value("->"), "target__name")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="links")
    source = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="links_out")
    target = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="links_in")
    bandwidth_bytes_s = models.FloatField(null=True, blank=True, help_text="Empty: no limit.")
    delay_s = models.FloatField(default=0.0, validators=[MinValueValidator(0)])
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["source__name", "target__name"]
        constraints = [
            models.UniqueConstraint(fields=["source", "target"], name="one_link_per_direction"),
            models.CheckConstraint(condition=~models.Q(source=models.F("target")), name="link_between_two_nodes"),
        ]

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"
