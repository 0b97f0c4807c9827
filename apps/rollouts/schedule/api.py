"""REST: schedules of agents, switches and replays."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.core.rest.api import ApiMixin
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import job_response
from apps.jobs.models import Job
from apps.jobs.serializers import JobSerializer
from apps.rollouts.schedule.replays import replay_of, replay_request
from apps.rollouts.schedule.selectors import agent_facts, cluster_facts, schedules_of
from apps.rollouts.schedule.serializers import (
    AgentScheduleSerializer,
    ClusterScheduleSerializer,
    ReplayRequestSerializer,
    ReplaySerializer,
    SpanSerializer,
    SwitchedSerializer,
    SwitchRequestSerializer,
)
from apps.rollouts.schedule.services import schedule_preview, schedule_switch
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named

__all__ = ["AgentScheduleView", "ReplayView", "ScheduleView"]


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
