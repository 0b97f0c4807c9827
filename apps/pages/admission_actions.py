"""What is done with a request: previewed again or with a choice, applied, withdrawn, sent for review, decided."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.admission.applying import admission_apply, admission_approve, admission_override
from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.admission.services import (
    admission_decline,
    admission_preview_again,
    admission_preview_choice,
    admission_request_review,
    admission_withdraw,
)
from apps.core.errors import Conflict, Impossible, Malformed, Stale
from apps.pages.admission_detail import RequestPage
from apps.ui.feedback import toast

__all__ = ["Apply", "Approve", "AskReview", "Decline", "Override", "PreviewAgain", "Withdraw"]


class _Action(RequestPage):
    """POST: does one thing and goes back to the request; a refusal is shown on its page."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        found = self.found(pk)
        try:
            done = self.act(found, request.POST.get("reason", "").strip())
        except (Stale, Conflict, Impossible, Malformed) as refusal:
            return self.shown(self.found(pk), refusal)
        return redirect("pages:admission", slug, done.pk)

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        """Do it; gives the request whose page comes next."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        toast(self.request, text)

    @property
    def user(self) -> Any:
        return self.request.user


class PreviewAgain(_Action):
    """The same question again, or with the changes of a choice."""

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        choice = self.request.POST.get("choice", "")
        if choice:
            follower, _ = admission_preview_choice(request=found, choice=choice, user=self.user)
        else:
            follower, _ = admission_preview_again(request=found, user=self.user)
        return follower


class Apply(_Action):
    """Start the query, or queue it."""

    write_scope = "admit"

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        applied = admission_apply(request=found, user=self.user)
        is_queued = applied.state == AdmissionState.QUEUED
        self.say(f"{found.version} is {'queued and starts by itself' if is_queued else 'applied and runs'}.")
        return applied


class Withdraw(_Action):
    """Take the request back."""

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        withdrawn = admission_withdraw(request=found, user=self.user, reason=reason)
        self.say(f"The request for {found.version} is withdrawn.")
        return withdrawn


class AskReview(_Action):
    """Ask a person to decide."""

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        asked = admission_request_review(request=found, user=self.user, reason=reason)
        self.say(f"{found.version} waits for somebody to decide.")
        return asked


class Approve(_Action):
    """Say yes where the verdict asks a person."""

    write_scope = "admit"

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        approved = admission_approve(request=found, user=self.user, reason=reason)
        self.say(f"{found.version} is approved and runs.")
        return approved


class Decline(_Action):
    """Say no, and why."""

    write_scope = "admit"

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        declined = admission_decline(request=found, user=self.user, reason=reason)
        self.say(f"{found.version} is declined.")
        return declined


class Override(_Action):
    """Apply against the verdict, and say why."""

    write_scope = "admit"

    def act(self, found: AdmissionRequest, reason: str) -> AdmissionRequest:
        applied = admission_override(request=found, user=self.user, reason=reason)
        self.say(f"{found.version} is applied against its verdict.")
        return applied
