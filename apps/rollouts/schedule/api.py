"""REST: schedules of agents, switches and replays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.core.limits import MAX_NAMES_LISTED
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.fleet.selectors import cluster_by_slug
from apps.fleet.serializers import NumberField
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job
from apps.rollouts.schedule.replays import replay_of, replay_request
from apps.rollouts.schedule.selectors import agent_facts, cluster_facts, schedules_of
from apps.rollouts.schedule.services import schedule_preview, schedule_switch
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named
from engine.klink.settings import POLICIES

__all__ = ["AgentScheduleView", "ReplayView", "ScheduleView"]

_SETTINGS = "Of scheduling; fields left out have their defaults."


def _names(limit: int = MAX_NAMES_LISTED, **options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(), max_length=limit, required=False, **options)


class SpanSerializer(StrictSerializer):
    """Span and agent of a schedule."""

    last_s = NumberField(min_value=10, max_value=900, default=300.0, help_text="Of epochs; 10 to 900.")
    agent = serializers.CharField(default="", allow_blank=True, help_text="Its name; all agents unless given.")


class _SweptWindowsSerializer(serializers.Serializer):
    windows = serializers.IntegerField(help_text="That were swept.")
    latency_mean_s = serializers.FloatField(allow_null=True, help_text="From a window's end until it was out.")
    latency_p99_s = serializers.FloatField(allow_null=True, help_text="Of fewer than a hundred windows the longest.")
    expected_windows = serializers.IntegerField(help_text="Of these, those for whose watermark there was an interval.")
    hit_rate = serializers.FloatField(allow_null=True, help_text="Share of these that came within it.")


class _WatermarkForecastSerializer(serializers.Serializer):
    mean_us = serializers.IntegerField()
    least_us = serializers.IntegerField()
    most_us = serializers.IntegerField()


class _ScheduledQuerySerializer(_SweptWindowsSerializer):
    query = serializers.CharField()
    period_s = serializers.FloatField(allow_null=True, help_text="Of its windows; null where it has none.")
    backlog_s = serializers.FloatField(help_text="How long its records may wait.")
    queued = serializers.IntegerField(allow_null=True)
    queued_bytes = serializers.IntegerField(allow_null=True)
    slack_s = serializers.FloatField(allow_null=True, help_text="Until its next window would be late.")
    deadline_us = serializers.IntegerField(allow_null=True, help_text="Of the next window.")
    expected = _WatermarkForecastSerializer(allow_null=True, help_text="When its watermark is expected.")
    overflow = serializers.IntegerField(help_text="Records that were sent on unprocessed.")
    timed = serializers.IntegerField(
        help_text="Windows that left, or records of a query without windows; 0 without an objective."
    )
    in_time = serializers.IntegerField(help_text="Of these, those early enough for the query's objective.")
    in_time_share = serializers.FloatField(allow_null=True)
    shed_late = serializers.IntegerField(help_text="Records that were late everywhere, and lost.")
    late = serializers.CharField(help_text="Why no watermark closes its windows.")


class _ScheduledAgentSerializer(_SweptWindowsSerializer):
    agent = serializers.CharField()
    agent_id = serializers.CharField()
    policy = serializers.CharField(allow_null=True, help_text="In force, as it said; null where it says none.")
    mode = serializers.CharField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True, help_text="Of waiting records.")
    memory_bound = serializers.IntegerField(allow_null=True)
    cycle_ms = serializers.FloatField(allow_null=True)
    starved = serializers.IntegerField(allow_null=True)
    config = serializers.CharField(allow_null=True, help_text="Whose schedule is in force.")
    wanted = serializers.CharField(allow_null=True, help_text="Whose schedule it is to have.")
    behind = serializers.BooleanField()
    canary = serializers.BooleanField()
    refused = serializers.ListField(child=serializers.CharField())
    settings = serializers.DictField()
    queries = _ScheduledQuerySerializer(many=True)


class ClusterScheduleSerializer(serializers.Serializer):
    """Schedules of the agents of a cluster: how queries share a core."""

    cluster = serializers.CharField()
    last_s = serializers.FloatField()
    agents = _ScheduledAgentSerializer(many=True)
    left_out = serializers.IntegerField(
        help_text="Agents by name beyond the first hundred, or beyond those that 100,000 epochs are of: they are shown"
        " where one `agent`, or fewer seconds, are asked for."
    )


class _ScheduleTrackSerializer(serializers.Serializer):
    query = serializers.CharField()
    epochs = serializers.ListField(
        help_text="[begin (microseconds), [[start (ms since it began), ms], …] when it ran, slack in s, queued]."
    )
    sweeps = serializers.ListField(help_text="[deadline, least, most, arrived, swept, emitted], microseconds.")


class AgentScheduleSerializer(_ScheduledAgentSerializer):
    """Schedule of an agent, epoch by epoch. Times are by the agent's clock."""

    last_s = serializers.FloatField()
    memory = serializers.ListField(help_text="[epoch, bytes of waiting records].")
    timeline = _ScheduleTrackSerializer(many=True)


class SwitchRequestSerializer(StrictSerializer):
    """Request for another schedule, for some agents or all."""

    mode = serializers.ChoiceField(["preview", "apply"], default="preview")
    settings = serializers.JSONField(help_text=_SETTINGS)
    agents = _names(help_text="Names of agents; all unless given.")
    canaries = _names(help_text="Names of agents that come first.")
    words = serializers.CharField(required=False, allow_blank=True, default="", help_text="What it changes.")


class _SwitchAgentSerializer(serializers.Serializer):
    name = serializers.CharField()
    policy_before = serializers.CharField()
    policy_after = serializers.CharField()
    is_canary = serializers.BooleanField()
    changes = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))


class SwitchedSerializer(serializers.Serializer):
    """Preview of a switch, and with `apply` its result."""

    settings = serializers.DictField()
    agents = _SwitchAgentSerializer(many=True)
    judged = serializers.ListField(child=serializers.CharField(), help_text="What the guard looks at.")
    stages = serializers.ListField(child=serializers.IntegerField(), help_text="Agents of each, canaries first.")
    least_s = serializers.FloatField(help_text="Until all have it, at the least.")
    waits_for = serializers.CharField(allow_blank=True, help_text="The configuration that is on its way before it.")
    unchanged = serializers.BooleanField(help_text="Agents schedule so already, or are about to.")
    made = serializers.BooleanField(default=False)
    config = serializers.CharField(allow_null=True, default=None, help_text="Of the switch, or of what makes it idle.")
    rollout = serializers.CharField(allow_null=True, default=None, help_text="State of its rollout.")


class ReplayRequestSerializer(StrictSerializer):
    """Request for a replay of an agent's recorded arrivals."""

    agent = serializers.CharField(help_text="Its name.")
    policies = _names(limit=len(POLICIES), help_text=f"Of {', '.join(POLICIES)}; all unless given.")
    schedule = serializers.JSONField(
        required=False, help_text="Settings beside the policy; those in force unless given."
    )
    last_s = NumberField(default=300.0, help_text="Of epochs; 30 to 900.")


class _ReplayFiguresSerializer(serializers.Serializer):
    windows = serializers.IntegerField()
    mean_s = serializers.FloatField(allow_null=True)
    p99_s = serializers.FloatField(allow_null=True)
    most_s = serializers.FloatField(allow_null=True)
    unswept = serializers.IntegerField(help_text="Windows that were not swept by the end.")
    records = serializers.FloatField()
    overflow = serializers.FloatField()
    overflow_share = serializers.FloatField()
    memory_peak_bytes = serializers.FloatField()
    busy_share = serializers.FloatField(allow_null=True)


class _ReplayedPolicySerializer(_ReplayFiguresSerializer):
    queries = serializers.DictField(child=_ReplayFiguresSerializer())


class ReplaySerializer(serializers.Serializer):
    """Result of a replay: the same arrivals under several policies."""

    agent = serializers.CharField()
    in_force = serializers.CharField(allow_blank=True)
    since_us = serializers.IntegerField()
    until_us = serializers.IntegerField()
    epochs = serializers.IntegerField()
    windows = serializers.IntegerField(help_text="That were recorded.")
    policies = serializers.DictField(child=_ReplayedPolicySerializer())
    notes = serializers.ListField(child=serializers.CharField())


def _span(request: Request) -> dict[str, Any]:
    serializer = SpanSerializer(data=request.query_params.dict())
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


class ScheduleView(ApiMixin, APIView):
    """Schedules of the agents of a cluster."""

    @extend_schema(parameters=[SpanSerializer], responses=ClusterScheduleSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Policy, mode and memory of each agent; slack, next watermark and window latency of each query."""
        cluster, span = cluster_by_slug(slug), _span(request)
        if span["agent"]:
            agent_named(cluster, span["agent"])
        return Response(cluster_facts(cluster, timezone.now(), span["last_s"], span["agent"]))

    @extend_schema(request=SwitchRequestSerializer, responses={200: SwitchedSerializer, 201: SwitchedSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Switch agents to another schedule: previewed unless the mode is `apply`, then a configuration whose rollout
        begins with canaries. A repeated request returns 200 with the one under way."""
        cluster = cluster_by_slug(slug)
        serializer = SwitchRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        mode, words = values.pop("mode"), values.pop("words")
        body = asdict(schedule_preview(cluster=cluster, **values))
        if mode == "preview":
            return Response(SwitchedSerializer(body).data)
        done = schedule_switch(cluster=cluster, user=signed_in_user(request), words=words, **values)
        config, rollout = done.config, done.rollout
        body |= {"made": done.made, "config": config and config.name, "rollout": rollout and rollout.state}
        headers = {"Location": f"/api/v1/clusters/{slug}/rollouts/{config.number}"} if rollout else {}
        return Response(SwitchedSerializer(body).data, status=201 if done.made else 200, headers=headers)


class AgentScheduleView(ApiMixin, APIView):
    """Schedule of one agent."""

    @extend_schema(parameters=[SpanSerializer], responses=AgentScheduleSerializer)
    def get(self, request: Request, pk: str) -> Response:
        """Running query, slack, windows and memory by epoch."""
        agent = get_object_or_404(Agent.objects.select_related("cluster"), pk=pk)
        facts = agent_facts(agent, timezone.now(), _span(request)["last_s"])
        if facts is None:
            raise Missing(f"The agent {agent.name!r} runs no live query.", [("agent", "runs no live query")])
        return Response(facts)


class ReplayView(ApiMixin, APIView):
    """Replay under another policy."""

    @extend_schema(request=ReplayRequestSerializer, responses={200: ReplaySerializer, 202: JobSerializer})
    def post(self, request: Request, slug: str) -> Response:
        """Replay an agent's recording under other policies: 202 with a job, or its result with `Prefer: wait=N`.

        422 `too_little_recorded` says what is missing.
        """
        serializer = ReplayRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        cluster = cluster_by_slug(slug)
        agent = agent_named(cluster, values.pop("agent"))
        state = schedules_of(cluster).get(str(agent.pk))
        values.setdefault("schedule", dict(state.settings.to_dict()) if state else {})
        return job_response(request, replay_request(agent=agent, user=signed_in_user(request), **values), _replayed)


def _replayed(job: Job) -> Any:
    replay = replay_of(job)
    return ReplaySerializer(asdict(replay)).data if replay else None
