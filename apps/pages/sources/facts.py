"""Facts of the sources: tabs, the stream processor, the rollout under way, and the opening sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agent.wire.broker import StreamProcessorReport, StreamQueryReport
from apps.core.errors import fault_count
from apps.pages.sources.agent_flows import processed_share, saved_share
from apps.pages.sources.agent_tables import AgentLine, since
from apps.rollouts.models import RolloutState
from apps.rollouts.rollout_selectors import RolloutAction, RolloutFigure, RolloutStep, RolloutView
from apps.telemetry.models import AgentState
from apps.telemetry.streams import StreamFigures, stream_figures, stream_state
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, count, percent, seconds
from apps.ui.times import ago
from engine.words import counted, listed

__all__ = ["RolloutPanel", "SourcesFinding", "StreamCard", "StreamQuery", "moment_of", "source_tabs"]


_TABS = {
    "agents": ("Agents", "pages:sources"),
    "schedule": ("Schedule", "pages:schedule"),
    "configs": ("Configs", "pages:configs"),
    "policy": ("Rollout policy", "pages:rollout-policy"),
    "state": ("State", "pages:stream-state"),
    "history": ("History", "pages:stream-history"),
}


def source_tabs(slug: str, current: str) -> list[tuple[str, str, bool]]:
    """(label, address, is it this page)."""
    return [(label, reverse(name, args=[slug]), tab == current) for tab, (label, name) in _TABS.items()]


_MARKS = {
    "starting": Mark("jobs", "queue", "Starting"),
    "warming": Mark("jobs", "queue", "Warming up"),
    "ready": Mark("ok", "ok", "Ready"),
    "stopping": Mark("pause", "", "Stopping"),
    "failed": Mark("bad", "bad", "Failed"),
    "away": Mark("unknown", "watch", "Away"),
    "unknown": Mark("unknown", "watch", "Not known"),
}
_WORDS = {
    "starting": "It is starting: its engine takes about ten seconds.",
    "warming": "It is warming up: the first batch takes twenty seconds or more. What agents send waits in order.",
    "stopping": "It is stopping. What agents send waits until it is back.",
    "failed": "It failed and is started again by itself. What agents send waits.",
    "away": "It does not report. What agents send waits in Redis, then at the agents; nothing is lost.",
    "unknown": "Redis does not answer, so nothing is known of it. Agents keep what they have.",
}
#: Frames waiting from which its lag is worth a word.
_MAX_LAG = 500
#: How far behind now a watermark is when somebody is waited for.
_BEHIND = timedelta(seconds=10)


def moment_of(microseconds: Any) -> datetime | None:
    """Microseconds since 1970 as a moment; None for what is none."""
    try:
        return datetime.fromtimestamp(float(microseconds) / 1e6, UTC) if microseconds else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class StreamQuery:
    """One query in the stream processor's last report."""

    name: str
    watermark: datetime | None
    waiting_for: list[str]
    excluded: list[str]
    windows_open: int
    late: int
    early: int
    unknown: int

    @property
    def waits(self) -> str:
        """For whom, in words."""
        return listed(self.waiting_for, 4) or "nobody"


class StreamCard:
    """The state that the stream processor writes every two seconds."""

    def __init__(self, slug: str, names: Mapping[str, str], report: StreamProcessorReport | None = None) -> None:
        """`names` are agents by id; `said` is read from Redis unless given."""
        self.slug = slug
        self.names = names
        self.report = stream_state() if report is None else report

    @property
    def state(self) -> str:
        return str(self.report.get("state", "unknown"))

    @property
    def mark(self) -> Mark:
        return _MARKS.get(self.state, _MARKS["unknown"])

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def words(self) -> str:
        """One sentence: what it does, or what follows from what it does not."""
        if not self.is_ready:
            return _WORDS.get(self.state, "")
        if self.lag > _MAX_LAG:
            return f"It is {count(self.lag)} frames behind; results come later until it has caught up."
        return f"It keeps up; {counted(self.lag, 'frame')} came since its last batch." if self.lag else "It keeps up."

    @property
    def lag(self) -> int:
        lag = self.report.get("lag") or {}
        return int(sum(lag.values())) if isinstance(lag, Mapping) else 0

    @property
    def since(self) -> str:
        return ago(moment_of(1e6 * float(self.report.get("since") or 0)))

    @property
    def batch(self) -> str:
        """Its last batch: number and duration."""
        number = self.report.get("batch")
        if number is None:
            return "none yet"
        took_s = self.report.get("batch_s") if self.figures.records is None else self.figures.batch_s
        if took_s is None:
            return count(number)
        took = f"{count(number)}, took {seconds(took_s)} of {seconds(self.report.get('trigger_s'))}"
        return took if self.figures.records is None else f"{took} for {counted(int(self.figures.records), 'record')}"

    @cached_property
    def figures(self) -> StreamFigures:
        """Records, durations and state as of its last batch with records."""
        return stream_figures(self.report)

    @property
    def engine(self) -> str:
        version, master = self.report.get("spark"), self.report.get("master")
        return f"Spark {version} on {master}" if version and master else MISSING

    @property
    def quarantined(self) -> int:
        return int(self.report.get("quarantined") or 0)

    @property
    def faults(self) -> list[str]:
        faults = [str(fault) for fault in self.report.get("faults") or []]
        if self.quarantined:
            text = fault_count(range(self.quarantined)).replace("fault", "frame")
            faults.append(f"{text} could not be read and were put aside.")
        return faults

    @cached_property
    def queries(self) -> list[StreamQuery]:
        """Of this cluster, by name."""
        own = f"{self.slug}/"
        return [
            self._query(name.removeprefix(own), report)
            for name, report in sorted((self.report.get("queries") or {}).items())
            if name.startswith(own)
        ]

    def query(self, name: str) -> StreamQuery | None:
        """One of this cluster's queries."""
        return next((query for query in self.queries if query.name == name), None)

    def _query(self, name: str, report: StreamQueryReport) -> StreamQuery:
        watermark = moment_of(report.get("watermark_us"))
        # somebody is always the last by a little: that is no waiting
        is_behind = watermark is None or timezone.now() - watermark > _BEHIND
        waiting = (report.get("waiting_for") or []) if is_behind else []
        return StreamQuery(
            name=name,
            watermark=watermark,
            waiting_for=[self.names.get(agent, agent[:8]) for agent in waiting],
            excluded=[self.names.get(agent, agent[:8]) for agent in report.get("excluded") or []],
            windows_open=int(report.get("windows_open") or 0),
            late=int(report.get("late") or 0),
            early=int(report.get("early") or 0),
            unknown=int(report.get("unknown") or 0),
        )


#: Of the view's tones: colour class, drawing.
_TONES = {
    "ok": ("ok", "ok"),
    "warning": ("watch", "watch"),
    "danger": ("bad", "bad"),
    "info": ("acc", "jobs"),
    "neutral": ("", "pause"),
}


@dataclass(frozen=True)
class RolloutPanel:
    """A rollout as the template draws it."""

    view: RolloutView

    @property
    def row(self) -> Any:
        return self.view.rollout

    @property
    def tone(self) -> str:
        return _TONES.get(self.view.tone, ("", "info"))[0]

    @property
    def drawing(self) -> str:
        return _TONES.get(self.view.tone, ("", "info"))[1]

    @property
    def steps(self) -> list[tuple[RolloutStep, str]]:
        """(step, share of it that is over in percent)."""
        return [(step, f"{100 * min(max(step.share, 0.0), 1.0):.0f}%") for step in self.view.steps]

    @property
    def figures(self) -> list[tuple[RolloutFigure, str]]:
        """(figure, colour class): colour is for what is beyond its limit, and for bytes that are saved."""
        return [
            (figure, "bad" if figure.worse else "watch" if figure.unsure else _figure_tone(figure))
            for figure in self.view.figures
        ]

    @property
    def can_pause(self) -> bool:
        return RolloutAction.PAUSE in self.view.buttons

    @property
    def can_resume(self) -> bool:
        return RolloutAction.RESUME in self.view.buttons

    @property
    def can_stop(self) -> bool:
        return RolloutAction.STOP in self.view.buttons

    @property
    def can_roll_back(self) -> bool:
        return RolloutAction.ROLL_BACK in self.view.buttons

    @property
    def roll_back(self) -> str:
        """`Roll back 5 agents`."""
        return f"Roll back {counted(self.view.given, 'agent')}" if self.view.given else "Roll back"

    @property
    def parent(self) -> str:
        """Config that agents go back to."""
        before = self.row.config.parent
        return before.name if before is not None else "what they find by themselves"

    @property
    def is_over(self) -> bool:
        return self.row.state in (RolloutState.ROLLED_BACK, RolloutState.STOPPED, RolloutState.DONE)

    @property
    def is_back(self) -> bool:
        """Taken back, or on its way: its reasons are the news."""
        return self.row.state in (RolloutState.ROLLED_BACK, RolloutState.ROLLING_BACK)

    @property
    def reasons(self) -> list[str]:
        """Reasons of the guard now, where no step names them."""
        report = " ".join(step.words for step in self.view.steps)
        return [] if self.is_back else [reason for reason in self.view.reasons if reason not in report]

    @property
    def waiting(self) -> str:
        """`c-119 waits until this one is over.`"""
        names = self.view.waiting
        if not names:
            return ""
        if len(names) == 1:
            return f"{names[0]} waits until this rollout is over."
        return f"{listed(names)} wait until this rollout is over."


def _figure_tone(figure: RolloutFigure) -> str:
    return "ok" if figure.key == "bytes" and figure.change is not None and figure.change < 0 else ""


#: What is wrong with one agent, and with several.
_WRONG = (
    (AgentState.SPOOL, "{} keeps more than it gets rid of.", "{} keep more than they get rid of."),
    (AgentState.OVERFLOW, "{} overflows.", "{} overflow."),
)
#: What agents do for the cluster, in the singular and the plural: without statistics, and with.
_NO_STATISTICS = ("{} reports, and has sent no statistics yet.", "{} report, and none has sent statistics yet.")
_SAVINGS = (
    "{} processes <b>{}</b> of records before they leave the edge, which saves <b>{}</b> of the bytes.",
    "{} process <b>{}</b> of records before they leave the edge, which saves <b>{}</b> of the bytes.",
)
_ROLLOUTS = {
    "rolled-back": "Config {config} was rolled back.",
    "rolling-back": "Config {config} is being rolled back.",
    "canary": "Config {config} is on {agents}.",
    "wave": "Config {config} is on {agents}.",
    "paused": "Config {config} is paused on {agents}.",
}


class SourcesFinding:
    """Opening sentence of the page: savings of the agents, and what is wrong or under way."""

    def __init__(self, lines: Sequence[AgentLine], stream: StreamCard, rollout: RolloutView | None = None) -> None:
        self.lines, self.stream, self.rollout = lines, stream, rollout

    @cached_property
    def sentence(self) -> SafeString:
        if not self.lines:
            return SafeString("No agent has joined yet: nothing is collected near the data.")
        return format_html("{} {}", self._done(), self._news())

    def _done(self) -> SafeString:
        reporting = [line for line in self.lines if line.reports]
        flows = [line.flow for line in reporting if line.flow is not None]
        share, saved = processed_share(flows), saved_share(flows)
        count = counted(len(self.lines), "agent")
        agents = count if len(reporting) == len(self.lines) else f"{len(reporting)} of {count}"
        is_plural = len(reporting) != 1
        if share is None or saved is None:
            return format_html(_NO_STATISTICS[is_plural], agents)
        return format_html(_SAVINGS[is_plural], agents, percent(share), percent(saved))

    def _news(self) -> str:
        return " ".join(self._all_news()) or "All report, and the stream processor is ready."

    def _all_news(self) -> Iterator[str]:
        silent = [line for line in self.lines if line.state == AgentState.SILENT]
        if silent:
            first = since(min(line.agent.last_seen for line in silent if line.agent.last_seen))
            if len(silent) == 1:
                yield f"{silent[0].agent.name} has not reported {first}."
            else:
                yield f"{len(silent)} agents have not reported {first}."
        for state, singular, plural in _WRONG:
            names = [line.agent.name for line in self.lines if line.state == state]
            if names:
                yield singular.format(names[0]) if len(names) == 1 else plural.format(f"{len(names)} agents")
        if not self.stream.is_ready:
            yield f"The stream processor is {self.stream.mark.label.lower()}."
        if self.rollout is not None and self.rollout.state in _ROLLOUTS:
            yield _rollout_news(self.rollout)


def _rollout_news(rollout: RolloutView) -> str:
    is_canary = rollout.rollout.stage == 0
    nouns = ("canary", "canaries") if is_canary else ("agent", "agents")
    return _ROLLOUTS[rollout.state].format(config=rollout.config, agents=counted(rollout.given, *nouns))
