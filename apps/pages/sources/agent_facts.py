"""Facts of one agent: state, pipelines and their adaptation, budget, collectors, spool, clock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agent.wire.heartbeat import (
    AgentQueryReport,
    CollectorReport,
    FactorChangeReport,
    Heartbeat,
    ScheduleReport,
    SpoolReport,
)
from apps.fleet.models import Cluster
from apps.pages.overview.findings import Stat
from apps.pages.sources.agent_charts import PipelineStage, Settling, pipeline_picture, settled_words
from apps.pages.sources.agent_flows import RECENT, AgentFlow, AgentQueryFlow, SplitComparison, flows_of
from apps.pages.sources.agent_predictions import AgentPrediction, operator_cores
from apps.pages.sources.agent_tables import NO_CONFIG, STATE_MARKS, AgentLine
from apps.pages.sources.facts import moment_of
from apps.rollouts.config_selectors import configs_by_agent
from apps.rollouts.models import Learned
from apps.rollouts.predictions import saved_bytes
from apps.telemetry.epochs import epochs_of
from apps.telemetry.models import Agent, AgentState, Assignment
from apps.telemetry.pipelines import pipeline_by_digest
from apps.telemetry.selectors import agent_state
from apps.ui.marks import Mark, icon
from apps.ui.numbers import MISSING, Quantity, byte_rate, bytes_size, count, percent, rate, ratio, seconds
from apps.ui.sentences import sentence
from engine.dataflow import Pipeline
from engine.jarvis.settings import METHOD_WORDS, AdaptationSettings
from engine.klink.settings import POLICY_NAMES
from engine.rollouts.measures import EpochRow
from engine.words import counted

__all__ = ["AgentPageFacts", "PipelineAt"]

_PHASES = {
    "startup": "Starting: everything is drained until its first epochs are seen",
    "profile": "Measuring what its operators cost",
}
_STATES = {"congested": "Overflowing", "idle": "CPU to spare", "stable": "Within its budget"}


@dataclass(frozen=True)
class FactorChange:
    """A change of load factors as the agent tells it."""

    at: Any
    why: str
    settled: str
    is_settled: bool
    moved: list[tuple[str, str, str]]  #: (operator, from, to)
    bytes_before: str
    bytes_after: str


@dataclass(frozen=True)
class PipelineAt:
    """One query's part at the agent."""

    agent: Agent
    assignment: Assignment
    flow: AgentQueryFlow | None
    report: AgentQueryReport
    epochs: Sequence[EpochRow] = field(default=())

    @property
    def query(self) -> str:
        return self.assignment.live.query.name

    @cached_property
    def pipeline(self) -> Pipeline | None:
        return pipeline_by_digest(self.assignment.live.plan)

    @cached_property
    def stages(self) -> list[PipelineStage]:
        live = self.assignment.live
        flows = {operator.operator: operator for operator in self.flow.operators} if self.flow else {}
        factors = [*self.assignment.load_factors, *([0.0] * live.source_operators)]
        return [
            PipelineStage(document["id"], factors[k] if k < live.source_operators else None, flows.get(document["id"]))
            for k, document in enumerate(live.pipeline["operators"])
        ]

    @property
    def own(self) -> list[PipelineStage]:
        """Those that may run at the source."""
        return [stage for stage in self.stages if stage.factor is not None]

    @property
    def operators(self) -> list[tuple[str, float | None]]:
        """(id, load factor) of those."""
        return [(stage.name, stage.factor) for stage in self.own]

    @property
    def picture(self) -> SafeString:
        cluster = self.assignment.live.query.cluster
        return pipeline_picture(self.agent.name, cluster.name, self.stages, self.flow)

    @property
    def rows(self) -> list[tuple[PipelineStage, Any]]:
        """The numbers behind the picture."""
        return [(stage, stage.flow) for stage in self.own]

    @property
    def rules(self) -> list[tuple[str, bool, str]]:
        """(operator, may it run at the source, why not)."""
        if self.pipeline is None:
            return []
        rules = zip(self.pipeline.operators, self.pipeline.rules, strict=True)
        return [(operator.id, rule.allowed, rule.reason) for operator, rule in rules]

    # -- how it adapts
    @property
    def by_hand(self) -> bool:
        return self.assignment.by_hand

    @property
    def method(self) -> str:
        """In words; what a refined configuration sets is the agent's own to say."""
        return METHOD_WORDS[AdaptationSettings.parse(self.assignment.settings).method]

    @property
    def mark(self) -> Mark:
        """Shape, tone and word of how it is."""
        if self.by_hand:
            return Mark("pause", "", "By hand")
        if not self.report:
            return Mark("unknown", "", "Not heard of yet")
        if self.report.get("adapting") == "congested":
            return Mark("watch", "watch", "Congested")
        if self._moves:
            return Mark("jobs", "queue", "Adapting")
        return Mark("ok", "ok", "Steady")

    @property
    def _moves(self) -> bool:
        """Whether its load factors have not settled yet."""
        changes = self.report.get("changes") or []
        return self.report.get("phase") in ("startup", "profile") or any(
            change.get("epochs") is None for change in changes[-1:]
        )

    @property
    def phase(self) -> str:
        """Phase of its runtime, or state of its last epoch, in words."""
        phase, state = str(self.report.get("phase") or ""), str(self.report.get("adapting") or "")
        return _PHASES.get(phase) or _STATES.get(state, "")

    @property
    def reason(self) -> str:
        """Reason that the agent reports."""
        text = str(self.report.get("reason") or "")
        return text[:1].upper() + text[1:] + ("" if not text or text.endswith(".") else ".")

    @property
    def z(self) -> str:
        value = self.report.get("z")
        return f"{ratio(value)} × its budget" if isinstance(value, (int, float)) else ""

    @property
    def refined(self) -> str:
        """`c-118`, of which it takes what is known of its operators."""
        return str((self.report.get("refined") or {}).get("config") or "")

    @property
    def refused(self) -> list[str]:
        """Reasons why it refused the newest config."""
        return [str(reason) for reason in (self.report.get("refused") or {}).get("reasons") or []]

    # -- how it settled
    @cached_property
    def settling(self) -> Settling:
        names = [name for name, _ in self.operators]
        settings = AdaptationSettings.parse(self.assignment.settings)
        return Settling(
            f"{self.query} at {self.agent.name}",
            names,
            self.epochs,
            list(self.report.get("changes") or []),
            threshold=settings.drained_thres,
            window_s=self._window_s,
        )

    @property
    def _window_s(self) -> float | None:
        """Of an aggregate that may run here: its rows leave once in so long."""
        live = self.assignment.live
        own = live.pipeline["operators"][: live.source_operators]
        kinds = [operator["expression"] for operator in own]
        windows = [kind.get("slide_s") or kind.get("size_s") for kind in kinds if kind["op"] == "window"]
        return windows[-1] if windows and any(kind["op"] == "aggregate" for kind in kinds) else None

    @cached_property
    def changes(self) -> list[FactorChange]:
        """Newest first."""
        return [self._change(change) for change in reversed(self.report.get("changes") or [])]

    def _change(self, report: FactorChangeReport) -> FactorChange:
        names = [name for name, _ in self.operators]
        pairs = zip(names, report.get("from") or (), report.get("to") or (), strict=False)
        return FactorChange(
            at=moment_of(report.get("epoch_us")),
            why=str(report.get("why") or ""),
            settled=settled_words(report),
            is_settled=report.get("epochs") is not None,
            moved=[(name, ratio(old), ratio(new)) for name, old, new in pairs if abs(old - new) > 1e-9],
            bytes_before=str(bytes_size(report.get("bytes_before"))),
            bytes_after=str(bytes_size(report.get("bytes_after"))),
        )

    @property
    def settled_sentence(self) -> str:
        """`It settled in 2 epochs after its last change.`"""
        if not self.changes:
            return "Nothing has changed yet."
        last = self.changes[0]
        if not last.is_settled:
            return "It settles after its last change."
        counts = [change.get("epochs") for change in self.report["changes"]]
        epochs = [count for count in counts if count is not None]
        middle = sorted(epochs)[len(epochs) // 2]
        if len(epochs) <= 2:
            return f"It settled in {last.settled} after its last change."
        return f"It settled in {last.settled} after its last change; {counted(middle, 'epoch')} is usual here."


#: Epochs that the pictures of settling show.
_EPOCHS_S = 180.0


class AgentPageFacts:
    """One agent; every property is computed when a template asks for it."""

    def __init__(self, cluster: Cluster, agent: Agent, picked: str = "") -> None:
        self.cluster = cluster
        self.agent = agent
        self.picked = picked
        self.report: Heartbeat = agent.heartbeat or {}

    @cached_property
    def assignments(self) -> list[Assignment]:
        rows = Assignment.objects.filter(agent=self.agent, enabled=True, live__trial_until=None)
        rows = rows.exclude(live__state="stopped")
        return list(rows.select_related("agent", "live__query__cluster", "live__source").order_by("live__query__name"))

    @cached_property
    def flow(self) -> AgentFlow | None:
        lives = [assignment.live for assignment in self.assignments]
        return flows_of(self.cluster, lives, str(self.agent.pk)).get(str(self.agent.pk))

    @cached_property
    def line(self) -> AgentLine:
        config = configs_by_agent(self.cluster).get(str(self.agent.pk), NO_CONFIG)
        return AgentLine(self.agent, agent_state(self.agent), self.assignments, self.flow, config)

    @property
    def badge(self) -> SafeString:
        drawing, tone = STATE_MARKS[self.line.state]
        return format_html('<span class="badge {}">{}{}</span>', tone, icon(drawing), self.line.state_words)

    @cached_property
    def pipelines(self) -> list[PipelineAt]:
        flows = self.flow.queries if self.flow is not None else {}
        return [
            PipelineAt(
                self.agent,
                assignment,
                flows.get(assignment.live.query_id),
                assignment.report,
                self.epochs.get(assignment.live.key, ()),
            )
            for assignment in self.assignments
        ]

    @cached_property
    def chosen(self) -> PipelineAt | None:
        """The pipeline that is shown whole: the query picked, else the first that is not steady, else the first."""
        picked = [pipeline for pipeline in self.pipelines if pipeline.query == self.picked]
        moving = [pipeline for pipeline in self.pipelines if pipeline.mark.tone not in {"ok", ""}]
        return next(iter([*picked, *moving, *self.pipelines]), None)

    @cached_property
    def epochs(self) -> Mapping[str, Sequence[EpochRow]]:
        """Its newest epochs by query, oldest first."""
        now_s = time.time() + (self.agent.clock_offset_s or 0.0)  # by the agent's clock
        pk = str(self.agent.pk)
        return epochs_of([pk], round((now_s - _EPOCHS_S) * 1e6)).get(pk, {})

    def forecast(
        self, budget_cores: float, settings: Mapping[int, Mapping[str, object]] | None = None
    ) -> AgentPrediction:
        """Prediction for another budget, or for other settings by the assignment's id."""
        learned = {row.live_id: row.figures for row in Learned.objects.filter(agent=self.agent)}
        flows = self.flow.queries if self.flow is not None else {}
        parts = [
            (assignment, flows.get(assignment.live.query_id), learned.get(assignment.live_id))
            for assignment in self.assignments
        ]
        own = operator_cores(self.assignments, self.epochs)
        return AgentPrediction(budget_cores, parts, used_cores=self.used_cores, operator_cores=own, settings=settings)

    @cached_property
    def comparison(self) -> SplitComparison | None:
        saved = saved_bytes(self.cluster, [self.agent.pk], RECENT.total_seconds()).get(str(self.agent.pk))
        return SplitComparison(saved) if saved is not None and saved.records else None

    @cached_property
    def faults(self) -> list[str]:
        """Faults and remarks, each in a sentence."""
        view = self.line.view
        reasons = view.reasons if view.state not in {AgentState.STEADY, AgentState.ADAPTING} else ()
        faults = [*reasons, *self._sending, *view.notes] if self.line.reports else list(reasons)
        return [text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") for text in faults]

    @property
    def _sending(self) -> list[str]:
        """Faults that keep its frames from being accepted."""
        sender = self.report.get("sender") or {}
        state, fault = str(sender.get("state") or "sending"), sender.get("fault")
        if state in {"sending", "moving"} and not fault:
            return []
        return [f"its frames are {state}: {fault}" if fault else f"its frames are {state}"]

    @property
    def children(self) -> list[tuple[str, str, str]]:
        """(name, state, silence) of the agents below a relay."""
        below = (self.report.get("relay") or {}).get("children") or []
        names = dict(self.agent.children.values_list("pk", "name")) if below else {}
        names_by_pk = {str(pk): name for pk, name in names.items()}
        return [
            (
                names_by_pk.get(str(child.get("agent")), str(child.get("agent"))[:8]),
                str(child.get("state", "")),
                str(seconds(child.get("silent_s"))),
            )
            for child in below
        ]

    # -- the sentence
    @property
    def sentence(self) -> SafeString:
        if self.line.state == AgentState.NEVER:
            return SafeString("It has joined and has not been heard of since. Is its process running?")
        if self.line.state == AgentState.DISABLED:
            return SafeString("It is disabled: what it sends is refused, and it is told to do nothing.")
        if not self.assignments:
            return SafeString("It reports and has nothing to do: no live query is assigned to it.")
        if not self.line.reports:
            return format_html("{}; what it did before is not counted.", self.line.state_words)
        if self.flow is None:
            return SafeString("It has not sent statistics yet; they follow a few seconds after its first records.")
        text = "It takes {} and keeps <b>{}</b> of the bytes at the source, with {} of {} cores."
        return format_html(
            text,
            rate(self.flow.in_eps),
            percent(self.flow.saved),
            ratio(self.used_cores),
            ratio(self.agent.budget_cores),
        )

    @property
    def used_cores(self) -> float | None:
        value = self.report.get("cpu_cores")
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def schedule(self) -> SafeString | None:
        """Sharing of its core by its queries, in a sentence; None where it has not reported it."""
        report: ScheduleReport = self.report.get("schedule") or {}
        if not report.get("policy") or not self.assignments:
            return None
        name = POLICY_NAMES.get(str(report["policy"]), str(report["policy"]))
        held, bound = report.get("memory_bytes"), report.get("memory_bound")
        return sentence(
            "pages/sources/sentences/sharing.html",
            policy=name,
            mode=report.get("mode"),
            held_bytes=held,
            bound_bytes=bound,
        )

    # -- the strip
    @property
    def stats(self) -> list[Stat]:
        line = self.line
        known = line.sent_bytes_s is not None
        sent = f"{byte_rate(line.sent_bytes_s)} sent, over the last minute" if known else "against sending everything"
        return [
            Stat("Records", rate(line.in_eps), "come to the first operators"),
            Stat("Bytes saved", percent(line.saved), sent),
            self._budget(),
            self._spool(),
            self._clock() if line.reports else Stat("Clock", Quantity(MISSING), "not known while it is silent"),
        ]

    def _budget(self) -> Stat:
        used, budget = self.used_cores, self.agent.budget_cores
        tone = "watch" if used is not None and used >= 0.9 * budget else ""
        return Stat("CPU used", percent(used / budget if used is not None else None), f"of {budget:g} cores", tone)

    def _spool(self) -> Stat:
        spool: SpoolReport = self.report.get("spool") or {}
        limit = spool.get("limit_bytes")
        note = f"of {bytes_size(limit)} on its disk" if limit else "on its disk"
        tone = {"ok": "", "filling": "watch"}.get(str(spool.get("state", "ok")), "bad")
        return Stat("Kept in its spool", bytes_size(spool.get("bytes")), note, tone)

    def _clock(self) -> Stat:
        offset = self.agent.clock_offset_s
        if offset is None:
            return Stat("Clock", Quantity(MISSING), "not compared yet")
        way = "ahead of the console's" if offset > 0 else "behind the console's"
        tone = "watch" if abs(offset) > 1 else ""
        return Stat("Clock", seconds(abs(offset)), way if abs(offset) >= 0.0005 else "as the console's", tone)

    # -- lists
    @property
    def collectors(self) -> list[CollectorReport]:
        return list(self.report.get("collectors") or [])

    @property
    def facts(self) -> list[tuple[str, Any]]:
        """Its last heartbeat."""
        report, spool = self.report, self.report.get("spool") or {}
        sent, acked = report.get("sent_seq"), report.get("acked_seq")
        waiting = f"{count(spool.get('frames'))} frames" if spool.get("frames") is not None else MISSING
        facts: list[tuple[str, Any]] = [
            ("Host", self.agent.host or MISSING),
            ("Version", self.agent.version or MISSING),
            ("Cores", self.agent.cores),
            ("Up for", seconds(report.get("uptime_s")).html),
            ("Memory", bytes_size(report.get("rss_bytes")).html),
            ("Waiting to be sent", waiting),
            ("Sent, acknowledged", f"{count(sent)}, {count(acked)}" if sent is not None else MISSING),
            ("Told", self._config),
        ]
        if self.agent.parent_id:
            facts.append(("Sends to", self.agent.parent.name if self.agent.parent else MISSING))
        return facts

    @property
    def _config(self) -> str:
        reported, current = self.report.get("config_version"), self.agent.config_version
        return (
            f"version {reported}, {current} is current"
            if reported is not None and reported < current
            else f"version {current}"
        )
