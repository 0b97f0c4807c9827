"""Live queries, heartbeats and progress of frames over REST."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import DIGEST_LENGTH, MAX_KIND, MAX_QUERY_PATH, MAX_SLUG, MAX_STATE_TEXT, MAX_VERSION_TEXT
from apps.core.rest.api import StrictSerializer
from apps.fleet.serializers import ClusterField, NumberField
from apps.queries.selectors import query_by_name
from apps.telemetry.agents.heartbeats import ChangesField, EpochsField
from apps.telemetry.choices import LiveState
from apps.telemetry.models import LiveQuery
from apps.telemetry.selectors import agent_named

__all__ = [
    "AcceptedSerializer",
    "BatchAcceptedSerializer",
    "HeartbeatAnswerSerializer",
    "HeartbeatSerializer",
    "LiveSerializer",
    "LiveStartSerializer",
    "LiveUpdateSerializer",
    "PartSerializer",
    "PipelineCheckSerializer",
    "StreamPlanSerializer",
]

_MAX_SEQ = 2**53
_MAX_FAULTS, _FAULT_LENGTH = 50, 400
_SETTINGS = (
    'How load factors are found: {} leaves them to the agent, {"method": "fixed", "load_factors": [1, 0.5]} sets them '
    "by hand, 0 to 1 for each operator that may run at a source."
)


class SpoolSerializer(serializers.Serializer):
    frames = serializers.IntegerField(min_value=0, default=0)
    bytes = serializers.IntegerField(min_value=0, default=0)
    limit_bytes = serializers.IntegerField(min_value=0, default=0)
    state = serializers.ChoiceField(["ok", "filling", "full", "disk-full"], default="ok")


class _Faults(serializers.ListField):
    """Texts for people, cut if too many or too long: a refused report helps nobody."""

    child = serializers.CharField(allow_blank=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"default": list, **options})

    def to_internal_value(self, data: Any) -> list[str]:
        return [text[:_FAULT_LENGTH] for text in super().to_internal_value(data)[:_MAX_FAULTS]]


class _Text(serializers.CharField):
    """A text for people, cut if too long."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"default": "", "allow_blank": True, **options})

    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(data)[:_FAULT_LENGTH]


class RefinedReportSerializer(serializers.Serializer):
    """The refined document that is in force."""

    version = serializers.IntegerField(min_value=1)
    config = serializers.CharField(max_length=MAX_KIND)


class RefusedReportSerializer(serializers.Serializer):
    """The refined document that was refused last, with reasons. An unreadable one has neither number nor name."""

    version = serializers.IntegerField(min_value=0, allow_null=True, default=None)
    config = serializers.CharField(max_length=MAX_KIND, allow_null=True, default=None)
    reasons = _Faults()


class ScheduleReportSerializer(serializers.Serializer):
    """Report on the scheduling of an agent's queries."""

    policy = serializers.CharField(max_length=MAX_STATE_TEXT, help_text="Policy of scheduling.")
    mode = serializers.CharField(
        max_length=MAX_KIND, default="", allow_blank=True, help_text="Mode: latency, memory or saturated."
    )
    memory_bytes = serializers.IntegerField(min_value=0, max_value=_MAX_SEQ, default=0, help_text="Waiting records.")
    memory_bound = serializers.IntegerField(min_value=0, max_value=_MAX_SEQ, default=0)
    cycle_ms = serializers.FloatField(min_value=0, max_value=1e6, default=0.0, help_text="Scheduling quantum.")
    starved = serializers.IntegerField(
        min_value=0, max_value=_MAX_SEQ, default=0, help_text="Quanta given because of the starvation limit."
    )
    reason = _Text(help_text="Reason of the mode.")
    refined = RefinedReportSerializer(allow_null=True, default=None)
    refused = RefusedReportSerializer(allow_null=True, default=None)


class QueryReportSerializer(serializers.Serializer):
    query = serializers.CharField(max_length=MAX_QUERY_PATH)
    plan = serializers.CharField(max_length=DIGEST_LENGTH, default="", allow_blank=True)
    state = serializers.CharField(max_length=MAX_STATE_TEXT, default="", allow_blank=True)
    watermark_us = serializers.IntegerField(allow_null=True, default=None)
    load_factors = serializers.ListField(child=serializers.FloatField(), default=list, max_length=64)
    phase = serializers.CharField(max_length=MAX_KIND, default="", allow_blank=True)
    adapting = serializers.CharField(
        max_length=MAX_STATE_TEXT, default="", allow_blank=True, help_text="State of the last epoch."
    )
    reason = _Text(help_text="Reason of the load factors.")
    z = serializers.FloatField(allow_null=True, default=None, help_text="Effective budget over budget.")
    refined = RefinedReportSerializer(allow_null=True, default=None)
    refused = RefusedReportSerializer(allow_null=True, default=None)
    moves = serializers.IntegerField(min_value=0, default=0, help_text="How often load factors were changed.")
    stable_epochs = serializers.IntegerField(min_value=0, default=0)
    late = _Text(help_text="Why no watermark closes its windows; empty if they close.")
    changes = ChangesField()
    epochs = EpochsField()
    faults = _Faults()


class CollectorReportSerializer(serializers.Serializer):
    source = serializers.CharField(max_length=MAX_SLUG)
    kind = serializers.CharField(max_length=MAX_KIND, default="", allow_blank=True)
    state = serializers.CharField(max_length=MAX_STATE_TEXT, default="", allow_blank=True)
    records = serializers.IntegerField(min_value=0, default=0)
    shed = serializers.IntegerField(min_value=0, default=0)
    faults = _Faults()


class HeartbeatSerializer(serializers.Serializer):
    """Heartbeat of an agent. Unknown fields are kept unread."""

    life = serializers.RegexField(r"\A[A-Za-z0-9_-]{1,64}\Z")
    version = serializers.CharField(max_length=MAX_VERSION_TEXT, default="", allow_blank=True)
    time = serializers.FloatField(min_value=0, max_value=1e11, help_text="The agent's clock, seconds since 1970.")
    uptime_s = serializers.FloatField(min_value=0, default=0.0)
    rss_bytes = serializers.IntegerField(min_value=0, default=0)
    cpu_cores = serializers.FloatField(min_value=0, default=0.0, help_text="CPU used, in cores.")
    budget_cores = serializers.FloatField(min_value=0, default=0.0)
    spool = SpoolSerializer(required=False)
    sent_seq = serializers.IntegerField(min_value=0, max_value=_MAX_SEQ, default=0)
    acked_seq = serializers.IntegerField(min_value=0, max_value=_MAX_SEQ, default=0)
    committed_seq = serializers.IntegerField(
        min_value=0, max_value=_MAX_SEQ, default=0, help_text="What it was told to be committed, and has dropped."
    )
    config_version = serializers.IntegerField(min_value=0, default=0)
    schedule = ScheduleReportSerializer(required=False, allow_null=True, help_text="Missing of agents that have none.")
    queries = QueryReportSerializer(many=True, default=list)
    collectors = CollectorReportSerializer(many=True, default=list)
    faults = _Faults()


class HeartbeatAnswerSerializer(serializers.Serializer):
    time = serializers.FloatField(help_text="The console's clock, seconds since 1970.")
    config_version = serializers.IntegerField()
    accepted_seq = serializers.IntegerField(allow_null=True, help_text="null: not known, Redis does not answer.")
    committed_seq = serializers.IntegerField()


class AcceptedSerializer(serializers.Serializer):
    """Progress of an agent's frames."""

    accepted_seq = serializers.IntegerField()
    committed_seq = serializers.IntegerField()
    duplicates = serializers.IntegerField()


class BatchAcceptedSerializer(serializers.Serializer):
    """Progress of a producer's batches."""

    accepted_sequence = serializers.IntegerField()
    duplicates = serializers.IntegerField()


class StreamPlanSerializer(serializers.Serializer):
    """Plan of the stream processor."""

    version = serializers.IntegerField()
    queries = serializers.ListField(child=serializers.DictField())


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

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        cluster = values.pop("cluster")
        values["query"] = query_by_name(cluster, values["query"])
        values["agents"] = [agent_named(cluster, name) for name in dict.fromkeys(values["agents"])]
        return values


class LiveUpdateSerializer(StrictSerializer):
    """Change of a running live query."""

    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    assignments = PartSerializer(many=True, required=False)


class PipelineCheckSerializer(serializers.Serializer):
    """Whether a query's version can be executed, and where each operator may run."""

    executable = serializers.BooleanField()
    faults = serializers.ListField(child=serializers.DictField())
    source = serializers.CharField(allow_null=True)
    joined = serializers.CharField(allow_null=True)
    source_operators = serializers.IntegerField(allow_null=True)
    operators = serializers.ListField(child=serializers.DictField())
