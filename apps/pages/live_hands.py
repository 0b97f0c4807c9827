"""What of the live loop needs a hand: alerts that fire, agents that do not report or cannot keep up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.fleet.models import Cluster
from apps.pages.context import url_of
from apps.pages.hand import Hand
from apps.results.choices import Severity
from apps.results.models import Alert
from apps.results.selectors import alerts_firing
from apps.telemetry.choices import AgentState
from apps.telemetry.models import Agent, LiveQuery
from apps.telemetry.states import agent_state
from apps.ui.numbers import significant
from apps.ui.times import ago

__all__ = ["live_hands"]

_TONES = {Severity.CRITICAL: ("bad", "bad"), Severity.WARNING: ("watch", "watch"), Severity.NOTICE: ("info", "muted")}
_MOST_RULES = 4  # of which alerts are listed by themselves; one entry for each rule


def live_hands(cluster: Cluster) -> list[Hand]:
    """Alerts that nobody has seen, then agents that are silent or congested, then live queries that stopped."""
    return [*_alerts(cluster), *_agents(cluster), *_stopped(cluster)]


def _alerts(cluster: Cluster) -> list[Hand]:
    by_rule: dict[int, list[Alert]] = {}
    for alert in alerts_firing(cluster).filter(acknowledged_at=None)[:500]:
        by_rule.setdefault(alert.rule_id, []).append(alert)
    return [_alert(cluster, alerts) for alerts in list(by_rule.values())[:_MOST_RULES]]


def _alert(cluster: Cluster, alerts: Sequence[Alert]) -> Hand:
    first = alerts[0]
    rule = first.rule
    drawing, tone = _TONES[Severity(rule.severity)]
    against = f"{rule.get_comparison_display()} {significant(rule.threshold)}"
    about = f"{rule.column} is {significant(first.last_value)}, {against}"
    if len(alerts) == 1:
        title = f"{rule.name}: {first.group_text}" if first.group else rule.name
    else:
        title = f"{rule.name}, {len(alerts)} groups"
        about = f"{first.group_text}: {about}"
    url = url_of("pages:query-live", cluster.slug, rule.query.name)
    return Hand(drawing, tone, title, f"{about}. {rule.query.name}, opened {ago(first.opened_at)}.", url, "Open alerts")


def _agents(cluster: Cluster) -> list[Hand]:
    found: dict[Any, list[Agent]] = {}
    for agent in Agent.objects.filter(cluster=cluster, enabled=True).order_by("name"):
        found.setdefault(agent_state(agent).state, []).append(agent)
    url = url_of("pages:sources", cluster.slug)
    hands = []
    if silent := found.get(AgentState.SILENT):
        title = f"{silent[0].name} does not report" if len(silent) == 1 else f"{len(silent)} agents do not report"
        names = "" if len(silent) == 1 else f"{', '.join(agent.name for agent in silent[:3])}. "
        text = f"{names}Last report {ago(silent[0].last_seen)}. Results close without what is silent for too long."
        hands.append(Hand("unknown", "watch", title, text, url, "Open sources"))
    for state, one, many in (
        (AgentState.SPOOL, "keeps more than it gets rid of", "keep more than they get rid of"),
        (AgentState.OVERFLOW, "sends records on unprocessed", "send records on unprocessed"),
    ):
        if agents := found.get(state):
            title = f"{agents[0].name} {one}" if len(agents) == 1 else f"{len(agents)} agents {many}"
            reasons = agent_state(agents[0]).reasons
            text = f"{agents[0].name}: {reasons[0]}." if reasons else ""
            hands.append(Hand("watch", "watch", title, text, url, "Open sources"))
    return hands


def _stopped(cluster: Cluster) -> list[Hand]:
    """Live queries that ended without being asked to."""
    rows = LiveQuery.objects.filter(query__cluster=cluster, state="stopped").exclude(fault="").select_related("query")
    return [
        Hand(
            "bad",
            "bad",
            f"{live.query.name} is no longer live",
            live.fault,
            url_of("pages:query-live", cluster.slug, live.query.name),
            "Open query",
        )
        for live in rows[:3]
    ]
