"""Clusters, pools, nodes and links over REST. Services check everything beyond types."""

from __future__ import annotations

import math
from typing import Any

from django.apps import apps
from rest_framework import serializers

from apps.core.bulk import BulkSerializer
from apps.core.reach import check_cluster, visible
from apps.core.rest.api import StrictSerializer
from apps.fleet.choices import CycleUnit, Evidence, Fallback, NodeState
from apps.fleet.models import Cluster, Node
from apps.fleet.services import MAX_PLANNED_NODES

__all__ = [
    "ClusterField",
    "ClusterSerializer",
    "ImportSerializer",
    "InClusterSerializer",
    "LabelsField",
    "LinkSerializer",
    "NodeBulkSerializer",
    "NodeSerializer",
    "NumberField",
    "PlanSerializer",
    "PoolSerializer",
    "TableSerializer",
]


class NumberField(serializers.FloatField):
    """A finite float; true and false are no numbers, and neither are the texts `nan` and `inf`."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            self.fail("invalid")
        value: float = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("invalid")
        return value


class LabelsField(serializers.JSONField):
    """Labels, {name: value}; the service checks them."""

    def __init__(self, **options: Any) -> None:
        options.setdefault(
            "help_text", "{name: value}, in the syntax of Kubernetes. They take the place of all before."
        )
        super().__init__(**options)


class ClusterField(serializers.SlugRelatedField):
    """A cluster by its slug."""

    def __init__(self, **options: Any) -> None:
        if not options.get("read_only"):
            options.setdefault("queryset", Cluster.objects.all())
        super().__init__(slug_field="slug", **options)

    def to_internal_value(self, data: Any) -> Any:
        # PostgreSQL refuses to even look for a text with a zero byte.
        if not isinstance(data, str) or "\0" in data:
            self.fail("does_not_exist", slug_name="slug", value=repr(data)[:80])
        cluster = super().to_internal_value(data)
        check_cluster(cluster)
        return cluster

    def get_queryset(self) -> Any:
        return visible(super().get_queryset())


class ClusterSerializer(StrictSerializer):
    """A cluster. Counts are of nodes that are not offline."""

    slug = serializers.CharField()
    name = serializers.CharField()
    environment = serializers.CharField(required=False, allow_blank=True)
    time_zone = serializers.CharField(required=False)
    subinterval_s = NumberField(required=False)
    horizon_s = NumberField(required=False)
    policy_version = serializers.IntegerField(
        read_only=True, help_text="Version of its policy in force; 0: none was ever set."
    )
    kubernetes_unknown = serializers.ChoiceField(
        Fallback.choices, required=False, help_text="Answer to Kubernetes about a job of which nothing is known."
    )
    kubernetes_late = serializers.ChoiceField(
        Fallback.choices, required=False, help_text="Answer to Kubernetes where no verdict is there in time."
    )
    kubernetes_review = serializers.ChoiceField(
        Fallback.choices, required=False, help_text="Answer to Kubernetes where a person has to decide."
    )
    currency = serializers.CharField(required=False)
    preview_valid_s = serializers.IntegerField(required=False, min_value=1, max_value=86_400)
    parts_budget_s = NumberField(
        required=False,
        help_text="Seconds that each part of a preview may take after its verdict; 0: none is computed.",
    )
    slice_s = serializers.FloatField(read_only=True)
    slices = serializers.IntegerField(read_only=True)
    node_count = serializers.IntegerField(read_only=True)
    core_count = serializers.IntegerField(read_only=True)
    running_count = serializers.IntegerField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class InClusterSerializer(StrictSerializer):
    """A resource of a cluster: `cluster` is set on creation and never changes."""

    id = serializers.IntegerField(read_only=True)
    cluster = ClusterField()

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:
            fields["cluster"] = ClusterField(read_only=True)
        return fields

    def cluster_of(self, values: dict[str, Any]) -> Cluster:
        """The cluster in which names of `values` are looked up."""
        cluster: Cluster = self.instance.cluster if self.instance is not None else values["cluster"]
        return cluster


_CYCLES_PER_NS = "Cycles of a clock that one core does in a nanosecond of CPU, where it is known."


class PoolSerializer(InClusterSerializer):
    """A node pool: capacity and cores of its new nodes."""

    name = serializers.CharField()
    capacity_cps = NumberField(help_text="Cycles per second of one core.")
    cycle_unit = serializers.ChoiceField(CycleUnit.choices, required=False, help_text="What its capacity counts.")
    cycles_per_ns = NumberField(required=False, allow_null=True, help_text=_CYCLES_PER_NS)
    cores = serializers.IntegerField(required=False)
    memory_bytes = serializers.IntegerField(
        required=False, allow_null=True, help_text="Of a node: what the state of its operators may take."
    )
    price_per_hour = serializers.DecimalField(10, 4, required=False, allow_null=True, coerce_to_string=False)
    labels = LabelsField(required=False)
    team: Any = serializers.SlugRelatedField(
        slug_field="name",
        queryset=apps.get_model("accounts.Team")._default_manager.all(),
        required=False,
        allow_null=True,
        help_text="Name of the team that owns it, whose members see it; null: nobody's.",
    )
    node_count = serializers.IntegerField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class PlanSerializer(StrictSerializer):
    """Number of nodes to plan in a pool."""

    count = serializers.IntegerField(min_value=1, max_value=MAX_PLANNED_NODES)


class NodeSerializer(InClusterSerializer):
    """A node. `state` is changed by its actions: drain, activate, offline."""

    pool = serializers.CharField(help_text="Name of a pool of the cluster.")
    name = serializers.CharField()
    capacity_cps = NumberField(required=False, help_text="Cycles per second of one core; the pool's unless given.")
    cycle_unit = serializers.ChoiceField(
        CycleUnit.choices, required=False, help_text="What its capacity counts; the pool's unless given."
    )
    cycles_per_ns = NumberField(required=False, allow_null=True, help_text=_CYCLES_PER_NS)
    cores = serializers.IntegerField(required=False, help_text="The pool's unless given.")
    memory_bytes = serializers.IntegerField(
        required=False, allow_null=True, help_text="What the state of its operators may take; null: that of its pool."
    )
    state = serializers.ChoiceField(NodeState.choices, read_only=True)
    evidence = serializers.ChoiceField(Evidence.choices, required=False)
    labels = LabelsField(required=False)
    calibrated_at = serializers.DateTimeField(read_only=True, allow_null=True)
    operator_count = serializers.IntegerField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "pool" in values:
            pools = self.cluster_of(values).pools
            pool = pools.select_related("cluster").filter(name=values["pool"]).first()
            if pool is None:
                names = ", ".join(pools.values_list("name", flat=True)[:10]) or "none exists yet"
                raise serializers.ValidationError({"pool": f"there is no pool {values['pool']!r}; allowed: {names}"})
            values["pool"] = pool
        return values


class NodeBulkSerializer(BulkSerializer):
    """Action on many nodes."""

    action = serializers.ChoiceField(["drain", "activate", "offline", "delete"])


class LinkSerializer(InClusterSerializer):
    """A directed link between two nodes, `from` and `to`."""

    bandwidth_bytes_s = NumberField(required=False, allow_null=True, help_text="null: no limit.")
    delay_s = NumberField(required=False)
    updated_at = serializers.DateTimeField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        # `from` is a word of Python's and cannot be declared as an attribute.
        fixed = self.instance is not None
        ends = {
            name: serializers.CharField(source=f"{end}.name", read_only=fixed, help_text="Name of a node.")
            for name, end in (("from", "source"), ("to", "target"))
        }
        return {"id": fields.pop("id"), "cluster": fields.pop("cluster"), **ends, **fields}

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        problems = {}
        for name, end in (("from", "source"), ("to", "target")):
            if end not in values:
                continue
            wanted = values[end]["name"]
            values[end] = Node.objects.filter(cluster=self.cluster_of(values), name=wanted).first()
            if values[end] is None:
                problems[name] = f"there is no node {wanted!r} in the cluster"
        if problems:
            raise serializers.ValidationError(problems)
        return values


class TableSerializer(StrictSerializer):
    """A table to import: `rows` in JSON, or `file` (CSV or JSON) in a form."""

    cluster = ClusterField()
    dry_run = serializers.BooleanField(default=False)
    rows = serializers.ListField(required=False, child=serializers.DictField())
    file = serializers.FileField(required=False)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if ("rows" in values) == ("file" in values):
            raise serializers.ValidationError({"rows": "give either rows, or a file in a multipart form"})
        return values

    @property
    def table(self) -> Any:
        values = self.validated_data
        return values["rows"] if "rows" in values else values["file"].read()


class ImportSerializer(serializers.Serializer):
    """Result of an import, or of its dry run."""

    dry_run = serializers.BooleanField()
    created = serializers.ListField(child=serializers.CharField())
    updated = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
