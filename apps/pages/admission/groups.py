"""Groups: several queries asked for together, what was found, and the decisions about all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.accounts.models import User
from apps.accounts.permissions import signed_in_user
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import (
    admission_apply,
    admission_approve,
    admission_decline,
    admission_override,
    admission_request_review,
    admission_withdraw,
)
from apps.admission.group_selectors import check_members, groups_listed
from apps.admission.groups import MAX_MEMBERS, GroupQuestion
from apps.admission.members import group_names, lost_members, lost_words
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.queue import cluster_queue
from apps.core.errors import SluiceError, from_engine
from apps.core.limits import MAX_REASON, MAX_WAIT_S
from apps.core.reach import visible
from apps.pages.admission.facts import AdmissionPowers
from apps.pages.base import ClusterPage, try_service
from apps.pages.runs import RunAction, RunPage
from apps.ui.feedback import toast
from apps.ui.marks import VERDICTS, Mark
from engine.admission.group_answer import MemberVerdict
from engine.errors import EngineError
from engine.words import counted, listed

__all__ = [
    "AdmissionGroupAgain",
    "AdmissionGroupApply",
    "AdmissionGroupApprove",
    "AdmissionGroupDecline",
    "AdmissionGroupNew",
    "AdmissionGroupOverride",
    "AdmissionGroupPage",
    "AdmissionGroupRequestReview",
    "AdmissionGroupWithdraw",
    "TogetherForm",
]


class TogetherForm(forms.Form):
    """Names of the queries in the order in which they are tried, patience and reason."""

    queries = forms.CharField(
        label="Queries",
        help_text=f"Two to {MAX_MEMBERS} names, in the order in which they are tried one beside the other.",
    )
    may_wait_min = forms.FloatField(
        label="May wait",
        required=False,
        min_value=0,
        max_value=int(MAX_WAIT_S // 60),
        help_text="How long they would wait in the queue, as one entry; a year at most.",
    )
    reason = forms.CharField(max_length=MAX_REASON, required=False, help_text="Why they are wanted together.")

    @property
    def question(self) -> GroupQuestion:
        """The question, of the newest version of each; with a fault Malformed."""
        data = self.cleaned_data
        names = data["queries"].replace(",", " ").split()
        body = {"members": [{"query": name} for name in names], "reason": data["reason"]}
        return GroupQuestion.parse({**body, "may_wait_s": 60.0 * (data["may_wait_min"] or 0.0)})


class AdmissionGroupNew(ClusterPage):
    """`/c/<slug>/admission/groups/new/?queries=checkout+sales`"""

    template_name = "pages/admission/together.html"
    scope = write_scope = "author"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page(self._shown(TogetherForm(initial={"queries": request.GET.get("queries", "")})))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = TogetherForm(request.POST)
        if form.is_valid():
            asked, ok = try_service(form, lambda: self._ask(form), {"members": "queries", "may_wait_s": "may_wait_min"})
            if ok:
                return redirect("pages:admission-group", slug, asked.group_id)
        return self.page(self._shown(form), 422)

    def _ask(self, form: TogetherForm) -> AdmissionRequest:
        try:
            question = form.question
        except EngineError as error:
            raise from_engine(error) from None
        return ADMISSION.request(cluster=self.cluster, user=signed_in_user(self.request), question=question)[0]

    def _shown(self, form: TogetherForm) -> dict[str, object]:
        names = str(form["queries"].value() or "").replace(",", " ").split()
        body = {"cluster": self.cluster.slug, "members": [{"query": name} for name in names or ["checkout", "sales"]]}
        return {"form": form, "rest_body": body}


@dataclass(frozen=True)
class GroupMemberRow:
    """A member of a group, with its marks: beside those before it, once all are in, alone."""

    request: AdmissionRequest
    verdict: MemberVerdict | None

    @property
    def beside(self) -> Mark | None:
        return VERDICTS.get(self.verdict.beside) if self.verdict else None

    @property
    def together(self) -> Mark | None:
        return VERDICTS.get(self.verdict.together) if self.verdict else None

    @property
    def alone(self) -> Mark | None:
        return VERDICTS.get(self.verdict.alone) if self.verdict else None

    @property
    def reasons(self) -> list[str]:
        """Sentences on what speaks against it once all are in, as the engine found it."""
        decision = self.request.decision
        bad = [] if decision is None else [row for row in decision.reasons if row.severity == "bad" or row.review]
        return [row.message for row in bad]


class AdmissionGroupDetail(AdmissionPowers):
    """Facts of a group: the first member stands for all."""

    choices: Any = ()
    alternatives: Any = ()

    def __init__(self, request: AdmissionRequest, user: User) -> None:
        self.request, self.user, self.members = request, user, request.members

    @property
    def mark(self) -> Mark | None:
        return VERDICTS.get(self.request.verdict)

    @cached_property
    def answer(self) -> Any:
        return self.request.group.answer if self.request.group is not None else None

    @property
    def names(self) -> str:
        return listed(group_names(self.members))

    @property
    def title(self) -> str:
        return f"{counted(len(self.members), 'query', 'queries')} together"

    @cached_property
    def rows(self) -> list[GroupMemberRow]:
        verdicts = {row.query: row for row in self.answer.members} if self.answer is not None else {}
        return [GroupMemberRow(member, verdicts.get(member.query.name)) for member in self.members]

    @property
    def lost(self) -> str:
        """The members that are gone, as a sentence; empty where all are there."""
        lost = lost_members(self.members)
        return lost_words(lost) if lost else ""

    @property
    def fitting(self) -> tuple[str, ...]:
        """Queries that fit together in the order given, where not all of them do."""
        fits: tuple[str, ...] = self.answer.fitting if self.answer is not None else ()
        return () if self.request.verdict in ("admit", "admit_with_changes") else fits

    @property
    def verb(self) -> str:
        return {"Apply": "Apply all", "Queue": "Queue all", "Approve": "Approve all"}[super().verb]

    @property
    def why_off(self) -> str:
        if not self.is_undecided or self.can_act:
            return ""
        if self.request.verdict == Verdict.REJECT:
            return "Apply all is off while the verdict is reject: ask for those that fit, or change what does not."
        return self.standing.why_not or f"{self.verb} is for who may admit every member."

    @cached_property
    def place(self) -> Any:
        """Its place in the queue; None where it does not wait."""
        return cluster_queue(self.request.cluster).place_of(self.request)

    @property
    def rest_body(self) -> dict[str, object]:
        """The call that asks the same question."""
        return {
            "cluster": self.request.cluster.slug,
            "members": [{"query": row.query.name, "version": row.version.number} for row in self.members],
        }


class AdmissionGroupPage(RunPage):
    """`/c/<slug>/admission/groups/<uuid>/`"""

    kind, noun = ADMISSION, "group"
    template_name = "pages/admission/group.html"

    def rows(self) -> QuerySet[AdmissionRequest]:
        return groups_listed(visible(super().rows()))

    def found(self, pk: UUID) -> Any:
        run = self.find(self.rows(), self.noun, group=pk)
        check_members(run)
        return run

    def shown(self, run: AdmissionRequest, refusal: SluiceError | None = None) -> HttpResponse:
        notice = refusal.message if refusal else ""
        return self.answer(run, refusal, detail=AdmissionGroupDetail(run, signed_in_user(self.request)), notice=notice)


class _GroupAction(RunAction, AdmissionGroupPage):
    """Base of what is done with a group: `service` takes its first member and the person, and where asked a reason."""

    write_scope = "author"
    service: Callable[..., AdmissionRequest]
    takes_reason = True
    said: str

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        reason = {"reason": self.request.POST.get("reason", "").strip()} if self.takes_reason else {}
        decided = self.service(request=run, user=self.request.user, **reason)
        is_queued = decided.state == AdmissionState.QUEUED
        toast(self.request, "The group is queued and starts by itself." if is_queued else self.said)
        return decided


class AdmissionGroupAgain(_GroupAction):
    """The same question again, of the whole group."""

    def act(self, run: AdmissionRequest) -> AdmissionRequest:
        return ADMISSION.request(parent=run, user=signed_in_user(self.request))[0]


class AdmissionGroupApply(_GroupAction):
    """Start all of the group, or queue it."""

    write_scope, takes_reason = "admit", False
    service, said = staticmethod(admission_apply), "All of the group are applied."


class AdmissionGroupWithdraw(_GroupAction):
    """Take the group back."""

    service, said = staticmethod(admission_withdraw), "The group is withdrawn."


class AdmissionGroupRequestReview(_GroupAction):
    """Ask a person to decide."""

    service, said = staticmethod(admission_request_review), "The group waits for somebody to decide."


class AdmissionGroupApprove(_GroupAction):
    """Say yes where the verdict asks a person."""

    write_scope = "admit"
    service, said = staticmethod(admission_approve), "All of the group are approved and run."


class AdmissionGroupDecline(_GroupAction):
    """Say no, and why."""

    write_scope = "admit"
    service, said = staticmethod(admission_decline), "The group is declined."


class AdmissionGroupOverride(_GroupAction):
    """Apply all against the verdict, and say why."""

    write_scope = "admit"
    service, said = staticmethod(admission_override), "The verdict is overridden."
