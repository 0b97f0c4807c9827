"""REST: refined configurations of a cluster's agents, and their rollouts."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.urls import URLPattern, URLResolver, re_path
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.filters import ChoiceFilter, ListFilter, TimeFilter, sort_paths
from apps.core.limits import MAX_NAMES_LISTED, MAX_NOTE
from apps.core.reach import AskedOn
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.fleet.serializers import NumberField
from apps.rollouts.config_selectors import config_numbered, config_parts, config_schedules, configs_listed
from apps.rollouts.models import (
    ConfigOrigin,
    ConfigState,
    RefinedConfig,
    Rollout,
    RolloutMember,
    RolloutPolicy,
    RolloutState,
)
from apps.rollouts.predictions import ConfigCheck
from apps.rollouts.rollout_selectors import rollout_numbered, rollout_policy, rollouts_listed
from apps.rollouts.rollout_services import canaries_add, rollout_pause, rollout_resume, rollout_roll_back, rollout_start
from apps.rollouts.services import ConfigRequest, config_check, config_create, policy_update
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named

__all__ = [
    "CanariesSerializer",
    "ConfigDetailSerializer",
    "ConfigRequestSerializer",
    "ConfigSerializer",
    "ConfigViewSet",
    "NewConfigSerializer",
    "PolicySerializer",
    "PolicyView",
    "RollbackReasonSerializer",
    "RolloutDetailSerializer",
    "RolloutSerializer",
    "RolloutViewSet",
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

    asked_on = AskedOn.NARROWED

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

    @extend_schema(request=ConfigRequestSerializer, responses=ConfigCheck, filters=False)
    @action(detail=False, methods=["post"], pagination_class=None, filterset_class=None)
    def check(self, request: Request, slug: str) -> Response:
        """Replay of recent recorded epochs under a configuration; nothing is stored."""
        serializer = ConfigRequestSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(config_check(cluster=self.cluster, wish=serializer.wish()).to_dict())

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

    asked_on = AskedOn.NARROWED

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


_CLUSTER = r"^clusters/(?P<slug>[A-Za-z0-9._-]+)"
_CONFIG = rf"{_CLUSTER}/configs/(?P<number>[0-9]{{1,9}})"
_ROLLOUT = rf"{_CLUSTER}/rollouts/(?P<number>[0-9]{{1,9}})"

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(rf"{_CLUSTER}/configs$", ConfigViewSet.as_view({"get": "list", "post": "create"}), name="configs"),
    re_path(rf"{_CLUSTER}/configs/check$", ConfigViewSet.as_view({"post": "check"}), name="config-check"),
    re_path(rf"{_CONFIG}$", ConfigViewSet.as_view({"get": "retrieve"}), name="config"),
    re_path(rf"{_CONFIG}/start$", ConfigViewSet.as_view({"post": "start"}), name="config-start"),
    re_path(rf"{_CLUSTER}/rollouts$", RolloutViewSet.as_view({"get": "list"}), name="rollouts"),
    re_path(rf"{_ROLLOUT}$", RolloutViewSet.as_view({"get": "retrieve"}), name="rollout"),
    re_path(rf"{_ROLLOUT}/pause$", RolloutViewSet.as_view({"post": "pause"}), name="rollout-pause"),
    re_path(rf"{_ROLLOUT}/resume$", RolloutViewSet.as_view({"post": "resume"}), name="rollout-resume"),
    re_path(rf"{_ROLLOUT}/roll-back$", RolloutViewSet.as_view({"post": "roll_back"}), name="rollout-roll-back"),
    re_path(rf"{_ROLLOUT}/canaries$", RolloutViewSet.as_view({"post": "canaries"}), name="rollout-canaries"),
    re_path(
        rf"{_CLUSTER}/rollout-policy$",
        PolicyView.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="rollout-policy",
    ),
]
