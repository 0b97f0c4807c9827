"""REST: refined configurations of a cluster's agents, and their rollouts."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.filters import ChoiceFilter, ListFilter, TimeFilter, sort_paths
from apps.core.rest.api import ApiMixin
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.rollouts.choices import ConfigOrigin, ConfigState, RolloutState
from apps.rollouts.configs.selectors import config_numbered, configs_listed
from apps.rollouts.configs.services import config_check, config_create, policy_update
from apps.rollouts.models import RefinedConfig, Rollout, RolloutPolicy
from apps.rollouts.rollout.selectors import rollout_numbered, rollout_policy, rollouts_listed
from apps.rollouts.rollout.services import canaries_add, rollout_pause, rollout_resume, rollout_roll_back, rollout_start
from apps.rollouts.serializers import (
    CanariesSerializer,
    ConfigCheckSerializer,
    ConfigDetailSerializer,
    ConfigRequestSerializer,
    ConfigSerializer,
    NewConfigSerializer,
    PolicySerializer,
    RollbackReasonSerializer,
    RolloutDetailSerializer,
    RolloutSerializer,
    StartSerializer,
)
from apps.telemetry.selectors import agent_named

__all__ = ["ConfigViewSet", "PolicyView", "RolloutViewSet"]


class ConfigFilter(ListFilter):
    """`?state=current&origin=spark`."""

    state = ChoiceFilter(choices=ConfigState.choices)
    origin = ChoiceFilter(choices=ConfigOrigin.choices)
    created_at = TimeFilter()
    sorts = sort_paths("number", "created_at", "updated_at", "state", "origin")


class RolloutFilter(ListFilter):
    """`?state=canary`."""

    state = ChoiceFilter(choices=RolloutState.choices)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "started_at", "ended_at", "state", number="config__number")


class _InCluster(ApiMixin, viewsets.GenericViewSet):
    """Below a cluster, rows by the number of their configuration."""

    lookup_field = "number"

    @property
    def cluster(self) -> Cluster:
        return cluster_by_slug(self.kwargs["slug"])


class ConfigViewSet(_InCluster, mixins.ListModelMixin, mixins.RetrieveModelMixin):
    """Configurations of a cluster's agents, newest first."""

    body_sizes = {"create": DOCUMENT, "check": DOCUMENT}
    queryset = RefinedConfig.objects.none()
    filterset_class = ConfigFilter
    ordering = "-number"

    def get_serializer_class(self) -> type:
        return ConfigDetailSerializer if self.action == "retrieve" else ConfigSerializer

    def get_queryset(self) -> Any:
        return configs_listed(self.cluster)

    def get_object(self) -> RefinedConfig:
        return config_numbered(self.cluster, int(self.kwargs["number"]))

    @extend_schema(request=NewConfigSerializer, responses={201: ConfigDetailSerializer})
    def create(self, request: Request, slug: str) -> Response:
        """Create a configuration and check it on recorded epochs.

        With `start` its rollout begins; 409 where the check refuses it.
        """
        serializer = NewConfigSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        with transaction.atomic():  # what was to start and is refused is not kept
            config = config_create(
                cluster=self.cluster, wish=serializer.wish(), words=values["words"], user=signed_in_user(request)
            )
            if values["start"]:
                rollout_start(config=config, user=signed_in_user(request), force=values["force"])
        body = ConfigDetailSerializer(config_numbered(config.cluster, config.number)).data
        return Response(body, status=201, headers={"Location": f"{request.path}/{config.number}"})

    @extend_schema(request=ConfigRequestSerializer, responses=ConfigCheckSerializer, filters=False)
    @action(detail=False, methods=["post"], pagination_class=None, filterset_class=None)
    def check(self, request: Request, slug: str) -> Response:
        """Replay of recent recorded epochs under a configuration; nothing is stored."""
        serializer = ConfigRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(config_check(cluster=self.cluster, wish=serializer.wish()))

    @extend_schema(request=StartSerializer, responses={201: RolloutDetailSerializer})
    @action(detail=True, methods=["post"])
    def start(self, request: Request, slug: str, number: str) -> Response:
        """Start its rollout; it waits in line while another one is under way. 409 if its check refused it."""
        serializer = StartSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        config = self.get_object()
        agents = [agent_named(config.cluster, name) for name in serializer.validated_data.get("canaries", ())]
        rollout = rollout_start(
            config=config, user=signed_in_user(request), force=serializer.validated_data["force"], canaries=agents
        )
        number_now = rollout.config.number
        location = f"/api/v1/clusters/{slug}/rollouts/{number_now}"
        return Response(_shown(self.cluster, number_now), status=201, headers={"Location": location})


class RolloutViewSet(_InCluster, mixins.ListModelMixin, mixins.RetrieveModelMixin):
    """Rollouts of a cluster's configurations, newest first."""

    queryset = Rollout.objects.none()
    filterset_class = RolloutFilter
    ordering = "-created_at"

    def get_serializer_class(self) -> type:
        return RolloutDetailSerializer if self.action == "retrieve" else RolloutSerializer

    def get_queryset(self) -> Any:
        return rollouts_listed(self.cluster)

    def get_object(self) -> Rollout:
        return rollout_numbered(self.cluster, int(self.kwargs["number"]))

    @extend_schema(request=None, responses=RolloutDetailSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, slug: str, number: str) -> Response:
        """Pause the rollout: agents keep what they have until it is resumed."""
        return self._done(rollout_pause(rollout=self.get_object(), user=signed_in_user(request)))

    @extend_schema(request=None, responses=RolloutDetailSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, slug: str, number: str) -> Response:
        """Resume a paused rollout."""
        return self._done(rollout_resume(rollout=self.get_object(), user=signed_in_user(request)))

    @extend_schema(request=RollbackReasonSerializer, responses=RolloutDetailSerializer)
    @action(detail=True, methods=["post"], url_path="roll-back")
    def roll_back(self, request: Request, slug: str, number: str) -> Response:
        """Roll it back at every agent that has it, also after it is done; a waiting one just stops."""
        serializer = RollbackReasonSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        rollout = self.get_object()
        return self._done(rollout_roll_back(rollout=rollout, user=signed_in_user(request), **serializer.validated_data))

    @extend_schema(request=CanariesSerializer, responses=RolloutDetailSerializer)
    @action(detail=True, methods=["post"])
    def canaries(self, request: Request, slug: str, number: str) -> Response:
        """Add canaries, before or during the canary stage."""
        serializer = CanariesSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        rollout = self.get_object()
        agents = serializer.rows(rollout.config.cluster)
        return self._done(canaries_add(rollout=rollout, agents=agents, user=signed_in_user(request)))

    def _done(self, rollout: Rollout) -> Response:
        return Response(_shown(self.cluster, rollout.config.number))


class _PolicyRow:
    """Policy of the cluster in the address; stored when it is changed."""

    def get_object(self) -> RolloutPolicy:
        cluster = cluster_by_slug(self.kwargs["slug"])
        if self.request.method == "PATCH":
            return RolloutPolicy.objects.get_or_create(cluster=cluster)[0]
        return rollout_policy(cluster)


class PolicyView(ApiMixin, _PolicyRow, viewsets.GenericViewSet):
    """Policy of a cluster's rollouts: stages, limits, automatic steps."""

    queryset = RolloutPolicy.objects.none()
    serializer_class = PolicySerializer
    pagination_class = None

    @extend_schema(responses=PolicySerializer)
    def retrieve(self, request: Request, slug: str) -> Response:
        """The policy of a cluster's rollouts; defaults unless it was set."""
        return Response(PolicySerializer(self.get_object()).data)

    @extend_schema(request=PolicySerializer, responses=PolicySerializer)
    def partial_update(self, request: Request, slug: str) -> Response:
        """Change the policy of a cluster's rollouts. Those under way keep theirs."""
        policy = self.get_object()
        serializer = PolicySerializer(data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        policy = policy_update(cluster=policy.cluster, **serializer.validated_data)
        return Response(PolicySerializer(policy).data)


def _shown(cluster: Cluster, number: int) -> Any:
    return RolloutDetailSerializer(rollout_numbered(cluster, number)).data
