"""Configs of agents: the list, one, a new one; rollouts and their policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Conflict, Missing
from apps.core.limits import MAX_NOTE
from apps.pages.base import ClusterPage, PreviewedFormPage, done, try_service
from apps.pages.sources.agent_tables import AdaptingForm
from apps.pages.sources.config_facts import CheckPanel, ConfigPanel, configs_sentence, configs_table
from apps.pages.sources.facts import RolloutPanel, source_tabs
from apps.pages.sources.schedule_views import ScheduleForm
from apps.rollouts.config_selectors import config_detail, config_numbered, configs_by_agent, configs_listed
from apps.rollouts.models import RefinedConfig, Rollout, RolloutPolicy
from apps.rollouts.rollout_selectors import rollout_policy, rollout_view, rollouts_listed
from apps.rollouts.rollout_services import rollout_pause, rollout_resume, rollout_roll_back, rollout_start
from apps.rollouts.services import ConfigRequest, config_check, config_create, policy_update
from apps.telemetry.models import Agent, AgentKind, LiveQuery, LiveState
from apps.ui.forms import choice_field, range_field

__all__ = ["ConfigNew", "ConfigPage", "ConfigStart", "ConfigsPage", "PolicyPage", "RolloutChange"]


class NewConfigForm(AdaptingForm):
    """Which queries and agents, with which settings, and why."""

    words = forms.CharField(
        label="Description",
        max_length=MAX_NOTE,
        required=False,
        help_text="Shown beside its rollout. Left empty, it is written for you.",
    )
    queries = forms.MultipleChoiceField(
        label="Queries", required=False, widget=forms.CheckboxSelectMultiple, help_text="All unless you tick some."
    )
    agents = forms.MultipleChoiceField(
        label="Agents",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="All unless you tick some. Those set by hand are left as they are.",
    )
    learned = forms.BooleanField(
        label="With learned operator statistics",
        required=False,
        initial=True,
        help_text="Costs and relay ratios with at least a thousand records behind them; agents start from them.",
    )

    with_schedule = forms.BooleanField(
        label="With scheduling settings",
        required=False,
        help_text="For whole agents, so for all of their queries.",
    )

    def __init__(self, data: Any = None, *args: Any, queries: list[str], agents: list[str], **kwargs: Any) -> None:
        super().__init__(data, *args, **kwargs)
        self.scheduling = ScheduleForm(data if data and data.get("with_schedule") else None, prefix="schedule")
        choice_field(self, "queries").choices = [(name, name) for name in queries]
        choice_field(self, "agents").choices = [(name, name) for name in agents]

    def is_valid(self) -> bool:
        """With what is said of scheduling, where it is: all faults at once."""
        own = super().is_valid()
        return (not self.scheduling.is_bound or self.scheduling.is_valid()) and own

    @property
    def wish(self) -> ConfigRequest:
        values = self.cleaned_data
        schedule = self.scheduling.settings if values["with_schedule"] else None
        return ConfigRequest(
            self.settings, tuple(values["queries"]), tuple(values["agents"]), values["learned"], schedule
        )

    @property
    def rest_body(self) -> dict[str, object]:
        """As the REST API takes it."""
        if not self.is_bound or not self.is_valid():
            return {"words": "", "settings": {}, "queries": [], "agents": []}
        wish = self.wish
        body: dict[str, object] = {
            "settings": dict(wish.settings or {}),
            "queries": list(wish.queries),
            "agents": list(wish.agents),
        }
        if wish.schedule is not None:
            body["schedule"] = dict(wish.schedule)
        return {"words": self.cleaned_data["words"], **body, "learned": wish.learned}


#: Of each number: label, why, least, most, unit, and by what it is multiplied to be read.
_NUMBERS: dict[str, tuple[str, str, float, float, str, float]] = {
    "canary_count": ("Canaries, at least", "Agents that get a config first.", 1, 10_000, "agents", 1),
    "canary_share": ("Canaries, as a share", "Of all agents, where that is more.", 0, 100, "%", 100),
    "canary_epochs": ("Canary observation time", "An epoch is a second.", 10, 600, "epochs", 1),
    "wave_epochs": ("Wave observation time", "Then the next one begins.", 10, 600, "epochs", 1),
    "silent_epochs": ("Acknowledgement timeout", "An agent silent for longer holds up nobody.", 5, 3600, "epochs", 1),
    "overflow_pp": (
        "Overflow limit",
        "Increase against before, and against the old config.",
        0,
        100,
        "points",
        1,
    ),
    "bytes_rel": ("Limit of bytes per record", "More by.", 0, 1000, "%", 100),
    "latency_rel": ("Delay limit", "Relative increase.", 0, 10_000, "%", 100),
    "latency_abs_s": ("Absolute delay limit", "A rollback needs both limits to be passed.", 0, 3600, "s", 1),
    "cpu_rel": ("CPU limit", "More by.", 0, 1000, "%", 100),
    "propose_every_s": ("Proposal interval", "A newer one replaces one that waits.", 10, 604_800, "s", 1),
}
_WHOLE = {"canary_count", "canary_epochs", "wave_epochs", "silent_epochs"}
_CANARIES = ("canary_count", "canary_share", "canary_epochs", "wave_epochs", "silent_epochs")
_LIMITS = ("overflow_pp", "bytes_rel", "latency_rel", "latency_abs_s", "cpu_rel")


def _field(name: str) -> forms.Field:
    label, why, low, high, unit, _ = _NUMBERS[name]
    return range_field(label, why, low, high, unit, whole=name in _WHOLE)


class PolicyForm(forms.Form):
    """A cluster's policy."""

    waves = forms.CharField(
        label="Waves", help_text="Share of all agents after each, such as 30, 100; the last is 100.", max_length=80
    )
    automatic = forms.BooleanField(label="Start proposals automatically", required=False)

    def __init__(self, *args: Any, policy: RolloutPolicy, **kwargs: Any) -> None:
        shown = {name: round(getattr(policy, name) * scale, 6) for name, (*_, scale) in _NUMBERS.items()}
        waves = ", ".join(f"{100 * share:g}" for share in policy.waves)
        kwargs.setdefault("initial", {**shown, "waves": waves, "automatic": policy.automatic})
        super().__init__(*args, **kwargs)
        for name in _NUMBERS:
            self.fields[name] = _field(name)

    def clean_waves(self) -> list[float]:
        """Shares that grow and end with all."""
        message = "They have to grow and end with 100, such as 30, 100."
        try:
            shares = [float(part) / 100 for part in self.cleaned_data["waves"].replace("%", " ").split(",")]
        except ValueError:
            raise forms.ValidationError(message) from None
        grows = all(a < b for a, b in zip([0.0, *shares], shares, strict=False))
        if not grows or shares[-1] != 1.0 or len(shares) > 10:
            raise forms.ValidationError(message)
        return shares

    @property
    def values(self) -> dict[str, object]:
        """As the service takes them."""
        values = {name: self.cleaned_data[name] for name in ("waves", "automatic")}
        for name, (*_, scale) in _NUMBERS.items():
            value = self.cleaned_data[name]
            values[name] = value if name in _WHOLE else round(value / scale, 9)
        return values

    def _rows(self, names: tuple[str, ...]) -> list[tuple[Any, str]]:
        return [(self[name], _NUMBERS[name][4]) for name in names]

    @property
    def canaries(self) -> list[tuple[Any, str]]:
        """(field, unit)."""
        return self._rows(_CANARIES)

    @property
    def limits(self) -> list[tuple[Any, str]]:
        """(field, unit) of what takes a configuration back."""
        return self._rows(_LIMITS)


class ConfigsPage(ClusterPage):
    """`/c/<slug>/sources/configs/`"""

    template_name = "pages/sources/configs/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        held = Counter(config.version for config in configs_by_agent(self.cluster).values())
        table = configs_table(request, self.cluster, configs_listed(self.cluster), held)
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


class ConfigNew(PreviewedFormPage):
    """`/c/<slug>/sources/configs/new/`"""

    template_name = "pages/sources/configs/new.html"
    makes = ("make", "start")

    def names(self, form: NewConfigForm) -> dict[str, str]:
        return {f"settings.{name}": name for name in form.fields}

    def preview(self, form: NewConfigForm) -> dict[str, object]:
        return {"check": CheckPanel(config_check(cluster=self.cluster, wish=form.wish))}

    def make(self, form: NewConfigForm) -> RefinedConfig:
        words, user = form.cleaned_data["words"], signed_in_user(self.request)
        return config_create(cluster=self.cluster, wish=form.wish, words=words, user=user)

    def made(self, result: RefinedConfig) -> HttpResponse:
        config, request = result, self.request
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
