"""Admission: the list and the queue, a new preview, one request, and the decisions about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.admission.boards import receipts_listed
from apps.admission.choices import AdmissionState
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
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.queue import cluster_queue
from apps.admission.receipts import receipt_reason
from apps.admission.replays import replay_request
from apps.admission.trials import MAX_TRIAL_MINUTES, TRIAL_MINUTES, admission_trial_start, admission_trial_stop
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Malformed, SluiceError
from apps.core.reach import AskedOn, check_row, is_seen_in_part, visible
from apps.fleet.models import Cluster
from apps.pages.admission.facts import AdmissionDetail
from apps.pages.admission.forms import FAULT_FIELDS, DescribedForm, RegisteredForm, placement_of
from apps.pages.admission.own import OwnDecision
from apps.pages.admission.tables import AdmissionCounts, QueuedRequest, admissions_table
from apps.pages.base import ClusterPage, try_service
from apps.pages.runs import RunAction, RunPage
from apps.predictions.services import prediction_of_new
from apps.queries.choices import QueryState
from apps.queries.models import Query, QueryVersion
from apps.queries.selectors import version_never_ran
from apps.ui.feedback import toast
from apps.ui.numbers import seconds
from engine.words import statistic_words

__all__ = [
    "AdmissionApply",
    "AdmissionApprove",
    "AdmissionComplete",
    "AdmissionDecline",
    "AdmissionNew",
    "AdmissionOverride",
    "AdmissionPage",
    "AdmissionPreviewAgain",
    "AdmissionReceipt",
    "AdmissionReplay",
    "AdmissionRequestReview",
    "AdmissionTrialStart",
    "AdmissionTrialStop",
    "AdmissionWithdraw",
    "AdmissionsPage",
    "PlanPart",
    "admission_tabs",
]


def admission_tabs(slug: str, current: str = "requests") -> list[tuple[str, str, bool]]:
    """Tabs of admission: requests, replays of them, and what Kubernetes was answered."""
    names = {"requests": "pages:admissions", "replays": "pages:month-replay", "kubernetes": "pages:kubernetes-reviews"}
    return [(tab.capitalize(), reverse(name, args=[slug]), tab == current) for tab, name in names.items()]


class AdmissionsPage(ClusterPage):
    """`/c/<slug>/admission/`"""

    template_name = "pages/admission/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        counts = AdmissionCounts(self.cluster)
        table = admissions_table(request, self.cluster, counts, can_ask="operate" in signed_in_user(request).scopes)
        queue = [QueuedRequest(place, admission) for admission, place in cluster_queue(self.cluster).places]
        context = {"table": table, "sentence": counts.sentence, "queue": queue, "tabs": admission_tabs(slug)}
        return self.page(context)


_PICTURE_KEY = [
    ("before-line", "Before"),
    ("estimate", "After, mean path"),
    ("over-line", "Over its objective"),
    ("band", "Realised, 90%"),
    ("objective-line", "Objective or capacity"),
]
_KEY = [("before", "Before"), ("after", "After"), ("band", "Interval, 90%"), ("objective", "Objective")]


class AdmissionPage(RunPage):
    """`/c/<slug>/admission/<uuid>/`"""

    asked_on: str = AskedOn.PARTS
    kind, noun = ADMISSION, "admission request"
    template_name = "pages/admission/detail.html"

    def rows(self) -> QuerySet[AdmissionRequest]:
        related = ("version__query", "prediction__cluster", "prediction__query", "prediction__model")
        rows = visible(super().rows()).select_related(*related).defer(None)
        return rows.defer("snapshot_parts", "prediction__trace", "prediction__model__weights")

    def found(self, pk: UUID) -> Any:
        run = super().found(pk)
        check_row(run)
        return run

    def shown(self, run: AdmissionRequest, refusal: SluiceError | None = None) -> HttpResponse:
        outcome, kind = self.request.GET.get("alternative", ""), AdmissionDetail
        if is_seen_in_part(self.cluster.pk):
            kind, self.template_name = OwnDecision, "pages/admission/own.html"
        detail = kind(run, signed_in_user(self.request), self.cluster, outcome)
        # what a stale preview is refused for is said by the page anyway
        notice = refusal.message if refusal and not (detail.standing.is_stale or detail.standing.is_expired) else ""
        return self.answer(run, refusal, detail=detail, notice=notice, key=_KEY, picture_key=_PICTURE_KEY)


@dataclass(frozen=True)
class PlanFields:
    """The chosen query and version, with the operators that may be given a node."""

    cluster: Cluster
    name: str
    number: str = ""
    placement: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def query(self) -> Query | None:
        return self.cluster.queries.select_related("running_version").filter(name=self.name).first()

    @cached_property
    def versions(self) -> list[QueryVersion]:
        return list(self.query.versions.order_by("-number")) if self.query else []

    @cached_property
    def version(self) -> QueryVersion | None:
        matching = [version for version in self.versions if str(version.number) == self.number]
        return next(iter(matching or self.versions), None)

    @property
    def operators(self) -> list[tuple[Any, str]]:
        """(operator, the node asked for)."""
        if self.version is None:
            return []
        return [
            (operator, self.placement.get(operator.name, ""))
            for operator in self.version.operators.order_by("position", "pk")
        ]

    @cached_property
    def never_ran(self) -> bool:
        """Whether its costs are not known, so that it is predicted."""
        return self.version is not None and version_never_ran(self.version)

    @property
    def note(self) -> str:
        """Objective of the query, and the version that runs."""
        if self.query is None:
            return ""
        bound_s = self.query.objective_bound_s
        words = statistic_words(self.query.objective_statistic) if self.query.objective_statistic else ""
        objective = f"Its objective: {words} at most {seconds(bound_s)}." if bound_s else "It has no objective."
        running = self.query.running_version
        runs = f" Version {running.number} runs now." if running and self.query.state == QueryState.RUNNING else ""
        return f"{objective}{runs}"


class AdmissionNew(ClusterPage):
    """`/c/<slug>/admission/new/?query=checkout`, or `?way=document`"""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/admission/new.html"
    scope = write_scope = "author"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        name, number = request.GET.get("query", ""), request.GET.get("version", "")
        if self._is_document:
            return self._shown(DescribedForm(initial={"name": name}))
        plan = PlanFields(self.cluster, name, number)
        initial = {"query": name, "version": plan.version.number if plan.version else None}
        return self._shown(RegisteredForm(initial=initial, cluster=self.cluster, query=plan.query), plan)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        if self._is_document:
            form, plan = DescribedForm(request.POST, request.FILES), None
        else:
            placement = placement_of(request.POST)
            plan = PlanFields(self.cluster, request.POST.get("query", ""), request.POST.get("version", ""), placement)
            form = RegisteredForm(request.POST, cluster=self.cluster, query=plan.query)
        if form.is_valid():
            asked, ok = try_service(form, lambda: self._ask(form), FAULT_FIELDS)
            if ok:
                return redirect("pages:admission", slug, asked.pk)
        return self._shown(form, plan, 422)

    def _ask(self, form: Any) -> Any:
        """Ask for the preview; what never ran is predicted at once, and shown until the verdict is there."""
        user = signed_in_user(self.request)
        admission, _ = ADMISSION.request(cluster=self.cluster, user=user, question=form.question)
        prediction_of_new(version=admission.version, target=admission.target, placement=admission.placement, user=user)
        return admission

    @property
    def _is_document(self) -> bool:
        return self.request.GET.get("way") == "document"

    def _shown(self, form: Any, plan: PlanFields | None = None, status: int = 200) -> HttpResponse:
        here = reverse("pages:admission-new", args=[self.cluster.slug])
        tabs = [
            ("A registered query", here, not self._is_document),
            ("A document", f"{here}?way=document", self._is_document),
        ]
        has_queries = self._is_document or self.cluster.queries.exists()
        context = {"form": form, "plan": plan, "tabs": tabs, "has_queries": has_queries, "rest_body": self._body(plan)}
        return self.page(context, status)

    def _body(self, plan: PlanFields | None) -> dict[str, object]:
        """The call that asks the same."""
        body: dict[str, object] = {"cluster": self.cluster.slug}
        if self._is_document:
            return {**body, "document": {"query": "checkout", "operators": []}}
        if plan and plan.version:
            return {**body, "query": plan.name, "version": plan.version.number}
        return {**body, "query": "checkout"}


class PlanPart(ClusterPage):
    """The part of the form that depends on the query."""

    template_name = "pages/admission/plan.html"
    scope = write_scope = "author"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        plan = PlanFields(
            self.cluster, request.GET.get("query", ""), request.GET.get("version", ""), placement_of(request.GET)
        )
        return self.page({"plan": plan})


class _RequestAction(RunAction, AdmissionPage):
    """Base of the actions on a request."""

    write_scope = "author"
    is_of_member = False  #: whether it may be done with one member of a group

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        run = self.found(pk)
        try:
            if not self.is_of_member:
                refuse_member(run)
        except Conflict as refusal:
            return self.shown(run, refusal)
        return super().post(request, slug, pk)

    def say(self, text: str) -> None:
        toast(self.request, text)

    @property
    def user(self) -> Any:
        return self.request.user


class AdmissionPreviewAgain(_RequestAction):
    """The same question again, or with the changes of an alternative."""

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        alternative = self.request.POST.get("alternative") or None
        return ADMISSION.request(parent=run, alternative=alternative, user=self.user)[0]


class AdmissionComplete(_RequestAction):
    """Compute the parts again that were cut, cancelled or failed."""

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        completion_retry(request=run, user=self.user)
        return run


class AdmissionReplay(_RequestAction):
    """Decide again on the same question by what is so today, and apply nothing."""

    is_of_member = True

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        replay_request(request=run, user=self.user)
        return run


class AdmissionReceipt(_RequestAction):
    """Say why the verdict turned out wrong."""

    is_of_member = True
    write_scope = "admit"

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        rows = receipts_listed().filter(promise__request=run)
        receipt = self.find(rows, "receipt after", span=self.request.POST.get("span", "")[:9])
        asked = {name: self.request.POST.get(name, "").strip() for name in ("reason", "text")}
        receipt_reason(receipt=receipt, user=self.user, **asked)
        self.say(f"The reason is kept with the receipt of {run.version}.")
        return run


class AdmissionTrialStart(_RequestAction):
    """Try the version out at an agent, which is everybody's."""

    asked_on = AskedOn.NARROWED
    write_scope = "operate"

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        agent, minutes = self.request.POST.get("agent", ""), self.request.POST.get("minutes", "")
        if minutes and not minutes.isdecimal():
            message = f"minutes is {minutes[:20]!r}; allowed: 1 to {MAX_TRIAL_MINUTES}"
            raise Malformed(f"{message}.", [("minutes", message)])
        length = int(minutes[:6]) if minutes else TRIAL_MINUTES
        trial = admission_trial_start(request=run, user=self.user, agent=agent, minutes=length)
        self.say(f"{run.version} is tried out at {trial.agent}.")
        return run


class AdmissionTrialStop(_RequestAction):
    """End the trial early."""

    asked_on = AskedOn.NARROWED
    write_scope = "operate"

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        admission_trial_stop(request=run)
        self.say(f"The trial of {run.version} is stopped.")
        return run


class AdmissionApply(_RequestAction):
    """Start the query, or queue it."""

    write_scope = "admit"

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        applied = admission_apply(request=run, user=self.user)
        is_queued = applied.state == AdmissionState.QUEUED
        text = "{} is queued and starts by itself." if is_queued else "{} is applied."
        self.say(text.format(run.version))
        return applied


class _Decision(_RequestAction):
    """A service that takes the request, the user and a reason."""

    service: Callable[..., AdmissionRequest]
    said: str  #: with the version in it

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        decided = self.service(request=run, user=self.user, reason=self.request.POST.get("reason", "").strip())
        self.say(self.said.format(run.version))
        return decided


class AdmissionWithdraw(_Decision):
    """Take the request back."""

    service = staticmethod(admission_withdraw)
    said = "The request for {} is withdrawn."


class AdmissionRequestReview(_Decision):
    """Ask a person to decide."""

    service = staticmethod(admission_request_review)
    said = "{} waits for somebody to decide."


class AdmissionApprove(_Decision):
    """Say yes where the verdict asks a person."""

    write_scope = "admit"
    service = staticmethod(admission_approve)
    said = "{} is approved and runs."


class AdmissionDecline(_Decision):
    """Say no, and why."""

    write_scope = "admit"
    service = staticmethod(admission_decline)
    said = "{} is declined."


class AdmissionOverride(_Decision):
    """Apply against the verdict, and say why."""

    write_scope = "admit"
    service = staticmethod(admission_override)
    said = "{} is applied against its verdict."
