"""Table of agents: states, recent flows, load factors, configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django import forms
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.saved_views.bar import open_views
from apps.pages.sources.agent_charts import factor_bars, factor_text
from apps.pages.sources.agent_flows import AgentFlow, flows_of
from apps.rollouts.config_selectors import AgentConfigState, configs_by_agent
from apps.saved_views.models import SavedList
from apps.telemetry.models import Agent, AgentKind, AgentState, Assignment, LiveQuery, LiveState
from apps.telemetry.selectors import AgentHealth, agent_state, agents_listed
from apps.ui.marks import icon
from apps.ui.numbers import MISSING, byte_rate, percent, rate, seconds
from apps.ui.record_forms import SettingsForm
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import ago
from engine.jarvis.settings import METHOD_WORDS, OBJECTIVES, AdaptationSettings

__all__ = [
    "NO_CONFIG",
    "STATE_MARKS",
    "AdaptingForm",
    "AgentLine",
    "FactorsForm",
    "agent_lines",
    "agents_table",
    "factors_of",
    "since",
]


class AdaptingForm(SettingsForm):
    """Settings of adapting; load factors by hand have a form of their own."""

    RECORD = AdaptationSettings

    method = forms.ChoiceField(label="Method", choices=[(k, v) for k, v in METHOD_WORDS.items() if k != "fixed"])
    objective = forms.ChoiceField(
        label="Objective",
        choices=list(OBJECTIVES.items()),
        help_text="Quantity to minimise: bytes, unless each record has its price.",
    )

    def __init__(self, *args: Any, current: Mapping[str, object] | None = None, **kwargs: Any) -> None:
        given = dict(current or {})
        if given.get("method") == "fixed":
            del given["method"]
        super().__init__(*args, current=given, **kwargs)


class FactorsForm(forms.Form):
    """One number for each operator that may run at the source: its id, and what it is now where that is known."""

    def __init__(self, *args: Any, operators: list[tuple[str, float | None]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.operators = operators
        for place, (name, now) in enumerate(operators):
            self.fields[f"f{place}"] = forms.FloatField(
                label=name,
                min_value=0.0,
                max_value=1.0,
                initial=round(now or 0.0, 4),
                error_messages={
                    "required": "Enter 0 to 1.",
                    "invalid": "It is no number. Enter 0 to 1.",
                    "min_value": "A load factor is at least 0. Enter 0 to 1.",
                    "max_value": "A load factor is at most 1. Enter 0 to 1.",
                },
            )

    @property
    def values(self) -> list[float]:
        return [self.cleaned_data[f"f{place}"] for place in range(len(self.operators))]

    @property
    def rows(self) -> list[tuple[Any, float | None, str]]:
        """(field, what it is now, what stands in the field)."""
        bound = [(self[f"f{place}"], now) for place, (_, now) in enumerate(self.operators)]
        return [(field, now, field.value() if self.is_bound else f"{field.value():g}") for field, now in bound]


#: Drawing, tone.
STATE_MARKS: dict[str, tuple[str, str]] = {
    AgentState.STEADY: ("ok", "ok"),
    AgentState.ADAPTING: ("jobs", "queue"),
    AgentState.NEAR: ("watch", "watch"),
    AgentState.OVERFLOW: ("watch", "watch"),
    AgentState.SPOOL: ("bad", "bad"),
    AgentState.SILENT: ("unknown", ""),
    AgentState.NEVER: ("assumed", ""),
    AgentState.DISABLED: ("pause", ""),
}
NO_CONFIG = AgentConfigState("", 0)
_REPORTS = {AgentState.STEADY, AgentState.ADAPTING, AgentState.NEAR, AgentState.OVERFLOW, AgentState.SPOOL}


@dataclass(frozen=True)
class AgentLine:
    """An agent with how it is and what it did lately."""

    agent: Agent
    view: AgentHealth
    assignments: Sequence[Assignment]
    flow: AgentFlow | None
    config: AgentConfigState = NO_CONFIG

    @property
    def state(self) -> AgentState:
        return self.view.state

    @property
    def reason(self) -> str:
        """Reason why it is not steady, where its state does not say it."""
        return "; ".join(self.view.reasons) if self.reports and self.state != AgentState.ADAPTING else ""

    @property
    def reports(self) -> bool:
        return self.state in _REPORTS

    @property
    def in_eps(self) -> float | None:
        return self.flow.in_eps if self.flow is not None and self.reports else None

    @property
    def sent_bytes_s(self) -> float | None:
        return self.flow.sent_bytes_s if self.flow is not None and self.reports else None

    @property
    def saved(self) -> float | None:
        return self.flow.saved if self.flow is not None and self.reports else None

    @property
    def factors(self) -> list[tuple[str, list[tuple[str, float]]]]:
        """For each query: (its name, [(operator, load factor)])."""
        return [(assignment.live.query.name, factors_of(assignment)) for assignment in self.assignments]

    @property
    def is_behind(self) -> bool:
        """Whether it still runs something older than what it was given."""
        reported = self.agent.heartbeat.get("config_version")
        return self.config.behind or (self.reports and reported is not None and reported < self.agent.config_version)

    @cached_property
    def state_words(self) -> str:
        """The state, with since when where it says nothing."""
        if self.state == AgentState.SILENT and self.agent.last_seen is not None:
            return f"No report {since(self.agent.last_seen)}"
        return str(AgentState(self.state).label)


def since(moment: datetime) -> str:
    """`for 20 s`, `for 6 min`, `since 14:02`: how long there was nothing."""
    elapsed_s = (timezone.now() - moment).total_seconds()
    if elapsed_s < 60:
        return f"for {seconds(max(round(elapsed_s), 1))}"
    when = ago(moment)
    return f"for {when.removesuffix(' ago')}" if when.endswith("ago") else f"since {when}"


def factors_of(assignment: Assignment) -> list[tuple[str, float]]:
    """Operators that may run at the source, with the share of records each takes."""
    live = assignment.live
    names = [operator["id"] for operator in live.pipeline["operators"][: live.source_operators]]
    factors = [*assignment.load_factors, *([0.0] * len(names))]
    return list(zip(names, factors, strict=False))


def agent_lines(cluster: Cluster) -> list[AgentLine]:
    """Every agent of a cluster, by name."""
    rows = LiveQuery.objects.filter(query__cluster=cluster).exclude(state=LiveState.STOPPED)
    lives = list(rows.select_related("query__cluster"))
    flows = flows_of(cluster, lives)
    lives_by_pk = {live.pk: live for live in lives}
    agents = {agent.pk: agent for agent in agents_listed().filter(cluster=cluster)}
    by_agent: dict[Any, list[Assignment]] = {}
    for row in Assignment.objects.filter(live__in=lives_by_pk, enabled=True).order_by("live__query__name"):
        row.live, row.agent = lives_by_pk[row.live_id], agents[row.agent_id]
        by_agent.setdefault(row.agent_id, []).append(row)
    configs = configs_by_agent(cluster)
    return [
        AgentLine(
            agent,
            agent_state(agent),
            by_agent.get(pk, []),
            flow_of_assignments(flows.get(str(pk)), by_agent.get(pk, [])),
            configs.get(str(pk), NO_CONFIG),
        )
        for pk, agent in agents.items()
    ]


def flow_of_assignments(flow: AgentFlow | None, assignments: Sequence[Assignment]) -> AgentFlow | None:
    """Flow of an agent's present queries; None where nothing of them is known."""
    if flow is None:
        return None
    present = {assignment.live.query_id for assignment in assignments}
    queries = {query_id: part for query_id, part in flow.queries.items() if query_id in present}
    return AgentFlow(queries) if queries else None


_MAX_BARS = 6  # queries of one agent
_Factors = tuple[str, list[tuple[str, float]]]
#: What the chips of the column Config choose by.
_CONFIG_CHIPS: dict[str, tuple[str, str, str, Callable[[AgentLine], bool]]] = {
    "canary": ("Canary", "", "", lambda line: line.config.canary),
    "behind": ("Behind", "queue", "watch", lambda line: line.is_behind),
    "refused": ("Refused", "bad", "bad", lambda line: bool(line.config.refused)),
    "by-hand": ("By hand", "", "", lambda line: line.config.by_hand),
}


def agents_table(request: HttpRequest, cluster: Cluster, lines: list[AgentLine], *, can_change: bool) -> Table:
    """The busiest first; chips by state, configuration, kind and query."""
    views = open_views(request, SavedList.AGENTS)
    return Table(
        request,
        _columns(cluster.slug, lines),
        lines,
        caption="Agents",
        default_sort="-rate",
        filters=[_states(lines, request.GET.get("state", "")), *_configs(lines), *_kinds(lines), *_queries(lines)],
        search=lambda line: f"{line.agent.name} {line.agent.host} {line.agent.version}",
        search_label="Name, host or version",
        views=views,
        file_name=f"agents-{cluster.slug}",
        select=can_change and bool(lines),
        identify=lambda line: line.agent.name,
        empty={
            "icon": "sources",
            "title": "No agent has joined yet",
            "text": "Enrol the first one: the console shows the command to run on the machine it shall watch."
            if can_change
            else "An operator can enrol one; it will be listed here.",
        },
    )


def _states(lines: list[AgentLine], chosen: str) -> Filter:
    """States of the agents, and the chosen one: that none is silent is an answer, too."""
    choices = []
    for state, (drawing, tone) in STATE_MARKS.items():
        count = sum(line.state == state for line in lines)
        if count or str(state) == chosen:
            choices.append(Choice(str(state), str(AgentState(state).label), count, drawing, tone or "muted"))
    keep = lambda rows, value: [row for row in rows if row.state == value]  # noqa: E731
    return Filter("state", choices, keep, "All", len(lines))


def _configs(lines: list[AgentLine]) -> list[Filter]:
    choices = []
    for key, (label, drawing, tone, is_so) in _CONFIG_CHIPS.items():
        count = sum(map(is_so, lines))
        if count:
            choices.append(Choice(key, label, count, drawing, tone))

    def keep(rows: list[AgentLine], value: str) -> list[AgentLine]:
        return [row for row in rows if _CONFIG_CHIPS[value][3](row)]

    return [Filter("config", choices, keep, "Any config")] if choices else []


def _kinds(lines: list[AgentLine]) -> list[Filter]:
    kinds = {line.agent.kind for line in lines}
    if len(kinds) < 2:
        return []
    choices = [Choice(kind.value, f"{kind.label}s") for kind in AgentKind if kind in kinds]
    return [Filter("kind", choices, lambda rows, value: [row for row in rows if row.agent.kind == value], "Any kind")]


def _queries(lines: list[AgentLine]) -> list[Filter]:
    names = sorted({assignment.live.query.name for line in lines for assignment in line.assignments})
    if not 1 < len(names) <= 8:
        return []

    def keep(rows: list[AgentLine], value: str) -> list[AgentLine]:
        return [row for row in rows if any(assignment.live.query.name == value for assignment in row.assignments)]

    return [Filter("query", [Choice(name, name) for name in names], keep, "Any query")]


def _columns(slug: str, lines: list[AgentLine]) -> list[Column]:
    def by_name(line: AgentLine) -> str:
        return line.agent.name

    return [
        Column("agent", "Agent", lambda line: _named(slug, line), sort=by_name, csv=by_name),
        Column("factors", _heading(lines), _bars, csv=_bars_text, full=True),
        _number("rate", "Rate", lambda line: line.in_eps, rate),
        _number("sent", "Sent", lambda line: line.sent_bytes_s, lambda value: byte_rate(value)),
        _number("saved", "Bytes saved", lambda line: line.saved, percent),
        Column(
            "state",
            "State",
            state_tag,
            sort=lambda line: list(STATE_MARKS).index(line.state),
            csv=lambda line: f"{line.state_words}: {line.reason}" if line.reason else line.state_words,
            full=True,
        ),
        Column(
            "config",
            "Config",
            lambda line: config_cell(slug, line),
            sort=lambda line: line.config.version,
            csv=config_words,
        ),
    ]


def _number(key: str, label: str, value: Callable[[AgentLine], Any], value_format: Callable[[Any], Any]) -> Column:
    return Column(
        key, label, lambda line: value_format(value(line)).html, sort=value, csv=value, num=True, high_first=True
    )


def _heading(lines: list[AgentLine]) -> str:
    """With the operators' names where all agents run the same query."""
    pipelines = {
        (assignment.live.query.name, tuple(name for name, _ in factors_of(assignment)))
        for line in lines
        for assignment in line.assignments
    }
    if len(pipelines) != 1:
        return "Load factors"
    names = ", ".join(next(iter(pipelines))[1])
    return f"Load factors: {names}" if len(names) <= 40 else "Load factors"


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
    """One row of bars a query; its name only where there are several. Of many, those that drain something first."""
    if not line.assignments:
        return format_html('<span class="muted sm">{}</span>', "no query assigned")
    many = len(line.assignments) > 1
    rows = (
        (
            format_html('<small class="muted">{}</small>', name) if many else "",
            factor_bars(f"{line.agent.name}, {name}:", factors, reported=line.reports),
        )
        for name, factors in _shown_factors(line.factors)
    )
    left = len(line.factors) - len(_shown_factors(line.factors))
    more = format_html('<small class="muted">and {} more</small>', left) if left else ""
    return format_html('<span class="src-bars">{}{}</span>', format_html_join("", "<span>{}{}</span>", rows), more)


def _shown_factors(factors: Sequence[_Factors]) -> list[_Factors]:
    if len(factors) <= _MAX_BARS:
        return list(factors)
    return sorted(factors, key=lambda query: all(factor >= 1 for _, factor in query[1]))[: _MAX_BARS - 1]


def _bars_text(line: AgentLine) -> str:
    return "; ".join(
        f"{name}: " + ", ".join(f"{operator} {factor_text(factor)}" for operator, factor in factors)
        for name, factors in line.factors
    )


def state_tag(line: AgentLine) -> SafeString:
    """Mark, word and, where something is wrong, why."""
    drawing, tone = STATE_MARKS[line.state]
    quiet = line.state == AgentState.ADAPTING  # nothing to worry about: its mark alone is coloured
    mark = format_html(
        '<span class="st {}">{}{}</span>', "" if quiet else tone, icon(drawing, tone if quiet else ""), line.state_words
    )
    return format_html('{}<span class="src-why">{}</span>', mark, line.reason) if line.reason else mark


def config_cell(slug: str, line: AgentLine) -> SafeString:
    """The configuration in force, and how it stands to what is meant for the agent."""
    config = line.config
    parts = [_config_link(slug, config.config, config.version) if config.config else format_html("{}", MISSING)]
    if config.same_as:
        parts.append(format_html('<small class="muted">as {}</small>', config.same_as))
    if config.canary:
        parts.append(_badge("acc", "canary"))
    if config.by_hand:
        parts.append(_badge("", "by hand"))
    if config.refused:
        reasons = "; ".join(config.refused)
        badge = format_html('<span class="badge bad" title="{}">refused</span>', reasons)
        parts.append(
            format_html(
                '<details class="src-refused"><summary>{}<span class="vh"> by {}</span></summary>{}</details>',
                badge,
                line.agent.name,
                reasons,
            )
        )
    elif line.is_behind:
        parts.append(_badge("watch", "behind"))
    return format_html('<span class="src-config">{}</span>', format_html_join(" ", "{}", ((part,) for part in parts)))


def _config_link(slug: str, name: str, number: int) -> SafeString:
    return format_html('<a href="{}"><code>{}</code></a>', reverse("pages:config", args=[slug, number]), name)


def _badge(tone: str, text: str) -> SafeString:
    return format_html('<span class="badge {}">{}</span>', tone, text)


def config_words(line: AgentLine) -> str:
    """`c-118, canary`, for files."""
    config = line.config
    parts = [
        config.config or "none",
        f"as {config.same_as}" if config.same_as else "",
        "canary" if config.canary else "",
    ]
    parts += ["by hand" if config.by_hand else "", f"refused: {'; '.join(config.refused)}" if config.refused else ""]
    return ", ".join(word for word in [*parts, "behind" if line.is_behind else ""] if word)
