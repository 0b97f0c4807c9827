"""Another policy of scheduling for some or all agents: chosen, previewed, then started as a rollout with canaries."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.core.errors import Malformed
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.rollout_panel import RolloutPanel
from apps.pages.schedule_forms import POLICY_NAMES, ScheduleForm, schedule_told
from apps.pages.sources_tabs import source_tabs
from apps.refinement.choices import RolloutState
from apps.refinement.selectors import rollout_now, schedules_of
from apps.refinement.services import schedule_preview, schedule_switch
from apps.ui.forms import show_faults
from apps.ui.numbers import counted, seconds

__all__ = ["ScheduleSwitch", "SwitchForm"]


class SwitchForm(ScheduleForm):
    """Which agents, with which settings, and why."""

    agents = forms.MultipleChoiceField(
        label="Agents", required=False, widget=forms.CheckboxSelectMultiple, help_text="All unless you tick some."
    )
    words = forms.CharField(
        label="What it changes",
        max_length=200,
        required=False,
        help_text="Shown beside its rollout. Left empty, it is written for you.",
    )

    def __init__(self, *args: Any, agents: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agents"].choices = [(name, name) for name in agents]

    @property
    def rest_body(self) -> dict[str, Any]:
        """As the REST API takes it."""
        if not self.is_bound or not self.is_valid():
            return {"mode": "preview", "words": "", "settings": {"policy": self.initial["policy"]}, "agents": []}
        found = self.cleaned_data
        asked = {"settings": self.settings, "agents": list(found["agents"])}
        return {"mode": "preview", "words": found["words"], **asked}


class SwitchPanel:
    """What would follow: who, from what to what, what is judged, how long it takes."""

    def __init__(self, preview: Any) -> None:
        self.preview = preview

    @property
    def applies(self) -> bool:
        return not self.preview.unchanged

    @property
    def words(self) -> str:
        """One sentence with its numbers."""
        found = self.preview
        if found.unchanged:
            return "These are the settings that all of these agents have already."
        first, *waves = found.stages
        order = f", {first} of them first" if waves else ""
        later = f", when the rollout of {found.waits_for} is over" if found.waits_for else ""
        who = counted(len(found.agents), "agent")
        return f"{who} would get it{order}{later}; it takes {seconds(found.least_s)} or more."

    @property
    def rows(self) -> list[tuple[Any, str, str, list[tuple[str, str, str]]]]:
        """(agent, policy now, policy then, [(setting, before, after)])."""
        return [
            (one, POLICY_NAMES.get(one.policy_before, one.policy_before or "not known yet"),
             POLICY_NAMES.get(one.policy_after, one.policy_after),
             [_change(*change) for change in one.changes if change[0] != "policy"])
            for one in self.preview.agents
        ]  # fmt: skip


def _change(name: str, before: Any, after: Any) -> tuple[str, str, str]:
    label, was = schedule_told(name, before)
    return label, was, schedule_told(name, after)[1]


class ScheduleSwitch(ClusterPage):
    """`/c/<slug>/sources/schedule/switch/`"""

    template_name = "pages/schedule/switch.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.answer(self.form())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = self.form(request.POST)
        if not form.is_valid():
            return self.answer(form, 422)
        if "start" in request.POST:
            return self.start(form)
        return self.previewed(form)

    def previewed(self, form: SwitchForm) -> HttpResponse:
        try:
            found = schedule_preview(
                cluster=self.cluster, agents=tuple(form.cleaned_data["agents"]), settings=form.settings
            )
        except Malformed as refusal:
            show_faults(form, refusal, _names(form))
            return self.answer(form, 422)
        return self.answer(form, preview=SwitchPanel(found))

    def start(self, form: SwitchForm) -> HttpResponse:
        given = form.cleaned_data
        switch, ok = try_service(
            form,
            lambda: schedule_switch(
                cluster=self.cluster,
                agents=tuple(given["agents"]),
                settings=form.settings,
                words=given["words"],
                user=self.request.user,
            ),
            _names(form),
        )
        if not ok:
            return self.answer(form, 422)
        return done(self.request, _done(switch), "pages:schedule", self.slug)

    def form(self, data: Any = None) -> SwitchForm:
        states = sorted(schedules_of(self.cluster).values(), key=lambda one: one.agent.name)
        wanted = self.request.GET.get("agent", "")
        shown = next((one for one in states if one.agent.name == wanted), states[0] if states else None)
        current = shown.settings.to_dict() if shown is not None else {}
        ticked: list[str] = []
        if (policy := self.request.GET.get("policy")) in POLICY_NAMES:  # from a replay, which is of one agent
            current = {**current, "policy": policy}
            ticked = [one.agent.name for one in states if one.agent.name == wanted]
        names = [one.agent.name for one in states]
        return SwitchForm(data, agents=names, current=current, initial={"agents": ticked})

    def answer(self, form: SwitchForm, status: int = 200, **more: Any) -> HttpResponse:
        rollout = rollout_now(self.cluster)
        shared = {
            "form": form,
            "is_empty": not form.fields["agents"].choices,
            "rollout": RolloutPanel(rollout) if rollout is not None else None,
            "tabs": source_tabs(self.slug, "schedule"),
        }
        return self.page({**shared, **more}, status)


def _done(switch: Any) -> str:
    """What came of it."""
    if switch.config is None:
        return "Nothing to change: these agents schedule so already."
    if not switch.made:
        return f"Nothing to change: {switch.config.name} sets the same."
    if switch.rollout.state == RolloutState.WAITING:
        return f"{switch.config.name} waits until the rollout before it is over."
    return f"{switch.config.name} is on its way: canaries first."


def _names(form: forms.Form) -> dict[str, str]:
    """Paths of the service's faults by field."""
    paths = {f"{above}.{name}": name for above in ("schedule", "settings") for name in form.fields}
    return {**paths, "agents": "agents", "words": "words"}
