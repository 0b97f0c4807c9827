"""Predicted bytes and CPU of agents with other load factors or another budget, for one or several."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apps.fleet.models import Cluster
from apps.pages.sources.agent_flows import AgentQueryFlow, OperatorFlow
from apps.pages.sources.agent_tables import AgentLine, factors_of
from apps.rollouts.models import Learned, Rollout
from apps.telemetry.configs import fixed_settings, refined_of
from apps.telemetry.epochs import epochs_since
from apps.telemetry.models import Assignment, SourcePart
from apps.ui.numbers import byte_rate, percent, ratio
from engine.jarvis.baselines import EpochPrediction, SourcePipeline
from engine.jarvis.fairness import max_min
from engine.jarvis.group_law import keys
from engine.jarvis.refined_config import LearnedFigures
from engine.jarvis.settings import AdaptationSettings
from engine.jarvis.wire_bytes import PartialRows
from engine.rollouts.measures import EPOCH_S, EpochRow
from engine.words import counted

__all__ = ["AgentPrediction", "BulkPlan", "BulkQuery", "RecentLoad", "bulk_queries", "operator_cores"]

_MIN_CORES = 0.01  # left for operators: with less, next to nothing is processed
_EPOCHS = 10  # the newest, that tell what operators use now


def operator_cores(parts: Sequence[Assignment], epochs: Mapping[str, Sequence[EpochRow]]) -> float | None:
    """CPU of the operators of an agent's queries, from its epochs by query; None where there are none."""
    newest = [rows[-_EPOCHS:] for rows in (epochs.get(part.live.key) for part in parts) if rows]
    if not newest:
        return None
    return sum(sum(row.used_s for row in rows) / (len(rows) * EPOCH_S) for rows in newest)


@dataclass(frozen=True)
class RecentLoad:
    """A query at an agent as it was in the newest minute: records a second, and what its operators make of them."""

    in_eps: float
    chain: SourcePipeline

    @classmethod
    def of(
        cls,
        part: SourcePart,
        flow: AgentQueryFlow | None,
        learned: LearnedFigures | None = None,
    ) -> RecentLoad | None:
        """From the flow, and from learned figures for operators that took no records; None if unknown."""
        if flow is None or not flow.in_eps or not part.ids:
            return None
        flows = {operator.operator: operator for operator in flow.operators}
        priors = {}
        if learned is not None:
            known = zip(learned.operators, learned.record_bytes[1:], strict=True)
            priors = {prior.id: (prior, out_bytes) for prior, out_bytes in known}
        relay, cost_s, sizes, came = [], [], [flow.in_bytes_s / flow.in_eps], flow.in_eps
        for operator in part.ids:
            ran = flows.get(operator)
            if ran is not None and ran.processed_eps:
                step = _measured(ran, sizes[-1])
            elif operator in priors:
                prior, out_bytes = priors[operator]
                # groups make a record cheaper the more of them come
                step = prior.relay, prior.cost_at(came), out_bytes
            else:
                return None
            relay.append(step[0])
            cost_s.append(step[1])
            sizes.append(step[2])
            came *= step[0]
        partials = _partials(part.window_s, flows.get(part.ids[-1]), sizes[-1])
        return cls(flow.in_eps, SourcePipeline(relay, cost_s, sizes, part.kinds, partials))

    @property
    def in_bytes_s(self) -> float:
        return self.in_eps * self.chain.sizes[0]

    @cached_property
    def whole_cores(self) -> float:
        """Cores that running everything would take."""
        return self.second([1.0] * len(self.chain.relay)).cpu_s

    def second(self, factors: Sequence[float], share_cores: float = math.inf) -> EpochPrediction:
        """A second with these load factors; of operators without one nothing is processed."""
        operators = len(self.chain.relay)
        return self.chain.epoch([*factors, *([0.0] * operators)][:operators], share_cores, self.in_eps)

    def settled(self, settings: AdaptationSettings, share_cores: float) -> EpochPrediction:
        """A second with the load factors that a method comes to with so much CPU."""
        return self.second(self.chain.settled(settings, share_cores, self.in_eps), share_cores)


def _cores(cores: float) -> str:
    """0.26, 0.053, 0.002."""
    return f"{cores:.2f}" if cores >= 0.1 or not cores else f"{cores:.3f}"


def _measured(flow: OperatorFlow, before: float) -> tuple[float, float, float]:
    out = flow.out_bytes_s / flow.out_eps if flow.out_eps else before
    return flow.out_eps / flow.processed_eps, flow.cpu_cores / flow.processed_eps, out


def _partials(period_s: float | None, flow: OperatorFlow | None, row_bytes: float) -> PartialRows | None:
    """Rows of the last operator by the groups of a window now; None where it is no aggregate over windows, or idle."""
    if period_s is None or flow is None:
        return None
    records, groups = flow.processed_eps * period_s, flow.out_eps * period_s
    if not 0 < groups <= records:
        return None
    return PartialRows(keys(records, groups), row_bytes, period_s)  # of a second


def _in_force(part: Assignment) -> Any:
    """Settings of its adaptation now: a refined config's come before its own."""
    refined = refined_of(part)
    return refined["settings"] if refined is not None else part.settings


@dataclass(frozen=True)
class PipelinePrediction:
    """One query: now, and then."""

    assignment: Assignment
    lately: RecentLoad
    now: EpochPrediction
    then: EpochPrediction

    @property
    def query(self) -> str:
        return self.assignment.live.query.name

    @property
    def factors(self) -> list[tuple[str, float, float]]:
        """(operator, now, then)."""
        return list(
            zip(self.assignment.live.source_part.ids, self.now.load_factors, self.then.load_factors, strict=True)
        )

    @property
    def overflow(self) -> float:
        """Share of the records that come, then."""
        return self.then.overflow / self.lately.in_eps


class AgentPrediction:
    """An agent's queries under another budget or with other settings.

    Parameters
    ----------
    budget_cores : float
        What the agent may use then.
    parts : sequence of (Assignment, QueryFlow or None, learned figures or None)
        Its queries with what they did lately.
    used_cores : float, optional
        What the whole agent uses now: what its operators do not account for is its own and stays.
    operator_cores : float, optional
        What its operators use now; None counts what the flows say.
    settings : mapping, optional
        Settings by the assignment's id, where they are to be others.
    """

    def __init__(
        self,
        budget_cores: float,
        parts: Sequence[tuple[Assignment, AgentQueryFlow | None, LearnedFigures | None]],
        *,
        used_cores: float | None = None,
        operator_cores: float | None = None,
        settings: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        self.budget_cores, self._parts, self._settings = budget_cores, parts, settings or {}
        self._used, self._operators = used_cores, operator_cores

    @cached_property
    def parts(self) -> list[PipelinePrediction]:
        loads = [
            (assignment, RecentLoad.of(assignment.live.source_part, flow, learned))
            for assignment, flow, learned in self._parts
        ]
        known_loads = [(part, lately) for part, lately in loads if lately is not None]
        return [
            self._part(part, lately, self._share(self.left_cores, known_loads, k))
            for k, (part, lately) in enumerate(known_loads)
        ]

    def _share(self, left: float, loads: Sequence[tuple[Assignment, RecentLoad]], own: int) -> float:
        """Share that a query could have: all that the others leave it, in fairness."""
        demands = [math.inf if k == own else lately.whole_cores for k, (_, lately) in enumerate(loads)]
        return max_min(left, demands, [part.weight for part, _ in loads])[own]

    def _part(self, part: Assignment, lately: RecentLoad, share: float) -> PipelinePrediction:
        changed = self._settings.get(part.pk)
        settings = AdaptationSettings.parse(_in_force(part) if changed is None else changed)
        return PipelinePrediction(part, lately, lately.second(part.load_factors), lately.settled(settings, share))

    @cached_property
    def overhead_cores(self) -> float:
        """Of the agent itself: collecting, framing, sending."""
        operators = self._operators
        if operators is None:
            operators = sum(operator.cpu_cores for _, flow, _ in self._parts if flow for operator in flow.operators)
        return max((self._used or 0.0) - operators, 0.0)

    @property
    def left_cores(self) -> float:
        """For operators, of the budget."""
        return max(self.budget_cores - self.overhead_cores, 0.0)

    @property
    def is_starved(self) -> bool:
        """Whether next to nothing is left for operators."""
        return self.knows_overhead and self.left_cores < _MIN_CORES

    @property
    def knows_overhead(self) -> bool:
        """Whether the agent has said what it uses, and what of that its operators take is known."""
        measured = self._operators is not None or any(flow for _, flow, _ in self._parts)
        return self._used is not None and measured

    @property
    def overhead_words(self) -> str:
        """`Collecting, framing and sending take about 0.05 cores of it; 0.03 are left for operators.`"""
        took, left = _cores(self.overhead_cores), _cores(self.left_cores)
        return f"Collecting, framing and sending take about {took} cores of it; {left} are left for operators."

    @property
    def unknown(self) -> list[str]:
        """Queries of which nothing can be said: their costs are not known."""
        predicted = {part.query for part in self.parts}
        return [part.live.query.name for part, _, _ in self._parts if part.live.query.name not in predicted]

    @property
    def sent_now(self) -> float:
        return sum(part.now.bytes_sent for part in self.parts)

    @property
    def sent_then(self) -> float:
        return sum(part.then.bytes_sent for part in self.parts)

    @property
    def saved_now(self) -> float | None:
        return self._saved(self.sent_now)

    @property
    def saved_then(self) -> float | None:
        return self._saved(self.sent_then)

    def _saved(self, sent: float) -> float | None:
        came = sum(part.lately.in_bytes_s for part in self.parts)
        return 1 - sent / came if came else None

    @property
    def cpu_now(self) -> float:
        return sum(part.now.cpu_s for part in self.parts) + self.overhead_cores

    @property
    def cpu_then(self) -> float:
        return sum(part.then.cpu_s for part in self.parts) + self.overhead_cores

    @property
    def overflow(self) -> float:
        """Of the query that overflows most."""
        return max((part.overflow for part in self.parts), default=0.0)


_EPOCHS_S = 180.0  # as long as an agent's own page looks back


@dataclass(frozen=True)
class BulkQuery:
    """A live query at those of the chosen agents that run it."""

    name: str
    parts: Sequence[Assignment]

    @property
    def operators(self) -> list[tuple[str, float | None]]:
        """(id, load factor where all agents have the same)."""
        rows = [factors_of(part) for part in self.parts]
        columns = zip(*rows, strict=True)
        return [
            (column[0][0], column[0][1] if len({value for _, value in column}) == 1 else None) for column in columns
        ]


def bulk_queries(lines: Sequence[AgentLine]) -> list[BulkQuery]:
    """Queries that some of these agents run, by name."""
    assignments: dict[str, list[Assignment]] = {}
    for line in lines:
        for part in line.assignments:
            assignments.setdefault(part.live.query.name, []).append(part)
    return [BulkQuery(name, parts) for name, parts in sorted(assignments.items())]


class BulkPlan:
    """The preview: a line for each agent, and a sentence for all."""

    def __init__(
        self,
        cluster: Cluster,
        what: str,
        lines: Sequence[AgentLine],
        form: Any,
        query: BulkQuery | None,
        rollout: Rollout | None,
    ) -> None:
        self.cluster, self.what, self.lines, self.form = cluster, what, lines, form
        self.query, self.rollout = query, rollout

    @property
    def refusal(self) -> str:
        """Reason why there is nothing to do."""
        if not self.lines:
            return "No agent is chosen. Tick some in the list first."
        if self.what == "canary" and self.rollout is None:
            return "No rollout takes canaries now: none waits or is at its canaries."
        if self.what == "factors" and self.query is None:
            return "None of these agents runs a live query."
        return ""

    @cached_property
    def rows(self) -> list[tuple[AgentLine, AgentPrediction]]:
        """(agent, what would follow) once the form is filled in."""
        learned: dict[Any, dict[int, LearnedFigures]] = {}
        for row in Learned.objects.filter(agent__in=[line.agent.pk for line in self.lines]):
            learned.setdefault(row.agent_id, {})[row.live_id] = row.figures
        now_s = time.time()
        since = {
            str(line.agent.pk): round((now_s + (line.agent.clock_offset_s or 0.0) - _EPOCHS_S) * 1e6)  # by its clock
            for line in self.lines
        }
        epochs = epochs_since(since)
        return [
            (line, self._forecast(line, learned.get(line.agent.pk, {}), epochs.get(str(line.agent.pk), {})))
            for line in self.lines
        ]

    def _forecast(
        self,
        line: AgentLine,
        learned: Mapping[int, LearnedFigures],
        epochs: Mapping[str, Sequence[EpochRow]],
    ) -> AgentPrediction:
        flows = line.flow.queries if line.flow is not None else {}
        parts = [
            (assignment, flows.get(assignment.live.query_id), learned.get(assignment.live_id))
            for assignment in line.assignments
        ]
        used, own = line.agent.heartbeat.get("cpu_cores"), operator_cores(line.assignments, epochs)
        if self.what == "budget":
            return AgentPrediction(self.form.cleaned_data["budget_cores"], parts, used_cores=used, operator_cores=own)
        settings = {}
        if self.what == "factors" and self.query is not None:
            settings = {part.pk: fixed_settings(self.form.values) for part in self.query.parts}
        return AgentPrediction(line.agent.budget_cores, parts, used_cores=used, operator_cores=own, settings=settings)

    @property
    def table(self) -> list[tuple[AgentLine, dict[str, str], bool]]:
        """(agent, what stands in its cells, would it overflow)."""
        return [(line, _cells(prediction), prediction.overflow > 0.005) for line, prediction in self.rows]

    @property
    def words(self) -> str:
        """All of them together."""
        predictions = [prediction for _, prediction in self.rows if prediction.parts]
        if not predictions:
            return "A prediction needs costs, measured once their operators have processed records."
        now, then = sum(agent.sent_now for agent in predictions), sum(agent.sent_then for agent in predictions)
        over = sum(agent.overflow > 0.005 for agent in predictions)
        missing = len(self.rows) - len(predictions)
        sentences = [f"Together they would send {byte_rate(then)} instead of {byte_rate(now)}."]
        if over:
            sentences.append(f"{counted(over, 'agent')} would overflow: what does not fit is sent on unprocessed.")
        if missing:
            sentences.append(f"Of {counted(missing, 'agent')} nothing is known yet.")
        return " ".join(sentences)


def _cells(prediction: AgentPrediction) -> dict[str, str]:
    if not prediction.parts:
        return {}
    return {
        "sent": f"{byte_rate(prediction.sent_now)} → {byte_rate(prediction.sent_then)}",
        "saved": f"{percent(prediction.saved_now)} → {percent(prediction.saved_then)}",
        "cpu": f"{ratio(prediction.cpu_now)} → {ratio(prediction.cpu_then)}",
        "overflow": str(percent(prediction.overflow)) if prediction.overflow > 0.005 else "none",
    }
