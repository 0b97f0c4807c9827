"""Configs of agents: the list, one, a new one; rollouts and their policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Malformed, Missing
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.sources.configs.facts import CheckPanel, ConfigPanel, configs_sentence, configs_table
from apps.pages.sources.configs.forms import NewConfigForm, PolicyForm
from apps.pages.sources.facts import RolloutPanel, source_tabs
from apps.rollouts.configs.selectors import config_detail, config_numbered, configs_by_agent, configs_listed
from apps.rollouts.configs.services import config_check, config_create, policy_update
from apps.rollouts.models import RefinedConfig, Rollout
from apps.rollouts.rollout.selectors import rollout_policy, rollout_view, rollouts_listed
from apps.rollouts.rollout.services import rollout_pause, rollout_resume, rollout_roll_back, rollout_start
from apps.telemetry.choices import AgentKind, LiveState
from apps.telemetry.models import Agent, LiveQuery
from apps.ui.forms import choice_field, show_faults

__all__ = ["ConfigNew", "ConfigPage", "ConfigStart", "ConfigsPage", "PolicyPage", "RolloutChange"]


class ConfigsPage(ClusterPage):
    """`/c/<slug>/sources/configs/`"""

    template_name = "pages/sources/configs/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        held = Counter(config.version for config in configs_by_agent(self.cluster).values())
        table = configs_table(request, self.cluster, configs_listed(self.cluster), held)
        if table.wants_csv:
            return table.csv_response()
        sentence = configs_sentence(held)
        return self.page({"table": table, "sentence": sentence, "tabs": source_tabs(slug, "configs")})


class ConfigPage(ClusterPage):
    """`/c/<slug>/sources/configs/118/`"""

    template_name = "pages/sources/configs/config.html"

    def get(self, request: HttpRequest, slug: str, number: int) -> HttpResponse:
        return self.shown(config_numbered(self.cluster, number))

    def shown(self, config: RefinedConfig, status: int = 200, **more: Any) -> HttpResponse:
        view = config_detail(config)
        states = configs_by_agent(self.cluster)
        panel = ConfigPanel(view, sum(state.version == config.number for state in states.values()), len(states))
        rollout = RolloutPanel(rollout_view(view.rollout)) if view.rollout is not None else None
        return self.page({"config": config, "panel": panel, "rollout": rollout, **more}, status)


class ConfigStart(ConfigPage):
    """POST: send a configuration on its way, by force where its check refused it."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, number: int) -> HttpResponse:
        config = config_numbered(self.cluster, number)
        try:
            row = rollout_start(config=config, user=signed_in_user(request), force=request.POST.get("force") == "yes")
        except Conflict as refusal:
            return self.shown(config, refusal.status, notice=refusal.message)
        waits = row.state == "waiting"
        text = f"{config.name} waits until the rollout before it is over." if waits else f"{config.name} is on its way."
        return done(request, text, "pages:sources", slug)


class ConfigNew(ClusterPage):
    """`/c/<slug>/sources/configs/new/`"""

    template_name = "pages/sources/configs/new.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.answer(self.form())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = self.form(request.POST)
        if not form.is_valid():
            return self.answer(form, 422)
        if "make" in request.POST or "start" in request.POST:
            return self.make(request, form)
        return self.checked(form)

    def checked(self, form: NewConfigForm) -> HttpResponse:
        """Check of a config before it is made."""
        try:
            check = config_check(cluster=self.cluster, wish=form.wish)
        except Malformed as refusal:
            show_faults(form, refusal, _names(form))
            return self.answer(form, 422)
        return self.answer(form, check=CheckPanel(check))

    def make(self, request: HttpRequest, form: NewConfigForm) -> HttpResponse:
        words = form.cleaned_data["words"]
        config, ok = try_service(
            form,
            lambda: config_create(cluster=self.cluster, wish=form.wish, words=words, user=signed_in_user(request)),
            _names(form),
        )
        if not ok:
            return self.answer(form, 422)
        if "start" not in request.POST:
            return done(request, f"{config.name} is made; nobody has it yet.", "pages:config", self.slug, config.number)
        forced = request.POST.get("force") == "yes"
        if config.state == "refused" and not forced:
            text = f"{config.name} is made; its check refused it, so it was not started."
            return done(request, text, "pages:config", self.slug, config.number)
        row = rollout_start(config=config, user=signed_in_user(request), force=forced)
        waits = f"{config.name} waits until the rollout before it is over."
        return done(
            request, waits if row.state == "waiting" else f"{config.name} is on its way.", "pages:sources", self.slug
        )

    def form(self, data: Any = None) -> NewConfigForm:
        lives = LiveQuery.objects.filter(query__cluster=self.cluster).exclude(state=LiveState.STOPPED)
        agents = Agent.objects.filter(cluster=self.cluster, kind=AgentKind.AGENT, assignments__enabled=True).distinct()
        return NewConfigForm(
            data,
            queries=list(lives.order_by("query__name").values_list("query__name", flat=True)),
            agents=list(agents.order_by("name").values_list("name", flat=True)),
        )

    def answer(self, form: NewConfigForm, status: int = 200, **more: Any) -> HttpResponse:
        is_empty = not choice_field(form, "queries").choices or not choice_field(form, "agents").choices
        return self.page({"form": form, "is_empty": is_empty, **more}, status)


def _names(form: forms.Form) -> dict[str, str]:
    """Paths of the service's faults by field."""
    return {f"settings.{name}": name for name in form.fields}


_Change = Callable[[Rollout, Any, str], Any]
#: By the word in the address: what is done, and how it is told.
_CHANGES: dict[str, tuple[_Change, str]] = {
    "pause": (lambda row, user, why: rollout_pause(rollout=row, user=user), "The rollout of {} is paused."),
    "resume": (lambda row, user, why: rollout_resume(rollout=row, user=user), "The rollout of {} goes on."),
    "stop": (lambda row, user, why: rollout_roll_back(rollout=row, user=user, reason=why), "{} is out of the line."),
    "roll-back": (
        lambda row, user, why: rollout_roll_back(rollout=row, user=user, reason=why),
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

    template_name = "pages/sources/configs/policy.html"

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
