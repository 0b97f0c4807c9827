"""REST: admission requests, from the question to what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import role_hint, scopes_of, signed_in_user
from apps.admission.boards import receipts_of
from apps.admission.choices import AdmissionSource, AdmissionState
from apps.admission.completion import completion_retry
from apps.admission.decisions import (
    admission_apply,
    admission_approve,
    admission_decline,
    admission_override,
    admission_request_review,
    admission_withdraw,
)
from apps.admission.group_selectors import refuse_member
from apps.admission.groups import GroupQuestion
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.others import OthersLoad, load_of_others
from apps.admission.parts import DecisionPart, parts_of, parts_under_way
from apps.admission.policy_api import MonthReplayView, PolicyPreviewView, QueueView
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion, MemberQuestion
from apps.admission.receipt_api import ReceiptSerializer, ReceiptViewSet
from apps.admission.replays import DecisionReplay, replay_request
from apps.admission.selectors import (
    AdmissionFilter,
    AdmissionStanding,
    admission_headline,
    admission_never_ran,
    admission_standing,
)
from apps.admission.trials import (
    MAX_TRIAL_MINUTES,
    TRIAL_MINUTES,
    admission_trial_start,
    admission_trial_stop,
    trial_events,
    trial_newest,
)
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Forbidden
from apps.core.limits import MAX_REASON
from apps.core.reach import AskedOn, caller_now, is_seen_in_part, row_visible
from apps.core.rest.api import Router, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type, read_body
from apps.estimates.bases import BaseFacts
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import JobSerializer, job_response, job_wait, prefer_wait, wait_applied
from apps.jobs.viewsets import RunRowSerializer, RunViewSet, describe_create
from apps.predictions.serializers import PredictionDetailSerializer
from apps.queries.masks import MaskedSerializerMixin, mask_of
from apps.queries.models import Query
from engine.admission.answer import AdmissionDecision, OutcomeCurves
from engine.records import Record, Words

__all__ = [
    "AdmissionCreate",
    "AdmissionDetailSerializer",
    "AdmissionSerializer",
    "AdmissionViewSet",
    "AlternativeSerializer",
    "DecidedViewSet",
    "OptionalReasonSerializer",
    "ReasonSerializer",
    "TrialSerializer",
    "TrialStartSerializer",
]


class ReasonSerializer(StrictSerializer):
    """Reason of a person's decision."""

    reason = serializers.CharField(max_length=MAX_REASON)


class OptionalReasonSerializer(StrictSerializer):
    """Reason of a person's decision; it may be left out."""

    reason = serializers.CharField(max_length=MAX_REASON, required=False, allow_blank=True, default="")


class AlternativeSerializer(StrictSerializer):
    """Which alternative to preview; without one, the same question is asked again."""

    choice = serializers.CharField(
        required=False, help_text="`id` of one of the decision's alternatives, which are its `choices`."
    )


class AdmissionSerializer(MaskedSerializerMixin, RunRowSerializer):
    """A request in a list."""

    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()
    version = serializers.IntegerField(source="version.number")
    mode = serializers.SerializerMethodField()
    headline = serializers.SerializerMethodField()
    never_ran = serializers.SerializerMethodField(
        help_text="Whether it was predicted or lacked a prediction, for costs were unknown; null while undecided."
    )
    decided_by = serializers.CharField(source="decided_by.username", default=None)
    override_by = serializers.CharField(
        source="override_by.username", default=None, help_text="Who overrode it where a second person has to confirm."
    )

    class Meta:
        model = AdmissionRequest
        fields = [
            "id",
            "group",
            "cluster",
            "query",
            "query_id",
            "version",
            "source",
            "mode",
            "state",
            "verdict",
            "headline",
        ]
        fields += [
            "reason",
            "never_ran",
            "requested_by",
            "job",
            "parent",
            "starts_at",
            "valid_until",
            "overridden",
            "policy_version",
            "override_by",
            "override_reason",
            "decided_by",
        ]
        fields += ["decided_at", "decision_reason", "created_at", "updated_at"]

    def get_mode(self, request: AdmissionRequest) -> str:
        return "apply" if request.apply_when_admitted else "preview"

    def get_headline(self, request: AdmissionRequest) -> str:
        return admission_headline(request)

    def get_never_ran(self, request: AdmissionRequest) -> bool | None:
        return admission_never_ran(request)


class TrialStartSerializer(StrictSerializer):
    """Where and for how long to try the version out."""

    agent = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="Name of an agent; that with most processor to spare."
    )
    minutes = serializers.IntegerField(required=False, default=TRIAL_MINUTES, min_value=1, max_value=MAX_TRIAL_MINUTES)


class TrialSerializer(serializers.ModelSerializer):
    """A trial of a request's version at an agent."""

    agent = serializers.CharField(source="agent.name", default=None, allow_null=True)
    events = serializers.SerializerMethodField(help_text="Events of the operator that were measured so far.")
    cost_ratio = serializers.FloatField(
        allow_null=True, help_text="Measured by assumed cost of an event; null where one of them is unknown."
    )

    class Meta:
        model = AdmissionTrial
        fields = ["state", "agent", "operator", "events", "assumed_cycles", "cycles_per_event", "cost_ratio", "note"]
        fields += ["started_at", "ends_at", "ended_at", "follower"]

    def get_events(self, trial: AdmissionTrial) -> int:
        return trial_events(trial)


@dataclass(frozen=True)
class DecisionParts(Record):
    """Parts of a decision that follow its verdict, each with its state. None changes the verdict."""

    alternatives: Annotated[DecisionPart | None, Words("Changes that would pass: `decision.choices`.")] = None
    robustness: Annotated[DecisionPart | None, Words("Room of a verdict that passes: `decision.robustness`.")] = None


class AdmissionDetailSerializer(AdmissionSerializer):
    """A request whole: what was asked, the engine's decision, and whether it still can be applied."""

    objective = serializers.JSONField()
    placement = serializers.JSONField()
    changes = serializers.JSONField()
    may_wait_s = serializers.FloatField()
    snapshot = serializers.CharField()
    base = StoredRecordField(BaseFacts, allow_null=True, help_text="Estimate of what runs that the verdict rests on.")
    previewed_at = serializers.DateTimeField()
    decision = StoredRecordField(
        AdmissionDecision, source="result", help_text="The engine's answer; null while it is computed."
    )
    prediction = PredictionDetailSerializer(allow_null=True, help_text="Of a query that never ran.")
    parts = serializers.SerializerMethodField(
        help_text="What follows the verdict, by name, with the state of each; empty while there is no verdict."
    )
    parts_job = serializers.UUIDField(
        source="parts_job_id", allow_null=True, help_text="The job that computes the parts: its progress is theirs."
    )
    standing = serializers.SerializerMethodField(help_text="What can be done with it now.")
    receipts = serializers.SerializerMethodField(
        help_text="What became of its promise after an hour, a day and a week; empty before it is applied."
    )
    trial = serializers.SerializerMethodField(help_text="The last trial of its version; null: there was none.")
    others = serializers.SerializerMethodField(
        help_text="What other teams run there, for who sees a part of the cluster; null: its queries are seen by name."
    )

    class Meta(AdmissionSerializer.Meta):
        fields = [*AdmissionSerializer.Meta.fields, "objective", "placement", "changes", "may_wait_s", "target"]
        fields += [
            "snapshot",
            "base",
            "previewed_at",
            "decision",
            "parts",
            "parts_job",
            "prediction",
            "standing",
            "receipts",
            "trial",
            "others",
        ]

    @field_type(StoredRecordField(DecisionParts))
    def get_parts(self, request: AdmissionRequest) -> Any:
        return {name: part.to_dict() for name, part in parts_of(request).items()}

    @field_type(ReceiptSerializer(many=True))
    def get_receipts(self, request: AdmissionRequest) -> Any:
        return ReceiptSerializer(receipts_of(request), many=True).data

    @field_type(TrialSerializer(allow_null=True))
    def get_trial(self, request: AdmissionRequest) -> Any:
        trial = trial_newest(request)
        return TrialSerializer(trial).data if trial is not None else None

    @field_type(StoredRecordField(OthersLoad, allow_null=True))
    def get_others(self, request: AdmissionRequest) -> Any:
        others = load_of_others(request.cluster)
        return others.to_dict() if others is not None else None

    @field_type(StoredRecordField(AdmissionStanding))
    def get_standing(self, request: AdmissionRequest) -> Any:
        return admission_standing(request).to_dict()


_DECISIONS = dict.fromkeys(("apply", "approve", "decline", "override"), Scope.ADMIT)


@dataclass(frozen=True)
class AdmissionCurves(Record):
    """Curves of a decision over its horizon: of what changes most. What an outcome does not name is as before.

    Without a verdict there are none yet: null, and no choices.
    """

    starts_at: Annotated[datetime | None, Words("Moment of the first value.")]
    step_s: Annotated[float | None, Words("Seconds between two values, of which there are 120 at most.")] = None
    before: Annotated[OutcomeCurves | None, Words("What runs now.")] = None
    after: Annotated[OutcomeCurves | None, Words("What would run; null where the query can be placed nowhere.")] = None
    choices: Annotated[Mapping[str, OutcomeCurves], Words("The outcome of every alternative, by its id.")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class AdmissionCreate(AdmissionQuestion):
    """A request to run a query of a cluster: one that is registered, or one described by a document."""

    cluster: Annotated[str, Words("Slug of the cluster.")]


class DecidedViewSet(RunViewSet):
    """Requests or groups, and what a person decides about one."""

    asked_on = AskedOn.PARTS
    kind = ADMISSION
    body_sizes = {"create": DOCUMENT}
    queryset = AdmissionRequest.objects.none()
    scopes = {"GET": Scope.READ, "POST": Scope.AUTHOR, **_DECISIONS}

    def checked(self, cluster: Cluster, question: AdmissionQuestion | GroupQuestion) -> dict[str, object]:
        """Keywords of the request for a question, whose caller may ask it."""
        if question.mode == "apply" and Scope.ADMIT not in caller_now().reach.on_cluster(cluster.pk):
            place = f"the scope 'admit' on the cluster {cluster.slug}: what it will move is not known before"
            raise Forbidden(f"mode=apply needs {place}. {role_hint(Scope.ADMIT)}", code="scope_missing")
        return {"cluster": cluster, "question": question, "source": AdmissionSource.API}

    def check_owner(self, cluster: Cluster, question: MemberQuestion) -> None:
        """Refuse what is asked for a query of others; one that a document makes is checked as it is made."""
        query = cluster.queries.filter(name=question.name).first()
        if query is not None:
            row_visible(Query.objects.all(), pk=query.pk)

    def decidable(self) -> AdmissionRequest:
        """The request that is decided on, or the first of the group."""
        return self.get_object()

    def decided(self, decide: Callable[..., object], **asked: Any) -> Response:
        """The request or the group after a decision of the caller."""
        admission = self.decidable()
        decide(request=admission, user=signed_in_user(self.request), **asked)
        return Response(self.shown(admission))

    @extend_schema(request=None, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Start the query, or all of the group, as previewed, or queue it if that is the verdict."""
        return self.decided(admission_apply)

    @extend_schema(request=OptionalReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take the request or the group back."""
        return self.decided(admission_withdraw, **read_body(OptionalReasonSerializer, request))

    @extend_schema(request=OptionalReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"], url_path="request-review")
    def request_review(self, request: Request, pk: str) -> Response:
        """Ask a person to decide."""
        return self.decided(admission_request_review, **read_body(OptionalReasonSerializer, request))

    @extend_schema(request=OptionalReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Approve a request or a group whose verdict asks for a person."""
        return self.decided(admission_approve, **read_body(OptionalReasonSerializer, request))

    @extend_schema(request=ReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: str) -> Response:
        """Decline a request or a group, with a reason."""
        return self.decided(admission_decline, **read_body(ReasonSerializer, request))

    @extend_schema(request=ReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def override(self, request: Request, pk: str) -> Response:
        """Apply against the verdict, and say why; where the policy wants a second person, ask for one, or be it."""
        scopes = scopes_of(signed_in_user(request), request.auth)
        return self.decided(admission_override, scopes=scopes, **read_body(ReasonSerializer, request))


@describe_create(
    "Preview whether a query may run, or apply it at once. 202 with a job, or the answer with `Prefer: wait=N`.\n\n"
    "The same question sent again while it is estimated gives the request that is there. `mode` apply needs the\n"
    "scope admit, and applies what the verdict lets pass."
)
class AdmissionViewSet(DecidedViewSet):
    """May this query run? POST previews (the default) or applies; 202 with a job, or the answer with `Prefer: wait=N`.

    The same question sent again while it is estimated gives the request that is there. Applying is refused with 409
    when the cluster has moved since the preview; `changed` says what.
    """

    filterset_class = AdmissionFilter
    serializer_class, detail_class = AdmissionSerializer, AdmissionDetailSerializer
    question_class = AdmissionCreate
    scopes = {**DecidedViewSet.scopes, "trial": Scope.OPERATE, "trial_stop": Scope.OPERATE}

    def asked(self, request: Request) -> dict[str, object]:
        question = AdmissionCreate.parse(request.data)
        cluster = cluster_by_slug(question.cluster)
        self.check_owner(cluster, question)
        return self.checked(cluster, question)

    def decidable(self) -> AdmissionRequest:
        """The request, unless it is a member of a group, which is decided on whole.

        Raises
        ------
        Conflict
            `in_group`: names the group.
        """
        admission: AdmissionRequest = self.get_object()
        refuse_member(admission)
        return admission

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A request with its decision; `Prefer: wait=N` waits for the verdict and all parts, up to N seconds."""
        admission, wait_s = self.get_object(), prefer_wait(request)
        if wait_s:
            admission = self._awaited(admission, wait_s)
        return Response(self.get_serializer(admission).data, headers=wait_applied(wait_s))

    def _awaited(self, admission: AdmissionRequest, wait_s: float) -> AdmissionRequest:
        """The request once nothing more is computed of it, or after so many seconds as it is then."""
        until, ended = time.monotonic() + wait_s, set[UUID]()
        while True:
            is_estimating = admission.state == AdmissionState.ESTIMATING
            job = admission.job if is_estimating else admission.parts_job if parts_under_way(admission) else None
            left_s = until - time.monotonic()
            if job is None or job.pk in ended or left_s <= 0:
                return admission
            job_wait(job, left_s)
            ended.add(job.pk)
            admission = self.kind.visible().get(pk=admission.pk)

    @extend_schema(request=None, responses={200: AdmissionDetailSerializer, 202: JobSerializer})
    @action(detail=True, methods=["post"], url_path="parts")
    def complete(self, request: Request, pk: str) -> Response:
        """Compute the parts again that were cut, cancelled or failed, of the same snapshot.

        409 where none was or the request has gone on. 202 with a job, or the answer with `Prefer: wait=N`.
        """
        admission = self.decidable()
        job = completion_retry(request=admission, user=signed_in_user(request))
        return job_response(request, job, lambda _: self.shown(admission), address=ADMISSION.address(admission))

    @extend_schema(request=AlternativeSerializer, responses={200: AdmissionDetailSerializer, 202: JobSerializer})
    @action(detail=True, methods=["post"])
    def preview(self, request: Request, pk: str) -> Response:
        """Preview again on the cluster as it is now, or with the changes of an alternative. Makes a new request."""
        alternative = read_body(AlternativeSerializer, request).get("choice")
        asked = {"parent": self.decidable(), "alternative": alternative}
        return self.answer(request, *ADMISSION.request(user=signed_in_user(request), **asked))

    @extend_schema(request=None, responses={200: DecisionReplay, 202: JobSerializer})
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, pk: str) -> Response:
        """Decide again by today's statistics, model, policy and cluster, and tell what changed most.

        202 with a job, or the answer with `Prefer: wait=N`. Nothing is changed by it.
        """
        job = replay_request(request=self.get_object(), user=signed_in_user(request))
        return job_response(request, job, lambda job: job.result)

    @extend_schema(responses=AdmissionCurves)
    @action(detail=True, methods=["get"])
    def curves(self, request: Request, pk: str) -> Response:
        """Latencies and loads over the horizon: before, after, and with each alternative."""
        admission = self.get_object()
        curves = admission.decision_curves
        if curves is None:
            return Response(AdmissionCurves(admission.previewed_at).to_dict())
        after, alternatives = curves.after or None, curves.alternatives
        answer = AdmissionCurves(admission.previewed_at, curves.step_s, curves.before, after, alternatives).to_dict()
        mask = mask_of(admission.cluster)
        return Response(answer if mask is None else mask.document(answer))

    @extend_schema(request=TrialStartSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def trial(self, request: Request, pk: str) -> Response:
        """Run the version at an agent for some minutes to measure it; then the request is previewed again by itself.

        It counts nowhere as running and its results are not kept. 422 says why there can be no trial.
        """
        admission = self.get_object()
        if is_seen_in_part(admission.cluster_id):
            caller_now().check(admission.cluster_id, admission.cluster.slug)  # an agent is everybody's
        return self.decided(admission_trial_start, **read_body(TrialStartSerializer, request))

    @extend_schema(request=None, responses={200: AdmissionDetailSerializer})
    @trial.mapping.delete
    def trial_stop(self, request: Request, pk: str) -> Response:
        """Stop the trial early: nothing is taken over of it, and nothing is previewed."""
        admission = self.decidable()
        admission_trial_stop(request=admission)
        return Response(self.shown(admission))


router = Router()
router.register("receipts", ReceiptViewSet, basename="receipt")
router.register("admissions", AdmissionViewSet, basename="admission")

urlpatterns = [
    *router.urls,
    path("clusters/<str:slug>/policy/preview", PolicyPreviewView.as_view(), name="policy-preview"),
    path("clusters/<str:slug>/replays", MonthReplayView.as_view(), name="month-replay"),
    path("clusters/<str:slug>/queue", QueueView.as_view(), name="queue"),
]
