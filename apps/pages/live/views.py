"""The Live tab of a query, a new live query from a template, and alert rules."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing, SluiceError
from apps.core.limits import MAX_ELEMENT_NAME, MAX_MESSAGE, MAX_NAME, MAX_SLUG
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud
from apps.pages.live.facts import LiveView
from apps.pages.queries.facts import QueryDetail
from apps.pages.queries.views import QueryTab
from apps.results.models import MAX_WINDOWS_IN_A_ROW, AlertRule, Comparison, Severity
from apps.results.notices import rule_secret
from apps.results.selectors import alert_rules_listed, alerts_listed
from apps.results.services import alert_acknowledge, alert_rule_create, alert_rule_delete, alert_rule_update
from apps.telemetry.collectors import COLLECTORS
from apps.telemetry.drafts import live_query_describe, made_of, operators_of
from apps.telemetry.live_services import assignment_set, live_start, live_stop
from apps.telemetry.models import LiveQuery, TelemetrySource
from apps.telemetry.selectors import agent_named, agents_listed
from apps.ui.feedback import toast
from apps.ui.forms import JsonField, choice_field
from engine.dataflow import Pipeline
from engine.dataflow.templates import TEMPLATES, Template

__all__ = [
    "AlertAcknowledge",
    "AlertRuleCrud",
    "LiveAssign",
    "LiveNew",
    "LiveStart",
    "LiveStop",
    "LiveTab",
    "RuleForm",
    "StartForm",
    "TemplateForm",
]


class StartForm(forms.Form):
    """Agents that process the query, and how long it waits for them."""

    agents = forms.MultipleChoiceField(
        label="Agents",
        widget=forms.CheckboxSelectMultiple,
        help_text="Each collects the query's source and runs its first operators.",
    )
    idle_after_s = forms.FloatField(
        label="Idle timeout of an agent",
        min_value=1,
        max_value=86_400,
        initial=60,
        help_text="Windows close without an agent that is silent for longer.",
    )
    retain_s = forms.FloatField(
        label="Retention of closed windows",
        min_value=1,
        max_value=86_400,
        initial=900,
        help_text="In event time. Late records within it lead to another revision of the result.",
    )
    shed_late = forms.BooleanField(
        label="Lose records that are late everywhere",
        required=False,
        help_text="Under overload only, and only with an objective. Otherwise they are sent to the stream processor.",
    )

    def __init__(self, *args: Any, names: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice_field(self, "agents").choices = [(name, name) for name in names]
        if not self.is_bound:
            self.initial.setdefault("agents", names)


#: Options that a collector requires.
_OPTIONS: dict[str, dict[str, Any]] = {
    "tcp_probe": {"peers": [{"address": "127.0.0.1:8000"}], "interval_s": 1},
    "log_file": {"path": "var/log/access.log", "begin": "end"},
}


class TemplateForm(forms.Form):
    """Parameters of a template, and the facts that every query has."""

    name = forms.CharField(
        label="Name of the query", max_length=MAX_SLUG, help_text="Lower-case letters, digits and hyphens."
    )
    source = forms.CharField(
        label="Reads the source",
        max_length=MAX_SLUG,
        help_text="A source that is collected already, or a new name to add one.",
    )
    options = JsonField(label="Options of its collector", required=False, help_text="As JSON; for a new source only.")
    rate_eps = forms.FloatField(
        label="Expected records", initial=100, min_value=0.001, help_text="An assumed rate, until it is measured."
    )
    bound_s = forms.FloatField(
        label="Objective",
        initial=10,
        required=False,
        min_value=0.001,
        help_text="Upper bound of its latency. Empty: no objective.",
    )
    team = forms.CharField(max_length=MAX_NAME, required=False, help_text="The team to contact about the query.")

    def __init__(self, *args: Any, template: Template, sources: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.template = template
        for parameter in template.parameters:
            self.fields[f"p_{parameter.name}"] = forms.FloatField(label=parameter.label, initial=parameter.default)
        self.fields["source"].widget.attrs["list"] = "known-sources"
        if not self.is_bound:
            self.initial.setdefault("name", template.name)
            self.initial.setdefault("source", sources[0] if sources else template.collector.replace("_", "-"))
            self.initial.setdefault("options", _OPTIONS.get(template.collector, {}))

    @property
    def parameter_fields(self) -> list[Any]:
        return [self[f"p_{parameter.name}"] for parameter in self.template.parameters]

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters typed, as far as they are numbers."""
        data = self.cleaned_data if self.is_bound and hasattr(self, "cleaned_data") else {}
        typed = {
            parameter.name: data.get(f"p_{parameter.name}", parameter.default) for parameter in self.template.parameters
        }
        return {name: value for name, value in typed.items() if value is not None}


_FIELDS = ("name", "column", "comparison", "threshold", "for_windows", "where", "severity", "enabled")
_LISTS = ("emails", "webhooks")


class RuleForm(forms.Form):
    """A threshold on a column. The service checks the values."""

    name = forms.CharField(max_length=MAX_NAME, help_text="Its name on the overview.")
    column = forms.CharField(max_length=MAX_ELEMENT_NAME)
    comparison = forms.ChoiceField(label="Is", choices=Comparison.choices)
    threshold = forms.FloatField()
    for_windows = forms.IntegerField(
        label="Consecutive windows",
        initial=1,
        min_value=1,
        max_value=MAX_WINDOWS_IN_A_ROW,
        help_text="A single window may be noise.",
    )
    where = forms.CharField(
        label="Only groups where",
        max_length=MAX_MESSAGE,
        required=False,
        help_text="A condition on the columns of the result, such as dst in ('r1', 'r2'). Empty: every group.",
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING)
    enabled = forms.BooleanField(label="Enabled", required=False, initial=True)
    emails = forms.CharField(
        label="Email", required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="Addresses, one per line."
    )
    webhooks = forms.CharField(
        label="Webhooks",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Addresses, one per line: each gets a signed message when alerts open and when they end.",
    )

    def __init__(self, *args: Any, columns: list[str], rule: AlertRule | None = None, **kwargs: Any) -> None:
        if rule is not None:
            lists = {name: "\n".join(getattr(rule, name)) for name in _LISTS}
            kwargs.setdefault("initial", {name: getattr(rule, name) for name in _FIELDS} | lists)
        super().__init__(*args, **kwargs)
        names = [*columns, *([rule.column] if rule is not None and rule.column not in columns else [])]
        if names:
            self.fields["column"] = forms.ChoiceField(choices=[(name, name) for name in names])

    def clean_emails(self) -> list[str]:
        return self.cleaned_data["emails"].replace(",", "\n").split()

    def clean_webhooks(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["webhooks"].splitlines() if line.strip()]


class LiveTab(QueryTab):
    """`/c/<slug>/queries/<name>/live/`; `?column=` is the one drawn."""

    template_name = "pages/live/tab.html"
    tab = "live"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.show_page(name)

    def show_page(self, name: str, status: int = 200, **context: Any) -> HttpResponse:
        detail = self.detail(name)
        view = LiveView(self.request, detail.query)
        names = [agent.name for agent in view.agents]
        shared = {
            "view": view,
            "table": view.table if view.newest is not None else None,
            "start": StartForm(names=names),
            "rule_form": RuleForm(columns=view.numbers),
            "results_topic": f"results:{detail.query.pk}",
        }
        return self.show(detail, status, **{**shared, **context})


class LiveStart(LiveTab):
    """POST: start it with the chosen agents."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        agents = {agent.name: agent for agent in agents_listed().filter(cluster=self.cluster)}
        form = StartForm(request.POST, names=list(agents))
        if not form.is_valid():
            return self.show_page(name, 422, start=form, form=form)
        values = dict(form.cleaned_data)
        chosen = [agents[agent_name] for agent_name in values.pop("agents")]
        try:
            live_start(query=detail.query, agents=chosen, **values)
        except SluiceError as refusal:
            return self.show_page(name, refusal.status, start=form, form=form, refusal=refusal)
        return done(
            request,
            f"{name} is starting; its first result follows when the first window closes.",
            "pages:query-live",
            slug,
            name,
        )


class _LivePage(LiveTab):
    http_method_names = ["post"]

    def live(self, name: str) -> LiveQuery:
        live = LiveQuery.objects.select_related("query__cluster").filter(query=self.detail(name).query).first()
        if live is None:
            raise Missing(f"Query {name!r} is not live.", [("query", f"{name!r} has never been started")])
        return live


class LiveStop(_LivePage):
    """POST: stop it; its results stay."""

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        live_stop(live=self.live(name))
        return done(request, f"{name} is no longer live; its results stay.", "pages:query-live", slug, name)


class LiveAssign(_LivePage):
    """POST: assign an agent, or withdraw it."""

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        live, agent = self.live(name), agent_named(self.cluster, request.POST.get("agent", ""))
        enabled = request.POST.get("part") != "none"
        form = forms.Form({})
        _, ok = try_service(form, lambda: assignment_set(live=live, agent=agent, enabled=enabled))
        if not ok:
            return self.show_page(name, 422, notice="; ".join(form.non_field_errors()))
        text = f"{agent.name} processes {name} now." if enabled else f"{agent.name} no longer processes {name}."
        return done(request, text, "pages:query-live", slug, name)


_COLLECTOR_WORDS = dict(COLLECTORS)


_SOURCES_SHOWN = 100


class LiveNew(ClusterPage):
    """`/c/<slug>/queries/-/live/?template=s2s-probe`"""

    template_name = "pages/live/new.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        template = TEMPLATES.get(request.GET.get("template", ""))
        form = TemplateForm(template=template, sources=self.sources(template)) if template else None
        return self.show_page(template, form)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        template = TEMPLATES.get(request.GET.get("template", ""))
        if template is None:
            return self.show_page(None, None, 422)
        form = TemplateForm(request.POST, template=template, sources=self.sources(template))
        if form.is_valid():
            names = {f"{parameter.name}": f"p_{parameter.name}" for parameter in template.parameters}
            query, ok = try_service(form, lambda: self._describe(template, form), {**names, "body": "__all__"})
            if ok:
                toast(request, f"{query.name} is saved as a draft. Preview its admission to run it.")
                return redirect(f"{reverse('pages:admission-new', args=[slug])}?{urlencode({'query': query.name})}")
        return self.show_page(template, form, 422)

    def sources(self, template: Template | None) -> list[str]:
        """Sources of the template's collector."""
        kind = template.collector if template is not None else ""
        rows = TelemetrySource.objects.filter(cluster=self.cluster, kind=kind)
        return list(rows.order_by("source_id").values_list("source_id", flat=True)[:_SOURCES_SHOWN])

    def _describe(self, template: Template, form: TemplateForm) -> Any:
        values = form.cleaned_data
        objective = {"statistic": "worst", "bound_s": values["bound_s"]} if values["bound_s"] else None
        return live_query_describe(
            cluster=self.cluster,
            template=template,
            name=values["name"],
            source=values["source"],
            parameters=form.parameters,
            options=values["options"],
            rate_eps=values["rate_eps"],
            objective=objective,
            team=values["team"],
            user=signed_in_user(self.request),
        )

    def show_page(self, template: Template | None, form: TemplateForm | None, status: int = 200) -> HttpResponse:
        here = reverse("pages:live-new", args=[self.slug])
        context: dict[str, object] = {
            "templates": [
                {
                    "title": choice.title,
                    "summary": choice.summary,
                    "url": f"{here}?template={choice.name}",
                    "current": choice is template,
                    "collector": _COLLECTOR_WORDS.get(choice.collector, choice.collector),
                }
                for choice in TEMPLATES.values()
            ],
            # as texts: what can be called is called by the templates of pages
            "title": template.title if template is not None else "",
            "summary": template.summary if template is not None else "",
            "form": form,
            "known_sources": self.sources(template),
            "operators": _operators(form) if form is not None else [],
            "rest_body": {"cluster": self.slug, "name": form.template.name, "operators": _rest_body(form)}
            if form
            else {},
        }
        return self.page(context, status)


def _operators(form: TemplateForm) -> list[dict[str, Any]]:
    """Each operator with what it does and whether it may run at the source."""
    try:
        draft = made_of(form.template, None, form.parameters)
        pipeline = Pipeline.parse(draft.document)
    except SluiceError:
        return []
    rows = zip(pipeline.operators, pipeline.rules, draft.document["operators"], strict=True)
    return [
        {
            "name": operator.id,
            "says": json.dumps(declared["expression"]),
            "allowed": rule.allowed,
            "reason": rule.reason,
        }
        for operator, rule, declared in rows
    ]


def _rest_body(form: TemplateForm) -> list[dict[str, Any]]:
    """Operators of the REST example."""
    try:
        return operators_of(made_of(form.template, None, form.parameters))
    except SluiceError:
        return []


class AlertRuleCrud(Crud, QueryTab):
    """`…/live/rules/`: the alert rules of a query."""

    noun, keyword = "alert rule", "rule"
    form_class = RuleForm
    form_keyword = "rule"
    template_name = "pages/live/rule.html"
    tab = "live"
    kept_fields = ("column", "comparison")
    back = "pages:query-live"
    text_deleted = "{row} is deleted with its alerts."
    service_create = staticmethod(alert_rule_create)
    service_update = staticmethod(alert_rule_update)
    service_delete = staticmethod(alert_rule_delete)

    def rows(self) -> QuerySet[AlertRule]:
        return alert_rules_listed().filter(query__cluster=self.cluster)

    def row(self, **key: Any) -> AlertRule:
        return self.find(self.rows().filter(query__name=key["name"]), self.noun, pk=key["pk"])

    @cached_property
    def query_detail(self) -> QueryDetail:
        return self.detail(self.kwargs["name"])

    @cached_property
    def view(self) -> LiveView:
        return LiveView(self.request, self.query_detail.query)

    def owner(self) -> dict[str, object]:
        return {"query": self.query_detail.query, "user": self.request.user}

    def form_arguments(self, row: AlertRule | None) -> dict[str, object]:
        column = self.view.column
        initial = {"name": f"{self.kwargs['name']} is high", "column": column}
        return {"columns": self.view.numbers} | ({"initial": initial} if row is None else {})

    def back_arguments(self, row: AlertRule | None) -> list[Any]:
        return [self.slug, self.kwargs["name"]]

    def show(self, form: Any, row: AlertRule | None = None, status: int = 200, **context: Any) -> HttpResponse:
        column = self.view.column or "p50_rtt"
        rest_body = {"query": self.query_detail.query.pk, "name": f"{column} is high", "column": column}
        rest_body |= {"comparison": "gt", "threshold": 20.0}
        secret = rule_secret(row) if row is not None else ""
        shown = {"form": form, "rule": row, "view": self.view, "secret": secret, "rest_body": rest_body}
        shown["may_add_another"] = row is None
        return QueryTab.show(self, self.query_detail, status, **shown)


class AlertAcknowledge(ClusterPage):
    """POST: acknowledge an alert."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str, pk: int) -> HttpResponse:
        alerts = alerts_listed().filter(rule__query__cluster=self.cluster, rule__query__name=name)
        alert = self.find(alerts, "alert", pk=pk)
        alert_acknowledge(alert=alert, user=signed_in_user(request), note=request.POST.get("note", "")[:200])
        return done(request, f"{alert.rule.name} is acknowledged.", "pages:query-live", slug, name)
