"""Scenarios: named sets of changes to a cluster, to be compared side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from rest_framework import serializers

from apps.accounts.models import User
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Malformed, fault_count, field_faults, from_engine
from apps.core.events import announce
from apps.core.filters import ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_NAME, MAX_REASON
from apps.core.rest.api import ServiceViewSet
from apps.fleet.models import Cluster
from apps.fleet.serializers import InClusterSerializer
from apps.planning.choices import ScenarioPlacement
from apps.planning.models import Scenario
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from engine.errors import EngineError

__all__ = [
    "ScenarioFilter",
    "ScenarioViewSet",
    "read_changes",
    "scenario_create",
    "scenario_delete",
    "scenario_update",
    "scenarios_visible",
]


def scenarios_visible(cluster: Cluster | None = None) -> QuerySet[Scenario]:
    """Scenarios by name, with who made them."""
    rows = Scenario.objects.select_related("cluster", "created_by")
    return rows.filter(cluster=cluster) if cluster is not None else rows


@transaction.atomic
def scenario_create(*, cluster: Cluster, name: str, user: User | None, **fields: Any) -> Scenario:
    """Create a scenario; `fields` are description, changes, place and inputs.

    Raises
    ------
    Malformed
        A field is not allowed, or a change does not fit what runs.
    Conflict
        The cluster has a scenario of that name.
    """
    scenario = Scenario(cluster=cluster, name=name, created_by=user)
    return _scenario_store(scenario, fields)


@transaction.atomic
def scenario_update(*, scenario: Scenario, **fields: Any) -> Scenario:
    """Change a scenario; answers it was part of stay as they are."""
    return _scenario_store(scenario, fields)


@transaction.atomic
def scenario_delete(*, scenario: Scenario) -> None:
    """Delete a scenario; answers it was part of stay."""
    announce(f"scenarios:{scenario.cluster.slug}")
    scenario.delete()


def _scenario_store(scenario: Scenario, fields: Mapping[str, object]) -> Scenario:
    for name, value in fields.items():
        setattr(scenario, name, value)
    try:
        scenario.clean_fields(exclude=["cluster", "created_by"])
    except ValidationError as error:
        faults = field_faults(error)
        raise Malformed(f"The scenario has {fault_count(faults)}; first: {faults[0].message}", faults) from None
    if not scenario.pk or "changes" in fields:
        scenario.changes = read_changes(scenario.changes, cluster_snapshot(scenario.cluster), "changes")
    same = Scenario.objects.filter(cluster=scenario.cluster, name=scenario.name).exclude(pk=scenario.pk)
    if same.exists():
        message = f"{scenario.cluster.slug} has a scenario {scenario.name!r} already; allowed: another name"
        raise Conflict(f"name: {message}.", [("name", message)])
    scenario.save()
    announce(f"scenarios:{scenario.cluster.slug}")
    return scenario


def read_changes(changes: Any, snapshot: Snapshot, path: str) -> list[dict[str, object]]:
    """The changes, if they can be applied to what runs now."""
    from engine.provisioning import changes as engine_changes  # loads part of the engine that most requests do not need

    try:
        engine_changes.read_changes(changes, snapshot.deployment, path=path)
    except EngineError as error:
        raise from_engine(error) from None
    return [dict(change) for change in changes]


class ScenarioFilter(ListFilter):
    """`?cluster=eu-1&name__contains=Friday`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    name = TextFilter(label="Its name")
    created_at = TimeFilter()
    updated_at = TimeFilter()
    sorts = sort_paths("name", "created_at", "updated_at", cluster="cluster__slug")


class ScenarioSerializer(InClusterSerializer):
    """A named set of changes to a cluster. `changes` are the forms of `engine what-if`."""

    name = serializers.CharField(max_length=MAX_NAME)
    description = serializers.CharField(required=False, allow_blank=True, max_length=MAX_REASON)
    changes = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="As `engine what-if` reads them."
    )
    place = serializers.ChoiceField(
        choices=ScenarioPlacement.choices, required=False, help_text="What becomes of the placement; default fill."
    )
    created_by = serializers.CharField(source="created_by.username", read_only=True, default=None)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class ScenarioViewSet(ServiceViewSet):
    """Named sets of changes to a cluster, to be compared side by side."""

    body_sizes = {"create": DOCUMENT, "partial_update": DOCUMENT}
    queryset = Scenario.objects.none()
    serializer_class = ScenarioSerializer
    filterset_class = ScenarioFilter
    ordering = "name"
    row_keyword = "scenario"
    creator_keyword = "user"
    service_create = staticmethod(scenario_create)
    service_update = staticmethod(scenario_update)
    service_delete = staticmethod(scenario_delete)

    def get_queryset(self) -> Any:
        return scenarios_visible()
