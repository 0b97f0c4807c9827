"""What the page Schedule shows of one agent: the policy in force, its core over time, its queries, their watermarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.findings import Stat
from apps.pages.schedule_forms import POLICY_NAMES
from apps.pages.schedule_sweeps import SweepPicture
from apps.pages.schedule_table import schedule_table
from apps.pages.schedule_timeline import Timeline
from apps.refinement.showing import AgentSchedule
from apps.scheduling.lines import QueryLine
from apps.scheduling.selectors import lines_of
from apps.telemetry.choices import AgentState
from apps.telemetry.models import Agent
from apps.telemetry.states import agent_state
from apps.ui.numbers import MISSING, Quantity, bytes_size, count, counted, seconds
from apps.ui.tables import Table
from engine.klink.settings import ScheduleSettings

__all__ = ["SPANS_S", "ScheduleView", "policy_said"]

#: How much of the past the timeline may show.
SPANS_S = (30, 60, 120)
_KEPT_S = 300.0  # behind hit rates and latencies
_MODES = {
    "latency": ("Latency", "windows whose watermark is here first, then the least slack"),
    "memory": ("Memory", "what frees most memory first"),
    "saturated": ("Saturated", "short windows first: more comes than its core can do"),
}


@dataclass(frozen=True)
class _Stat(Stat):
    """With a small picture beside the value."""

    spark: SafeString | str = ""


def policy_said(agent: Agent) -> str:
    """The policy that an agent says is in force; `` where it has said none."""
    return str((agent.heartbeat.get("schedule") or {}).get("policy") or "")


class ScheduleView:
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
    def lines(self) -> list[QueryLine]:
        """With the last minutes before it was heard of last; shortest windows first, those without any last."""
        heard, key = self.agent.last_seen, str(self.agent.pk)
        by_its_clock_s = heard.timestamp() + (self.agent.clock_offset_s or 0.0) if heard is not None else 0.0
        since_us = {key: round((by_its_clock_s - _KEPT_S) * 1e6)} if heard is not None else {}
        found = lines_of([self.agent], since_us, {key: self.settings})[key]
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
    def windowed(self) -> list[QueryLine]:
        return [line for line in self.lines if line.period_s is not None]

    @cached_property
    def chosen(self) -> QueryLine | None:
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
        return _Stat("Waiting records", bytes_size(held), f"of at most {bytes_size(self.bound_bytes)}", tone, bar)

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


def _wait(late: Sequence[QueryLine]) -> str:
    if len(late) == 1:
        return f"{late[0].name} waits"
    return f"{counted(len(late), 'query').replace('querys', 'queries')} wait"
