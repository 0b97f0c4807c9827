"""REST: schedules of agents, switches and replays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.urls import URLPattern, URLResolver, path, re_path
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.core.limits import MAX_NAMES_LISTED
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.fleet.selectors import cluster_by_slug
from apps.fleet.serializers import NumberField
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job
from apps.rollouts.replays import Replay, replay_of, replay_request
from apps.rollouts.schedule_selectors import (
    AgentTimeline,
    ClusterSchedule,
    Switched,
    agent_timeline,
    cluster_schedule,
    schedules_of,
)
from apps.rollouts.services import schedule_preview, schedule_switch
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


class SwitchRequestSerializer(StrictSerializer):
    """Request for another schedule, for some agents or all."""

    mode = serializers.ChoiceField(["preview", "apply"], default="preview")
    settings = serializers.JSONField(help_text=_SETTINGS)
    agents = _names(help_text="Names of agents; all unless given.")
    canaries = _names(help_text="Names of agents that come first.")
    words = serializers.CharField(required=False, allow_blank=True, default="", help_text="What it changes.")


class ReplayRequestSerializer(StrictSerializer):
    """Request for a replay of an agent's recorded arrivals."""

    agent = serializers.CharField(help_text="Its name.")
    policies = _names(limit=len(POLICIES), help_text=f"Of {', '.join(POLICIES)}; all unless given.")
    schedule = serializers.JSONField(
        required=False, help_text="Settings beside the policy; those in force unless given."
    )
    last_s = NumberField(default=300.0, help_text="Of epochs; 30 to 900.")


def _span(request: Request) -> tuple[float, str]:
    """Seconds, and the name of an agent."""
    serializer = SpanSerializer(data=request.query_params.dict())
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data["last_s"], serializer.validated_data["agent"]


class ScheduleView(ApiMixin, APIView):
    """Schedules of the agents of a cluster."""

    asked_on = AskedOn.NARROWED

    @extend_schema(parameters=[SpanSerializer], responses=ClusterSchedule)
    def get(self, request: Request, slug: str) -> Response:
        """Policy, mode and memory of each agent; slack, next watermark and window latency of each query."""
        cluster, (last_s, agent) = cluster_by_slug(slug), _span(request)
        if agent:
            agent_named(cluster, agent)
        return Response(cluster_schedule(cluster, timezone.now(), last_s, agent).to_dict())

    @extend_schema(request=SwitchRequestSerializer, responses={200: Switched, 201: Switched})
    def post(self, request: Request, slug: str) -> Response:
        """Switch agents to another schedule: previewed unless the mode is `apply`, then a configuration whose rollout
        begins with canaries. A repeated request returns 200 with the one under way."""
        cluster = cluster_by_slug(slug)
        serializer = SwitchRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        mode, words = values.pop("mode"), values.pop("words")
        preview = schedule_preview(cluster=cluster, **values)
        if mode == "preview":
            return Response(preview.to_dict())
        done = schedule_switch(cluster=cluster, user=signed_in_user(request), words=words, **values)
        config, rollout = done.config, done.rollout
        switched = replace(preview, made=done.made, config=config and config.name, rollout=rollout and rollout.state)
        headers = {"Location": f"/api/v1/clusters/{slug}/rollouts/{config.number}"} if rollout else {}
        return Response(switched.to_dict(), status=201 if done.made else 200, headers=headers)


class AgentScheduleView(ApiMixin, APIView):
    """Schedule of one agent."""

    asked_on = AskedOn.NARROWED

    @extend_schema(parameters=[SpanSerializer], responses=AgentTimeline)
    def get(self, request: Request, pk: str) -> Response:
        """Running query, slack, windows and memory by epoch."""
        agent = row_visible(Agent.objects.select_related("cluster"), pk=pk)
        timeline = agent_timeline(agent, timezone.now(), _span(request)[0])
        if timeline is None:
            raise Missing(f"The agent {agent.name!r} runs no live query.", [("agent", "runs no live query")])
        return Response(timeline.to_dict())


class ReplayView(ApiMixin, APIView):
    """Replay under another policy."""

    asked_on = AskedOn.NARROWED

    @extend_schema(request=ReplayRequestSerializer, responses={200: Replay, 202: JobSerializer})
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
    return replay.to_dict() if replay else None


_CLUSTER = r"^clusters/(?P<slug>[A-Za-z0-9._-]+)"
urlpatterns: list[URLPattern | URLResolver] = [
    re_path(rf"{_CLUSTER}/schedule$", ScheduleView.as_view(), name="schedule"),
    re_path(rf"{_CLUSTER}/schedule/replay$", ReplayView.as_view(), name="schedule-replay"),
    path("agents/<uuid:pk>/schedule", AgentScheduleView.as_view(), name="agent-schedule"),
]
