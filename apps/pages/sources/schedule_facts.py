"""Facts of an agent's schedule: policy in force, queries, a replay, and the preview of another policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agent.wire.heartbeat import ScheduleReport
from apps.fleet.models import Cluster
from apps.pages.overview.findings import Stat
from apps.pages.sources.schedule_charts import SweepPicture, Timeline
from apps.pages.sources.schedule_tables import schedule_table
from apps.rollouts.replays import Replay, ReplayedQuery
from apps.rollouts.schedule_selectors import AgentSchedule
from apps.rollouts.scheduled_queries import ScheduledQuery, scheduled_queries
from apps.telemetry.models import Agent, AgentState
from apps.telemetry.selectors import agent_state
from apps.ui.numbers import MISSING, Quantity, bytes_size, count, percent, seconds
from apps.ui.record_forms import setting_words
from apps.ui.sentences import sentence
from apps.ui.tables import Table
from engine.klink.settings import POLICY_NAMES, ScheduleSettings
from engine.words import counted

__all__ = ["SPANS_S", "ReplayPanel", "ScheduleFacts", "policy_reported"]

#: How much of the past the timeline may show.
SPANS_S = (30, 60, 120)
_KEPT_S = 300.0  # behind hit rates and latencies
_MODES = {
    "latency": ("Latency", "windows whose watermark is here first, then the least slack"),
    "memory": ("Memory", "windows that are due, then what frees memory best"),
    "saturated": ("Saturated", "short windows first: more comes than its core can do"),
}


@dataclass(frozen=True)
class _ScheduleStat(Stat):
    """With a small picture beside the value."""

    spark: SafeString | str = ""


def policy_reported(agent: Agent) -> str:
    """The policy that an agent says is in force; `` where it has said none."""
    return str((agent.heartbeat.get("schedule") or {}).get("policy") or "")


class ScheduleFacts:
    """One agent's schedule; every property is computed when a template asks for it."""

    def __init__(self, request: HttpRequest, cluster: Cluster, agent: Agent, given: AgentSchedule | None) -> None:
        self.request, self.cluster, self.agent, self.given = request, cluster, agent, given
        self.settings: ScheduleSettings = given.settings if given is not None else ScheduleSettings()
        self.report: ScheduleReport = agent.heartbeat.get("schedule") or {}

    @cached_property
    def state(self) -> Any:
        return agent_state(self.agent)

    @property
    def reports(self) -> bool:
        return self.state.state not in {AgentState.SILENT, AgentState.NEVER, AgentState.DISABLED}

    @cached_property
    def span_s(self) -> int:
        span = self.request.GET.get("span", "")
        return int(span) if span in {str(span_s) for span_s in SPANS_S} else 60

    @cached_property
    def lines(self) -> list[ScheduledQuery]:
        """With the last minutes before it was heard of last; shortest windows first, those without any last."""
        heard, key = self.agent.last_seen, str(self.agent.pk)
        by_its_clock_s = heard.timestamp() + (self.agent.clock_offset_s or 0.0) if heard is not None else 0.0
        since_us = {key: round((by_its_clock_s - _KEPT_S) * 1e6)} if heard is not None else {}
        queries = scheduled_queries([self.agent], since_us, {key: self.settings})[key]
        return sorted(queries, key=lambda line: (line.period_s or float("inf"), line.name))

    @property
    def is_known(self) -> bool:
        """Whether it has said anything of its scheduling."""
        return bool(self.report)

    # -- the parts
    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.agent.name, self.lines, float(self.span_s), self.bound_bytes)

    @cached_property
    def table(self) -> Table:
        return schedule_table(self.request, self.cluster.slug, self.agent.name, self.lines)

    @cached_property
    def windowed(self) -> list[ScheduledQuery]:
        return [line for line in self.lines if line.period_s is not None]

    @cached_property
    def chosen(self) -> ScheduledQuery | None:
        """The query whose watermarks are drawn: the one asked for, else the first that has swept windows."""
        name = self.request.GET.get("query", "")
        ordered = sorted(self.windowed, key=lambda line: (line.name != name, not line.sweeps))
        return ordered[0] if ordered else None

    @cached_property
    def watermarks(self) -> SweepPicture | None:
        return SweepPicture(self.chosen) if self.chosen is not None else None

    # -- the sentence
    @property
    def policy(self) -> str:
        return policy_reported(self.agent) or self.settings.policy

    @property
    def policy_name(self) -> str:
        return POLICY_NAMES.get(self.policy, self.policy)

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/sources/sentences/schedule.html", view=self)

    @property
    def tightest(self) -> ScheduledQuery | None:
        """The query with the least slack."""
        lines = [line for line in self.lines if line.slack_s is not None]
        return min(lines, key=lambda line: line.slack_s or 0.0, default=None)

    @property
    def late(self) -> list[ScheduledQuery]:
        """Queries that wait for their watermark."""
        return [line for line in self.lines if line.late]

    @property
    def faults(self) -> list[str]:
        """Refusals and remarks of the agent."""
        refused = self.report.get("refused") or {}
        if not refused:
            return []
        name = refused.get("config") or "the newest configuration"
        return [
            f"It refused {name}: {'; '.join(str(reason) for reason in refused.get('reasons') or ['no reason given'])}."
        ]

    # -- the strip
    @property
    def bound_bytes(self) -> int:
        return int(self.report.get("memory_bound") or self.settings.memory_bytes)

    @property
    def stats(self) -> list[Stat]:
        return [self._policy(), self._mode(), self._memory(), self._starved(), self._config()]

    def _policy(self) -> Stat:
        cycle_ms = self.report.get("cycle_ms") or self.settings.cycle_ms
        label = "Policy in force" if self.is_known else "Policy it is to follow"
        return Stat(label, Quantity(self.policy_name), f"scheduling quantum {seconds(cycle_ms / 1e3)}")

    def _mode(self) -> Stat:
        mode = str(self.report.get("mode") or "")
        word, why = _MODES.get(mode, (MISSING, "not known yet"))
        is_klink = self.policy == "klink"
        reason = str(self.report.get("reason") or (why if is_klink or mode != "latency" else ""))
        return Stat("Mode", Quantity(word), reason, "watch" if mode in ("memory", "saturated") else "")

    def _memory(self) -> Stat:
        held = self.report.get("memory_bytes")
        share = min((held or 0) / self.bound_bytes, 1.0) if self.bound_bytes else 0.0
        tone = "watch" if share >= 1 else ""
        width = f"{100 * share:.0f}"
        bar = format_html('<span class="mini sch-mini"><i class="{}" style="width:{}%"></i></span>', tone, width)
        return _ScheduleStat(
            "Waiting records", bytes_size(held), f"memory limit {bytes_size(self.bound_bytes)}", tone, bar
        )

    def _starved(self) -> Stat:
        starved = self.report.get("starved")
        note = f"turns given after {seconds(self.settings.starvation_s)} without one"
        return Stat("Waited too long", Quantity(count(starved)), note)

    def _config(self) -> Stat:
        config = self.given.config if self.given is not None else ""
        note = "sets how it schedules" if config else "it schedules by the defaults"
        if self.given is not None and self.given.behind:
            note = f"{self.given.wanted} is on its way to it"
        elif self.given is not None and self.given.canary:
            note = "it is a canary"
        return Stat("Config", Quantity(config or "none"), note)


#: The policy in force against another one, by how their means compare.
_COMPARISONS = {
    "sooner": "Under {policy} results come {mean} after their window's end on average, "
    "{share} sooner than under {other}.",
    "later": "Under {policy} results come {mean} after their window's end on average, "
    "{share} later than under {other}.",
    "same": "Under {policy} results come {mean} after their window's end on average, as soon as under {other}.",
}
#: The best of the other policies against the one in force.
_ADVICE = {
    "sooner": "Under {policy} results would come {mean} after their window's end on average, {share} sooner than now.",
    "same": "Under {policy} results would come {mean} after their window's end on average, as soon as now.",
    "best": "No other policy would be sooner: results come {mean} after their window's end on average.",
}
#: A mean alone may hide a tail.
_TAILS = {"later": "Their p99 is {share} higher.", "sooner": "Their p99 is {share} lower.", "same": ""}


class ReplayPanel:
    """Policies beside each other; the others are compared with `against`; `in_force` is the agent's now."""

    def __init__(self, replay: Replay, against: str, in_force: str = "") -> None:
        self.found = replay
        self.against = against if against in replay.policies else next(iter(replay.policies), against)
        self.in_force = in_force or replay.in_force or ScheduleSettings().policy

    @property
    def sentence(self) -> str:
        """`Under Klink results come 0.31 s after their window's end on average, 42% sooner than under round robin.`"""
        now, other = (self.found.policies.get(policy) for policy in (self.in_force, self.against))
        if now is None or other is None:
            return f"{_policy_name(self.in_force).capitalize()} is in force, and not among what was replayed."
        if now.mean_s is None or other.mean_s is None:
            return "No window was swept in what is recorded: nothing can be compared yet."
        if self.in_force == self.against:
            return self._advice(now.mean_s)
        change, share = _comparison(now.mean_s, other.mean_s)
        names = {"policy": _policy_name(self.in_force), "other": _policy_name(self.against)}
        text = _COMPARISONS[change].format(mean=seconds(now.mean_s), share=share, **names)
        return f"{text} {_tail(now.p99_s, other.p99_s)}".strip()

    def _advice(self, now_s: float) -> str:
        """The best of the others, while the policy in force is compared with itself."""
        policies = self.found.policies.items()
        means = {policy: figures.mean_s for policy, figures in policies if figures.mean_s is not None}
        best = min(means, key=lambda policy: (means[policy], policy != self.in_force))
        change, share = ("best", "") if best == self.in_force else _comparison(means[best], now_s)
        return _ADVICE[change].format(policy=_policy_name(best), mean=seconds(means[best]), share=share)

    @property
    def rows(self) -> list[dict[str, object]]:
        """A line for each policy."""
        return [self._row(policy, figures) for policy, figures in self.found.policies.items()]

    def _row(self, policy: str, figures: ReplayedQuery) -> dict[str, object]:
        base = self.found.policies.get(self.against) if policy != self.against else None
        return {
            "policy": policy,
            "name": _policy_name(policy),
            "is_now": policy == self.in_force,
            "mean": seconds(figures.mean_s),
            "mean_change": _share_change(figures.mean_s, base.mean_s if base else None),
            "p99": seconds(figures.p99_s),
            "p99_change": _share_change(figures.p99_s, base.p99_s if base else None),
            "overflow": percent(figures.overflow_share),
            "memory": bytes_size(figures.memory_peak_bytes),
        }

    @property
    def policies(self) -> list[tuple[str, str]]:
        """(policy, its name)."""
        return [(policy, _policy_name(policy)) for policy in self.found.policies]

    @property
    def by_query(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(query, [(mean and p99, policy's name)])."""
        names = sorted({query for policy in self.found.policies.values() for query in policy.queries})
        return [
            (
                query,
                [
                    (_pair(figures.queries.get(query)), _policy_name(policy))
                    for policy, figures in self.found.policies.items()
                ],
            )
            for query in names
        ]

    @property
    def basis(self) -> str:
        span = seconds((self.found.until_us - self.found.since_us) / 1e6)
        return (
            f"Arrivals, costs and watermarks of {span} with {counted(self.found.windows, 'window')}, as recorded. "
            "Until a window is done; that results then wait for the end of the epoch comes on top."
        )


def _policy_name(policy: str) -> str:
    return POLICY_NAMES.get(policy, policy)


def _pair(figures: ReplayedQuery | None) -> str:
    if figures is None or figures.mean_s is None:
        return MISSING
    return f"{seconds(figures.mean_s)}, {seconds(figures.p99_s)}"


def _share_change(value: float | None, base: float | None) -> str:
    """`−42%`."""
    if value is None or not base:
        return ""
    share = value / base - 1
    return "the same" if abs(share) < 0.005 else f"{'+' if share > 0 else '−'}{percent(abs(share))}"


def _comparison(value: float, base: float) -> tuple[str, str]:
    """(sooner, later or same; by which share)."""
    share = value / base - 1 if base else 0.0
    change = "same" if abs(share) < 0.005 else "later" if share > 0 else "sooner"
    return change, str(percent(abs(share)))


def _tail(value: float | None, base: float | None) -> str:
    if value is None or not base:
        return ""
    change, share = _comparison(value, base)
    return _TAILS[change].format(share=share)


#: Who would get the settings, by whether canaries come first and whether another rollout goes before.
_SWITCHES = {
    (False, False): "{agents} would get it; it takes {time} or more.",
    (True, False): "{agents} would get it, {first} of them first; it takes {time} or more.",
    (False, True): "{agents} would get it when the rollout of {before} is over; it takes {time} or more.",
    (True, True): "{agents} would get it, {first} of them first, when the rollout of {before} is over; "
    "it takes {time} or more.",
}


class SwitchPanel:
    """Preview of a switch: agents, settings before and after, measures of the guard, duration."""

    def __init__(self, preview: Any) -> None:
        self.preview = preview

    @property
    def applies(self) -> bool:
        return not self.preview.unchanged

    @property
    def words(self) -> str:
        """One sentence with its numbers."""
        preview = self.preview
        if preview.unchanged:
            return "These are the settings that all of these agents have already."
        first, *waves = preview.stages
        return _SWITCHES[bool(waves), bool(preview.waits_for)].format(
            agents=counted(len(preview.agents), "agent"),
            first=first,
            before=preview.waits_for,
            time=seconds(preview.least_s),
        )

    @property
    def rows(self) -> list[tuple[Any, str, str, list[tuple[str, str, str]]]]:
        """(agent, policy now, policy then, [(setting, before, after)])."""
        return [
            (agent, POLICY_NAMES.get(agent.policy_before, agent.policy_before or "not known yet"),
             POLICY_NAMES.get(agent.policy_after, agent.policy_after),
             [_setting_change(*change) for change in agent.changes if change[0] != "policy"])
            for agent in self.preview.agents
        ]  # fmt: skip


def _setting_change(name: str, before: Any, after: Any) -> tuple[str, str, str]:
    label, was = setting_words(ScheduleSettings, name, before)
    return label, was, setting_words(ScheduleSettings, name, after)[1]
