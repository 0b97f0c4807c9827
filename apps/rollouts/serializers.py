"""Configurations, rollouts and policies over REST."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.limits import MAX_NAMES_LISTED, MAX_NOTE
from apps.core.rest.api import StrictSerializer
from apps.fleet.models import Cluster
from apps.fleet.serializers import NumberField
from apps.rollouts.choices import ConfigOrigin, ConfigState, RolloutState
from apps.rollouts.configs.selectors import config_parts, config_schedules
from apps.rollouts.configs.services import ConfigRequest
from apps.rollouts.models import RefinedConfig, Rollout, RolloutMember
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named

__all__ = [
    "CanariesSerializer",
    "ConfigCheckSerializer",
    "ConfigDetailSerializer",
    "ConfigRequestSerializer",
    "ConfigSerializer",
    "NewConfigSerializer",
    "PolicySerializer",
    "RollbackReasonSerializer",
    "RolloutDetailSerializer",
    "RolloutSerializer",
    "StartSerializer",
]


def _names(**options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(), max_length=MAX_NAMES_LISTED, required=False, **options)


class ConfigSerializer(serializers.ModelSerializer):
    """A configuration without its parts."""

    name = serializers.CharField(help_text="c- and its number.")
    cluster = serializers.CharField(source="cluster.slug")
    parent = serializers.IntegerField(source="parent.number", default=None, allow_null=True)
    origin = serializers.ChoiceField(ConfigOrigin.choices)
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    settings = serializers.DictField(help_text="Of adapting, as given.")
    schedule = serializers.DictField(
        allow_null=True, help_text="Of scheduling, as given; null: it sets none, or not the same for all."
    )
    scope = serializers.DictField(help_text="Queries and agents by name; empty: all.")
    state = serializers.ChoiceField(ConfigState.choices)
    checked = serializers.DictField(help_text="What is predicted on recorded epochs.")

    class Meta:
        model = RefinedConfig
        fields = ["number", "name", "cluster", "parent", "origin", "author", "words", "settings", "schedule", "scope"]
        fields += ["state", "checked", "created_at", "updated_at"]


class _ConfigPartSerializer(serializers.Serializer):
    """Part of a configuration for a query at an agent."""

    query = serializers.CharField()
    agent = serializers.CharField(help_text="Its name, or: all agents.")
    changes = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    document = serializers.DictField(help_text="As agents get it.")


class _SchedulePartSerializer(serializers.Serializer):
    """Schedule of an agent by a configuration."""

    agent = serializers.CharField(help_text="Its name, or: all agents.")
    changes = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    document = serializers.DictField(help_text="As agents get it.")


class ConfigDetailSerializer(ConfigSerializer):
    """A configuration with its first 200 parts; each of their `changes` is (what, before, after)."""

    parts = serializers.SerializerMethodField()
    schedules = serializers.SerializerMethodField()

    class Meta(ConfigSerializer.Meta):
        fields = [*ConfigSerializer.Meta.fields, "parts", "schedules"]

    @extend_schema_field(_ConfigPartSerializer(many=True))
    def get_parts(self, row: RefinedConfig) -> Any:
        return _ConfigPartSerializer(config_parts(row), many=True).data

    @extend_schema_field(_SchedulePartSerializer(many=True))
    def get_schedules(self, row: RefinedConfig) -> Any:
        return _SchedulePartSerializer(config_schedules(row), many=True).data


class ConfigRequestSerializer(StrictSerializer):
    """Content for agents: parts for queries and schedules."""

    settings = serializers.JSONField(
        required=False, help_text="Of adapting; what is left out has its default. Without it, adapting stays as it is."
    )
    schedule = serializers.JSONField(
        required=False, help_text="Of scheduling; what is left out has its default. Without it, it stays as it is."
    )
    queries = _names(help_text="Names of live queries; all unless given. None beside a schedule.")
    agents = _names(help_text="Names of agents; all unless given.")
    learned = serializers.BooleanField(default=True, help_text="With what Spark knows of operators and watermarks.")

    def wish(self) -> ConfigRequest:
        """The request for the services."""
        values = self.validated_data
        queries, agents = tuple(values.get("queries", ())), tuple(values.get("agents", ()))
        return ConfigRequest(
            values.get("settings"), queries, agents, learned=values["learned"], schedule=values.get("schedule")
        )


class NewConfigSerializer(ConfigRequestSerializer):
    """Request for a configuration, and whether its rollout starts at once."""

    words = serializers.CharField(required=False, allow_blank=True, default="", help_text="What it changes.")
    start = serializers.BooleanField(default=False, help_text="Start its rollout at once.")
    force = serializers.BooleanField(default=False, help_text="Also where its check refuses it.")


class StartSerializer(StrictSerializer):
    """Start of a rollout."""

    force = serializers.BooleanField(default=False, help_text="Also where its check refused it.")
    canaries = _names(help_text="Names of agents that come first.")


class RollbackReasonSerializer(StrictSerializer):
    """Reason of a rollback."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_NOTE)


class CanariesSerializer(StrictSerializer):
    """Agents that become canaries."""

    agents = serializers.ListField(child=serializers.CharField(), min_length=1, max_length=MAX_NAMES_LISTED)

    def rows(self, cluster: Cluster) -> list[Agent]:
        """The agents by their names; Missing names an unknown one."""
        return [agent_named(cluster, name) for name in dict.fromkeys(self.validated_data["agents"])]


class ConfigCheckSerializer(serializers.Serializer):
    """Replay of recent recorded epochs under a configuration."""

    health = serializers.ChoiceField(["good", "worse", "unknown"])
    reasons = serializers.ListField(child=serializers.CharField())
    queries = serializers.DictField(child=serializers.DictField())
    parts = serializers.IntegerField(help_text="Queries at agents that it is for.")
    predicted_parts = serializers.IntegerField(help_text="Of these, how many could be predicted.")
    epochs = serializers.IntegerField()
    at = serializers.CharField()


class RolloutSerializer(serializers.ModelSerializer):
    """A rollout with its verdict."""

    number = serializers.IntegerField(source="config.number")
    config = serializers.CharField(source="config.name")
    cluster = serializers.CharField(source="config.cluster.slug")
    back = serializers.CharField(source="back.name", default=None, allow_null=True, help_text="What takes it back.")
    state = serializers.ChoiceField(RolloutState.choices)
    by = serializers.CharField(source="by.username", default=None, allow_null=True)
    policy = serializers.DictField()
    verdict = serializers.DictField()
    reasons = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = Rollout
        fields = ["number", "config", "cluster", "back", "state", "stage", "by", "policy", "verdict", "reasons"]
        fields += ["created_at", "started_at", "stage_at", "ended_at", "updated_at"]


class _MemberSerializer(serializers.ModelSerializer):
    agent = serializers.CharField(source="agent.name")
    agent_id = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = RolloutMember
        fields = ["agent", "agent_id", "stage", "state", "reasons", "at", "applied_at"]


class _EventSerializer(serializers.Serializer):
    at = serializers.DateTimeField()
    by = serializers.CharField(source="by.username", default=None, allow_null=True)
    words = serializers.CharField()


class RolloutDetailSerializer(RolloutSerializer):
    """A rollout with its agents and events."""

    members = _MemberSerializer(many=True)
    events = _EventSerializer(many=True)

    class Meta(RolloutSerializer.Meta):
        fields = [*RolloutSerializer.Meta.fields, "members", "events"]


class PolicySerializer(StrictSerializer):
    """Policy of a cluster's rollouts: stages, limits, automatic steps."""

    canary_count = serializers.IntegerField(required=False, help_text="Least number of canaries.")
    canary_share = NumberField(required=False, help_text="Share of all agents, where that is more.")
    canary_epochs = serializers.IntegerField(required=False, help_text="Least epochs that are judged; 10 to 600.")
    waves = serializers.JSONField(required=False, help_text="Share of all agents after each wave, ending with 1.")
    wave_epochs = serializers.IntegerField(required=False)
    silent_epochs = serializers.IntegerField(required=False, help_text="How long an agent is waited for.")
    overflow_pp = NumberField(required=False, help_text="Limit, percentage points of records.")
    bytes_rel = NumberField(required=False, help_text="Limit, share of the bytes per record.")
    latency_rel = NumberField(required=False, help_text="Limit, share of the delay, and more than latency_abs_s.")
    latency_abs_s = NumberField(required=False)
    cpu_rel = NumberField(required=False, help_text="Limit, share of CPU time per record that saves no bytes.")
    automatic = serializers.BooleanField(required=False, help_text="What Spark proposes starts by itself.")
    propose_every_s = NumberField(required=False, help_text="Least time from one of Spark's proposals to the next.")
