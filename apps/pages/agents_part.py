"""One query's part at an agent: its pipeline, how it adapts and why, and how it settled after each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.pages.adapting_forms import METHOD_WORDS
from apps.pages.agents_flow import QueryFlow
from apps.pages.agents_picture import Stage, pipeline_picture
from apps.pages.agents_settling import Settling, settled_words
from apps.pages.sources_stream import moment_of
from apps.telemetry.epochs import EpochRow
from apps.telemetry.models import Agent, Assignment
from apps.telemetry.pipelines import pipeline_by_digest
from apps.ui.marks import Mark
from apps.ui.numbers import bytes_size, counted, ratio
from engine.dataflow import Pipeline
from engine.jarvis.settings import Settings

__all__ = ["Change", "PipelineAt"]

_PHASES = {
    "startup": "Starting: everything is drained until its first epochs are seen",
    "profile": "Measuring what its operators cost",
}
_STATES = {"congested": "Overflowing", "idle": "CPU to spare", "stable": "Within its budget"}


@dataclass(frozen=True)
class Change:
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
    flow: QueryFlow | None
    said: Mapping[str, Any]
    epochs: Sequence[EpochRow] = field(default=())

    @property
    def query(self) -> str:
        return self.assignment.live.query.name

    @cached_property
    def pipeline(self) -> Pipeline | None:
        return pipeline_by_digest(self.assignment.live.plan)

    @cached_property
    def stages(self) -> list[Stage]:
        live = self.assignment.live
        flows = {one.operator: one for one in self.flow.operators} if self.flow else {}
        given = [*self.assignment.load_factors, *([0.0] * live.source_operators)]
        return [
            Stage(one["id"], given[k] if k < live.source_operators else None, flows.get(one["id"]))
            for k, one in enumerate(live.pipeline["operators"])
        ]

    @property
    def own(self) -> list[Stage]:
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
    def rows(self) -> list[tuple[Stage, Any]]:
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
        return METHOD_WORDS[Settings.parse(self.assignment.settings).method]

    @property
    def mark(self) -> Mark:
        """Shape, tone and word of how it is."""
        if self.by_hand:
            return Mark("pause", "", "By hand")
        if not self.said:
            return Mark("unknown", "", "Not heard of yet")
        if self.said.get("adapting") == "congested":
            return Mark("watch", "watch", "Congested")
        if self._moves:
            return Mark("jobs", "queue", "Adapting")
        return Mark("ok", "ok", "Steady")

    @property
    def _moves(self) -> bool:
        """Whether its load factors have not settled yet."""
        last = (self.said.get("changes") or [{"epochs": 0}])[-1]
        return self.said.get("phase") in ("startup", "profile") or last.get("epochs") is None

    @property
    def phase(self) -> str:
        """What its runtime does, or how the last epoch was, in words."""
        phase, state = str(self.said.get("phase") or ""), str(self.said.get("adapting") or "")
        return _PHASES.get(phase) or _STATES.get(state, "")

    @property
    def reason(self) -> str:
        """Why, as the agent says it."""
        text = str(self.said.get("reason") or "")
        return text[:1].upper() + text[1:] + ("" if not text or text.endswith(".") else ".")

    @property
    def z(self) -> str:
        value = self.said.get("z")
        return f"{ratio(value)} × its budget" if isinstance(value, (int, float)) else ""

    @property
    def refined(self) -> str:
        """`c-118`, of which it takes what is known of its operators."""
        return str((self.said.get("refined") or {}).get("config") or "")

    @property
    def refused(self) -> list[str]:
        """Why it refused the newest configuration."""
        return [str(one) for one in (self.said.get("refused") or {}).get("reasons") or []]

    # -- how it settled
    @cached_property
    def settling(self) -> Settling:
        names = [name for name, _ in self.operators]
        settings = Settings.parse(self.assignment.settings)
        return Settling(
            f"{self.query} at {self.agent.name}",
            names,
            self.epochs,
            list(self.said.get("changes") or []),
            threshold=settings.drained_thres,
            window_s=self._window_s,
        )

    @property
    def _window_s(self) -> float | None:
        """Of an aggregate that may run here: its rows leave once in so long."""
        live = self.assignment.live
        own = live.pipeline["operators"][: live.source_operators]
        kinds = [one["expression"] for one in own]
        windows = [one.get("slide_s") or one.get("size_s") for one in kinds if one["op"] == "window"]
        return windows[-1] if windows and any(one["op"] == "aggregate" for one in kinds) else None

    @cached_property
    def changes(self) -> list[Change]:
        """Newest first."""
        return [self._change(one) for one in reversed(self.said.get("changes") or [])]

    def _change(self, said: Mapping[str, Any]) -> Change:
        names = [name for name, _ in self.operators]
        pairs = zip(names, said.get("from") or (), said.get("to") or (), strict=False)
        return Change(
            at=moment_of(said.get("epoch_us")),
            why=str(said.get("why") or ""),
            settled=settled_words(said).removeprefix("settled in "),
            is_settled=said.get("epochs") is not None,
            moved=[(name, ratio(old), ratio(new)) for name, old, new in pairs if abs(old - new) > 1e-9],
            bytes_before=str(bytes_size(said.get("bytes_before"))),
            bytes_after=str(bytes_size(said.get("bytes_after"))),
        )

    @property
    def settled_sentence(self) -> str:
        """`It settled in 2 epochs after its last change.`"""
        if not self.changes:
            return "Nothing has changed yet."
        last = self.changes[0]
        if not last.is_settled:
            return "It settles after its last change."
        known = [one["epochs"] for one in self.said["changes"] if one.get("epochs") is not None]
        middle = sorted(known)[len(known) // 2]
        text = f"It settled in {last.settled} after its last change"
        return f"{text}; {counted(middle, 'epoch')} is usual here." if len(known) > 2 else f"{text}."
