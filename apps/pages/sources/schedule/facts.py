"""Facts of an agent's schedule: policy in force, queries, a replay, and the preview of another policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.overview.findings import Stat
from apps.pages.sources.schedule.charts import SweepPicture, Timeline
from apps.pages.sources.schedule.forms import POLICY_NAMES, schedule_told
from apps.pages.sources.schedule.tables import schedule_table
from apps.rollouts.schedule.queries import ScheduledQuery, scheduled_queries
from apps.rollouts.schedule.replays import Replay, ReplayFigures
from apps.rollouts.schedule.selectors import AgentSchedule
from apps.telemetry.choices import AgentState
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_state
from apps.ui.numbers import MISSING, Quantity, bytes_size, count, counted, percent, seconds
from apps.ui.tables import Table
from engine.klink.settings import ScheduleSettings

__all__ = ["SPANS_S", "ReplayPanel", "ScheduleFacts", "policy_said"]


#: How much of the past the timeline may show.
SPANS_S = (30, 60, 120)
_KEPT_S = 300.0  # behind hit rates and latencies
_MODES = {
    "latency": ("Latency", "windows whose watermark is here first, then the least slack"),
    "memory": ("Memory", "what frees most memory first"),
    "saturated": ("Saturated", "short windows first: more comes than its core can do"),
}


@dataclass(frozen=True)
class _ScheduleStat(Stat):
    """With a small picture beside the value."""

    spark: SafeString | str = ""


def policy_said(agent: Agent) -> str:
    """The policy that an agent says is in force; `` where it has said none."""
    return str((agent.heartbeat.get("schedule") or {}).get("policy") or "")


class ScheduleFacts:
    """One agent's schedule; every property is computed when a template asks for it."""

    def __init__(self, request: HttpRequest, cluster: Cluster, agent: Agent, given: AgentSchedule | None) -> None:
        self.request, self.cluster, self.agent, self.given = request, cluster, agent, given
        self.settings: ScheduleSettings = given.settings if given is not None else ScheduleSettings()
        self.said: Mapping[str, Any] = agent.heartbeat.get("schedule") or {}

    @cached_property
    def state(self) -> Any:
        return agent_state(self.agent)

    @property
    def reports(self) -> bool:
        return self.state.state not in {AgentState.SILENT, AgentState.NEVER, AgentState.DISABLED}

    @cached_property
    def span_s(self) -> int:
        wanted = self.request.GET.get("span", "")
        return int(wanted) if wanted in {str(one) for one in SPANS_S} else 60

    @cached_property
    def lines(self) -> list[ScheduledQuery]:
        """With the last minutes before it was heard of last; shortest windows first, those without any last."""
        heard, key = self.agent.last_seen, str(self.agent.pk)
        by_its_clock_s = heard.timestamp() + (self.agent.clock_offset_s or 0.0) if heard is not None else 0.0
        since_us = {key: round((by_its_clock_s - _KEPT_S) * 1e6)} if heard is not None else {}
        found = scheduled_queries([self.agent], since_us, {key: self.settings})[key]
        return sorted(found, key=lambda line: (line.period_s or float("inf"), line.name))

    @property
    def is_known(self) -> bool:
        """Whether it has said anything of its scheduling."""
        return bool(self.said)

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
        wanted = self.request.GET.get("query", "")
        ordered = sorted(self.windowed, key=lambda line: (line.name != wanted, not line.sweeps))
        return ordered[0] if ordered else None

    @cached_property
    def watermarks(self) -> SweepPicture | None:
        return SweepPicture(self.chosen) if self.chosen is not None else None

    # -- the sentence
    @property
    def policy(self) -> str:
        return policy_said(self.agent) or self.settings.policy

    @property
    def policy_name(self) -> str:
        return POLICY_NAMES.get(self.policy, self.policy)

    @property
    def sentence(self) -> SafeString:
        if not self.lines:
            return format_html("{} runs no live query: there is nothing to schedule.", self.agent.name)
        if not self.is_known:
            return format_html("{} has not said yet how it schedules its queries.", self.agent.name)
        text = format_html("{} runs {} by <b>{}</b>", self.agent.name, _queries(len(self.lines)), self.policy_name)
        known = [line for line in self.lines if line.slack_s is not None]
        if known:
            least = min(known, key=lambda line: line.slack_s or 0.0)
            text = format_html("{}; least slack: {}, <b>{}</b>", text, least.name, seconds(least.slack_s))
        late = [line for line in self.lines if line.late]
        if late:
            return format_html("{}. {} for its watermark.", text, _wait(late))
        return format_html("{}.", text)

    @property
    def faults(self) -> list[str]:
        """What it refused, and what is worth knowing."""
        refused = self.said.get("refused") or {}
        if not refused:
            return []
        name = refused.get("config") or "the newest configuration"
        return [f"It refused {name}: {'; '.join(str(one) for one in refused.get('reasons') or ['no reason given'])}."]

    # -- the strip
    @property
    def bound_bytes(self) -> int:
        return int(self.said.get("memory_bound") or self.settings.memory_bytes)

    @property
    def stats(self) -> list[Stat]:
        return [self._policy(), self._mode(), self._memory(), self._starved(), self._config()]

    def _policy(self) -> Stat:
        cycle_ms = self.said.get("cycle_ms") or self.settings.cycle_ms
        return Stat("Policy in force", Quantity(self.policy), f"a choice holds for {seconds(cycle_ms / 1e3)}")

    def _mode(self) -> Stat:
        mode = str(self.said.get("mode") or "")
        word, why = _MODES.get(mode, (MISSING, "not known yet"))
        is_klink = self.policy == "klink"
        reason = str(self.said.get("reason") or (why if is_klink or mode != "latency" else ""))
        return Stat("Mode", Quantity(word), reason, "watch" if mode in ("memory", "saturated") else "")

    def _memory(self) -> Stat:
        held = self.said.get("memory_bytes")
        share = min((held or 0) / self.bound_bytes, 1.0) if self.bound_bytes else 0.0
        tone = "watch" if share >= 1 else ""
        width = f"{100 * share:.0f}"
        bar = format_html('<span class="mini sch-mini"><i class="{}" style="width:{}%"></i></span>', tone, width)
        return _ScheduleStat(
            "Waiting records", bytes_size(held), f"of at most {bytes_size(self.bound_bytes)}", tone, bar
        )

    def _starved(self) -> Stat:
        starved = self.said.get("starved")
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


def _queries(number: int) -> str:
    return "1 query" if number == 1 else f"{number} queries"


def _wait(late: Sequence[ScheduledQuery]) -> str:
    if len(late) == 1:
        return f"{late[0].name} waits"
    return f"{counted(len(late), 'query').replace('querys', 'queries')} wait"


class ReplayPanel:
    """Policies beside each other; the others are compared with `against`; `in_force` is the agent's now."""

    def __init__(self, found: Replay, against: str, in_force: str = "") -> None:
        self.found = found
        self.against = against if against in found.policies else next(iter(found.policies), against)
        self.in_force = in_force or found.in_force or ScheduleSettings().policy

    @property
    def sentence(self) -> str:
        """`Under Klink results come 0.31 s after their window's end on average, 42% sooner than under round robin.`"""
        now, other = (self.found.policies.get(policy) for policy in (self.in_force, self.against))
        if now is None or other is None:
            return f"{_policy_name(self.in_force).capitalize()} is in force, and not among what was replayed."
        if now.mean_s is None or other.mean_s is None:
            return "No window was swept in what is recorded: nothing can be compared yet."
        if self.in_force == self.against:
            return self._best(now.mean_s)
        mine, name = _policy_name(self.in_force), _policy_name(self.against)
        change = f"{_latency_change(now.mean_s, other.mean_s)} under {name}"
        return f"Under {mine} results come {_after(now.mean_s)}, {change}{_tail(now.p99_s, other.p99_s)}."

    def _best(self, now_s: float) -> str:
        """Of the others, while the one in force is compared with itself."""
        known = {policy: one.mean_s for policy, one in self.found.policies.items() if one.mean_s is not None}
        best = min(known, key=lambda policy: (known[policy], policy != self.in_force))
        if best == self.in_force:
            return f"No other policy would be sooner: results come {_after(now_s)}."
        return f"Under {_policy_name(best)} results would come {_after(known[best])}, {_latency_change(known[best], now_s)} now."

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A line for each policy."""
        return [self._row(policy, one) for policy, one in self.found.policies.items()]

    def _row(self, policy: str, one: ReplayFigures) -> dict[str, Any]:
        base = self.found.policies.get(self.against) if policy != self.against else None
        return {
            "policy": policy,
            "name": _policy_name(policy),
            "is_now": policy == self.in_force,
            "mean": seconds(one.mean_s),
            "mean_change": _share_change(one.mean_s, base.mean_s if base else None),
            "p99": seconds(one.p99_s),
            "p99_change": _share_change(one.p99_s, base.p99_s if base else None),
            "overflow": percent(one.overflow_share),
            "memory": bytes_size(one.memory_peak_bytes),
        }

    @property
    def policies(self) -> list[tuple[str, str]]:
        """(policy, its name)."""
        return [(policy, _policy_name(policy)) for policy in self.found.policies]

    @property
    def by_query(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(query, [(mean and p99, policy's name)])."""
        names = sorted({query for one in self.found.policies.values() for query in one.queries})
        return [
            (
                query,
                [(_pair(one.queries.get(query)), _policy_name(policy)) for policy, one in self.found.policies.items()],
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


def _after(latency_s: float) -> str:
    return f"{seconds(latency_s)} after their window's end on average"


def _pair(figures: ReplayFigures | None) -> str:
    if figures is None or figures.mean_s is None:
        return MISSING
    return f"{seconds(figures.mean_s)}, {seconds(figures.p99_s)}"


def _share_change(value: float | None, base: float | None) -> str:
    """`−42%`."""
    if value is None or not base:
        return ""
    share = value / base - 1
    return "the same" if abs(share) < 0.005 else f"{'+' if share > 0 else '−'}{percent(abs(share))}"


def _latency_change(value: float, base: float) -> str:
    """`42% sooner than`."""
    share = value / base - 1 if base else 0.0
    if abs(share) < 0.005:
        return "as soon as"
    return f"{percent(abs(share))} {'later' if share > 0 else 'sooner'} than"


def _tail(value: float | None, base: float | None) -> str:
    """`; p99 is 31% higher`: a mean alone may hide it."""
    if value is None or not base or abs(value / base - 1) < 0.005:
        return ""
    share = value / base - 1
    return f"; p99 is {percent(abs(share))} {'higher' if share > 0 else 'lower'}"


class SwitchPanel:
    """What would follow: who, from what to what, what is judged, how long it takes."""

    def __init__(self, preview: Any) -> None:
        self.preview = preview

    @property
    def applies(self) -> bool:
        return not self.preview.unchanged

    @property
    def words(self) -> str:
        """One sentence with its numbers."""
        found = self.preview
        if found.unchanged:
            return "These are the settings that all of these agents have already."
        first, *waves = found.stages
        order = f", {first} of them first" if waves else ""
        later = f", when the rollout of {found.waits_for} is over" if found.waits_for else ""
        who = counted(len(found.agents), "agent")
        return f"{who} would get it{order}{later}; it takes {seconds(found.least_s)} or more."

    @property
    def rows(self) -> list[tuple[Any, str, str, list[tuple[str, str, str]]]]:
        """(agent, policy now, policy then, [(setting, before, after)])."""
        return [
            (one, POLICY_NAMES.get(one.policy_before, one.policy_before or "not known yet"),
             POLICY_NAMES.get(one.policy_after, one.policy_after),
             [_setting_change(*change) for change in one.changes if change[0] != "policy"])
            for one in self.preview.agents
        ]  # fmt: skip


def _setting_change(name: str, before: Any, after: Any) -> tuple[str, str, str]:
    label, was = schedule_told(name, before)
    return label, was, schedule_told(name, after)[1]
