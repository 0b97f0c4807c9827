"""Admission requests as the REST API takes and shows them."""

from __future__ import annotations

import math
import re
from typing import Any

from rest_framework import serializers

from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.selectors import admission_headline, admission_never_ran, admission_standing
from apps.admission.trials import MAX_TRIAL_MINUTES, TRIAL_MINUTES, trial_events, trial_newest
from apps.core.limits import MAX_REASON
from apps.core.rest.api import StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type
from apps.predictions.choices import TargetMetric
from apps.predictions.serializers import PredictionDetailSerializer
from engine.admission.answer import AdmissionDecision

__all__ = [
    "AdmissionCreateSerializer",
    "AdmissionDetailSerializer",
    "AdmissionSerializer",
    "AlternativeSerializer",
    "OptionalReasonSerializer",
    "ReasonSerializer",
    "TrialSerializer",
    "TrialStartSerializer",
]

_STATISTIC = re.compile(r"worst|mean|q(0?\.\d*[1-9]\d*|1(\.0*)?)")


class FiniteFloatField(serializers.FloatField):
    """A number that is one: not text, not a boolean, not NaN."""

    default_error_messages = {"not_finite": "{value} is not allowed; allowed is a finite number"}

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool | str):
            self.fail("invalid")
        value = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("not_finite", value=data)
        return value


class ObjectiveSerializer(StrictSerializer):
    """A latency objective."""

    statistic = serializers.CharField(help_text="worst, mean, or a quantile such as q0.99.")
    bound_s = FiniteFloatField(min_value=1e-6, help_text="At most so many seconds.")

    def validate_statistic(self, value: str) -> str:
        if not _STATISTIC.fullmatch(value):
            raise serializers.ValidationError(f"{value!r} is not worst, mean, or a quantile such as q0.99")
        return value


class AdmissionCreateSerializer(StrictSerializer):
    """A request to run a query: one that is registered, or one described by a document. Exactly one of the two."""

    cluster = serializers.CharField(help_text="Slug of the cluster.")
    query = serializers.CharField(required=False, help_text="Name of a registered query.")
    document = serializers.DictField(
        required=False, help_text="query, operators, and optionally sources, objective, priority, team, description."
    )
    version = serializers.IntegerField(required=False, min_value=1, help_text="Which version; default the newest.")
    objective = ObjectiveSerializer(required=False, help_text="In place of the query's own.")
    placement = serializers.DictField(
        child=serializers.CharField(),
        required=False,
        help_text="{operator: node} or node#core; the rest is chosen.",
    )
    changes = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        max_length=50,
        help_text="Changes as an alternative carries them.",
    )
    may_wait_s = FiniteFloatField(required=False, min_value=0, help_text="How long it would wait in the queue.")
    target = serializers.ChoiceField(
        TargetMetric.choices,
        required=False,
        help_text="Metric that the first placement of a query that never ran is chosen by: T, Lp or Le (default).",
    )
    mode = serializers.ChoiceField(
        choices=["preview", "apply"],
        default="preview",
        help_text="preview only says what would happen; apply does it at once if the verdict lets it (scope admit).",
    )
    reason = serializers.CharField(required=False, allow_blank=True, max_length=MAX_REASON)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("query" in attrs) == ("document" in attrs):
            raise serializers.ValidationError("give exactly one of query and document")
        if "document" in attrs and "version" in attrs:
            raise serializers.ValidationError({"version": "a document is always a new version; leave it out"})
        return attrs


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
    def get_trial(self, request: AdmissionRequest) -> dict[str, Any] | None:
        trial = trial_newest(request)
        return TrialSerializer(trial).data if trial is not None else None

    @field_type(dict[str, Any])
    def get_standing(self, request: AdmissionRequest) -> dict[str, Any]:
        standing = admission_standing(request)
        return {
            "stale": standing.is_stale,
            "changed": list(standing.changes),
            "expired": standing.is_expired,
            "can_apply": standing.can_apply,
            "can_approve": standing.can_approve,
            "can_override": standing.can_override,
            "why_not": standing.why_not,
        }
