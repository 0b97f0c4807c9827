"""The agents of a cluster as the Sources page lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.agents_flow import AgentFlow, flows_of
from apps.pages.agents_picture import factor_bars, factor_text
from apps.telemetry.choices import AgentKind, AgentState, LiveState
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.telemetry.selectors import agents_listed
from apps.telemetry.states import AgentView, agent_state
from apps.ui.icons import icon
from apps.ui.numbers import MISSING, bytes_size, percent, rate
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import ago

__all__ = ["STATE_MARKS", "AgentLine", "agent_lines", "agents_table", "state_tag"]

#: Drawing, tone.
STATE_MARKS: dict[str, tuple[str, str]] = {
    AgentState.STEADY: ("ok", "ok"),
    AgentState.NEAR: ("watch", "watch"),
    AgentState.OVERFLOW: ("watch", "watch"),
    AgentState.SPOOL: ("bad", "bad"),
    AgentState.SILENT: ("unknown", ""),
    AgentState.NEVER: ("assumed", ""),
    AgentState.DISABLED: ("pause", ""),
}
_REPORTS = {AgentState.STEADY, AgentState.NEAR, AgentState.OVERFLOW, AgentState.SPOOL}


@dataclass(frozen=True)
class AgentLine:
    """An agent with how it is and what it did lately."""

    agent: Agent
    view: AgentView
    assignments: Sequence[Assignment]
    flow: AgentFlow | None

    @property
    def state(self) -> AgentState:
        return self.view.state

    @property
    def reason(self) -> str:
        """Why it is not steady, where its state does not say it."""
        return "; ".join(self.view.reasons) if self.reports else ""

    @property
    def reports(self) -> bool:
        return self.state in _REPORTS

    @property
    def in_eps(self) -> float | None:
        return self.flow.in_eps if self.flow is not None and self.reports else None

    @property
    def saved(self) -> float | None:
        return self.flow.saved if self.flow is not None and self.reports else None

    @property
    def factors(self) -> list[tuple[str, list[tuple[str, float]]]]:
        """For each query: (its name, [(operator, load factor)])."""
        return [(one.live.query.name, factors_of(one)) for one in self.assignments]

    @property
    def is_behind(self) -> bool:
        """Whether it still runs an older configuration than it was given."""
        known = self.agent.heartbeat.get("config_version")
        return self.reports and known is not None and known < self.agent.config_version

    @cached_property
    def state_words(self) -> str:
        """The state, with since when where it says nothing."""
        if self.state == AgentState.SILENT and self.agent.last_seen is not None:
            when = ago(self.agent.last_seen)
            return f"No report for {when.removesuffix(' ago')}" if when.endswith("ago") else f"No report since {when}"
        return str(AgentState(self.state).label)


def factors_of(assignment: Assignment) -> list[tuple[str, float]]:
    """Operators that may run at the source, with the share of records each takes."""
    live = assignment.live
    names = [one["id"] for one in live.pipeline["operators"][: live.source_operators]]
    given = [*assignment.load_factors, *([0.0] * len(names))]
    return list(zip(names, given, strict=False))


def agent_lines(cluster: Cluster) -> list[AgentLine]:
    """Every agent of a cluster, by name."""
    rows = LiveQuery.objects.filter(query__cluster=cluster).exclude(state=LiveState.STOPPED)
    lives = list(rows.select_related("query"))
    flows = flows_of(cluster, lives)
    known = {live.pk: live for live in lives}
    by_agent: dict[Any, list[Assignment]] = {}
    for row in Assignment.objects.filter(live__in=known, enabled=True).order_by("live__query__name"):
        row.live = known[row.live_id]
        by_agent.setdefault(row.agent_id, []).append(row)
    lines = []
    for agent in agents_listed().filter(cluster=cluster):
        view = agent_state(agent)
        lines.append(AgentLine(agent, view, by_agent.get(agent.pk, []), flows.get(str(agent.pk))))
    return lines


def state_tag(line: AgentLine) -> SafeString:
    """Mark, word and, where something is wrong, why."""
    drawing, tone = STATE_MARKS[line.state]
    why = line.reason
    mark = format_html('<span class="st {}">{}{}</span>', tone, icon(drawing), line.state_words)
    return format_html('{}<span class="src-why">{}</span>', mark, why) if why else mark


def agents_table(request: HttpRequest, cluster: Cluster, lines: list[AgentLine], *, can_change: bool) -> Table:
    """The busiest first; chips by state, kind and query."""
    return Table(
        request,
        _columns(cluster.slug, lines),
        lines,
        caption="Agents",
        default_sort="-rate",
        filters=[_states(lines), *_kinds(lines), *_queries(lines)],
        search=lambda line: f"{line.agent.name} {line.agent.host} {line.agent.version}",
        search_label="Name, host or version",
        file_name=f"agents-{cluster.slug}",
        identify=lambda line: line.agent.name,
        empty={
            "icon": "sources",
            "title": "No agent has joined yet",
            "text": "Enrol the first one: the console shows the command to run on the machine it shall watch."
            if can_change
            else "An operator can enrol one; it will be listed here.",
        },
    )


def _states(lines: list[AgentLine]) -> Filter:
    choices = []
    for state in AgentState:
        count = sum(line.state == state for line in lines)
        if count:
            drawing, tone = STATE_MARKS[state]
            choices.append(Choice(state.value, str(state.label), count, drawing, tone or "muted"))
    return Filter("state", choices, lambda rows, value: [row for row in rows if row.state == value], "All", len(lines))


def _kinds(lines: list[AgentLine]) -> list[Filter]:
    found = {line.agent.kind for line in lines}
    if len(found) < 2:
        return []
    choices = [Choice(kind.value, f"{kind.label}s") for kind in AgentKind if kind in found]
    return [Filter("kind", choices, lambda rows, value: [row for row in rows if row.agent.kind == value], "Any kind")]


def _queries(lines: list[AgentLine]) -> list[Filter]:
    names = sorted({one.live.query.name for line in lines for one in line.assignments})
    if not 1 < len(names) <= 8:
        return []

    def keep(rows: list[AgentLine], value: str) -> list[AgentLine]:
        return [row for row in rows if any(one.live.query.name == value for one in row.assignments)]

    return [Filter("query", [Choice(name, name) for name in names], keep, "Any query")]


def _named(slug: str, line: AgentLine) -> SafeString:
    url = reverse("pages:agent", args=[slug, line.agent.name])
    more = line.agent.host if line.agent.kind == AgentKind.AGENT else line.agent.get_kind_display().lower()
    return format_html(
        '<span class="nm"><a class="name" href="{}">{}</a> <small class="muted">{}</small></span>',
        url,
        line.agent.name,
        more,
    )


def _bars(line: AgentLine) -> Any:
    if not line.assignments:
        return format_html('<span class="muted sm">{}</span>', "no query assigned")
    rows = (
        (
            format_html('<small class="muted">{}</small>', name),
            factor_bars(f"{line.agent.name}, {name}:", factors, reported=line.reports),
        )
        for name, factors in line.factors
    )
    return format_html('<span class="src-bars">{}</span>', format_html_join("", "<span>{}{}</span>", rows))


def _bars_text(line: AgentLine) -> str:
    return "; ".join(
        f"{name}: " + ", ".join(f"{operator} {factor_text(factor)}" for operator, factor in factors)
        for name, factors in line.factors
    )


def _config(line: AgentLine) -> SafeString:
    code = format_html("<code>c-{}</code>", line.agent.config_version) if line.agent.config_version else MISSING
    badge = format_html(' <span class="badge watch">{}</span>', "behind") if line.is_behind else ""
    return format_html("{}{}", code, badge)


def _heading(lines: list[AgentLine]) -> str:
    """With the operators' names where all agents run the same query."""
    found = {
        (one.live.query.name, tuple(name for name, _ in factors_of(one))) for line in lines for one in line.assignments
    }
    if len(found) != 1:
        return "Load factors"
    names = ", ".join(next(iter(found))[1])
    return f"Load factors: {names}" if len(names) <= 40 else "Load factors"


def _columns(slug: str, lines: list[AgentLine]) -> list[Column]:
    return [
        Column(
            "agent",
            "Agent",
            lambda line: _named(slug, line),
            sort=lambda line: line.agent.name,
            csv=lambda line: line.agent.name,
        ),
        Column("factors", _heading(lines), _bars, csv=_bars_text, full=True),
        Column(
            "rate",
            "Rate",
            lambda line: rate(line.in_eps).html,
            sort=lambda line: line.in_eps,
            csv=lambda line: line.in_eps,
            num=True,
            high_first=True,
        ),
        Column(
            "sent",
            "Sent",
            lambda line: bytes_size(line.flow.sent_bytes_s if line.flow and line.reports else None, "/s").html,
            sort=lambda line: line.flow.sent_bytes_s if line.flow and line.reports else None,
            csv=lambda line: line.flow.sent_bytes_s if line.flow and line.reports else None,
            num=True,
            high_first=True,
        ),
        Column(
            "saved",
            "Bytes saved",
            lambda line: percent(line.saved).html,
            sort=lambda line: line.saved,
            csv=lambda line: line.saved,
            num=True,
            high_first=True,
        ),
        Column(
            "state",
            "State",
            state_tag,
            sort=lambda line: list(AgentState).index(line.state),
            csv=_state_text,
            full=True,
        ),
        Column(
            "config",
            "Config",
            _config,
            sort=lambda line: line.agent.config_version,
            csv=lambda line: line.agent.config_version,
        ),
    ]


def _state_text(line: AgentLine) -> str:
    return f"{line.state_words}: {line.reason}" if line.reason else line.state_words
