"""The Live tab of a query: its newest results, start and stop, who is assigned."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from apps.core.errors import Missing, SluiceError
from apps.pages.alerts_forms import RuleForm
from apps.pages.base import done, try_service
from apps.pages.live_view import LiveView
from apps.pages.query_tabs import QueryTab
from apps.telemetry.models import LiveQuery
from apps.telemetry.selectors import agent_named, agents_listed
from apps.telemetry.services import assignment_set, live_start, live_stop

__all__ = ["LiveAssign", "LiveStart", "LiveStop", "LiveTab", "StartForm"]


class StartForm(forms.Form):
    """Which agents work on it."""

    agents = forms.MultipleChoiceField(
        label="Agents",
        widget=forms.CheckboxSelectMultiple,
        help_text="Each collects the query's source and runs its first operators.",
    )
    idle_after_s = forms.FloatField(
        label="Wait for a silent agent",
        min_value=1,
        max_value=86_400,
        initial=60,
        help_text="After so long windows close without it.",
    )
    retain_s = forms.FloatField(
        label="Keep closed windows for late records",
        min_value=1,
        max_value=86_400,
        initial=900,
        help_text="In event time. Such records lead to another revision of the result.",
    )

    def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agents"].choices = [(name, name) for name in names]
        if not self.is_bound:
            self.initial.setdefault("agents", names)


class LiveTab(QueryTab):
    """`/c/<slug>/queries/<name>/live/`; `?column=` is the one drawn."""

    template_name = "pages/live/tab.html"
    tab = "live"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.shown(name)

    def shown(self, name: str, status: int = 200, **context: Any) -> HttpResponse:
        detail = self.detail(name)
        view = LiveView(self.request, detail.query)
        if view.newest is not None and view.table.wants_csv:
            return view.table.csv_response()
        names = [agent.name for agent in view.agents]
        shared = {
            "view": view,
            "start": StartForm(names=names),
            "rule_form": RuleForm(columns=view.numbers),
            "results_topic": f"results:{detail.query.pk}",
        }
        return self.show(detail, status, **{**shared, **context})


class LiveStart(LiveTab):
    """POST: run it on what the chosen agents collect."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        agents = {agent.name: agent for agent in agents_listed().filter(cluster=self.cluster)}
        form = StartForm(request.POST, names=list(agents))
        if not form.is_valid():
            return self.shown(name, 422, start=form, form=form)
        found = dict(form.cleaned_data)
        chosen = [agents[one] for one in found.pop("agents")]
        try:
            live_start(query=detail.query, agents=chosen, **found)
        except SluiceError as refusal:
            return self.shown(name, refusal.status, start=form, form=form, refusal=refusal)
        return done(
            request, f"{name} is starting; its first result follows its first window.", "pages:query-live", slug, name
        )


class _LivePage(LiveTab):
    http_method_names = ["post"]

    def live(self, name: str) -> LiveQuery:
        found = LiveQuery.objects.select_related("query__cluster").filter(query=self.detail(name).query).first()
        if found is None:
            raise Missing(f"Query {name!r} is not live.", [("query", f"{name!r} has never been started")])
        return found


class LiveStop(_LivePage):
    """POST: stop it; its results stay."""

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        live_stop(live=self.live(name))
        return done(request, f"{name} is no longer live; its results stay.", "pages:query-live", slug, name)


class LiveAssign(_LivePage):
    """POST: give an agent a part, or take it away."""

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        live, agent = self.live(name), agent_named(self.cluster, request.POST.get("agent", ""))
        enabled = request.POST.get("part") != "none"
        form = forms.Form({})
        _, ok = try_service(form, lambda: assignment_set(live=live, agent=agent, enabled=enabled))
        if not ok:
            return self.shown(name, 422, notice="; ".join(form.non_field_errors()))
        text = f"{agent.name} works on {name} now." if enabled else f"{agent.name} works on {name} no more."
        return done(request, text, "pages:query-live", slug, name)
