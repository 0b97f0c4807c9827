"""Catalogue of the pages of the console: who may read and change each, and its address in the world."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.urls import NoReverseMatch, reverse

__all__ = ["PAGES", "Page", "page_address"]

READ, OPERATE, ADMIT, ADMIN = "read", "operate", "admit", "admin"


@dataclass(frozen=True)
class Page:
    """`get` and `post` are the scopes that a method needs; None: the page has no such method.

    `at` are the parts of the address: {keyword: name in the world}; `slug` is always the cluster. `query` is what
    stands behind the question mark.
    """

    get: str | None = READ
    post: str | None = None
    at: dict[str, str] = field(default_factory=dict)
    query: str = ""
    status: int = 200  #: of what is read


def _form(**at: str) -> Page:
    """A form that operators see and send."""
    return Page(get=OPERATE, post=OPERATE, at=at)


def _action(scope: str = OPERATE, **at: str) -> Page:
    """A button: nothing to read at its address."""
    return Page(get=None, post=scope, at=at)


def _view(**at: str) -> Page:
    """A page that everybody may read."""
    return Page(at=at)


_NODE = {"name": "node"}
_QUERY = {"name": "query"}
_LIVE = {"name": "live_query"}
_AGENT = {"name": "agent"}
_AGENT_QUERY = {"name": "agent", "query": "live_query"}

PAGES: dict[str, Page] = {
    "accounts:settings": Page(post=READ),
    "accounts:password": _action(READ),
    "accounts:tokens": Page(post=READ),
    "accounts:token-revoke": _action(READ, pk="token"),
    "signin:settings": _view(),
    "signin:session-end": _action(READ, session_id="session"),
    "signin:sessions-end": _action(READ),
    "signin:unlink": _action(READ),
    "signin:second-factor": Page(post=READ),
    "signin:second-factor-remove": _action(READ),
    "signin:recovery-codes": _action(READ),
    "signin:invitations": Page(get=ADMIN, post=ADMIN),
    "signin:invitation-revoke": _action(ADMIN, pk="invitation"),
    "pages:home": Page(status=302),
    "pages:saved-views": _view(),
    "pages:saved-view-new": Page(post=READ),
    "pages:saved-view-default": _action(READ),
    "pages:saved-view": Page(post=READ, at={"pk": "saved_view"}),
    "pages:saved-view-delete": _action(READ, pk="saved_view"),
    "pages:changes": _view(),
    "pages:change-undo": _action(pk="change"),
    "pages:group-undo": _action(group="change_group"),
    "pages:overview": _view(),
    "pages:estimate-now": _action(),
    "pages:cluster-menu": _view(),
    "pages:cluster-new": _form(),
    "pages:cluster-edit": _form(),
    "pages:cluster-delete": _action(),
    "pages:search": Page(query="q=a"),
    "pages:search-suggestions": Page(query="q=a"),
    "pages:fleet": _view(),
    "pages:nodes-change": _action(),
    "pages:fleet-import": _form(),
    "pages:node-new": _form(),
    "pages:node": _view(**_NODE),
    "pages:node-edit": _form(**_NODE),
    "pages:node-state": _action(**_NODE),
    "pages:node-delete": _action(**_NODE),
    "pages:pools": _view(),
    "pages:pool-new": _form(),
    "pages:pool-edit": _form(pk="pool"),
    "pages:pool-delete": _action(pk="pool"),
    "pages:pool-plan": _form(pk="pool"),
    "pages:links": _view(),
    "pages:link-new": _form(),
    "pages:link-edit": _form(pk="link"),
    "pages:link-delete": _action(pk="link"),
    "pages:queries": _view(),
    "pages:queries-change": _action(),
    "pages:query-new": _form(),
    "pages:query-example": Page(get=OPERATE),
    "pages:query-operator-row": Page(get=OPERATE),
    "pages:query": _view(**_QUERY),
    "pages:query-statistics": Page(post=OPERATE, at=_QUERY),
    "pages:query-capacity": _action(**_QUERY),
    "pages:query-placement": _view(**_QUERY),
    "pages:query-remedies": Page(post=OPERATE, at=_QUERY),
    "pages:query-remedy-preview": _action(**_QUERY),
    "pages:query-parallelism": Page(post=OPERATE, at=_QUERY),
    "pages:query-versions": _view(**_QUERY),
    "pages:query-version-new": _form(**_QUERY),
    "pages:query-decisions": _view(**_QUERY),
    "pages:query-estimates": _view(**_QUERY),
    "pages:query-changes": _view(**_QUERY),
    "pages:query-edit": _form(**_QUERY),
    "pages:query-predict": _action(**_QUERY),
    "pages:query-backlog": _action(**_QUERY),
    "pages:query-stop": _action(**_QUERY),
    "pages:query-delete": _action(**_QUERY),
    "pages:query-plans": _view(**_QUERY),
    "pages:query-plans-compare": _action(**_QUERY),
    "pages:query-plan-adopt": _action(**_QUERY),
    "pages:query-live": _view(**_LIVE),
    "pages:import-new": _form(),
    "pages:import": _form(pk="import"),
    "pages:arrivals": _view(),
    "pages:arrivals-new": _form(),
    "pages:arrivals-columns": Page(get=OPERATE, post=OPERATE, query="key={upload}"),
    "pages:arrivals-generator": _form(),
    "pages:arrivals-detail": _view(pk="series"),
    "pages:arrivals-fields": _action(pk="series"),
    "pages:arrivals-delete": _action(pk="series"),
    "pages:spark-queries": _view(),
    "pages:spark-query-new": _form(),
    "pages:spark-query": _view(pk="spark_query"),
    "pages:spark-query-progress": _action(pk="spark_query"),
    "pages:spark-query-refit": _action(pk="spark_query"),
    "pages:spark-query-apply": _form(pk="spark_query"),
    "pages:spark-query-edit": _form(pk="spark_query"),
    "pages:spark-query-delete": _action(pk="spark_query"),
    "pages:histories": _view(),
    "pages:history-new": _form(),
    "pages:history-columns": Page(get=OPERATE, post=OPERATE, query="key={upload}"),
    "pages:history-generator": _form(),
    "pages:history": _view(pk="history"),
    "pages:history-delete": _action(pk="history"),
    "pages:live-new": _form(),
    "pages:live-start": _action(**_LIVE),
    "pages:live-stop": _action(**_LIVE),
    "pages:live-assign": _action(**_LIVE),
    "pages:alert-rule-new": _form(**_LIVE),
    "pages:alert-rule": _form(**_LIVE, pk="rule"),
    "pages:alert-rule-delete": _action(**_LIVE, pk="rule"),
    "pages:alert-acknowledge": _action(**_LIVE, pk="alert"),
    "pages:connections": _view(),
    "pages:connection-new": _form(),
    "pages:connection": _view(pk="connection"),
    "pages:connection-check": Page(post=OPERATE, at={"pk": "connection"}),
    "pages:connection-import": _action(ADMIT, pk="connection"),
    "pages:connection-refresh": _action(pk="connection"),
    "pages:connection-pause": _action(pk="connection"),
    "pages:connection-resume": _action(pk="connection"),
    "pages:connection-upload": _action(pk="connection"),
    "pages:connection-edit": _form(pk="connection"),
    "pages:connection-delete": _action(pk="connection"),
    "pages:admissions": _view(),
    "pages:kubernetes-reviews": _view(),
    "pages:admission-new": Page(get=OPERATE, post=OPERATE, query="query=draft"),
    "pages:admission-plan": Page(get=OPERATE, query="query=draft"),
    "pages:admission": _view(pk="admission"),
    "pages:admission-preview": _action(pk="admission"),
    "pages:admission-trial": _action(pk="admission"),
    "pages:admission-parts": _action(pk="admission"),
    "pages:admission-trial-stop": _action(pk="admission"),
    "pages:admission-apply": _action(ADMIT, pk="admission"),
    "pages:admission-withdraw": _action(pk="admission"),
    "pages:admission-review": _action(pk="admission"),
    "pages:admission-approve": _action(ADMIT, pk="admission"),
    "pages:admission-decline": _action(ADMIT, pk="admission"),
    "pages:admission-receipt": _action(ADMIT, pk="admission"),
    "pages:admission-override": _action(ADMIT, pk="admission"),
    "pages:placement": Page(post=OPERATE),
    "pages:placement-runs": _view(),
    "pages:placement-rule": Page(get=OPERATE),
    "pages:names": Page(query="of=queries"),
    "pages:placement-run": _view(pk="placement"),
    "pages:placement-live": Page(at={"pk": "placement"}, status=204),
    "pages:placement-standing": _view(pk="placement"),
    "pages:placement-stop": _action(pk="placement"),
    "pages:placement-apply": _action(pk="placement"),
    "pages:placement-abort": _action(pk="placement"),
    "pages:placement-undo": _action(pk="placement"),
    "pages:placement-again": _action(pk="placement"),
    "pages:placement-delete": _action(pk="placement"),
    "pages:provisioning": _view(),
    "pages:provisioning-refine": _action(),
    "pages:provisioning-find": _action(),
    "pages:provisioning-nodes": Page(post=OPERATE),
    "pages:scenario-new": _action(),
    "pages:scenarios-compare": _action(),
    "pages:scenario": _view(pk="scenario"),
    "pages:scenario-delete": _action(pk="scenario"),
    "pages:what-ifs": _view(),
    "pages:what-if": _view(pk="what_if"),
    "pages:resource-plans": _view(),
    "pages:resource-plan-new": Page(post=OPERATE),
    "pages:resource-plan": _view(pk="resource_plan"),
    "pages:resource-plan-apply": _action(pk="resource_plan"),
    "pages:resource-plan-delete": _action(pk="resource_plan"),
    "pages:forecast": _view(),
    "pages:forecast-now": _action(),
    "pages:evacuations": _view(),
    "pages:evacuation-new": _form(),
    "pages:evacuation": _view(pk="evacuation"),
    "pages:evacuation-commands": _view(pk="evacuation"),
    "pages:evacuation-confirm": _action(pk="evacuation"),
    "pages:evacuation-finish": _action(pk="evacuation"),
    "pages:evacuation-stop": _action(pk="evacuation"),
    "pages:evacuation-delete": _action(pk="evacuation"),
    "pages:backtests": _view(),
    "pages:backtest-now": _action(),
    "pages:backtest": _view(pk="backtest"),
    "pages:backtest-delete": _action(pk="backtest"),
    "pages:events": _view(),
    "pages:event-new": Page(get=OPERATE, post=OPERATE),
    "pages:event": _view(pk="event"),
    "pages:event-ask": _action(pk="event"),
    "pages:event-check": _action(pk="event"),
    "pages:event-edit": Page(get=OPERATE, post=OPERATE, at={"pk": "event"}),
    "pages:event-delete": _action(pk="event"),
    "pages:incidents": _view(),
    "pages:incidents-menu": _view(),
    "pages:incident-routing": Page(post=OPERATE),
    "pages:embed-link": _form(),
    "pages:incident-channels": Page(post=OPERATE),
    "pages:incident-channel-new": _form(),
    "pages:incident-channel": _form(pk="incident_channel"),
    "pages:incident-channel-test": _action(pk="incident_channel"),
    "pages:incident-channel-delete": _action(pk="incident_channel"),
    "pages:incident-silence-end": _action(pk="incident_silence"),
    "pages:incident": _view(pk="incident"),
    "pages:incident-acknowledge": _action(pk="incident"),
    "pages:incident-done": _action(pk="incident"),
    "pages:accuracy": _view(),
    "pages:promises": _view(),
    "pages:accuracy-simulate": _action(),
    "pages:prediction-model": _view(),
    "pages:prediction-model-tune": _action(),
    "pages:prediction-model-use": _action(pk="model_version"),
    "pages:sources": _view(),
    "pages:agent-enrol": _action(),
    "pages:agent-enrol-revoke": _action(pk="enrolment"),
    "pages:agent": _view(**_AGENT),
    "pages:agent-budget": _action(**_AGENT),
    "pages:agent-budget-preview": Page(get=OPERATE, at=_AGENT, query="budget=0.2"),
    "pages:agent-enable": _action(**_AGENT),
    "pages:agent-remove": _action(**_AGENT),
    "pages:agent-factors": _form(**_AGENT_QUERY),
    "pages:agent-give-back": _action(**_AGENT_QUERY),
    "pages:agent-method": _form(**_AGENT_QUERY),
    "pages:agents-change": Page(get=OPERATE, post=OPERATE, query="what=budget&row={agent}"),
    "pages:stream-state": _view(),
    "pages:stream-state-read": _action(),
    "pages:stream-history": _view(),
    "pages:stream-history-run": _action(),
    "pages:schedule": _view(),
    "pages:schedule-replay": Page(post=OPERATE, query="agent={agent}", status=302),
    "pages:schedule-switch": _form(),
    "pages:configs": _view(),
    "pages:config-new": _form(),
    "pages:config": _view(number="config"),
    "pages:config-start": _action(number="config"),
    "pages:rollout-change": _action(pk="rollout", change="pause"),
    "pages:rollout-policy": Page(post=OPERATE),
    "pages:source-new": _form(),
    "pages:source": Page(post=OPERATE, at={"source_id": "source"}),
    "pages:source-delete": _action(source_id="source"),
    "pages:static-table-new": _form(),
    "pages:static-table": Page(post=OPERATE, at={"name": "table"}),
    "pages:static-table-delete": _action(name="table"),
    "pages:reports": _view(),
    "pages:report-new": _form(),
    "pages:report-schedule": _action(),
    "pages:report-definition": _form(pk="definition"),
    "pages:report-run": _action(pk="definition"),
    "pages:report-definition-delete": _action(pk="definition"),
    "pages:report-webhooks": _form(),
    "pages:report-webhook-renew": _action(pk="webhook"),
    "pages:report-webhook-delete": _action(pk="webhook"),
    "pages:report": _view(pk="report"),
    "pages:report-delete": _action(pk="report"),
    "pages:report-send": _action(pk="report", number="delivery"),
    "pages:report-file": _view(pk="report", form="file_format"),
    "pages:jobs": _view(),
    "pages:jobs-menu": _view(),
    "pages:job": _view(pk="job"),
    "pages:job-progress": _view(pk="job"),
    "pages:job-cancel": _action(pk="job"),
    "pages:ledger": Page(get=ADMIN),
    "pages:operation": Page(get=ADMIN),
    "pages:people": Page(get=ADMIN, post=ADMIN),
    "pages:person-change": _action(ADMIN, pk="person"),
    "pages:person-password": Page(get=ADMIN, post=ADMIN, at={"pk": "person"}),
    "pages:help": _view(),
    "pages:guide": _view(path="guide"),
    "pages:api": _view(),
}


def page_address(name: str, world: dict[str, Any]) -> str:
    """Where the page stands in the world."""
    page = PAGES[name]
    values = {key: world.get(value, value) for key, value in page.at.items()}
    try:
        found = reverse(name, kwargs=values)
    except NoReverseMatch:
        found = reverse(name, kwargs={"slug": world["cluster"], **values})
    return f"{found}?{page.query.format(**world)}" if page.query else found
