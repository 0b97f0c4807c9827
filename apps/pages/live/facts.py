"""Facts on the Live tab of a query: its state, newest results, strip of figures, latency and alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import pyarrow as pa
from django.db.models import Case, F, FloatField, Q, When
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.core.errors import Fault
from apps.pages.live.charts import LivePictures, value_text
from apps.pages.overview.findings import Stat
from apps.pages.sources.agent_charts import factor_text
from apps.pages.sources.facts import StreamCard, StreamQuery, moment_of
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.selectors import version_current
from apps.results.models import Alert, AlertRule, AlertState, Comparison, ResultWindow
from apps.results.rows import WINDOW, as_json, group_columns, is_number, number_columns, table_in
from apps.results.selectors import (
    alert_rules_listed,
    alerts_listed,
    alerts_with_notices,
    pipeline_of,
    result_latest,
    results_recent,
)
from apps.rollouts.scheduled_queries import MIN_IN_TIME, window_period_s
from apps.telemetry.epochs import recorded_epochs
from apps.telemetry.models import Agent, AgentState, Assignment, LiveQuery, LiveState
from apps.telemetry.pipelines import executable_of
from apps.telemetry.selectors import agent_state
from apps.ui.marks import Mark
from apps.ui.numbers import Quantity, count, percent, seconds
from apps.ui.sentences import sentence
from apps.ui.tables import Column, Table
from apps.ui.times import ago
from engine.dataflow.types import PipelineDocument
from engine.rollouts.measures import EpochRow
from engine.words import counted

__all__ = ["LiveView", "live_stats", "results_table"]


_WINDOWS = 60  # behind the pictures
_EPOCHS_S = 300.0  # of epochs behind what left on time
_MAX_ALERTS, _MAX_ENDED = 8, 3  # listed: what has ended makes room for the results below
_UPWARDS = Q(rule__comparison__in=[Comparison.ABOVE, Comparison.AT_LEAST])
#: Alerts by how far their value is beyond the threshold, the farthest first.
_FAR_OFF = Case(When(_UPWARDS, then=-F("last_value")), default=F("last_value"), output_field=FloatField())
_MARKS = {
    "none": Mark("assumed", "", "Not live yet"),
    LiveState.STARTING: Mark("jobs", "queue", "Starting"),
    LiveState.RUNNING: Mark("ok", "ok", "Running"),
    LiveState.STOPPED: Mark("pause", "", "Stopped"),
}


@dataclass(frozen=True)
class AssignedAgent:
    """Assignment of an agent, with its state. `waits` is None where the stream processor does not say."""

    part: Assignment
    waits: bool | None
    excluded: bool

    @property
    def factors(self) -> str:
        return ", ".join(factor_text(factor) for factor in self.part.load_factors)

    @property
    def mark(self) -> Mark:
        if not self.part.agent.enabled:
            return Mark("pause", "", "disabled")
        if self.excluded:
            return Mark("unknown", "watch", "excluded: silent for too long")
        if self.waits:
            return Mark("queue", "queue", "awaited")
        state = agent_state(self.part.agent).state
        if state in (AgentState.NEVER, AgentState.SILENT):
            return Mark("unknown", "watch", str(state.label).lower())
        if self.waits is None:
            return Mark("unknown", "", "not known: the stream processor does not report")
        return Mark("ok", "ok", "keeps up")


class LiveView:
    """A live query; every property is computed when a template asks for it."""

    def __init__(self, request: HttpRequest, query: Query) -> None:
        self.request = request
        self.query = query
        self.cluster = query.cluster

    @cached_property
    def live(self) -> LiveQuery | None:
        return LiveQuery.objects.select_related("source", "version", "query__cluster").filter(query=self.query).first()

    @property
    def state(self) -> str:
        return str(self.live.state) if self.live is not None else "none"

    @property
    def is_live(self) -> bool:
        return self.live is not None and self.live.state != LiveState.STOPPED

    @property
    def mark(self) -> Mark:
        return _MARKS[self.state]

    @property
    def can_start(self) -> bool:
        """True once the query is admitted; the service checks the rest."""
        return self.query.state == QueryState.RUNNING and not self.is_live

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """Faults of its version that prevent its execution; not computed while it is live."""
        return () if self.is_live else executable_of(version_current(self.query)).faults

    # -- the stream processor
    @cached_property
    def agents(self) -> list[Agent]:
        return list(Agent.objects.filter(cluster=self.cluster).order_by("name"))

    @cached_property
    def stream(self) -> StreamCard:
        return StreamCard(self.cluster.slug, {str(agent.pk): agent.name for agent in self.agents})

    @cached_property
    def stream_query(self) -> StreamQuery | None:
        return self.stream.query(self.query.name) if self.is_live else None

    @cached_property
    def assigned(self) -> list[AssignedAgent]:
        if self.live is None:
            return []
        waits = set(self.stream_query.waiting_for) if self.stream_query else None
        excluded = set(self.stream_query.excluded) if self.stream_query else set()
        rows = self.live.assignments.filter(enabled=True).select_related("agent").order_by("agent__name")
        return [
            AssignedAgent(row, None if waits is None else row.agent.name in waits, row.agent.name in excluded)
            for row in rows
        ]

    @property
    def free_agents(self) -> list[Agent]:
        """Agents without an assignment."""
        taken = {assigned.part.agent_id for assigned in self.assigned}
        return [agent for agent in self.agents if agent.pk not in taken]

    @cached_property
    def epochs(self) -> list[EpochRow]:
        """Epochs of the query at its agents in the last minutes."""
        if self.live is None:
            return []
        recorded = recorded_epochs([assigned.part.agent for assigned in self.assigned], timezone.now(), _EPOCHS_S)
        return [row for by_query in recorded.values() for row in by_query.get(self.live.key, ())]

    # -- results
    @cached_property
    def newest(self) -> ResultWindow | None:
        return result_latest(self.query)

    @cached_property
    def windows(self) -> list[ResultWindow]:
        return results_recent(self.query, self.newest.plan, _WINDOWS) if self.newest is not None else []

    @cached_property
    def tables(self) -> list[pa.Table]:
        return [table_in(window.body) for window in self.windows]

    @cached_property
    def schema(self) -> pa.Schema | None:
        return self.tables[-1].schema if self.tables else None

    @cached_property
    def pipeline(self) -> PipelineDocument | None:
        return pipeline_of(self.query, self.newest.plan) if self.newest is not None else None

    @cached_property
    def groups(self) -> list[str]:
        return group_columns(self.pipeline, self.schema) if self.schema is not None else []

    @cached_property
    def numbers(self) -> list[str]:
        return number_columns(self.schema, self.groups) if self.schema is not None else []

    @property
    def window_words(self) -> str:
        """14:32:10 to 14:32:20, revision 2."""
        row = self.newest
        if row is None:
            return ""
        begin = moment_of(row.window_us)
        end = moment_of(row.window_us + row.width_us)
        text = f"{timezone.localtime(begin):%H:%M:%S} to {timezone.localtime(end):%H:%M:%S}"
        return f"{text}, revision {row.revision + 1}" if row.revision else text

    @property
    def missing_words(self) -> str:
        """Agents that the newest window was closed without."""
        if self.newest is None or self.newest.complete:
            return ""
        names = {str(agent.pk): agent.name for agent in self.agents}
        agents = ", ".join(names.get(agent_id, agent_id[:8]) for agent_id in self.newest.missing[:3]) or "an agent"
        sentences = [f"Closed without {agents}. Late records lead to another revision."]
        if taken := sum(self.newest.recovered.values()):
            sentences.append(f"Already counted of its open window: {counted(taken, 'record')}.")
        return " ".join(sentences)

    @cached_property
    def table(self) -> Table:
        return results_table(self.request, self.query, self.tables[-1], self.groups, self.column)

    # -- pictures
    @cached_property
    def pictures(self) -> LivePictures:
        column = self.request.GET.get("column", "")
        return LivePictures(self.query, self.windows, self.tables, self.groups, self.numbers, column)

    @property
    def column(self) -> str:
        return self.pictures.column

    @property
    def group_count(self) -> int:
        return self.tables[-1].num_rows if self.tables else 0

    @property
    def latencies(self) -> list[float]:
        return [window.latency_s for window in self.windows if window.latency_s is not None]

    # -- alerts
    @cached_property
    def rules(self) -> list[AlertRule]:
        return list(alert_rules_listed().filter(query=self.query).order_by("name"))

    @cached_property
    def alerts(self) -> list[Alert]:
        """Firing alerts, then ended ones, the newest first; among those opened together the worst first."""
        rows = alerts_listed().filter(rule__query=self.query).order_by("state", "-opened_window_us", _FAR_OFF)
        alerts = list(alerts_with_notices(rows)[:_MAX_ALERTS])
        firing = sum(alert.state == AlertState.FIRING for alert in alerts)
        return alerts[: max(firing, _MAX_ENDED)]

    @cached_property
    def firing_count(self) -> int:
        """All that fire, also those that are not listed."""
        return sum(rule.firing_count for rule in self.rules)

    @property
    def firing_unlisted(self) -> int:
        return self.firing_count - sum(alert.state == AlertState.FIRING for alert in self.alerts)

    # -- the sentence and the strip
    @property
    def sentence(self) -> SafeString:
        latency = median(self.latencies) if self.latencies else None
        return sentence("pages/live/sentences/results.html", view=self, latency=latency)

    @property
    def stats(self) -> list[Stat]:
        return live_stats(self)

    @property
    def picked(self) -> Sequence[tuple[str, bool]]:
        """Columns to draw: (name, whether it is the one drawn)."""
        return [(name, name == self.column) for name in self.numbers]


def live_stats(view: LiveView) -> list[Stat]:
    """Newest result, latency, what left agents on time, watermark, late records, alerts."""
    timed = [_on_time(view)] if view.query.objective_bound_s else []
    return [_results(view), _latency(view), *timed, _watermark(view), _late(view), _alerting(view)]


def _results(view: LiveView) -> Stat:
    if view.newest is None:
        return Stat("Newest result", Quantity("none yet"), "")
    return Stat(
        "Newest result",
        Quantity(count(view.group_count), "row" if view.group_count == 1 else "rows"),
        f"{ago(view.newest.received_at)}, of {count(view.newest.records)} records",
    )


def _latency(view: LiveView) -> Stat:
    latencies = view.latencies
    if not latencies:
        return Stat("Latency", Quantity("\N{EN DASH}"), "no window measured yet")
    middle, worst, bound = median(latencies), max(latencies), view.query.objective_bound_s
    tone = "bad" if bound and middle > bound else "watch" if bound and worst > bound else ""
    note = f"worst of {counted(len(latencies), 'window')} {seconds(worst)}"
    return Stat("Latency", seconds(middle), f"{note}, objective {seconds(bound)}" if bound else note, tone)


def _on_time(view: LiveView) -> Stat:
    timed, in_time = (sum(getattr(row, name) for row in view.epochs) for name in ("timed", "in_time"))
    if not timed:
        return Stat("Left on time", Quantity("\N{EN DASH}"), "no agent has reported it yet")
    shed, bound = sum(row.shed_late for row in view.epochs), seconds(view.query.objective_bound_s)
    words = counted(timed, "record" if window_period_s(view.live.pipeline) is None else "window")
    note = f"of {words} at agents, for the objective of {bound}"
    note = f"{note}; {counted(shed, 'record')} shed as late everywhere" if shed else note
    return Stat("Left on time", percent(in_time / timed), note, "watch" if in_time < MIN_IN_TIME * timed else "")


def _watermark(view: LiveView) -> Stat:
    if view.stream_query is None or view.stream_query.watermark is None:
        return Stat("Watermark", Quantity("\N{EN DASH}"), "not reported")
    behind = (timezone.now() - view.stream_query.watermark).total_seconds()
    value = seconds(behind) if 0 <= behind < 86_400 else Quantity(ago(view.stream_query.watermark))
    return Stat("Watermark", value, f"behind now; waits for {view.stream_query.waits}")


def _late(view: LiveView) -> Stat:
    # each result counts them since the start of the query
    newest = view.stream_query or max(view.windows, key=lambda window: window.emitted_at, default=None)
    late, early = (newest.late, newest.early) if newest else (0, 0)
    revised = sum(window.revision > 0 for window in view.windows)
    note = f"{revised} of {counted(len(view.windows), 'window')} revised"
    if early:
        note = f"{note}, {counted(early, 'record')} too far ahead of time dropped"
    return Stat("Late records", Quantity(count(late)), note, "watch" if late or early else "")


def _alerting(view: LiveView) -> Stat:
    on = sum(rule.enabled for rule in view.rules)
    tone = "bad" if view.firing_count else ""
    return Stat("Alerts firing", Quantity(count(view.firing_count)), f"by {counted(on, 'rule')}", tone)


def results_table(request: HttpRequest, query: Query, rows: pa.Table, groups: Sequence[str], sorted_by: str) -> Table:
    """The columns that name a group come first; the largest of the drawn column leads."""
    others = [name for name in rows.column_names if name not in groups and name != WINDOW]

    def group_name(row: Mapping[str, Any]) -> str:
        return " ".join(str(row[name]) for name in groups)

    return Table(
        request,
        [_column(rows.schema.field(name), name in groups) for name in [*groups, *others]],
        rows.to_pylist(),
        caption="Newest results",
        default_sort=f"-{sorted_by}" if sorted_by else "",
        search=group_name if groups else None,
        search_label="Group",
        page_size=10,
        file_name=f"results-{query.name}",
        identify=group_name,
        empty={
            "icon": "arrivals",
            "title": "The window has no rows",
            "text": "No record passed the filters in that window.",
        },
    )


def _column(field: pa.Field, is_group: bool) -> Column:
    name, numeric = field.name, is_number(field.type)
    return Column(
        name,
        name,
        lambda row: value_text(row[name]),
        sort=lambda row: row[name],
        csv=lambda row: as_json(row[name]),
        num=numeric and not is_group,
        high_first=numeric,
    )
