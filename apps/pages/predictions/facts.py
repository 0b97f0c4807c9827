"""Facts of a prediction: its costs, its candidates, what it rests on, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString

from apps.pages.overview.findings import Stat
from apps.pages.predictions.candidates import CandidateChart, CandidatePoint, cost_range, cost_text
from apps.predictions.choices import PredictionState, TargetMetric
from apps.predictions.models import ObservedExecution, Prediction
from apps.predictions.selectors import QueryBasis, executions_visible
from apps.ui.numbers import MISSING, Quantity, bytes_size, factor, percent, seconds, significant
from apps.ui.sentences import sentence
from engine.costream.first_placement import COST_FIELDS

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
        self.answer: Mapping[str, Any] = row.answer
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
        return str(self.answer["model"]["line"])

    @property
    def model_name(self) -> str:
        """The version that predicted; its weights' name where the version is gone."""
        return str(self.row.model) if self.row.model else str(self.answer["model"]["version"])

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
        text = str(self.answer["reason"]).rpartition("feasible: ")[2]
        return text.removeprefix("The query cannot be predicted: ").removesuffix(".")

    def cost(self, field: str) -> Mapping[str, Any]:
        return self.row.costs.get(field) or {}

    @property
    def latency(self) -> Quantity:
        """Predicted mean from end to end."""
        return seconds(self.cost("end_to_end_latency_s").get("mean"))

    @property
    def latency_range(self) -> str:
        cost = self.cost("end_to_end_latency_s")
        return cost_range(TargetMetric.END_TO_END_LATENCY, cost.get("low"), cost.get("high"))

    @property
    def fill_s(self) -> float:
        return float(self.answer.get("fill_s") or 0.0)

    @cached_property
    def stats(self) -> list[Stat]:
        """Throughput, both latencies and both votes."""
        return [*(self._cost(field) for field in COST_NAMES), self._vote("success"), self._vote("backpressure")]

    def _cost(self, field: str) -> Stat:
        metric, name = COST_NAMES[field]
        cost = self.cost(field)
        level = percent(self.row.costs.get("level"))
        note = f"{cost_range(metric, cost.get('low'), cost.get('high'))}, {level} interval"
        return Stat(name, cost_text(metric, cost.get("mean")), note)

    def _vote(self, field: str) -> Stat:
        vote, members = self.cost(field), self.row.costs.get("members")
        holds = bool(vote.get("holds"))
        word = {"success": "Puts out results", "backpressure": "Sources have to wait"}[field]
        otherwise = {"success": "Puts out nothing", "backpressure": "Sources need not wait"}[field]
        tone = "bad" if holds != (field == "success") else ""
        value = Quantity(f"{vote.get('votes', MISSING)}/{members}")
        note = word if holds else otherwise
        return Stat(f"Votes, {VOTE_NAMES[field].lower()}", value, note, tone)

    # -- what it rests on

    @property
    def outside(self) -> list[str]:
        return list(self.answer.get("outside") or [])

    @property
    def assumptions(self) -> list[str]:
        return list(self.answer.get("assumptions") or [])

    @property
    def gaps(self) -> list[str]:
        """Facts that the query does not state, each once."""
        return list(dict.fromkeys(fault["message"] for fault in self.answer.get("faults") or []))

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
    def hosts(self) -> list[dict[str, Any]]:
        """Capacity that each node has left, as the model was told."""
        used = set(self.nodes)
        return [
            {
                "name": host["name"],
                "is_used": host["name"] in used,
                "cores": f"{significant(host['cpu_percent'] / 100)}",
                "memory": str(bytes_size(host["ram_mb"] * 1e6)),
                "bandwidth": str(Quantity(significant(host["bandwidth_mbit_s"]), "Mbit/s")),
                "latency": str(seconds(host["latency_s"])),
            }
            for host in (self.answer.get("hosts") or {}).get("free", [])
        ]

    @property
    def memory(self) -> list[str]:
        """Sentences on nodes that candidates leave out because state does not fit their memory."""
        return list(self.answer.get("memory") or [])

    @property
    def full(self) -> list[str]:
        """Nodes that have nothing left."""
        return list((self.answer.get("hosts") or {}).get("full", []))

    # -- candidates

    @property
    def counts(self) -> Mapping[str, Any]:
        """Number of candidates, and how many pass and fail."""
        return self.answer.get("candidates") or {}

    @cached_property
    def heuristics(self) -> list[HeuristicFacts]:
        """The trivial placements; one where both are the same."""
        chosen, facts, seen = self.counts.get("chosen"), [], set()
        for name, entry in (self.answer.get("heuristics") or {}).items():
            if entry["point"] not in seen:
                seen.add(entry["point"])
                words = _heuristic_words(name, list(dict.fromkeys(entry["placement"].values())))
                is_chosen = entry["point"] == chosen
                facts.append(HeuristicFacts(name, words, entry["feasible"], is_chosen, entry["gain"]))
        return facts

    @cached_property
    def chart(self) -> CandidateChart | None:
        """The candidates as a picture; None without two to compare."""
        points = self.counts.get("points")
        if not points or self.counts["count"] < 2:
            return None
        names = [host["name"] for host in self.answer["hosts"]["free"]]
        own: dict[int, list[tuple[str, str]]] = {}
        for facts in self.heuristics:
            own.setdefault(self.answer["heuristics"][facts.name]["point"], []).append((facts.name, facts.words))
        candidates = [
            CandidatePoint(
                point,
                tuple(dict.fromkeys(names[host] for host in point["hosts"])),
                i == self.counts["chosen"],
                tuple(own.get(i, ())),
            )
            for i, point in enumerate(points)
        ]
        return CandidateChart(candidates, self.row.target, self.counts["count"])


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
    def lines(self) -> list[dict[str, Any]]:
        """Each cost as it was predicted and as it was observed last."""
        newest = self.executions[0] if self.executions else None
        predicted = newest.predicted if newest is not None else self.prediction.row.costs
        lines = []
        for field, (metric, name) in COST_NAMES.items():
            cost = predicted.get(field) or {}
            observed = getattr(newest, field, None)
            error = getattr(newest, f"q_{field.removesuffix('_s').removesuffix('_eps')}", None)
            inside = None if observed is None or not cost else cost["low"] <= observed <= cost["high"]
            lines.append(
                {
                    "name": name,
                    "predicted": cost_text(metric, cost.get("mean")),
                    "range": cost_range(metric, cost.get("low"), cost.get("high")),
                    "observed": cost_text(metric, observed),
                    "error": q_text(error),
                    "inside": inside,
                }
            )
        return lines

    @property
    def votes(self) -> list[dict[str, Any]]:
        """Success and back-pressure: predicted and observed."""
        newest = self.executions[0] if self.executions else None
        predicted = newest.predicted if newest is not None else self.prediction.row.costs
        words = {True: "yes", False: "no", None: MISSING}
        return [
            {
                "name": name,
                "predicted": words[(predicted.get(field) or {}).get("holds")],
                "observed": words[getattr(newest, field, None)],
            }
            for field, name in VOTE_NAMES.items()
        ]

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/predictions/sentences/hand_over.html", facts=self)
