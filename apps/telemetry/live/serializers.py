"""Live queries over REST."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.rest.api import StrictSerializer
from apps.fleet.serializers import ClusterField, NumberField
from apps.queries.selectors import query_by_name
from apps.telemetry.choices import LiveState
from apps.telemetry.models import LiveQuery
from apps.telemetry.selectors import agent_named

__all__ = [
    "LiveSerializer",
    "LiveStartSerializer",
    "LiveUpdateSerializer",
    "PartSerializer",
    "PipelineCheckSerializer",
]

_SETTINGS = (
    'How load factors are found: {} leaves them to the agent, {"method": "fixed", "load_factors": [1, 0.5]} sets them '
    "by hand, 0 to 1 for each operator that may run at a source."
)


_SHED = (
    "Whether agents under overload lose records that are late wherever they are processed; unless given they are sent "
    "to the stream processor."
)


class PartSerializer(StrictSerializer):
    """An agent's assignment in a live query; fields left out stay as they are."""

    agent = serializers.CharField(help_text="Its name.")
    settings = serializers.JSONField(required=False, help_text=_SETTINGS)
    weight = NumberField(required=False, help_text="Share of the agent's budget beside its other queries.")
    enabled = serializers.BooleanField(required=False)


class LiveSerializer(StrictSerializer):
    """A query on live telemetry."""

    id = serializers.IntegerField(read_only=True)
    cluster = serializers.CharField(source="query.cluster.slug", read_only=True)
    query = serializers.CharField(source="query.name", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    source = serializers.CharField(source="source.source_id", read_only=True)
    joined = serializers.CharField(
        source="joined.source_id", read_only=True, allow_null=True, help_text="The other stream, where it joins one."
    )
    plan = serializers.CharField(read_only=True)
    state = serializers.ChoiceField(LiveState.choices, read_only=True)
    fault = serializers.CharField(read_only=True)
    source_operators = serializers.IntegerField(read_only=True)
    operators = serializers.SerializerMethodField(help_text="Ids in the order of the data.")
    assignments = serializers.SerializerMethodField()
    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    shed_late = serializers.BooleanField(required=False)
    started_at = serializers.DateTimeField(read_only=True)
    stopped_at = serializers.DateTimeField(read_only=True)

    def get_operators(self, live: LiveQuery) -> list[str]:
        return [row["id"] for row in live.pipeline["operators"]]

    def get_assignments(self, live: LiveQuery) -> list[dict[str, Any]]:
        return [
            {
                "agent": part.agent.name,
                "agent_id": str(part.agent_id),
                "settings": part.settings,
                "weight": part.weight,
                "enabled": part.enabled,
            }
            for part in live.assignments.all()
        ]


class LiveStartSerializer(StrictSerializer):
    """Request to run a query on agents."""

    cluster = ClusterField()
    query = serializers.CharField()
    agents = serializers.ListField(child=serializers.CharField(), max_length=10_000, help_text="Their names.")
    settings = serializers.JSONField(required=False, help_text=f"At all of these agents. {_SETTINGS}")
    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    shed_late = serializers.BooleanField(required=False, help_text=_SHED)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        cluster = values.pop("cluster")
        values["query"] = query_by_name(cluster, values["query"])
        values["agents"] = [agent_named(cluster, name) for name in dict.fromkeys(values["agents"])]
        return values


class LiveUpdateSerializer(StrictSerializer):
    """Change of a running live query."""

    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    shed_late = serializers.BooleanField(required=False, help_text=_SHED)
    assignments = PartSerializer(many=True, required=False)


class PipelineCheckSerializer(serializers.Serializer):
    """Whether a query's version can be executed, and where each operator may run."""

    executable = serializers.BooleanField()
    faults = serializers.ListField(child=serializers.DictField())
    source = serializers.CharField(allow_null=True)
    joined = serializers.CharField(allow_null=True)
    source_operators = serializers.IntegerField(allow_null=True)
    operators = serializers.ListField(child=serializers.DictField())
