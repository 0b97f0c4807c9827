"""REST endpoints of groups: several queries that are asked for together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from django.db.models import Prefetch
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import signed_in_user
from apps.admission.api import AdmissionSerializer, DecidedViewSet
from apps.admission.choices import AdmissionState
from apps.admission.group_selectors import AdmissionGroupFilter, check_members, groups_listed
from apps.admission.groups import GroupQuestion
from apps.admission.members import group_names
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.queue import QueuePlace, cluster_queue
from apps.admission.selectors import (
    AdmissionStanding,
    admission_standing,
)
from apps.core.rest.api import Router
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import JobSerializer
from apps.jobs.viewsets import RunRowSerializer, describe_create
from apps.queries.masks import MaskedSerializerMixin
from engine.admission.answer import AdmissionDecision
from engine.admission.group_answer import GroupAnswer
from engine.records import Words

__all__ = [
    "AdmissionGroupCreate",
    "AdmissionGroupMemberSerializer",
    "AdmissionGroupRowSerializer",
    "AdmissionGroupSerializer",
    "AdmissionGroupViewSet",
]


class AdmissionGroupMemberSerializer(AdmissionSerializer):
    """A member of a group, with its own decision once all are in."""

    decision = StoredRecordField(
        AdmissionDecision, source="result", help_text="The engine's answer with all members in; null: not computed yet."
    )

    class Meta(AdmissionSerializer.Meta):
        fields = [*AdmissionSerializer.Meta.fields, "objective", "placement", "changes", "decision"]


class AdmissionGroupRowSerializer(MaskedSerializerMixin, RunRowSerializer):
    """A group in a list: one verdict, one state, and its members. `names` still has those that it lost."""

    id = serializers.UUIDField(source="group_id")
    names = serializers.SerializerMethodField(
        help_text="Versions asked for, in their order; of deleted ones no name for who sees a part of the cluster."
    )
    mode = serializers.SerializerMethodField()
    answer = serializers.SerializerMethodField(help_text="The verdicts, by member; null while they are computed.")
    members = serializers.SerializerMethodField()
    decided_by = serializers.CharField(source="decided_by.username", default=None)
    override_by = serializers.CharField(source="override_by.username", default=None)

    class Meta:
        model = AdmissionRequest
        fields = ["id", "cluster", "names", "source", "mode", "state", "verdict", "answer", "reason", "requested_by"]
        fields += ["job", "may_wait_s", "previewed_at", "valid_until", "starts_at", "members"]
        fields += ["overridden", "policy_version", "override_by", "override_reason", "decided_by", "decided_at"]
        fields += ["decision_reason", "created_at", "updated_at"]

    def get_mode(self, request: AdmissionRequest) -> str:
        return "apply" if request.apply_when_admitted else "preview"

    @field_type(StoredRecordField(GroupAnswer, allow_null=True))
    def get_answer(self, request: AdmissionRequest) -> Any:
        return request.group.result if request.group is not None else None

    @field_type(list[str])
    def get_names(self, request: AdmissionRequest) -> Any:
        return group_names(self.members_of(request))

    @field_type(AdmissionSerializer(many=True))
    def get_members(self, request: AdmissionRequest) -> Any:
        return AdmissionSerializer(self.members_of(request), many=True, context=self.context).data

    def members_of(self, request: AdmissionRequest) -> list[AdmissionRequest]:
        """Members that are left, as the list has fetched them."""
        return list(request.group.members.all()) if request.group is not None else []


class AdmissionGroupSerializer(AdmissionGroupRowSerializer):
    """A group whole: its members with their decisions, and whether it still can be applied."""

    standing = serializers.SerializerMethodField(help_text="What can be done with it now.")
    place = serializers.SerializerMethodField(help_text="Its place in the queue, as one entry; null: it does not wait.")

    class Meta(AdmissionGroupRowSerializer.Meta):
        fields = [*AdmissionGroupRowSerializer.Meta.fields, "standing", "place"]

    def members_of(self, request: AdmissionRequest) -> list[AdmissionRequest]:
        return request.members

    @field_type(StoredRecordField(AdmissionStanding))
    def get_standing(self, request: AdmissionRequest) -> Any:
        return admission_standing(request).to_dict()

    @field_type(StoredRecordField(QueuePlace, allow_null=True))
    def get_place(self, request: AdmissionRequest) -> Any:
        if request.state != AdmissionState.QUEUED:
            return None
        place = cluster_queue(request.cluster).place_of(request)
        return place.to_dict() if place is not None else None

    @field_type(AdmissionGroupMemberSerializer(many=True))
    def get_members(self, request: AdmissionRequest) -> Any:
        return AdmissionGroupMemberSerializer(self.members_of(request), many=True, context=self.context).data


@dataclass(frozen=True, kw_only=True)
class AdmissionGroupCreate(GroupQuestion):
    """A request to run several queries of a cluster together: all or none."""

    cluster: Annotated[str, Words("Slug of the cluster.")]


_GROUP_ANSWERS = dict.fromkeys(("apply", "withdraw", "request_review", "approve", "decline", "override"))


@describe_create(
    "Preview whether several queries may run together, all or none, or apply them at once. 202 with a job, or the\n"
    "answer with `Prefer: wait=N`. They are judged by one estimate with all of them in; quotas count them together."
)
@extend_schema_view(**{name: extend_schema(responses=AdmissionGroupSerializer) for name in _GROUP_ANSWERS})
class AdmissionGroupViewSet(DecidedViewSet):
    """May these queries run together? All of them start, wait and end as one: what fits only in part is not applied.

    Members are tried in the order given: where the whole does not fit, `answer` tells which of them do, as an estimate,
    and whether each would alone.
    """

    lookup_field, lookup_url_kwarg = "group", "pk"
    filterset_class = AdmissionGroupFilter
    serializer_class, detail_class = AdmissionGroupRowSerializer, AdmissionGroupSerializer
    question_class = AdmissionGroupCreate

    def get_queryset(self) -> Any:
        rows = groups_listed(self.kind.visible())
        if self.action != "list":
            return rows
        return rows.prefetch_related(Prefetch("group__members", self.kind.visible().order_by("place")))

    def check_object_permissions(self, request: Request, obj: AdmissionRequest) -> None:
        check_members(obj)
        super().check_object_permissions(request, obj)

    def asked(self, request: Request) -> dict[str, object]:
        question = AdmissionGroupCreate.parse(request.data)
        cluster = cluster_by_slug(question.cluster)
        for member in question.members:
            self.check_owner(cluster, member)
        return self.checked(cluster, question)

    @extend_schema(request=None, responses={200: AdmissionGroupSerializer, 202: JobSerializer})
    @action(detail=True, methods=["post"])
    def preview(self, request: Request, pk: str) -> Response:
        """Preview the whole group again on the cluster as it is now. Makes a new group."""
        return self.answer(request, *ADMISSION.request(user=signed_in_user(request), parent=self.get_object()))


router = Router()
router.register("admissions/groups", AdmissionGroupViewSet, basename="admission-group")

urlpatterns = router.urls
