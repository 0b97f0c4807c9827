"""REST: the policy of a cluster, its versions, checks and differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Malformed
from apps.core.filters import ListFilter, NumberFilter, sort_paths
from apps.core.limits import MAX_REASON
from apps.core.reach import AskedOn
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body
from apps.core.yaml_texts import read_yaml
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.policies.models import PolicyVersion
from apps.policies.selectors import policy_of, policy_version_numbered, policy_versions
from apps.policies.services import policy_apply, policy_check
from engine.policies.difference import PolicyDifference, policy_differences
from engine.policies.policy import ClusterPolicy

__all__ = ["AppliedPolicySerializer", "PolicyAskSerializer", "PolicyVersionSerializer", "asked_policy"]

MAX_POLICY_TEXT = 1_000_000


class PolicyAskSerializer(StrictSerializer):
    """A policy to check, to preview or to apply."""

    policy = StoredRecordField(
        ClusterPolicy, required=False, help_text="The whole policy; what is left out is as by default."
    )
    text = serializers.CharField(
        required=False, max_length=MAX_POLICY_TEXT, help_text="In place of policy: the same as YAML or JSON."
    )
    note = serializers.CharField(max_length=MAX_REASON, required=False, allow_blank=True, default="")
    base = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, help_text="Version that it was made from."
    )


def asked_policy(asked: Mapping[str, Any]) -> Any:
    """The policy that a body holds, as an object or as a text.

    Raises
    ------
    Malformed
        It holds both or neither, or a text that is no YAML.
    """
    if ("policy" in asked) == ("text" in asked):
        message = "give exactly one of policy and text"
        raise Malformed(f"policy: {message}.", [("policy", message)])
    return asked["policy"] if "policy" in asked else read_yaml(asked["text"], "text")


class PolicyVersionSerializer(serializers.ModelSerializer):
    """A version of a cluster's policy."""

    version = serializers.IntegerField(source="number")
    created_by = serializers.CharField(source="created_by.username", default=None, allow_null=True)
    policy = StoredRecordField(ClusterPolicy, source="document")

    class Meta:
        model = PolicyVersion
        fields = ["version", "note", "created_by", "created_at", "policy"]


class AppliedPolicySerializer(serializers.Serializer):
    """The policy in force."""

    version = serializers.IntegerField(help_text="0: none was ever set, and this is what holds by default.")
    policy = StoredRecordField(ClusterPolicy)
    note = serializers.CharField(allow_blank=True)
    created_by = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField(allow_null=True)
    is_new = serializers.BooleanField(help_text="Whether this request made it; what says the same makes no version.")


class PolicyCheckSerializer(serializers.Serializer):
    """A policy without faults, and what it would change."""

    base = serializers.IntegerField(help_text="Version in force.")
    differences = StoredRecordField(PolicyDifference, help_text="Fields that differ from it.")


@dataclass(frozen=True)
class _Shown:
    version: int
    policy: ClusterPolicy
    note: str = ""
    created_by: str | None = None
    created_at: Any = None
    is_new: bool = False


def _shown(cluster: Cluster, *, is_new: bool = False) -> Any:
    """The policy in force, as it is answered."""
    row = policy_versions(cluster).filter(number=cluster.policy_version).first()
    if row is None:
        return AppliedPolicySerializer(_Shown(0, policy_of(cluster))).data
    by = row.created_by.username if row.created_by else None
    return AppliedPolicySerializer(_Shown(row.number, row.policy, row.note, by, row.created_at, is_new)).data


class ClusterPolicyView(ApiMixin, APIView):
    """Policy of a cluster."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ, "PUT": Scope.ADMIN}

    @extend_schema(responses=AppliedPolicySerializer)
    def get(self, request: Request, slug: str) -> Response:
        """The policy in force: what evidence means, margins, who overrides, freezes, quotas, classes and the queue."""
        return Response(_shown(cluster_by_slug(slug)))

    @extend_schema(request=PolicyAskSerializer, responses=AppliedPolicySerializer)
    def put(self, request: Request, slug: str) -> Response:
        """Put a policy into force as a new version; one that says the same as the present one makes none.

        400 names every fault. 409 where another version than `base` is in force.
        """
        cluster, asked = cluster_by_slug(slug), read_body(PolicyAskSerializer, request)
        applied = policy_apply(
            cluster=cluster,
            document=asked_policy(asked),
            user=signed_in_user(request),
            note=asked["note"],
            base=asked["base"],
        )
        return Response(_shown(cluster, is_new=applied.is_new))


class PolicyCheckView(ApiMixin, APIView):
    """Check of a policy."""

    asked_on = AskedOn.NARROWED

    scopes = {"POST": Scope.READ}

    @extend_schema(request=PolicyAskSerializer, responses=PolicyCheckSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Check a policy without applying it: 400 with every fault, or what would differ from the one in force."""
        cluster, asked = cluster_by_slug(slug), read_body(PolicyAskSerializer, request)
        policy = policy_check(cluster=cluster, document=asked_policy(asked))
        differences = [row.to_dict() for row in policy_differences(policy_of(cluster), policy)]
        return Response({"base": cluster.policy_version, "differences": differences})


class PolicyVersionFilter(ListFilter):
    """`?sort=-version`."""

    version = NumberFilter("number")
    sorts = sort_paths("created_at", version="number")


class PolicyVersionsView(ApiMixin, mixins.ListModelMixin, viewsets.GenericViewSet):
    """Versions of a cluster's policy."""

    asked_on = AskedOn.NARROWED
    queryset = PolicyVersion.objects.none()
    serializer_class = PolicyVersionSerializer
    filterset_class = PolicyVersionFilter
    ordering = "-number"

    def get_queryset(self) -> Any:
        return policy_versions(cluster_by_slug(self.kwargs["slug"]))


class PolicyVersionView(ApiMixin, APIView):
    """One version of a cluster's policy."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=PolicyVersionSerializer)
    def get(self, request: Request, slug: str, number: int) -> Response:
        """A version as it was applied."""
        return Response(PolicyVersionSerializer(policy_version_numbered(cluster_by_slug(slug), number)).data)


urlpatterns = [
    path("clusters/<str:slug>/policy", ClusterPolicyView.as_view(), name="policy"),
    path("clusters/<str:slug>/policy/check", PolicyCheckView.as_view(), name="policy-check"),
    path("clusters/<str:slug>/policy/versions", PolicyVersionsView.as_view({"get": "list"}), name="policy-versions"),
    path("clusters/<str:slug>/policy/versions/<int:number>", PolicyVersionView.as_view(), name="policy-version"),
]
