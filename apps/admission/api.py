"""REST: admission requests, from the question to what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import role_hint, scopes_of, signed_in_user
from apps.admission.choices import AdmissionSource
from apps.admission.decisions import admission_apply, admission_approve, admission_override
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.questions import AdmissionQuestion
from apps.admission.selectors import (
    AdmissionFilter,
    AdmissionStanding,
    admission_headline,
    admission_never_ran,
    admission_standing,
    admissions_visible,
)
from apps.admission.services import (
    admission_decline,
    admission_preview,
    admission_preview_again,
    admission_preview_alternative,
    admission_request_review,
    admission_withdraw,
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
from apps.core.errors import Forbidden, Missing
from apps.core.limits import MAX_REASON
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type
from apps.fleet.models import Cluster
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job
from apps.predictions.serializers import PredictionDetailSerializer
from engine.admission.answer import AdmissionDecision, OutcomeCurves
from engine.records import Record, Words

__all__ = [
    "AdmissionCreate",
    "AdmissionDetailSerializer",
    "AdmissionSerializer",
    "AdmissionViewSet",
    "AlternativeSerializer",
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


class AdmissionSerializer(serializers.ModelSerializer):
    """A request in a list."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()
    version = serializers.IntegerField(source="version.number")
    mode = serializers.SerializerMethodField()
    headline = serializers.SerializerMethodField()
    never_ran = serializers.SerializerMethodField(
        help_text="Whether it was predicted or lacked a prediction, for costs were unknown; null while undecided."
    )
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    decided_by = serializers.CharField(source="decided_by.username", default=None)

    class Meta:
        model = AdmissionRequest
        fields = ["id", "cluster", "query", "query_id", "version", "source", "mode", "state", "verdict", "headline"]
        fields += [
            "reason",
            "never_ran",
            "requested_by",
            "job",
            "parent",
            "starts_at",
            "valid_until",
            "overridden",
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


class AdmissionDetailSerializer(AdmissionSerializer):
    """A request whole: what was asked, the engine's decision, and whether it still can be applied."""

    objective = serializers.JSONField()
    placement = serializers.JSONField()
    changes = serializers.JSONField()
    may_wait_s = serializers.FloatField()
    snapshot = serializers.CharField()
    previewed_at = serializers.DateTimeField()
    decision = StoredRecordField(
        AdmissionDecision, source="result", help_text="The engine's answer; null while it is computed."
    )
    prediction = PredictionDetailSerializer(allow_null=True, help_text="Of a query that never ran.")
    standing = serializers.SerializerMethodField(help_text="What can be done with it now.")
    trial = serializers.SerializerMethodField(help_text="The last trial of its version; null: there was none.")

    class Meta(AdmissionSerializer.Meta):
        fields = [*AdmissionSerializer.Meta.fields, "objective", "placement", "changes", "may_wait_s", "target"]
        fields += ["snapshot", "previewed_at", "decision", "prediction", "standing", "trial"]

    @field_type(TrialSerializer(allow_null=True))
    def get_trial(self, request: AdmissionRequest) -> Any:
        trial = trial_newest(request)
        return TrialSerializer(trial).data if trial is not None else None

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


class AdmissionViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """May this query run? POST previews (the default) or applies; 202 with a job, or the answer with `Prefer: wait=N`.

    The same question sent again while it is estimated gives the request that is there. Applying is refused with 409
    when the cluster has moved since the preview; `changed` says what.
    """

    body_sizes = {"create": DOCUMENT}
    queryset = AdmissionRequest.objects.none()
    filterset_class = AdmissionFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, **_DECISIONS}

    def get_queryset(self) -> Any:
        return admissions_visible()

    def get_serializer_class(self) -> type:
        return AdmissionDetailSerializer if self.action == "retrieve" else AdmissionSerializer

    @extend_schema(request=AdmissionCreate, responses={200: AdmissionDetailSerializer, 202: JobSerializer})
    def create(self, request: Request) -> Response:
        """Preview whether a query may run, or apply it at once. 202 with a job, or the answer with `Prefer: wait=N`.

        The same question sent again while it is estimated gives the request that is there. `mode` apply needs the
        scope admit, and applies what the verdict lets pass.
        """
        asked = AdmissionCreate.parse(request.data)
        if asked.mode == "apply" and Scope.ADMIT not in scopes_of(signed_in_user(request), request.auth):
            raise Forbidden(f"mode=apply needs the scope 'admit'. {role_hint(Scope.ADMIT)}", code="scope_missing")
        admission, job = admission_preview(
            cluster=_cluster(asked.cluster),
            user=signed_in_user(request),
            question=asked,
            source=AdmissionSource.API,
        )
        return _job_answer(request, admission, job)

    @extend_schema(request=AlternativeSerializer, responses={200: AdmissionDetailSerializer, 202: JobSerializer})
    @action(detail=True, methods=["post"])
    def preview(self, request: Request, pk: str) -> Response:
        """Preview again on the cluster as it is now, or with the changes of an alternative. Makes a new request."""
        alternative = self._read(AlternativeSerializer).get("choice")
        if alternative is None:
            admission, job = admission_preview_again(request=self.get_object(), user=signed_in_user(request))
        else:
            admission, job = admission_preview_alternative(
                request=self.get_object(), alternative=alternative, user=signed_in_user(request)
            )
        return _job_answer(request, admission, job)

    @extend_schema(responses=AdmissionCurves)
    @action(detail=True, methods=["get"])
    def curves(self, request: Request, pk: str) -> Response:
        """Latencies and loads over the horizon: before, after, and with each alternative."""
        admission = self.get_object()
        curves = admission.decision_curves
        if curves is None:
            return Response(AdmissionCurves(admission.previewed_at).to_dict())
        after, alternatives = curves.after or None, curves.alternatives
        answer = AdmissionCurves(admission.previewed_at, curves.step_s, curves.before, after, alternatives)
        return Response(answer.to_dict())

    @extend_schema(request=None, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Start the query as previewed, or queue it if that is the verdict."""
        return _shown(admission_apply(request=self.get_object(), user=signed_in_user(request)))

    @extend_schema(request=OptionalReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take the request back."""
        reason = self._read(OptionalReasonSerializer)["reason"]
        return _shown(admission_withdraw(request=self.get_object(), user=signed_in_user(request), reason=reason))

    @extend_schema(request=OptionalReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"], url_path="request-review")
    def request_review(self, request: Request, pk: str) -> Response:
        """Ask a person to decide."""
        reason = self._read(OptionalReasonSerializer)["reason"]
        return _shown(admission_request_review(request=self.get_object(), user=signed_in_user(request), reason=reason))

    @extend_schema(request=OptionalReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Approve a request whose verdict asks for a person."""
        reason = self._read(OptionalReasonSerializer)["reason"]
        return _shown(admission_approve(request=self.get_object(), user=signed_in_user(request), reason=reason))

    @extend_schema(request=ReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: str) -> Response:
        """Decline a request, with a reason."""
        reason = self._read(ReasonSerializer)["reason"]
        return _shown(admission_decline(request=self.get_object(), user=signed_in_user(request), reason=reason))

    @extend_schema(request=ReasonSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def override(self, request: Request, pk: str) -> Response:
        """Apply against the verdict, and say why."""
        reason = self._read(ReasonSerializer)["reason"]
        return _shown(admission_override(request=self.get_object(), user=signed_in_user(request), reason=reason))

    @extend_schema(request=TrialStartSerializer, responses=AdmissionDetailSerializer)
    @action(detail=True, methods=["post"])
    def trial(self, request: Request, pk: str) -> Response:
        """Run the version at an agent for some minutes to measure it; then the request is previewed again by itself.

        It counts nowhere as running and its results are not kept. 422 says why there can be no trial.
        """
        asked = self._read(TrialStartSerializer)
        admission = self.get_object()
        admission_trial_start(request=admission, user=signed_in_user(request), **asked)
        return _shown(admission)

    @extend_schema(request=None, responses={200: AdmissionDetailSerializer})
    @trial.mapping.delete
    def trial_stop(self, request: Request, pk: str) -> Response:
        """Stop the trial early: nothing is taken over of it, and nothing is previewed."""
        admission = self.get_object()
        admission_trial_stop(request=admission)
        return _shown(admission)

    def _read(self, kind: type) -> dict[str, Any]:
        serializer = kind(data=self.request.data if self.request.data else {})
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


def _cluster(slug: str) -> Cluster:
    cluster = Cluster.objects.filter(slug=slug).first()
    if cluster is None:
        raise Missing(f"There is no cluster {slug!r}.", [("cluster", f"{slug!r} is not the slug of a cluster")])
    return cluster


def _shown(admission: AdmissionRequest) -> Response:
    return Response(AdmissionDetailSerializer(admissions_visible().get(pk=admission.pk)).data)


def _job_answer(request: Request, admission: AdmissionRequest, job: Job) -> Response:
    return job_response(request, job, lambda _: _shown(admission).data, address=f"/api/v1/admissions/{admission.pk}")
