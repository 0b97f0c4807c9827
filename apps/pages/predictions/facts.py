"""Facts of a prediction: its costs, its candidates, what it rests on, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from django.urls import reverse
from django.utils.safestring import SafeString

from apps.pages.overview.findings import Stat
from apps.pages.predictions.candidates import CandidateChart, CandidatePoint, cost_range, cost_text
from apps.predictions.choices import PredictionState, TargetMetric
from apps.predictions.models import ObservedExecution, Prediction
from apps.predictions.selectors import QueryBasis, executions_visible
from apps.ui.numbers import MISSING, Quantity, bytes_size, factor, percent, seconds, significant
from apps.ui.sentences import sentence
from engine.costream.answer import CandidatePlacements, CostFigures, PredictedCosts, PredictedVote
from engine.costream.first_placement import COST_FIELDS, FirstPlacement
from engine.query_graph.graph import HostNode
from engine.records import Sentence

__all__ = ["COST_NAMES", "VOTE_NAMES", "HandOver", "HeuristicFacts", "PredictionFacts"]

#: Field of each metric in documents and its name on pages.
COST_NAMES = {COST_FIELDS[metric.value]: (metric.value, str(metric.label)) for metric in TargetMetric}
VOTE_NAMES = {"success": "Success", "backpressure": "Back-pressure"}

_ALIKE = 0.02  # of a cost: nearer than this is as good


@dataclass(frozen=True)
class HeuristicFacts:
    """A trivial placement beside the chosen one."""

    name: str
    words: str
    is_feasible: bool
    is_chosen: bool
    gain: float | None

    @property
    def comparison(self) -> str:
        """same, alike, better, worse, failing; or only where nothing was chosen."""
        if self.gain is None:
            return "only" if self.is_feasible else "failing"
        if self.is_chosen:
            return "same"
        if not self.is_feasible:
            return "failing"
        if abs(self.gain - 1.0) <= _ALIKE:
            return "alike"
        return "better" if self.gain > 1.0 else "worse"

    @property
    def times(self) -> str:
        """Factor between the two costs, above 1."""
        gain = self.gain or 1.0
        return str(factor(max(gain, 1.0 / gain)))


@dataclass(frozen=True)
class HostLine:
    """A host as the model was told of it, and whether the chosen candidate uses it."""

    host: HostNode
    is_used: bool

    @property
    def cores(self) -> str:
        return significant(self.host.cpu_percent / 100)

    @property
    def memory(self) -> Quantity:
        return bytes_size(self.host.ram_mb * 1e6)

    @property
    def bandwidth(self) -> Quantity:
        return Quantity(significant(self.host.bandwidth_mbit_s), "Mbit/s")

    @property
    def latency(self) -> Quantity:
        return seconds(self.host.latency_s)


@dataclass(frozen=True)
class HandOverLine:
    """A cost or vote as it was predicted and as it was observed last."""

    name: str
    predicted: Quantity | str
    observed: Quantity | str
    range: str = ""
    error: str = ""
    inside: bool | None = None


class PredictionFacts:
    """A prediction; every property is computed when a template asks for it.

    Parameters
    ----------
    row : Prediction
        With its answer.
    is_running : bool
        Whether the query runs by now: then it is not measured yet, rather than never run.
    """

    def __init__(self, row: Prediction, *, is_running: bool = False) -> None:
        self.row = row
        self.answer = FirstPlacement.parse(row.answer)
        assert self.answer.model is not None
        self.model = self.answer.model
        self.evidence = "unmeasured" if is_running else "never_ran"

    @property
    def is_predicted(self) -> bool:
        return self.row.state == PredictionState.PREDICTED

    @property
    def is_infeasible(self) -> bool:
        return self.row.state == PredictionState.INFEASIBLE

    @property
    def target_name(self) -> str:
        return str(TargetMetric(self.row.target).label).lower()

    @property
    def card_line(self) -> str:
        """Sentence on the training of its model."""
        return self.model.line

    @property
    def model_name(self) -> str:
        """The version that predicted; its weights' name where the version is gone."""
        return str(self.row.model) if self.row.model else self.model.version

    @property
    def model_url(self) -> str:
        return reverse("pages:prediction-model", args=[self.row.cluster.slug])

    @property
    def elapsed(self) -> Quantity:
        return seconds(self.row.elapsed_s)

    # -- costs

    @property
    def sentence(self) -> SafeString:
        """The finding."""
        return sentence("pages/predictions/sentences/finding.html", facts=self)

    @property
    def choice(self) -> SafeString:
        """The choice among the candidates, beside the trivial placements."""
        return sentence("pages/predictions/sentences/choice.html", facts=self)

    @property
    def reason(self) -> str:
        """Why nothing was chosen, to go on in a sentence."""
        return self.answer.cause

    @property
    def _end_to_end(self) -> CostFigures | None:
        return self.answer.costs.end_to_end_latency_s if self.answer.costs else None

    @property
    def latency(self) -> Quantity:
        """Predicted mean from end to end."""
        return seconds(self._end_to_end.mean if self._end_to_end else None)

    @property
    def latency_range(self) -> str:
        return _range_words(TargetMetric.END_TO_END_LATENCY, self._end_to_end)

    @property
    def fill_s(self) -> float:
        return self.answer.fill_s

    @cached_property
    def stats(self) -> list[Stat]:
        """Throughput, both latencies and both votes."""
        costs = self.answer.costs
        if costs is None:
            return []
        return [
            *(self._cost(costs, field) for field in COST_NAMES),
            self._vote("success", costs.success, costs.members),
            self._vote("backpressure", costs.backpressure, costs.members),
        ]

    def _cost(self, costs: PredictedCosts, field: str) -> Stat:
        metric, name = COST_NAMES[field]
        cost = costs.interval(field)
        note = f"{_range_words(metric, cost)}, {percent(costs.level)} interval"
        return Stat(name, cost_text(metric, cost.mean), note)

    def _vote(self, field: str, vote: PredictedVote, members: int) -> Stat:
        word = {"success": "Puts out results", "backpressure": "Sources have to wait"}[field]
        otherwise = {"success": "Puts out nothing", "backpressure": "Sources need not wait"}[field]
        tone = "bad" if vote.holds != (field == "success") else ""
        note = word if vote.holds else otherwise
        return Stat(f"Votes, {VOTE_NAMES[field].lower()}", Quantity(f"{vote.votes}/{members}"), note, tone)

    # -- what it rests on

    @property
    def outside(self) -> tuple[str, ...]:
        return self.answer.outside

    @property
    def assumptions(self) -> tuple[Sentence, ...]:
        return self.answer.assumptions

    @property
    def gaps(self) -> list[str]:
        """Facts that the query does not state, each once."""
        return list(dict.fromkeys(fault.message for fault in self.answer.faults))

    @property
    def placement(self) -> list[tuple[str, str]]:
        """(operator, node) of the chosen candidate."""
        prefix = f"{self.row.query.name}/"
        return [(name.removeprefix(prefix), node) for name, node in self.row.placement.items()]

    @property
    def nodes(self) -> list[str]:
        """Nodes of the chosen candidate."""
        return list(dict.fromkeys(self.row.placement.values()))

    @property
    def hosts(self) -> list[HostLine]:
        """Capacity that each node has left, as the model was told."""
        used = set(self.nodes)
        return [HostLine(host, host.name in used) for host in (self.answer.hosts.free if self.answer.hosts else ())]

    @property
    def memory(self) -> tuple[Sentence, ...]:
        """Sentences on nodes that candidates leave out because state does not fit their memory."""
        return self.answer.memory

    @property
    def full(self) -> tuple[str, ...]:
        """Nodes that have nothing left."""
        return self.answer.hosts.full if self.answer.hosts else ()

    # -- candidates

    @property
    def counts(self) -> CandidatePlacements | None:
        """Number of candidates, and how many pass and fail."""
        return self.answer.candidates

    @cached_property
    def heuristics(self) -> list[HeuristicFacts]:
        """The trivial placements; one where both are the same."""
        chosen, facts, seen = self.counts.chosen if self.counts else None, [], set()
        for name, entry in self.answer.heuristics.items():
            if entry.point not in seen:
                seen.add(entry.point)
                words = _heuristic_words(name, list(dict.fromkeys(entry.placement.values())))
                facts.append(HeuristicFacts(name, words, entry.feasible, entry.point == chosen, entry.gain))
        return facts

    @cached_property
    def chart(self) -> CandidateChart | None:
        """The candidates as a picture; None without two to compare."""
        counts = self.counts
        if counts is None or not counts.points or counts.count < 2 or self.answer.hosts is None:
            return None
        names = [host.name for host in self.answer.hosts.free]
        own: dict[int, list[tuple[str, str]]] = {}
        for facts in self.heuristics:
            own.setdefault(self.answer.heuristics[facts.name].point, []).append((facts.name, facts.words))
        candidates = [
            CandidatePoint(
                point,
                tuple(dict.fromkeys(names[host] for host in point.hosts)),
                i == counts.chosen,
                tuple(own.get(i, ())),
            )
            for i, point in enumerate(counts.points)
        ]
        return CandidateChart(candidates, self.row.target, counts.count)


def _range_words(metric: str, cost: CostFigures | None) -> str:
    return cost_range(metric, cost.low if cost else None, cost.high if cost else None)


def q_text(value: float | None) -> str:
    """A q-error: two digits after the point, below ten."""
    return f"{value:.2f}" if value is not None and value < 10.0 else significant(value)


def _heuristic_words(name: str, nodes: list[str]) -> str:
    """everything on n09, or operators on nodes from weak to strong: what is put where."""
    if len(nodes) == 1:
        return f"everything on {nodes[0]}"
    if name == "strongest":
        return "each operator on the strongest node that it may use"
    return "operators on nodes from weak to strong"


class HandOver:
    """A query that Mace speaks for by now, beside what was predicted of it before.

    Parameters
    ----------
    basis : QueryBasis
        With a prediction.
    """

    def __init__(self, basis: QueryBasis) -> None:
        assert basis.prediction is not None
        self.basis, self.prediction = basis, PredictionFacts(basis.prediction)

    @cached_property
    def executions(self) -> list[ObservedExecution]:
        """The newest executions that were observed of the version."""
        return list(executions_visible().filter(version=self.prediction.row.version_id)[:20])

    @property
    def _newest(self) -> ObservedExecution | None:
        return self.executions[0] if self.executions else None

    @cached_property
    def _predicted(self) -> PredictedCosts | None:
        """Costs that the newest execution is held against; those of the prediction before there is one."""
        return PredictedCosts.parse(self._newest.predicted) if self._newest else self.prediction.answer.costs

    @property
    def lines(self) -> list[HandOverLine]:
        """Each cost as it was predicted and as it was observed last."""
        return [self._line(field, metric, name) for field, (metric, name) in COST_NAMES.items()]

    def _line(self, field: str, metric: str, name: str) -> HandOverLine:
        cost = self._predicted.interval(field) if self._predicted else None
        observed = getattr(self._newest, field, None)
        error = getattr(self._newest, f"q_{field.removesuffix('_s').removesuffix('_eps')}", None)
        return HandOverLine(
            name,
            cost_text(metric, cost.mean if cost else None),
            cost_text(metric, observed),
            _range_words(metric, cost),
            q_text(error),
            None if observed is None or cost is None else cost.low <= observed <= cost.high,
        )

    @property
    def votes(self) -> list[HandOverLine]:
        """Success and back-pressure: predicted and observed."""
        words = {True: "yes", False: "no", None: MISSING}
        return [
            HandOverLine(
                name,
                words[getattr(self._predicted, field).holds if self._predicted else None],
                words[getattr(self._newest, field, None)],
            )
            for field, name in VOTE_NAMES.items()
        ]

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/predictions/sentences/hand_over.html", facts=self)
