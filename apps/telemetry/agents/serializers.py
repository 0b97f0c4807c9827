"""Agents, tokens, sources and tables over REST. Types are checked here, rules in the services."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import MAX_HOST_NAME, MAX_KIND, MAX_SHORT_NOTE, MAX_SLUG, MAX_VERSION_TEXT
from apps.core.rest.api import StrictSerializer
from apps.fleet.models import Node
from apps.fleet.serializers import ClusterField, InClusterSerializer, NumberField
from apps.telemetry.choices import AgentKind, AgentState
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_state

__all__ = [
    "AgentSerializer",
    "EnrolSerializer",
    "EnrolledSerializer",
    "EnrolmentCreateSerializer",
    "EnrolmentCreatedSerializer",
    "EnrolmentSerializer",
    "SourceSerializer",
    "StaticTableSerializer",
]


class EnrolmentSerializer(StrictSerializer):
    """An enrolment token without its secret."""

    id = serializers.IntegerField(read_only=True)
    cluster = serializers.CharField(source="cluster.slug", read_only=True)
    note = serializers.CharField(read_only=True)
    prefix = serializers.CharField(read_only=True)
    networks = serializers.ListField(child=serializers.CharField(), read_only=True)
    agent_name = serializers.CharField(read_only=True, help_text="The one agent it is for; empty: new names.")
    uses_left = serializers.IntegerField(read_only=True)
    used = serializers.IntegerField(read_only=True)
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    expires_at = serializers.DateTimeField(read_only=True)
    revoked_at = serializers.DateTimeField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True)


class EnrolmentCreateSerializer(StrictSerializer):
    """Request for an enrolment token; `enrolment_create` checks it."""

    cluster = ClusterField()
    note = serializers.CharField(required=False, allow_blank=True, max_length=MAX_SHORT_NOTE)
    uses = serializers.IntegerField(default=1, help_text="How many agents may join with it.")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="In 24 hours unless given.")
    networks = serializers.ListField(child=serializers.CharField(), default=list, help_text="CIDR; empty: anywhere.")
    agent_name = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_SLUG,
        help_text="The one agent that may join with it, also one that is known and has lost its secret.",
    )


class EnrolmentCreatedSerializer(EnrolmentSerializer):
    """A new enrolment token with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)


class EnrolSerializer(StrictSerializer):
    """Request of an agent that enrols."""

    token = serializers.CharField(max_length=200, help_text="`sle_…`")
    name = serializers.CharField(max_length=MAX_SLUG)
    old_secret = serializers.CharField(
        max_length=200, allow_blank=True, default="", help_text="Of an agent that is known: its present `sla_…`."
    )
    host = serializers.CharField(max_length=MAX_HOST_NAME, allow_blank=True, default="")
    version = serializers.CharField(max_length=MAX_VERSION_TEXT, allow_blank=True, default="")
    cores = serializers.IntegerField(min_value=1, max_value=1024, default=1)
    capacity_cps = NumberField(required=False, allow_null=True, min_value=1, max_value=1e15)
    kind = serializers.ChoiceField([AgentKind.AGENT.value, AgentKind.RELAY.value], required=False)


class EnrolledSerializer(serializers.Serializer):
    """An enrolled agent: its id and its secret, shown this once."""

    agent = serializers.UUIDField()
    secret = serializers.CharField()
    cluster = serializers.CharField()
    heartbeat_s = serializers.FloatField()


class NodeNameField(serializers.CharField):
    """A node of the agent's cluster by its name."""

    def get_attribute(self, instance: Agent) -> str | None:
        return instance.node.name if instance.node else None


class ParentNameField(serializers.CharField):
    """A relay of the agent's cluster by its name."""

    def get_attribute(self, instance: Agent) -> str | None:
        return instance.parent.name if instance.parent else None


class AgentSerializer(StrictSerializer):
    """An agent: settings, last heartbeat, state and reasons."""

    id = serializers.UUIDField(read_only=True)
    cluster = serializers.CharField(source="cluster.slug", read_only=True)
    name = serializers.CharField(required=False)
    kind = serializers.ChoiceField(AgentKind.choices, required=False)
    node = NodeNameField(required=False, allow_null=True)
    parent = ParentNameField(required=False, allow_null=True, help_text="The relay that it sends to.")
    listen = serializers.CharField(
        required=False, allow_blank=True, help_text="host:port at which a relay takes frames."
    )
    budget_cores = NumberField(required=False, help_text="CPU that it may use, in cores.")
    source_options = serializers.JSONField(
        required=False, help_text="By source: options of its collector that differ at this agent."
    )
    enabled = serializers.BooleanField(required=False)
    state = serializers.SerializerMethodField()
    reasons = serializers.SerializerMethodField()
    notes = serializers.SerializerMethodField()
    host = serializers.CharField(read_only=True)
    version = serializers.CharField(read_only=True)
    cores = serializers.IntegerField(read_only=True)
    capacity_cps = serializers.FloatField(read_only=True)
    config_version = serializers.IntegerField(read_only=True)
    life = serializers.CharField(read_only=True)
    clock_offset_s = serializers.FloatField(read_only=True)
    enrolled_at = serializers.DateTimeField(read_only=True)
    last_seen = serializers.DateTimeField(read_only=True)
    heartbeat = serializers.JSONField(read_only=True)

    def get_state(self, agent: Agent) -> AgentState:
        return agent_state(agent).state

    def get_reasons(self, agent: Agent) -> list[str]:
        return list(agent_state(agent).reasons)

    def get_notes(self, agent: Agent) -> list[str]:
        return list(agent_state(agent).notes)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        cluster, problems = self.instance.cluster_id, {}
        for name, rows in (("node", Node.objects), ("parent", Agent.objects)):
            if not values.get(name):
                values.update({name: None} if name in values else {})
                continue
            value = values[name]
            values[name] = rows.filter(cluster=cluster, name=value).first()
            if values[name] is None:
                problems[name] = f"the cluster has none that is called {value!r}"
        if problems:
            raise serializers.ValidationError(problems)
        return values


class SourceSerializer(InClusterSerializer):
    """A stream of records that agents collect, or that a producer sends."""

    source_id = serializers.CharField()
    kind = serializers.CharField(max_length=MAX_KIND, help_text="Of the collector, or producer.")
    options = serializers.JSONField(required=False)
    time = serializers.CharField(max_length=MAX_SLUG, help_text="The column of event time.")
    columns = serializers.JSONField(help_text='Type by name: {"ts": "timestamp", "rtt_us": "int64"}.')
    lateness_s = NumberField(required=False, help_text="How much older than the newest a record may be.")
    reader_count = serializers.IntegerField(read_only=True, help_text="Live queries that read it.")
    updated_at = serializers.DateTimeField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:  # operators and arrivals know it by this name
            fields["source_id"] = serializers.CharField(read_only=True)
        return fields


class StaticTableSerializer(InClusterSerializer):
    """A small table that queries join their records with."""

    name = serializers.CharField()
    columns = serializers.JSONField(help_text='Type by name: {"ip": "string", "tor": "string"}.')
    order = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Columns in the order of a row's cells."
    )
    rows = serializers.JSONField(help_text="A list of rows, each a list of cells.")
    digest = serializers.CharField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:
            fields["name"] = serializers.CharField(read_only=True)
        return fields
