"""What somebody may do with an admission request now, and why not."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.permissions import role_hint
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.selectors import Standing, admission_standing

__all__ = ["Powers"]


class Powers:
    """Of `user` over `request`: its standing says what can be done at all, the scopes who may do it."""

    request: AdmissionRequest
    user: User
    choices: Any  #: what the decision offers, empty if nothing

    @cached_property
    def standing(self) -> Standing:
        return admission_standing(self.request)

    @property
    def can_preview(self) -> bool:
        return Scope.OPERATE in self.user.scopes

    @property
    def can_decide(self) -> bool:
        return Scope.ADMIT in self.user.scopes

    @property
    def is_undecided(self) -> bool:
        """A preview or a review that somebody has to act on."""
        return self.request.state in {AdmissionState.PREVIEW, AdmissionState.AWAITING}

    @property
    def is_open(self) -> bool:
        return self.is_undecided or self.request.state in {AdmissionState.QUEUED, AdmissionState.ESTIMATING}

    @property
    def can_act(self) -> bool:
        """Whether the main button works: Apply, Queue or Approve."""
        return self.can_decide and (self.standing.can_apply or self.standing.can_approve)

    @property
    def can_override(self) -> bool:
        return self.can_decide and self.standing.can_override

    @property
    def can_ask_again(self) -> bool:
        closed = {AdmissionState.ESTIMATING, AdmissionState.APPLIED, AdmissionState.QUEUED}
        return self.can_preview and self.request.state not in closed

    @property
    def can_ask_review(self) -> bool:
        needed = self.request.verdict in {Verdict.REVIEW, Verdict.REJECT}
        return self.can_preview and needed and self.request.state == AdmissionState.PREVIEW

    @property
    def verb(self) -> str:
        """What the main button does."""
        return {Verdict.QUEUE: "Queue", Verdict.REVIEW: "Approve"}.get(Verdict(self.request.verdict), "Apply")

    @property
    def why_off(self) -> str:
        """Why the main button is off, in a sentence that stands on the page; empty if it is on."""
        if not self.is_undecided or self.can_act:
            return ""
        if self.standing.is_stale or self.standing.is_expired:
            return f"{self.verb} is off: the preview no longer speaks of the cluster as it is. Preview it again."
        if self.request.verdict == Verdict.REJECT:
            pick = "Pick a choice below and preview it" if self.choices else "No choice would pass: change the query"
            review = ", or ask for a review" if self.request.state == AdmissionState.PREVIEW else ""
            return f"Apply is off while the verdict is reject. {pick}{review}."
        role = self.user.get_role_display()
        return f"{self.verb} is off: your role ({role}) may not decide. {role_hint(Scope.ADMIT)}"
