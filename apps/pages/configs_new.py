"""A configuration made by a person: chosen, checked on recorded epochs, then made and sent on its way."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.core.errors import Malformed
from apps.pages.adapting_forms import AdaptingForm
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.configs_view import CheckPanel
from apps.pages.schedule_forms import ScheduleForm
from apps.refinement.configuring import Wish
from apps.refinement.services import config_check, config_create, rollout_start
from apps.telemetry.choices import AgentKind, LiveState
from apps.telemetry.models import Agent, LiveQuery
from apps.ui.forms import show_faults

__all__ = ["ConfigNew", "NewConfigForm"]


class NewConfigForm(AdaptingForm):
    """Which queries and agents, with which settings, and why."""

    words = forms.CharField(
        label="What it changes",
        max_length=200,
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
        label="With what Spark knows of the operators",
        required=False,
        initial=True,
        help_text="Costs and relay ratios with at least a thousand records behind them; agents start from them.",
    )

    with_schedule = forms.BooleanField(
        label="It also sets how agents share their cores",
        required=False,
        help_text="For whole agents, so for all of their queries.",
    )

    def __init__(self, data: Any = None, *args: Any, queries: list[str], agents: list[str], **kwargs: Any) -> None:
        super().__init__(data, *args, **kwargs)
        self.scheduling = ScheduleForm(data if data and data.get("with_schedule") else None, prefix="schedule")
        self.fields["queries"].choices = [(name, name) for name in queries]
        self.fields["agents"].choices = [(name, name) for name in agents]

    def is_valid(self) -> bool:
        """With what is said of scheduling, where it is: all faults at once."""
        own = super().is_valid()
        return (not self.scheduling.is_bound or self.scheduling.is_valid()) and own

    @property
    def wish(self) -> Wish:
        found = self.cleaned_data
        schedule = self.scheduling.settings if found["with_schedule"] else None
        return Wish(self.settings, tuple(found["queries"]), tuple(found["agents"]), found["learned"], schedule)

    @property
    def rest_body(self) -> dict[str, Any]:
        """As the REST API takes it."""
        if not self.is_bound or not self.is_valid():
            return {"words": "", "settings": {}, "queries": [], "agents": []}
        wish = self.wish
        given: dict[str, Any] = {
            "settings": dict(wish.settings or {}),
            "queries": list(wish.queries),
            "agents": list(wish.agents),
        }
        if wish.schedule is not None:
            given["schedule"] = dict(wish.schedule)
        return {"words": self.cleaned_data["words"], **given, "learned": wish.learned}


class ConfigNew(ClusterPage):
    """`/c/<slug>/sources/configs/new/`"""

    template_name = "pages/configs/new.html"
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
        """What it would have done, without making it."""
        try:
            found = config_check(cluster=self.cluster, wish=form.wish)
        except Malformed as refusal:
            show_faults(form, refusal, _names(form))
            return self.answer(form, 422)
        return self.answer(form, check=CheckPanel(found))

    def make(self, request: HttpRequest, form: NewConfigForm) -> HttpResponse:
        words = form.cleaned_data["words"]
        config, ok = try_service(
            form,
            lambda: config_create(cluster=self.cluster, wish=form.wish, words=words, user=request.user),
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
        row = rollout_start(config=config, user=request.user, force=forced)
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
        is_empty = not form.fields["queries"].choices or not form.fields["agents"].choices
        return self.page({"form": form, "is_empty": is_empty, **more}, status)


def _names(form: forms.Form) -> dict[str, str]:
    """Paths of the service's faults by field."""
    return {f"settings.{name}": name for name in form.fields}
