"""A new live query: choose a template, fill in a few numbers, see its operators, then preview its admission."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import SluiceError
from apps.pages.base import ClusterPage, try_service
from apps.pages.live_templates import live_query_describe, made_of, operators_of
from apps.pages.sources_forms import COLLECTORS, JsonField
from apps.telemetry.models import TelemetrySource
from apps.ui.feedback import toast
from engine.dataflow import Pipeline
from engine.dataflow.templates import TEMPLATES, Template

__all__ = ["LiveNew", "TemplateForm"]

#: Options without which a collector does not begin.
_OPTIONS: dict[str, dict[str, Any]] = {
    "tcp_probe": {"peers": [{"address": "127.0.0.1:8000"}], "interval_s": 1},
    "log_file": {"path": "var/log/access.log", "begin": "end"},
}
_COLLECTOR_WORDS = dict(COLLECTORS)


class TemplateForm(forms.Form):
    """The template's parameters and what a query has anyway."""

    name = forms.CharField(
        label="Name of the query", max_length=64, help_text="Lower-case letters, digits and hyphens."
    )
    source = forms.CharField(
        label="Reads the source",
        max_length=64,
        help_text="One that is collected already, or a new name: then it is added.",
    )
    options = JsonField(
        label="Options of its collector", required=False, help_text="As JSON; used where the source is new."
    )
    rate_eps = forms.FloatField(
        label="Records expected", initial=100, min_value=0.001, help_text="Assumed until they are measured."
    )
    bound_s = forms.FloatField(
        label="Objective",
        initial=10,
        required=False,
        min_value=0.001,
        help_text="Its latency is at most this; empty: none.",
    )
    team = forms.CharField(max_length=80, required=False, help_text="Who is asked when it needs a hand.")

    def __init__(self, *args: Any, template: Template, sources: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.template = template
        for one in template.parameters:
            self.fields[f"p_{one.name}"] = forms.FloatField(label=one.label, initial=one.default)
        self.fields["source"].widget.attrs["list"] = "known-sources"
        if not self.is_bound:
            self.initial.setdefault("name", template.name)
            self.initial.setdefault("source", sources[0] if sources else template.collector.replace("_", "-"))
            self.initial.setdefault("options", _OPTIONS.get(template.collector, {}))

    @property
    def parameter_fields(self) -> list[Any]:
        return [self[f"p_{one.name}"] for one in self.template.parameters]

    @property
    def parameters(self) -> dict[str, float]:
        """What is typed, as far as it is a number."""
        data = self.cleaned_data if self.is_bound and hasattr(self, "cleaned_data") else {}
        found = {one.name: data.get(f"p_{one.name}", one.default) for one in self.template.parameters}
        return {name: value for name, value in found.items() if value is not None}


class LiveNew(ClusterPage):
    """`/c/<slug>/queries/-/live/?template=s2s-probe`"""

    template_name = "pages/live/new.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        template = TEMPLATES.get(request.GET.get("template", ""))
        form = TemplateForm(template=template, sources=self.sources(template)) if template else None
        return self.shown(template, form)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        template = TEMPLATES.get(request.GET.get("template", ""))
        if template is None:
            return self.shown(None, None, 422)
        form = TemplateForm(request.POST, template=template, sources=self.sources(template))
        if form.is_valid():
            names = {f"{one.name}": f"p_{one.name}" for one in template.parameters}
            query, ok = try_service(form, lambda: self._describe(template, form), {**names, "body": "__all__"})
            if ok:
                toast(request, f"{query.name} is described. Nothing runs yet: preview its admission.")
                return redirect(f"{reverse('pages:admission-new', args=[slug])}?{urlencode({'query': query.name})}")
        return self.shown(template, form, 422)

    def sources(self, template: Template | None) -> list[str]:
        """Sources of the template's collector."""
        kind = template.collector if template is not None else ""
        rows = TelemetrySource.objects.filter(cluster=self.cluster, kind=kind)
        return list(rows.order_by("source_id").values_list("source_id", flat=True))

    def _describe(self, template: Template, form: TemplateForm) -> Any:
        found = form.cleaned_data
        objective = {"statistic": "worst", "bound_s": found["bound_s"]} if found["bound_s"] else None
        return live_query_describe(
            cluster=self.cluster,
            template=template,
            name=found["name"],
            source=found["source"],
            parameters=form.parameters,
            options=found["options"],
            rate_eps=found["rate_eps"],
            objective=objective,
            team=found["team"],
            user=self.request.user,
        )

    def shown(self, template: Template | None, form: TemplateForm | None, status: int = 200) -> HttpResponse:
        here = reverse("pages:live-new", args=[self.slug])
        context: dict[str, Any] = {
            "templates": [
                {
                    "title": one.title,
                    "summary": one.summary,
                    "url": f"{here}?template={one.name}",
                    "current": one is template,
                    "collector": _COLLECTOR_WORDS.get(one.collector, one.collector),
                }
                for one in TEMPLATES.values()
            ],
            # as texts: what can be called is called by the templates of pages
            "title": template.title if template is not None else "",
            "summary": template.summary if template is not None else "",
            "form": form,
            "known_sources": self.sources(template),
            "operators": _operators(form) if form is not None else [],
            "rest_body": {"cluster": self.slug, "name": form.template.name, "operators": _body(form)} if form else {},
        }
        return self.page(context, status)


def _operators(form: TemplateForm) -> list[dict[str, Any]]:
    """Each operator with what it does and whether it may run at the source."""
    try:
        made = made_of(form.template, None, form.parameters)
        pipeline = Pipeline.parse(made.document)
    except SluiceError:
        return []
    rows = zip(pipeline.operators, pipeline.rules, made.document["operators"], strict=True)
    return [
        {"name": one.id, "says": json.dumps(given["expression"]), "allowed": rule.allowed, "reason": rule.reason}
        for one, rule, given in rows
    ]


def _body(form: TemplateForm) -> list[dict[str, Any]]:
    """Its operators as the REST call has them."""
    try:
        return operators_of(made_of(form.template, None, form.parameters))
    except SluiceError:
        return []
