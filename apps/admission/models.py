"""Admission requests and what was decided."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.admission.choices import (
    AdmissionSource,
    AdmissionState,
    ErrorLack,
    ReceiptLack,
    ReceiptOutcome,
    ReceiptSpan,
    TrialState,
    Verdict,
    WrongReason,
)
from apps.core.limits import DIGEST_LENGTH, MAX_ELEMENT_NAME, MAX_REASON, MAX_SLUG
from apps.core.models import PackedJSONField
from apps.estimates.bases import BaseFacts
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.jobs.models import Job, Run
from apps.predictions.choices import TargetMetric
from apps.predictions.models import Prediction
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query, QueryVersion
from apps.telemetry.models import Agent, LiveQuery
from engine.admission.answer import AdmissionDecision, DecisionCurves
from engine.admission.changes import Change, stored_changes
from engine.admission.group_answer import GroupAnswer
from engine.admission.promises import PromiseChange, PromiseError, is_verdict_wrong
from engine.words import listed

__all__ = ["AdmissionGroup", "AdmissionRequest", "AdmissionTrial", "Promise", "Receipt"]


class AdmissionGroup(models.Model):
    """Requests that are admitted all or none. They go through the states of a request together; the first has the job.

    What was asked for stays known where a member is deleted with its query.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="admission_groups")
    names = models.JSONField(default=list, help_text="Versions asked for, in their order, such as checkout v3.")
    result: Any = models.JSONField(null=True, blank=True, help_text="engine.admission.group's answer.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return listed(self.names)

    @property
    def answer(self) -> GroupAnswer | None:
        """The engine's answer about the group; None while there is none."""
        return GroupAnswer.parse(self.result) if self.result else None


class AdmissionRequest(Run):
    """A request to run a version of a query: the question, the engine's answer, and what became of it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="admissions")
    query = models.ForeignKey(Query, on_delete=models.CASCADE, related_name="admissions")
    version = models.ForeignKey(QueryVersion, on_delete=models.CASCADE, related_name="admissions")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="children")
    group = models.ForeignKey(
        AdmissionGroup,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="members",
        help_text="With which it is admitted; null: alone.",
    )
    place = models.PositiveSmallIntegerField(default=0, help_text="Its place in the group, from 0.")
    source = models.CharField(
        max_length=10, choices=AdmissionSource.choices, default=AdmissionSource.CONSOLE, help_text="Way it came in."
    )
    reason = models.CharField(max_length=MAX_REASON, blank=True, help_text="Why the requester wants it.")
    apply_when_admitted = models.BooleanField(default=False, help_text="mode=apply: apply at once if admitted.")
    objective = models.JSONField(
        default=dict, help_text="{statistic, bound_s} to hold instead of the query's own; empty: the query's."
    )
    fingerprint = models.CharField(
        max_length=DIGEST_LENGTH, blank=True, db_index=True, help_text="Digest of the question."
    )
    placement = models.JSONField(default=dict, help_text="Nodes the requester asked for: {operator: node}.")
    changes = models.JSONField(default=list, help_text="Changes of an alternative, as engine.admission reads them.")
    target = models.CharField(
        max_length=2,
        choices=TargetMetric.choices,
        default=TargetMetric.END_TO_END_LATENCY,
        help_text="Metric that the first placement of a query that never ran is chosen by.",
    )
    may_wait_s = models.FloatField(default=0.0, help_text="How long the requester would wait in the queue.")
    placed_before = models.JSONField(
        default=dict, help_text="{operator: replicas} of the version that ran when it was applied."
    )
    state = models.CharField(
        max_length=12, choices=AdmissionState.choices, default=AdmissionState.ESTIMATING, db_index=True
    )
    verdict = models.CharField(max_length=20, choices=Verdict.choices, blank=True)
    snapshot = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    snapshot_parts = models.JSONField(default=dict, help_text="{part: digest}, to tell what changed since.")
    base: Any = models.JSONField(null=True, blank=True, help_text="Facts of the base that the verdict rests on.")
    result = models.JSONField(null=True, blank=True, help_text="engine.admission's answer without its curves.")
    curves = models.JSONField(
        null=True, blank=True, help_text="Latencies and loads over the horizon, before, after and of alternatives."
    )
    parts: Any = models.JSONField(
        default=dict, help_text="{part: {state, message, seconds}} of what follows the verdict (apps.admission.parts)."
    )
    parts_job = models.OneToOneField(
        Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="It computes the parts."
    )
    prediction = models.ForeignKey(
        Prediction,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="admissions",
        help_text="Of a query that never ran.",
    )
    previewed_at = models.DateTimeField(null=True, blank=True, help_text="Start of the horizon the verdict is about.")
    starts_at = models.DateTimeField(null=True, blank=True, help_text="When a queued query may start.")
    valid_until = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions"
    )
    decision_reason = models.CharField(max_length=MAX_REASON, blank=True)
    overridden = models.BooleanField(default=False, help_text="Applied by a person against the verdict.")
    policy_version = models.PositiveIntegerField(
        default=0, help_text="Version of the cluster's policy that the verdict was made by; 0: none was ever set."
    )
    override_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Who asked to override it, where a second person has to confirm that.",
    )
    override_reason = models.CharField(max_length=MAX_REASON, blank=True)
    queued_at = models.DateTimeField(null=True, blank=True, help_text="When it came into the queue.")
    decided_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.version} ({self.get_state_display()})"

    @property
    def members(self) -> list[AdmissionRequest]:
        """The request alone, or all that are left of its group in their order."""
        if self.group_id is None:
            return [self]
        rows = AdmissionRequest.objects.filter(group=self.group_id).order_by("place")
        return list(rows.select_related("cluster", "query__team", "version__query__cluster", "group", "job"))

    @property
    def decision(self) -> AdmissionDecision | None:
        """The engine's answer, without its curves; None while there is none."""
        return AdmissionDecision.parse(self.result) if self.result else None

    @property
    def base_facts(self) -> BaseFacts | None:
        """The base that the verdict rests on; None of one that was kept without."""
        return BaseFacts.parse(self.base) if self.base else None

    @property
    def decision_curves(self) -> DecisionCurves | None:
        """Curves of the decision; None of one that was kept without."""
        return DecisionCurves.parse(self.curves) if self.curves else None

    @property
    def asked_changes(self) -> tuple[Change, ...]:
        """Changes that it was asked with."""
        return stored_changes(self.changes)


class AdmissionTrial(models.Model):
    """A trial of a request's version at an agent, to measure the cost that its verdict rests on most."""

    request = models.ForeignKey(AdmissionRequest, on_delete=models.CASCADE, related_name="trials")
    agent = models.ForeignKey(Agent, null=True, on_delete=models.SET_NULL, related_name="+")
    live = models.OneToOneField(LiveQuery, null=True, on_delete=models.SET_NULL, related_name="trial")
    operator = models.CharField(max_length=MAX_ELEMENT_NAME, help_text="Whose cost is in doubt.")
    assumed_cycles = models.FloatField(null=True, help_text="Cycles per event before the trial; null: unknown.")
    state = models.CharField(max_length=12, choices=TrialState.choices, default=TrialState.RUNNING, db_index=True)
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    started_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    events = models.BigIntegerField(default=0, help_text="Measured of the operator when the trial ended.")
    cycles_per_event = models.FloatField(null=True, help_text="As measured; null: too little was.")
    note = models.CharField(max_length=MAX_REASON, blank=True, help_text="Why it ended early, or nothing follows.")
    follower = models.ForeignKey(
        AdmissionRequest, null=True, on_delete=models.SET_NULL, related_name="+", help_text="The preview made with it."
    )

    class Meta:
        ordering = ["-started_at", "-pk"]

    def __str__(self) -> str:
        return f"trial of {self.request.version}"

    @property
    def cost_ratio(self) -> float | None:
        """Measured cost by the assumed one; None where one of them is unknown."""
        if self.cycles_per_event is None or not self.assumed_cycles:
            return None
        return self.cycles_per_event / self.assumed_cycles


class Promise(models.Model):
    """The latency that a decision promised for the query it let in, kept until it is held against what came.

    It outlives its request and query, which go when the query is deleted.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="promises")
    request = models.OneToOneField(AdmissionRequest, null=True, on_delete=models.SET_NULL, related_name="promise")
    query = models.ForeignKey(Query, null=True, on_delete=models.SET_NULL, related_name="promises")
    query_name = models.CharField(max_length=MAX_SLUG)
    version = models.PositiveIntegerField(help_text="Number of the version that was let in.")
    verdict = models.CharField(max_length=20, choices=Verdict.choices)
    overridden = models.BooleanField(default=False, help_text="A person applied it against the verdict.")
    model = models.CharField(max_length=60, help_text="flow, or the model that predicted it.")
    evidence = models.CharField(max_length=10, choices=Evidence.choices, help_text="Weakest origin of its costs.")
    statistic = models.CharField(max_length=8)
    bound_s = models.FloatField(null=True)
    promised_s = models.FloatField(null=True, help_text="Null where nobody knew.")
    low_s = models.FloatField(null=True)
    high_s = models.FloatField(null=True)
    state = models.CharField(
        max_length=10, choices=ObjectiveState.choices, help_text="Of its objective, as it was promised."
    )
    decided_at = models.DateTimeField()
    surroundings: Any = PackedJSONField(null=True, help_text="What was on its servers when it started, as a document.")
    surroundings_lack = models.CharField(
        max_length=10, choices=ErrorLack.choices, blank=True, default=ErrorLack.NOT_KEPT, help_text="Why there is none."
    )

    class Meta:
        ordering = ["-decided_at", "-pk"]
        indexes = [models.Index(fields=["cluster", "-decided_at"], name="promises_by_time")]

    def __str__(self) -> str:
        return f"{self.query_name} v{self.version}"


class Receipt(models.Model):
    """A decision that comes back: what it promised, what was measured, and what else changed since."""

    promise = models.ForeignKey(Promise, on_delete=models.CASCADE, related_name="receipts")
    span = models.CharField(max_length=4, choices=ReceiptSpan.choices)
    due_at = models.DateTimeField()
    outcome = models.CharField(max_length=9, choices=ReceiptOutcome.choices, default=ReceiptOutcome.DUE)
    lacking = models.CharField(
        max_length=10, choices=ReceiptLack.choices, blank=True, help_text="Why the outcome is not known."
    )
    measured_s = models.FloatField(null=True, help_text="The promise's statistic; null: not known.")
    results = models.PositiveIntegerField(default=0, help_text="Results behind it.")
    since = models.DateTimeField(null=True, help_text="Beginning of the stretch that was looked at; it ends when due.")
    interval_held = models.BooleanField(null=True, help_text="Null where there was no interval, or nothing measured.")
    is_wrong = models.BooleanField(default=False, help_text="Whether the verdict turned out wrong.")
    changes = models.JSONField(default=list, help_text="What changed on the servers of the query since.")
    decisions = models.PositiveIntegerField(null=True, help_text="Requests applied to the cluster since.")
    error = models.JSONField(null=True, help_text="Measured less promised, by what made it.")
    error_lack = models.CharField(max_length=10, choices=ErrorLack.choices, blank=True, help_text="Why there is none.")
    written_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=11, choices=WrongReason.choices, blank=True, help_text="Why it was wrong.")
    reason_text = models.CharField(max_length=MAX_REASON, blank=True)
    reason_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    reason_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-due_at", "-pk"]
        constraints = [models.UniqueConstraint(fields=["promise", "span"], name="one_receipt_per_span")]
        indexes = [models.Index(fields=["outcome", "due_at"], name="receipts_due")]

    def __str__(self) -> str:
        return f"{self.promise} after {self.get_span_display().lower()}"

    @property
    def changes_told(self) -> list[PromiseChange]:
        """Changes on the servers of the query since."""
        return [PromiseChange.parse(change) for change in self.changes]

    @property
    def error_parts(self) -> PromiseError | None:
        """The error by what made it; None where that is not known."""
        return PromiseError.parse(self.error) if self.error else None

    @property
    def asks_reason(self) -> bool:
        """Whether somebody should say why the verdict was wrong."""
        return self.is_wrong and not self.reason

    def judge(self, measured_s: float | None, outcome: str, *, interval_held: bool | None = None) -> None:
        """Set what became of it."""
        self.measured_s, self.outcome, self.interval_held = measured_s, outcome, interval_held
        self.is_wrong = is_verdict_wrong(self.promise.verdict, self.promise.state, outcome)
