"""Alert rules of a query, and saying that an alert was seen."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Missing
from apps.pages.alerts_forms import RuleForm
from apps.pages.base import done, try_service
from apps.pages.live_view import LiveView
from apps.pages.query_tabs import QueryTab
from apps.results.models import AlertRule
from apps.results.notifying import rule_secret
from apps.results.rules import alert_acknowledge, alert_rule_create, alert_rule_delete, alert_rule_update
from apps.results.selectors import alert_rules_listed, alerts_listed

__all__ = ["AlertAcknowledge", "RuleDelete", "RuleEdit", "RuleNew"]


class _RulePage(QueryTab):
    template_name = "pages/live/rule.html"
    scope = "operate"
    tab = "live"

    def rule(self, name: str, pk: int) -> AlertRule:
        found = alert_rules_listed().filter(query__cluster=self.cluster, query__name=name, pk=pk).first()
        if found is None:
            raise Missing(f"Query {name!r} has no alert rule {pk}.")
        return found

    def shown(
        self, name: str, form: RuleForm | None = None, rule: AlertRule | None = None, status: int = 200
    ) -> HttpResponse:
        detail = self.detail(name)
        view = LiveView(self.request, detail.query)
        given = form or RuleForm(columns=view.numbers, rule=rule)
        if form is None and rule is None:
            given.initial |= {"name": f"{name} is high", "column": view.column}
        example, secret = _example(detail.query.pk, view), rule_secret(rule) if rule is not None else ""
        return self.show(detail, status, form=given, rule=rule, view=view, secret=secret, rest_body=example)

    def save(self, name: str, rule: AlertRule | None = None) -> HttpResponse:
        detail = self.detail(name)
        columns = LiveView(self.request, detail.query).numbers
        form = RuleForm(self.request.POST, columns=columns, rule=rule)
        if form.is_valid():
            saved, ok = try_service(form, lambda: self._store(detail.query, form.cleaned_data, rule))
            if ok:
                return done(self.request, f"{saved.name} is saved.", "pages:query-live", self.slug, name)
        return self.shown(name, form, rule, 422)

    def _store(self, query: Any, values: dict[str, Any], rule: AlertRule | None) -> AlertRule:
        if rule is not None:
            return alert_rule_update(rule=rule, **values)
        return alert_rule_create(query=query, user=self.request.user, **values)


def _example(query: int, view: LiveView) -> dict[str, Any]:
    column = view.column or "p50_rtt"
    return {"query": query, "name": f"{column} is high", "column": column, "comparison": "gt", "threshold": 20.0}


class RuleNew(_RulePage):
    """`…/live/rules/new/`"""

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.shown(name)

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        return self.save(name)


class RuleEdit(_RulePage):
    """`…/live/rules/<number>/`"""

    def get(self, request: HttpRequest, slug: str, name: str, pk: int) -> HttpResponse:
        return self.shown(name, rule=self.rule(name, pk))

    def post(self, request: HttpRequest, slug: str, name: str, pk: int) -> HttpResponse:
        return self.save(name, self.rule(name, pk))


class RuleDelete(_RulePage):
    """POST: forget a rule with its alerts."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str, pk: int) -> HttpResponse:
        rule = self.rule(name, pk)
        alert_rule_delete(rule=rule)
        return done(request, f"{rule.name} is deleted with its alerts.", "pages:query-live", slug, name)


class AlertAcknowledge(_RulePage):
    """POST: somebody has seen it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str, pk: int) -> HttpResponse:
        alert = alerts_listed().filter(rule__query__cluster=self.cluster, rule__query__name=name, pk=pk).first()
        if alert is None:
            raise Missing(f"Query {name!r} has no alert {pk}.")
        alert_acknowledge(alert=alert, user=request.user, note=request.POST.get("note", "")[:200])
        return done(request, f"{alert.rule.name} is acknowledged.", "pages:query-live", slug, name)
