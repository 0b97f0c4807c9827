"""Schedule: how the queries of an agent share its core, a replay under other policies, and another policy."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Impossible
from apps.core.limits import MAX_NOTE
from apps.jobs.models import Job
from apps.pages.base import ClusterPage, PreviewedFormPage, done
from apps.pages.sources.facts import RolloutPanel, source_tabs
from apps.pages.sources.schedule_facts import SPANS_S, ReplayPanel, ScheduleFacts, SwitchPanel, policy_reported
from apps.rollouts.models import RolloutState
from apps.rollouts.replays import replay_latest, replay_of, replay_request
from apps.rollouts.rollout_selectors import rollout_now
from apps.rollouts.schedule_selectors import schedules_of
from apps.rollouts.services import ScheduleSwitch, schedule_preview, schedule_switch
from apps.telemetry.models import Agent, AgentKind
from apps.telemetry.selectors import agent_named, agents_listed
from apps.ui.forms import choice_field
from apps.ui.record_forms import SettingsForm
from apps.ui.tables import address
from engine.klink.settings import POLICIES, POLICY_NAMES, ScheduleSettings

__all__ = ["ScheduleForm"]

#: What each does.
POLICY_WORDS = {
    "klink": "Windows whose watermark is here by how late they are, then the least slack (Klink)",
    "stimulus-time": "The earliest event first (stimulus time)",
    "fcfs": "The record that has waited longest first (first come, first served)",
    "round-robin": "Each in turn (round robin)",
}


class ScheduleForm(SettingsForm):
    """Settings of scheduling."""

    RECORD = ScheduleSettings

    policy = forms.ChoiceField(label="Scheduling policy", choices=list(POLICY_WORDS.items()))


class SwitchForm(ScheduleForm):
    """Which agents, with which settings, and why."""

    agents = forms.MultipleChoiceField(
        label="Agents", required=False, widget=forms.CheckboxSelectMultiple, help_text="All unless you tick some."
    )
    words = forms.CharField(
        label="Description",
        max_length=MAX_NOTE,
        required=False,
        help_text="Shown beside its rollout. Left empty, it is written for you.",
    )

    def __init__(self, *args: Any, agents: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice_field(self, "agents").choices = [(name, name) for name in agents]

    @property
    def rest_body(self) -> dict[str, object]:
        """As the REST API takes it."""
        if not self.is_bound or not self.is_valid():
            return {"mode": "preview", "words": "", "settings": {"policy": self.initial["policy"]}, "agents": []}
        values = self.cleaned_data
        asked = {"settings": self.settings, "agents": list(values["agents"])}
        return {"mode": "preview", "words": values["words"], **asked}


#: Agents from which on they are chosen from a menu.
_MENU_FROM = 8


class SchedulePage(ClusterPage):
    """`/c/<slug>/sources/schedule/`; `?agent=`, `?span=` in seconds, `?query=` whose watermarks are drawn."""

    template_name = "pages/sources/schedule/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        agents = list(agents_listed().filter(cluster=self.cluster, kind=AgentKind.AGENT))
        chosen = self.chosen(agents)
        shared: dict[str, object] = {"tabs": source_tabs(slug, "schedule"), "agents": agents}
        if chosen is None:
            return self.page({**shared, "view": None})
        view = ScheduleFacts(request, self.cluster, chosen, schedules_of(self.cluster).get(str(chosen.pk)))
        return self.page({**shared, "view": view, "table": view.table, **self.around(agents, view)})

    def chosen(self, agents: list[Agent]) -> Agent | None:
        """The agent asked for, else the first that says how it schedules."""
        if name := self.request.GET.get("agent"):
            return agent_named(self.cluster, name)
        return min(agents, key=lambda agent: (not policy_reported(agent), agent.name), default=None)

    def around(self, agents: list[Agent], view: ScheduleFacts) -> dict[str, Any]:
        rollout = rollout_now(self.cluster)
        is_of_scheduling = rollout is not None and rollout.rollout.config.schedule is not None
        return {
            "rollout": RolloutPanel(rollout) if rollout is not None and is_of_scheduling else None,
            "as_menu": len(agents) >= _MENU_FROM,
            "chips": [
                (
                    agent,
                    policy_reported(agent),
                    address(self.request, agent=agent.name, query=None),
                    agent.pk == view.agent.pk,
                )
                for agent in agents
            ],
            "spans": [(span, address(self.request, span=span), span == view.span_s) for span in SPANS_S],
        }


_AGAINST = "round-robin"


class ScheduleReplay(ClusterPage):
    """`…/schedule/replay/?agent=&against=`: a part of the page Schedule. GET: the newest replay; POST: another one."""

    template_name = "pages/sources/schedule/replay.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        agent = agent_named(self.cluster, request.GET.get("agent", ""))
        return self.part(agent, replay_latest(agent))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        agent = agent_named(self.cluster, request.POST.get("agent", ""))
        schedule = schedules_of(self.cluster).get(str(agent.pk))
        settings = schedule.settings.to_dict() if schedule is not None else None
        try:
            job = replay_request(agent=agent, schedule=settings, user=signed_in_user(request))
        except Impossible as refusal:
            return self.part(agent, None, refusal=refusal)
        return self.part(agent, job)

    def part(self, agent: Agent, job: Job | None, **more: Any) -> HttpResponse:
        if not self.request.headers.get("HX-Request"):
            return redirect(f"{reverse('pages:schedule', args=[self.slug])}?agent={agent.name}#replay")
        policy = self.request.GET.get("against", "")
        against = policy if policy in POLICIES else _AGAINST
        replay = replay_of(job) if job is not None else None
        panel = ReplayPanel(replay, against, policy_reported(agent)) if replay is not None else None
        return self.page({"agent": agent, "job": job, "panel": panel, **more})


class ScheduleSwitchPage(PreviewedFormPage):
    """`/c/<slug>/sources/schedule/switch/`"""

    template_name = "pages/sources/schedule/switch.html"

    def names(self, form: SwitchForm) -> dict[str, str]:
        paths = {f"{above}.{name}": name for above in ("schedule", "settings") for name in form.fields}
        return {**paths, "agents": "agents", "words": "words"}

    def preview(self, form: SwitchForm) -> dict[str, object]:
        agents = tuple(form.cleaned_data["agents"])
        preview = schedule_preview(cluster=self.cluster, agents=agents, settings=form.settings)
        return {"preview": SwitchPanel(preview)}

    def make(self, form: SwitchForm) -> ScheduleSwitch:
        values, user = form.cleaned_data, signed_in_user(self.request)
        asked = {"agents": tuple(values["agents"]), "settings": form.settings, "words": values["words"]}
        return schedule_switch(cluster=self.cluster, user=user, **asked)

    def made(self, result: ScheduleSwitch) -> HttpResponse:
        return done(self.request, _done(result), "pages:schedule", self.slug)

    def form(self, data: Any = None) -> SwitchForm:
        states = sorted(schedules_of(self.cluster).values(), key=lambda schedule: schedule.agent.name)
        name = self.request.GET.get("agent", "")
        shown = next((state for state in states if state.agent.name == name), states[0] if states else None)
        current = shown.settings.to_dict() if shown is not None else {}
        ticked: list[str] = []
        if (policy := self.request.GET.get("policy")) in POLICY_NAMES:  # from a replay, which is of one agent
            current = {**current, "policy": policy}
            ticked = [state.agent.name for state in states if state.agent.name == name]
        names = [state.agent.name for state in states]
        return SwitchForm(data, agents=names, current=current, initial={"agents": ticked})

    def answer(self, form: SwitchForm, status: int = 200, **more: Any) -> HttpResponse:
        rollout = rollout_now(self.cluster)
        shared = {
            "form": form,
            "is_empty": not choice_field(form, "agents").choices,
            "rollout": RolloutPanel(rollout) if rollout is not None else None,
            "tabs": source_tabs(self.slug, "schedule"),
        }
        return self.page({**shared, **more}, status)


def _done(switch: ScheduleSwitch) -> str:
    """Result of the switch in a sentence."""
    if switch.config is None:
        return "Nothing to change: these agents schedule so already."
    if not switch.made:
        return f"Nothing to change: {switch.config.name} sets the same."
    if switch.rollout.state == RolloutState.WAITING:
        return f"{switch.config.name} waits until the rollout before it is over."
    return f"{switch.config.name} is on its way: canaries first."
