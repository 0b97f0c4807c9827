"""Attention list of a cluster: what an operator should look at, the most urgent first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Case, Count, Exists, F, Min, OuterRef, Q, Value, When, Window
from django.db.models.functions import Coalesce, RowNumber
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services import tokens_ending
from apps.admission.choices import AdmissionState
from apps.admission.models import AdmissionRequest
from apps.connections.choices import ConnectionState
from apps.connections.selectors import connections_away
from apps.estimates.choices import Certainty, DecidedBy, TrustState
from apps.estimates.models import ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import estimates_named
from apps.estimates.words import cause_sentence, cause_title, evidence_words
from apps.fleet.choices import Evidence
from apps.fleet.models import Cluster
from apps.incidents.models import Incident
from apps.incidents.selectors import incidents_open
from apps.measurements.models import StreamStretch, StreamWork
from apps.microbatch.selectors import spark_queries_drifting
from apps.pages.context import url_of
from apps.pages.overview.findings import Findings, first_estimates
from apps.planning.forecast_findings import shortages
from apps.planning.forecasts import FORECAST
from apps.planning.plans import plans_recommended
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import OperatorInput, Query
from apps.queries.selectors import nodes_over_memory
from apps.results.models import Alert, Severity
from apps.results.selectors import alerts_firing
from apps.telemetry.models import Agent, AgentState, LiveQuery
from apps.telemetry.selectors import agent_state
from apps.ui.marks import STATES, judged_state
from apps.ui.numbers import seconds, significant
from apps.ui.sentences import sentence
from apps.ui.times import ago, short
from engine.measurement.causes import (
    AGENT_SHEDS,
    AGENT_SILENT,
    ENGINE_AWAY,
    LIVE_ENDED,
    STREAM_AWAY,
    UNEXPLAINED,
    LatenessCause,
)
from engine.measurement.objectives import ESTIMATE, MEASUREMENT
from engine.words import counted, listed

__all__ = ["MAX_ITEMS", "AttentionItem", "attention_list"]


@dataclass(frozen=True)
class AttentionItem:
    """One entry of the attention list."""

    drawing: str
    tone: str
    title: str
    text: str
    url: str
    action: str = ""
    helps: str = ""  #: address of what helps


MAX_ITEMS = 8
_TONES = {Severity.CRITICAL: ("bad", "bad"), Severity.WARNING: ("watch", "watch"), Severity.NOTICE: ("info", "muted")}
_MAX_LISTED = 20
_MAX_NAMED = 4
_MAX_GAPS = 4  # of what cannot be observed
_MAX_RULES = 4  # of which alerts are listed by themselves; one entry for each rule


def attention_list(findings: Findings, reader: User | None = None) -> tuple[list[AttentionItem], int]:
    """The first `MAX_ITEMS` of the list, the most urgent first, and the number of all.

    Tokens of its reader that expire soon are on it as well: what uses them stops then.
    """
    cluster = findings.cluster
    late, late_count = _late(findings)
    gaps = _gaps(findings)
    told = {gap.key for gap in gaps}
    items = [
        *(_of_gap(cluster, gap) for gap in gaps),
        *late,
        *_over_memory(cluster),
        *_live(cluster, told),
        *_away(cluster, told),
        *_untrusted(findings),
        *_ending(reader),
        *_waiting(cluster),
        *_unknown(findings),
        *_threatened(findings),
        *_drifting(cluster),
        *_plans(cluster),
        *_alarm(findings),
        *_unestimated(findings),
        *_assumed(cluster),
    ]
    return items[:MAX_ITEMS], late_count + len(items) - len(late)


@dataclass(frozen=True)
class _Gap:
    """Queries that are not known since one thing cannot be observed: what that is, how many, and the first of them."""

    cause: LatenessCause
    since: datetime | None
    count: int
    names: Sequence[str]

    @property
    def key(self) -> tuple[str, str]:
        return self.cause.kind, self.cause.subject


def _gaps(findings: Findings) -> list[_Gap]:
    """Causes for which queries cannot be observed: the stream processor, then those of the most queries."""
    rows = ObjectiveStatus.objects.filter(
        query__cluster=findings.cluster, query__state=QueryState.RUNNING, decided_by=DecidedBy.NOTHING
    )
    place = Window(RowNumber(), partition_by=["cause_kind", "cause_subject"], order_by=["query__name"])
    counted = Window(Count("pk"), partition_by=["cause_kind", "cause_subject"])
    first_at = Window(Min("since"), partition_by=["cause_kind", "cause_subject"])
    listed = rows.select_related("query").annotate(place=place, n=counted, first_at=first_at)
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in listed.filter(place__lte=_MAX_NAMED).order_by("place"):
        groups.setdefault(row.cause_key, []).append(row)
    gaps = [
        _Gap(
            group[0].lateness[0],
            _gone_since(findings.cluster, group[0].lateness[0]) or group[0].first_at,
            group[0].n,
            [row.query.name for row in group],
        )
        for group in groups.values()
    ]
    return sorted(gaps, key=lambda gap: (gap.cause.kind != STREAM_AWAY, -gap.count, gap.key))[:_MAX_GAPS]


def _gone_since(cluster: Cluster, cause: LatenessCause) -> datetime | None:
    """Since when it cannot be observed; None where only the states tell."""
    if cause.kind == STREAM_AWAY:
        last = StreamStretch.objects.first()
        return last.begins_at if last is not None and last.work != StreamWork.STEADY else None
    if cause.kind == AGENT_SILENT:
        return Agent.objects.filter(cluster=cluster, name=cause.subject).values_list("last_seen", flat=True).first()
    if cause.kind == ENGINE_AWAY:
        rows = cluster.connections.filter(name=cause.subject)
        return rows.values_list("state_since", flat=True).first()
    return None


def _of_gap(cluster: Cluster, gap: _Gap) -> AttentionItem:
    names = _listed_first(gap.names, gap.count)
    since = f"Since {ago(gap.since)}: whether" if gap.since is not None else "Whether"
    objective = "its objective" if gap.count == 1 else "their objectives"
    text = f"{since} {names} {'holds' if gap.count == 1 else 'hold'} {objective} is not known; nothing measures it."
    title = f"{cause_title(gap.cause)}: {counted(gap.count, 'query', 'queries')} not known"
    kind = gap.cause.kind
    if kind == ENGINE_AWAY:
        connection = cluster.connections.filter(name=gap.cause.subject).first()
        url = url_of("pages:connection", cluster.slug, connection.pk) if connection is not None else ""
        item = AttentionItem("unknown", "watch", title, text, url, "Open connection")
        incident = incidents_open(cluster).filter(cause_kind=kind, cause_subject=gap.cause.subject).first()
        return _with_incident(item, incident) if incident is not None else item
    if kind == LIVE_ENDED:
        url = url_of("pages:query-live", cluster.slug, gap.names[0])
        return AttentionItem("bad", "bad", title, f"{cause_sentence(gap.cause)} {text}", url, "Open query")
    drawing, tone = ("bad", "bad") if kind == STREAM_AWAY else ("unknown", "watch")
    return AttentionItem(drawing, tone, title, text, url_of("pages:sources", cluster.slug), "Open sources")


def _live(cluster: Cluster, told: Collection[tuple[str, str]]) -> list[AttentionItem]:
    """Unacknowledged alerts, then agents that are silent or congested, then live queries that stopped.

    What was `told`, and what follows from it, is left out: frames wait while the stream processor takes none.
    """
    return [*_alerts(cluster), *_agents(cluster, told), *_stopped(cluster)]


def _alerts(cluster: Cluster) -> list[AttentionItem]:
    by_rule: dict[int, list[Alert]] = {}
    for alert in alerts_firing(cluster).filter(acknowledged_at=None)[:500]:
        by_rule.setdefault(alert.rule_id, []).append(alert)
    return [_alert(cluster, alerts) for alerts in list(by_rule.values())[:_MAX_RULES]]


def _alert(cluster: Cluster, alerts: Sequence[Alert]) -> AttentionItem:
    first = alerts[0]
    rule = first.rule
    drawing, tone = _TONES[Severity(rule.severity)]
    against = f"{rule.get_comparison_display()} {significant(rule.threshold)}"
    opened = ago(first.opened_at)
    about = f"{rule.column} is {significant(first.last_value)}, {against}. {rule.query.name}, opened {opened}."
    if len(alerts) == 1:
        title = f"{rule.name}: {first.group_text}" if first.group else rule.name
    else:
        title = f"{rule.name}, {len(alerts)} groups"
        about = f"{first.group_text}: {about}"
    url = url_of("pages:query-live", cluster.slug, rule.query.name)
    return AttentionItem(drawing, tone, title, about, url, "Open alerts")


def _over_memory(cluster: Cluster) -> list[AttentionItem]:
    """Nodes whose operators hold more state than the node has memory."""
    over = nodes_over_memory(cluster)
    if not over:
        return []
    worst = over[0]
    title = f"{worst.node} holds more state than memory"
    if len(over) > 1:
        title = f"{len(over)} nodes hold more state than memory"
    url = url_of("pages:node", cluster.slug, worst.node)
    return [AttentionItem("bad", "bad", title, f"{worst.held}.", url, "Open node")]


def _agents(cluster: Cluster, told: Collection[tuple[str, str]]) -> list[AttentionItem]:
    by_state: dict[Any, list[Agent]] = {}
    stream_away = any(kind == STREAM_AWAY for kind, _ in told)
    for agent in Agent.objects.filter(cluster=cluster, enabled=True).order_by("name"):
        state = agent_state(agent).state
        follows = stream_away and state == AgentState.SPOOL
        if follows or {(AGENT_SILENT, agent.name), (AGENT_SHEDS, agent.name)} & set(told):
            continue
        by_state.setdefault(state, []).append(agent)
    url = url_of("pages:sources", cluster.slug)
    items = []
    if silent := by_state.get(AgentState.SILENT):
        title = _agents_title(silent, "{} does not report", "{} agents do not report")
        reason = agent_state(silent[0]).reasons[0]
        text = f"{reason[:1].upper()}{reason[1:]}. Windows close without agents that are silent for too long."
        if len(silent) > 1:
            text = f"{', '.join(agent.name for agent in silent[:3])}. {text}"
        items.append(AttentionItem("unknown", "watch", title, text, url, "Open sources"))
    for state, single, several in (
        (AgentState.SPOOL, "{} spools faster than it sends", "{} agents spool faster than they send"),
        (AgentState.OVERFLOW, "{} forwards records unprocessed", "{} agents forward records unprocessed"),
    ):
        if agents := by_state.get(state):
            title = _agents_title(agents, single, several)
            reasons = agent_state(agents[0]).reasons
            text = f"{agents[0].name}: {reasons[0]}." if reasons else ""
            items.append(AttentionItem("watch", "watch", title, text, url, "Open sources"))
    return items


def _agents_title(agents: Sequence[Agent], single: str, several: str) -> str:
    return single.format(agents[0].name) if len(agents) == 1 else several.format(len(agents))


def _stopped(cluster: Cluster) -> list[AttentionItem]:
    """Live queries that ended by a fault."""
    rows = LiveQuery.objects.filter(query__cluster=cluster, state="stopped").exclude(fault="").select_related("query")
    rows = rows.exclude(query__objective_status__decided_by=DecidedBy.NOTHING)  # told already: it is not known
    return [
        AttentionItem(
            "bad",
            "bad",
            f"{live.query.name} is no longer live",
            live.fault,
            url_of("pages:query-live", cluster.slug, live.query.name),
            "Open query",
        )
        for live in rows[:3]
    ]


def _away(cluster: Cluster, told: Collection[tuple[str, str]]) -> list[AttentionItem]:
    """Engines that do not answer, or with something else, and were not told: their statistics age."""
    items = []
    away = connections_away(cluster).exclude(name__in=[name for kind, name in told if kind == ENGINE_AWAY])
    connections = list(away.defer("findings", "look")[:_MAX_NAMED])
    rows = incidents_open(cluster).filter(cause_kind=ENGINE_AWAY) if connections else []
    incidents = {row.cause_subject: row for row in rows}
    for connection in connections:
        is_away = connection.state == ConnectionState.AWAY
        drawing, tone = ("unknown", "watch") if is_away else ("reject", "bad")
        title = f"{connection.name} does not answer" if is_away else f"{connection.name} cannot be read"
        text = sentence("pages/overview/sentences/away.html", connection=connection)
        url = url_of("pages:connection", cluster.slug, connection.pk)
        item = AttentionItem(drawing, tone, title, text, url, "Open connection")
        incident = incidents.get(connection.name)
        items.append(_with_incident(item, incident) if incident is not None else item)
    return items


def _drifting(cluster: Cluster) -> list[AttentionItem]:
    """Spark queries whose micro-batches differ from their predictions."""
    queries = list(spark_queries_drifting(cluster)[:_MAX_LISTED])
    if not queries:
        return []
    first, url = queries[0], url_of("pages:spark-query", cluster.slug, queries[0].pk)
    text = sentence("pages/overview/sentences/drifting.html", query=first, names=[query.name for query in queries[1:]])
    if len(queries) == 1:
        return [AttentionItem("watch", "watch", f"{first.name} drifts from its prediction", text, url, "Open query")]
    title = f"{len(queries)} Spark queries drift from their predictions"
    return [AttentionItem("watch", "watch", title, text, url_of("pages:spark-queries", cluster.slug), "Open queries")]


_FORECASTS = {
    "high": "Forecast, at the 90% band",
    "mean": "Forecast, at the expected load",
    "risk": "Forecast, at risk from random costs and arrivals at the expected load",
}


def _threatened(findings: Findings) -> list[AttentionItem]:
    """The first objective that the forecast sees violated, unless its query is over already."""
    cluster = findings.cluster
    row = FORECAST.visible().filter(cluster=cluster).first()
    if row is None or row.is_over:
        return []
    seen = shortages(cluster, row)
    breached = findings.rows.filter(shown_state=ObjectiveState.BREACHED, query__name__in={each.query for each in seen})
    over = set(breached.values_list("query__name", flat=True)) if seen else set()
    threatened = [shortage for shortage in seen if shortage.query not in over]
    if not threatened:
        return []
    first = threatened[0]
    with timezone.override(ZoneInfo(cluster.time_zone)):
        when = short(first.first_at)
    text = _FORECASTS[first.band]
    if len(threatened) > 1:
        text += f"; {len(threatened) - 1} more threatened"
    title = f"{first.query} may miss its objective from {when}"
    url, helps = url_of("pages:forecast", cluster.slug), _helps_url(cluster, first.query)
    return [AttentionItem("watch", "watch", title, text, url, "Open forecast", helps)]


def _query_url(cluster: Cluster, name: str) -> str:
    return url_of("pages:query", cluster.slug, name)


def _helps_url(cluster: Cluster, name: str) -> str:
    return url_of("pages:query-remedies", cluster.slug, name)


@dataclass(frozen=True)
class _LateGroup:
    """Queries that are late by one cause: how many, how many by measurement, and the worst of them."""

    key: tuple[str, str]
    count: int
    breached: int
    measured: int
    worst: Sequence[QueryEstimate]


_APART = 1e12  # more than any headroom: what never catches up comes first, what is at risk last


def _late(findings: Findings) -> tuple[list[AttentionItem], int]:
    """Late queries by cause, the breached first: an entry for each of the first causes, with its open incident, and
    the number of all causes."""
    cluster, counts = findings.cluster, findings.counts
    if not counts.get(ObjectiveState.BREACHED) and not counts.get(ObjectiveState.AT_RISK):
        return [], 0
    groups, count = _late_groups(findings)
    causes = Q(
        *(Q(cause_kind=kind, cause_subject=about) for kind, about in (group.key for group in groups)), _connector=Q.OR
    )
    rows = incidents_open(cluster).filter(causes) if groups else ()
    incidents = {(row.cause_kind, row.cause_subject): row for row in rows}
    items = []
    for group in groups:
        incident = incidents.get(group.key)
        item = _of_cause(cluster, group) if group.count > 1 else _of_query(cluster, group.worst[0])
        items.append(_with_incident(item, incident) if incident is not None else item)
    return items, count


def _late_groups(findings: Findings) -> tuple[list[_LateGroup], int]:
    """The first groups of late queries by cause, and the number of all."""
    is_breached = Q(shown_state=ObjectiveState.BREACHED)
    late = findings.rows.filter(is_breached | Q(shown_state=ObjectiveState.AT_RISK)).annotate(
        kind=Coalesce("status__cause_kind", Value("")),
        subject=Coalesce("status__cause_subject", "query__name"),
        urgency=Case(
            When(is_breached & Q(certainty=Certainty.ENDLESS), then=F("rank") - _APART),
            When(is_breached, then=F("rank")),
            default=F("rank") + _APART,
        ),
    )
    causes = late.order_by().values("kind", "subject")
    is_measured = Q(status__decided_by=DecidedBy.MEASUREMENT)
    causes = causes.annotate(
        n=Count("pk"),
        breached=Count("pk", filter=is_breached),
        measured=Count("pk", filter=is_measured),
        first=Min("urgency"),
    )
    first = list(causes.order_by("first", "kind", "subject")[:MAX_ITEMS])
    place = Window(RowNumber(), partition_by=["kind", "subject"], order_by=["urgency", "query__name"])
    shown = Q(*(Q(kind=cause["kind"], subject=cause["subject"]) for cause in first), _connector=Q.OR)
    ranked = late.filter(shown).annotate(place=place).filter(place__lte=_MAX_NAMED).order_by("place")
    named = {key: (kind, subject) for key, kind, subject in ranked.values_list("pk", "kind", "subject")}
    worst: dict[tuple[str, str], list[QueryEstimate]] = {}
    for row in estimates_named(list(named)):
        if row.standing is not None:
            row.standing.query = row.query  # read already
        worst.setdefault(named[row.pk], []).append(row)
    keys = [(cause["kind"], cause["subject"]) for cause in first]
    groups = [
        _LateGroup(key, cause["n"], cause["breached"], cause["measured"], worst[key])
        for key, cause in zip(keys, first, strict=True)
        if key in worst  # its states may have changed since it was counted
    ]
    return groups, len(groups) if len(first) < MAX_ITEMS else causes.count()


def _of_query(cluster: Cluster, row: QueryEstimate) -> AttentionItem:
    return _over(cluster, row) if row.judged_state == ObjectiveState.BREACHED else _at_risk(cluster, row)


def _of_cause(cluster: Cluster, group: _LateGroup) -> AttentionItem:
    """Several queries that are late by one cause; the worst comes first."""
    standing = group.worst[0].standing
    cause = next(iter(standing.lateness if standing else ()), LatenessCause(UNEXPLAINED))
    names = _listed_first([row.query.name for row in group.worst], group.count)
    verb = "over" if group.breached == group.count else "over or may be over"
    is_all = group.measured == group.count
    expected = "" if is_all else "or are expected to be " if group.measured else "expected to be "
    text = f"{names} are {expected}{verb} their objectives. {cause_sentence(cause)}"
    mark = STATES[
        "at_risk" if not group.breached else judged_state("breached", MEASUREMENT if group.measured else ESTIMATE)
    ]
    helps = _helps_url(cluster, group.worst[0].query.name)
    words = "late" if is_all else "late or expected late" if group.measured else "expected late"
    late = f"{group.count} queries {words}"
    return AttentionItem(mark.drawing, mark.tone, f"{cause_title(cause)}: {late}", text, "", helps=helps)


def _listed_first(names: Sequence[str], count: int) -> str:
    """The first `_MAX_NAMED` names of `count`, the last being the number of those left out."""
    if count <= _MAX_NAMED:
        return listed(names, _MAX_NAMED)
    return f"{', '.join(names[: _MAX_NAMED - 1])} and {count - _MAX_NAMED + 1} more"


def _with_incident(item: AttentionItem, incident: Incident) -> AttentionItem:
    """The entry with since when it is so and who has seen it; it leads to the incident."""
    seen = "Nobody has acknowledged it."
    if incident.acknowledged_at is not None:
        note = f": {incident.note}" if incident.note else ""
        seen = f"Acknowledged by {incident.acknowledged_by or 'somebody'}{note}."
    url = url_of("pages:incident", incident.cluster.slug, incident.pk)
    text = f"{item.text} First seen {ago(incident.opened_at)}. {seen}"
    return replace(item, text=text, url=url, action="Open incident")


def _over(cluster: Cluster, row: QueryEstimate) -> AttentionItem:
    gap, _ = row.headroom
    name, mark = row.query.name, STATES[row.mark]
    is_measured = row.standing is not None and not row.standing.is_expected
    if gap is None:
        title = f"{name} never catches up" if is_measured else f"{name} is expected never to catch up"
    else:
        title = f"{name} is {'' if is_measured else 'expected to be '}{seconds(abs(gap))} over"
    helps = _helps_url(cluster, name)
    return AttentionItem(
        mark.drawing, mark.tone, title, _evidence(row), _query_url(cluster, row.query.name), "Open query", helps
    )


def _at_risk(cluster: Cluster, row: QueryEstimate) -> AttentionItem:
    title = f"{row.query.name} may be over its objective"
    text = f"{_evidence(row, cause=not _widened(row))} {_widened(row)}".rstrip()
    helps = _helps_url(cluster, row.query.name)
    return AttentionItem("watch", "watch", title, text, _query_url(cluster, row.query.name), "Open query", helps)


def _widened(row: QueryEstimate) -> str:
    """Sentence on an interval that is wide because estimates were off lately; empty where it is not."""
    applied = row.answer.calibration
    factor = applied.upper if applied else 1.0
    if factor <= 1:
        return ""
    return (
        f"Recent estimates were so far off that the upper side of its interval is {significant(factor)} times as wide."
    )


def _ending(reader: User | None) -> list[AttentionItem]:
    """The tokens of a person that expire soon."""
    tokens = list(tokens_ending().filter(user=reader)[:_MAX_LISTED]) if reader is not None else []
    if not tokens:
        return []
    first, names = tokens[0], [token.name for token in tokens]
    title = f"Your token {names[0]} expires" if len(tokens) == 1 else f"{len(tokens)} of your tokens expire"
    which = "It" if len(tokens) == 1 else f"{listed(names)}: the first"
    text = f"{which} works until {short(first.expires_at)}. Make another one and revoke it."
    return [AttentionItem("watch", "watch", title, text, url_of("accounts:tokens"), "Open tokens")]


def _untrusted(findings: Findings) -> list[AttentionItem]:
    """Queries whose intervals hold so seldom that a person decides on what touches them."""
    count = findings.lost_count
    first = next(iter(first_estimates(findings.rows.filter(trust=TrustState.LOST), 1)), None) if count else None
    applied = first.answer.calibration if first is not None else None
    if first is None or applied is None:
        return []
    name, trust = first.query.name, applied.trust
    text = f"Only {trust.held} of its last {trust.judged} intervals held. Requests that touch it are for a person."
    title = f"Estimates of {name} do not hold"
    if count > 1:
        title = f"Estimates of {count} queries do not hold"
        text = f"{name}: {text[0].lower()}{text[1:]}"
    url = f"{url_of('pages:accuracy', findings.cluster.slug)}?query={name}"
    return [AttentionItem("watch", "watch", title, text, url, "Open accuracy")]


def _unknown(findings: Findings) -> list[AttentionItem]:
    """Queries of whose latency nothing is known, though they could be observed."""
    unknown = findings.unestimable
    if not unknown.count or not unknown.first:
        return []
    names = _listed_first([row.query.name for row in unknown.first], unknown.count)
    text = f"Nothing is known of the latency of {names}, so no objective can be said to hold."
    first = unknown.first[0]
    title = f"The latency of {first.query.name} is not known"
    if unknown.count > 1:
        title = f"The latencies of {unknown.count} queries are not known"
    url = _query_url(findings.cluster, first.query.name)
    return [AttentionItem("unknown", "watch", title, text, url, "Open query")]


def _evidence(row: QueryEstimate, *, cause: bool = True) -> str:
    """Sentences on the evidence of a state, and on the cause of lateness."""
    standing = row.standing
    if standing is None:
        return ""
    words = evidence_words(standing)
    first = [cause_sentence(standing.lateness[0])] if cause and standing.causes else []
    return " ".join([f"{words[:1].upper()}{words[1:]}.", *first])


def _waiting(cluster: Cluster) -> list[AttentionItem]:
    rows = AdmissionRequest.objects.filter(cluster=cluster, state=AdmissionState.AWAITING)
    first = rows.select_related("version__query").defer("result", "snapshot_parts").order_by("created_at").first()
    if first is None:
        return []
    count = rows.count()
    title = "1 request waits for review" if count == 1 else f"{count} requests wait for review"
    url = url_of("pages:admission", cluster.slug, first.pk)
    return [AttentionItem("review", "review", title, f"{first.version}, {ago(first.created_at)}.", url, "Open request")]


def _plans(cluster: Cluster) -> list[AttentionItem]:
    """Queries with a faster plan that nobody has adopted."""
    rows = plans_recommended(cluster)
    if not rows:
        return []
    names = ", ".join(row.query.name for row in rows[:3])
    title = f"{rows[0].query.name} has a faster plan" if len(rows) == 1 else f"{len(rows)} queries have faster plans"
    text = (
        "The samples show that it is faster than the running one."
        if len(rows) == 1
        else f"The samples show it for {names}."
    )
    url = url_of("pages:query-plans", cluster.slug, rows[0].query.name)
    return [AttentionItem("tune", "ok", title, text, url, "Open plans")]


def _alarm(findings: Findings) -> list[AttentionItem]:
    alarm = findings.run.facts.alarm if findings.run is not None else None
    if alarm is None or not alarm.untrusted:
        return []
    return [AttentionItem("watch", "watch", "The estimate is less certain here", str(alarm.message), "")]


def _unestimated(findings: Findings) -> list[AttentionItem]:
    count, first = findings.unestimated if findings.run is not None else (0, [])
    if not count:
        return []
    names = ", ".join(query.name for query in first)
    return [AttentionItem("unknown", "muted", f"{count} not in the newest estimate", f"{names}.", "")]


def _assumed(cluster: Cluster) -> list[AttentionItem]:
    assumed = OperatorInput.objects.filter(operator__version=OuterRef("running_version"), evidence=Evidence.ASSUMED)
    count = Query.objects.filter(Exists(assumed), cluster=cluster, state=QueryState.RUNNING).count()
    if not count:
        return []
    title = "1 query rests on assumed costs" if count == 1 else f"{count} queries rest on assumed costs"
    text = "What their means may be off by is not in the intervals; measured statistics tell."
    return [AttentionItem("assumed", "muted", title, text, url_of("pages:queries", cluster.slug))]
