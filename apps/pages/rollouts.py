"""What a person does to a rollout: pause, resume, roll back, stop one that waits; and how careful rollouts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Missing
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.rollout_forms import PolicyForm
from apps.pages.sources_tabs import source_tabs
from apps.refinement.models import Rollout
from apps.refinement.selectors import rollout_policy, rollouts_listed
from apps.refinement.services import policy_update, rollout_back, rollout_pause, rollout_resume

__all__ = ["PolicyPage", "RolloutChange"]

_Change = Callable[[Rollout, Any, str], Any]
#: By the word in the address: what is done, and how it is told.
_CHANGES: dict[str, tuple[_Change, str]] = {
    "pause": (lambda row, user, why: rollout_pause(rollout=row, user=user), "The rollout of {} is paused."),
    "resume": (lambda row, user, why: rollout_resume(rollout=row, user=user), "The rollout of {} goes on."),
    "stop": (lambda row, user, why: rollout_back(rollout=row, user=user, reason=why), "{} is out of the line."),
    "roll-back": (
        lambda row, user, why: rollout_back(rollout=row, user=user, reason=why),
        "{} is being rolled back; its agents confirm within seconds.",
    ),
}


class RolloutChange(ClusterPage):
    """POST `…/rollouts/<pk>/<change>/`."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, pk: int, change: str) -> HttpResponse:
        row = rollouts_listed(self.cluster).filter(pk=pk).first()
        if row is None or change not in _CHANGES:
            raise Missing(f"Cluster {slug!r} has no rollout {pk} to {change}.")
        call, words = _CHANGES[change]
        call(row, request.user, request.POST.get("reason", "").strip()[:200])
        return done(request, words.format(row.config.name), "pages:sources", slug)


class PolicyPage(ClusterPage):
    """`…/rollout-policy/`: canaries, waves, and the limits that take a configuration back."""

    template_name = "pages/configs/policy.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.shown(PolicyForm(policy=rollout_policy(self.cluster)))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = PolicyForm(request.POST, policy=rollout_policy(self.cluster))
        if form.is_valid():
            _, ok = try_service(form, lambda: policy_update(cluster=self.cluster, **form.values))
            if ok:
                return done(request, "The policy holds for rollouts that begin from now on.", "pages:configs", slug)
        return self.shown(form, 422)

    def shown(self, form: PolicyForm, status: int = 200) -> HttpResponse:
        return self.page({"form": form, "tabs": source_tabs(self.slug, "policy")}, status)
