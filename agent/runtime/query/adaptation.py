"""Adaptation of one query: its controller observes each epoch and sets the load factors of the next."""

from __future__ import annotations

import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from agent.config import QueryConfig
from agent.wire import MAX_NUMBER, OperatorCounts
from engine.dataflow import Pipeline
from engine.errors import DocumentError
from engine.jarvis.adaptation.control import Controller, EpochObservation, OperatorEpoch, SourceOperator
from engine.jarvis.adaptation.controllers import make_controller
from engine.jarvis.baselines import BASELINES
from engine.jarvis.refined_config import RefinedAdaptation, judge_config
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import RefinedSchedule, judge_schedule
from engine.refined_document import RefinedDocument, checksum

__all__ = ["Adaptation", "NewestAccepted", "RefinedScheduleState", "epoch_observation"]

CONFIG_ID = re.compile(r"c-\d{1,18}")
MAX_REASONS = 5  # reported; a torn document may have a fault in each of its fields

R = TypeVar("R", bound=RefinedDocument)


@dataclass(frozen=True)
class NewestAccepted:
    """The newest refined document of its kind that was ever taken here; kept over restarts."""

    version: int = 0
    config: str = ""
    content: str = ""  #: checksum of its content without the validity


@dataclass(frozen=True)
class DocumentRefusal:
    """A refined document that is not taken."""

    version: int | None  #: None where the document has none
    config: str | None
    reasons: tuple[str, ...]


class RefinedState(ABC, Generic[R]):
    """The refined document in force; it changes between epochs only."""

    def __init__(self, newest: NewestAccepted | None) -> None:
        self._document: Any = None
        self.newest = newest or NewestAccepted()
        self.in_force: R | None = None
        self.refused: DocumentRefusal | None = None
        self.run_out: R | None = None  #: was in force until its time was over
        self.changed = False  #: a document was accepted, dropped or refused; reset by its reporter

    @abstractmethod
    def parse(self, document: Any) -> R:
        """The document, or DocumentError with its faults."""

    @abstractmethod
    def judge(self, refined: R, current: int, now_us: int) -> list[str]:
        """Why it is refused here, where version `current` is in force."""

    @abstractmethod
    def without(self, refined: R) -> str:
        """The fallback after its TTL, in words."""

    def look(self, document: Any, now_us: int) -> None:
        """Read the document of the configuration, None for none; the same document once more changes nothing."""
        if document == self._document:
            return
        before = (self._version, self.refused)
        self._document, self.refused, self.run_out = document, None, None
        if document is None:
            self.in_force = None
        else:
            self._take(document, now_us)
        self.changed = self.changed or before != (self._version, self.refused)

    def expire(self, now_us: int) -> None:
        """Drop a document whose TTL is over."""
        if self.in_force is not None and self.in_force.stale(now_us):
            self.in_force, self.run_out, self.changed = None, self.in_force, True

    @property
    def _version(self) -> int | None:
        return self.in_force.version if self.in_force is not None else None

    def _take(self, document: Any, now_us: int) -> None:
        try:
            refined = self.parse(document)
        except DocumentError as error:
            self.refused = _torn(document, [str(fault) for fault in error.faults])
            return
        content = checksum({name: value for name, value in document.items() if name != "valid_from_us"})
        again = (refined.version, content) == (self.newest.version, self.newest.content)
        if again and refined.stale(now_us):
            self.in_force, self.run_out = None, refined
            return
        # what was taken before is taken up again or renewed; the same number with other words is not the same
        reasons = self.judge(refined, self.newest.version - again, now_us)
        if reasons:
            self.refused = DocumentRefusal(refined.version, refined.config, tuple(reasons))
        else:
            self.in_force = refined
            self.newest = NewestAccepted(refined.version, refined.config, content)

    def report(self) -> dict[str, Any]:
        """`refined` and `refused` of the heartbeat."""
        refined, refusal = self.in_force, self.refused
        return {
            "refined": {"version": refined.version, "config": refined.config} if refined is not None else None,
            "refused": {"version": refusal.version, "config": refusal.config, "reasons": list(refusal.reasons)}
            if refusal
            else None,
        }

    @property
    def fault(self) -> str:
        """That its time is over, in words; empty where it is not."""
        expired = self.run_out
        if expired is None:
            return ""
        return f"{expired.config} was valid for {expired.ttl_s:,.0f} s and is older: on with {self.without(expired)}"


class RefinedScheduleState(RefinedState[RefinedSchedule]):
    """The refined schedule of this agent."""

    def __init__(self, agent: str, newest: NewestAccepted | None) -> None:
        super().__init__(newest)
        self._agent = agent

    def parse(self, document: Any) -> RefinedSchedule:
        return RefinedSchedule.parse(document)

    def judge(self, refined: RefinedSchedule, current: int, now_us: int) -> list[str]:
        return judge_schedule(refined, current=current, agent=self._agent, now_us=now_us)

    def without(self, refined: RefinedSchedule) -> str:
        return "the schedule of the configuration"


def _torn(document: Any, faults: list[str]) -> DocumentRefusal:
    message = document if isinstance(document, Mapping) else {}
    version, config = message.get("version"), message.get("config")
    more = [f"and {len(faults) - MAX_REASONS} more"] if len(faults) > MAX_REASONS else []
    return DocumentRefusal(
        version if type(version) is int and 0 < version <= MAX_NUMBER else None,
        config if isinstance(config, str) and CONFIG_ID.fullmatch(config) else None,
        (*faults[:MAX_REASONS], *more),
    )


log = logging.getLogger(__name__)
FORGETTING = 0.9  # of what was measured, with each epoch
WELL_KNOWN = 1000  # records behind a cost that has a word in judging another


class RefinedConfigState(RefinedState[RefinedAdaptation]):
    """The refined configuration of one query with one plan.

    `seen` is asked when one is judged: CPU seconds per record of each operator here, None of one not known well.
    """

    def __init__(
        self,
        *,
        query: str,
        plan: str,
        agent: str,
        operators: Sequence[str],
        newest: NewestAccepted | None,
        seen: Callable[[], Sequence[float | None]],
    ) -> None:
        super().__init__(newest)
        self._query, self._plan, self._agent, self._operators = query, plan, agent, tuple(operators)
        self._seen = seen

    def parse(self, document: Any) -> RefinedAdaptation:
        return RefinedAdaptation.parse(document)

    def judge(self, refined: RefinedAdaptation, current: int, now_us: int) -> list[str]:
        return judge_config(
            refined,
            current=current,
            query=self._query,
            plan=self._plan,
            agent=self._agent,
            operators=self._operators,
            now_us=now_us,
            known_costs=self._seen(),
        )

    def without(self, refined: RefinedAdaptation) -> str:
        return "local estimates" if refined.fallback == "local" else "nothing but drained records"


def source_operators(pipeline: Pipeline) -> list[SourceOperator]:
    """The operators that may run here, as far as adaptation needs to know them."""
    window_s = pipeline.window.size_us / 1e6 if pipeline.window is not None else None
    return [
        SourceOperator(operator.id, operator.kind, operator.stateful, window_s if operator.stateful else None)
        for operator in pipeline.operators[: pipeline.source_operators]
    ]


def epoch_observation(
    counts: Sequence[OperatorCounts],
    load_factors: Sequence[float],
    *,
    epoch_us: int,
    epoch_s: float,
    budget_s: float,
    used_s: float,
) -> EpochObservation:
    """The epoch as a controller observes it: records by which a queue has grown count as overflow."""
    operators = tuple(
        OperatorEpoch(
            load_factor=load_factor,
            records_in=count.records_in,
            processed=count.records_processed,
            drained=count.records_drained,
            overflow=max(count.records_in - count.records_processed - count.records_drained, 0),
            records_out=count.records_out,
            groups=count.groups_out,
            bytes_in=count.bytes_in,
            bytes_out=count.bytes_out,
            bytes_drained=count.bytes_drained,
            cpu_s=count.cpu_ns / 1e9,
        )
        for count, load_factor in zip(counts, load_factors, strict=True)
    )
    return EpochObservation(epoch_us, epoch_s, operators, budget_s=budget_s, used_s=used_s)


@dataclass
class _MeasuredCost:
    """Recent cost of an operator."""

    records: float = 0.0
    cpu_ns: float = 0.0

    def add(self, counts: OperatorCounts) -> None:
        self.records = FORGETTING * self.records + counts.records_processed
        self.cpu_ns = FORGETTING * self.cpu_ns + counts.cpu_ns

    @property
    def cost_s(self) -> float | None:
        """CPU seconds per record; None while few were seen."""
        return self.cpu_ns / self.records / 1e9 if self.records >= WELL_KNOWN else None


class Adaptation:
    """The controller of one query with one plan, and the refined configuration it uses.

    Settings are those of the refined configuration that is in force, or those of the configuration. Everything that
    changes them happens between two epochs.
    """

    def __init__(self, config: QueryConfig, agent: str, newest: NewestAccepted | None, now_us: int) -> None:
        operators = source_operators(config.pipeline)
        self._measured = [_MeasuredCost() for _ in operators]
        self._settings = config.settings
        self._fault = ""
        self.refined_state = RefinedConfigState(
            query=config.query,
            plan=config.pipeline.digest,
            agent=agent,
            operators=[operator.id for operator in operators],
            newest=newest,
            seen=self._seen_here,
        )
        self.refined_state.look(config.refined, now_us)
        self._by = self._in_force()
        self._controller: Controller = make_controller(self._by[0], operators, self._by[1])

    def take_up(self, config: QueryConfig, now_us: int) -> None:
        """Go on as a new configuration says."""
        self._settings = config.settings
        self.refined_state.look(config.refined, now_us)
        self._go_by()

    def begin_epoch(self, now_us: int) -> None:
        """Refined configurations hold for a time."""
        self.refined_state.expire(now_us)
        self._go_by()

    @property
    def load_factors(self) -> tuple[float, ...]:
        """For the next epoch, one of each operator."""
        return self._controller.load_factors

    @property
    def version(self) -> int | None:
        """Of the refined configuration in force."""
        return self.refined_state.in_force.version if self.refined_state.in_force is not None else None

    @property
    def reserve(self) -> float:
        """Ratio of useful CPU time to used CPU time: plans keep a margin, unless everything is processed here."""
        settings, _ = self._by
        adapts = settings.method not in ("fixed", *BASELINES)
        return 1 / settings.margin if adapts and any(load_factor < 1 for load_factor in self.load_factors) else 1.0

    def epoch_over(self, seen: EpochObservation, counts: Sequence[OperatorCounts]) -> None:
        """Decide how the next epoch runs."""
        for measured, count in zip(self._measured, counts, strict=True):
            measured.add(count)
        try:
            self._controller.decide(seen)
        except Exception as error:  # a fault of ours must be seen, and must not end the monitoring of a host
            if not self._fault:
                log.exception("adapting failed")
            self._fault = f"load factors stay as they are: {type(error).__name__}: {error}"
        else:
            self._fault = ""

    def report(self) -> dict[str, Any]:
        """Report of the adaptation for the heartbeat."""
        document = self._controller.report()
        return {
            "load_factors": list(self.load_factors),
            "phase": document["phase"],
            "adapting": document["state"],
            "reason": document["reason"],
            "z": document["z"],
            "moves": document["moves"],
            "stable_epochs": document["stable_epochs"],
            "changes": list(document["changes"]),
            **self.refined_state.report(),
        }

    @property
    def faults(self) -> list[str]:
        return [fault for fault in (self.refined_state.fault, self._fault) if fault]

    def _seen_here(self) -> Sequence[float | None]:
        return [cost.cost_s for cost in self._measured]

    def _go_by(self) -> None:
        """Pass a changed configuration in force to the controller."""
        by = self._in_force()
        if by != self._by:
            self._by = by
            self._controller.adopt(*by)

    def _in_force(self) -> tuple[AdaptationSettings, RefinedAdaptation | None]:
        prior = self.refined_state
        if prior.in_force is not None:
            # how long it holds is kept here: renewing it is no change to the controller
            return prior.in_force.settings, replace(prior.in_force, valid_from_us=0, ttl_s=math.inf)
        if prior.run_out is not None and prior.run_out.fallback == "all-sp":
            return replace(self._settings, method="all-sp"), None
        return self._settings, None
