"""Predictions for placements of a query: the fluid times a learned residual, intervals, votes, and what is outside.

A residual counts where runs like the question were trained on, and is shrunk to none away from them: there the fluid
alone speaks. Source of metrics and votes: Costream (ICDE 2024), section V: the majority of the members says success and
back-pressure. A tie counts against the placement: as failure, and as back-pressure.

Matrices are small, and threads cost more than they give: a process that predicts sets ``OMP_NUM_THREADS=1`` and
``OPENBLAS_NUM_THREADS=1`` before it imports NumPy, as ``./sluice`` does for all of its processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.costream.intervals import kinds_of, shortage_of, units_of
from engine.costream.residual import COSTS, VOTES, Arrays, TrainingPoints, member_outputs
from engine.costream.summary import FluidFacts, facts_of
from engine.costream.weights import ModelCard, load_weights, read_card, read_weights
from engine.errors import EngineError
from engine.query_graph.graph import NOMINAL_PROCESSOR, OPERATOR_KINDS, HostNode, QueryGraph
from engine.words import counted

__all__ = [
    "CostInterval",
    "Ensemble",
    "PlacementPredictions",
    "PredictionError",
    "Scores",
    "is_voted",
    "shipped_ensemble",
]

_MAX_LN = 34.5  # 1e15: nothing is faster or lasts longer
_SHIPPED = Path(__file__).parent / "weights" / "costream.npz"

BoolArray = npt.NDArray[np.bool_]


class PredictionError(EngineError):
    """Predictions that are no numbers: weights or the question go beyond what the arithmetic holds."""

    code = "prediction"


@dataclass(frozen=True)
class CostInterval:
    """A metric's mean and its interval per placement, float64 (k,): tuples/s (T) or seconds (Lp, Le)."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class PlacementPredictions:
    """Predictions of k placements by an ensemble of m members.

    Attributes
    ----------
    placements
        int64 (k, n).
    costs
        Per metric of `COSTS` means and intervals. They hold for runs that succeed.
    success_votes, backpressure_votes
        int64 (k,): members that predict success, and back-pressure; an undecided one counts as failure and as
        back-pressure.
    members
        m.
    use
        float64 (k,): largest use of a host, a thread or an uplink that the fluid tells.
    query_reasons
        What of the query lies outside the training domain, as sentences: for every placement.
    host_reasons
        The same per host, of those that any placement uses: for the placements that do.
    count_reasons
        The same per placement, of its number of hosts; mostly empty.
    """

    placements: IntArray
    costs: Mapping[str, CostInterval]
    success_votes: IntArray
    backpressure_votes: IntArray
    members: int
    use: FloatArray
    query_reasons: tuple[str, ...]
    host_reasons: tuple[tuple[str, ...], ...]
    count_reasons: tuple[str, ...]

    @cached_property
    def success(self) -> BoolArray:
        """Whether the majority predicts success, (k,)."""
        return is_voted("S", self.success_votes, self.members)

    @cached_property
    def backpressure(self) -> BoolArray:
        """Whether the majority predicts back-pressure, or no majority predicts its absence, (k,)."""
        return is_voted("RO", self.backpressure_votes, self.members)

    @cached_property
    def feasible(self) -> BoolArray:
        """Whether a placement passes both votes, (k,)."""
        return self.success & ~self.backpressure

    @cached_property
    def outside(self) -> BoolArray:
        """Whether anything of a placement lies outside the training domain, (k,)."""
        hosts = np.array([bool(reasons) for reasons in self.host_reasons])[self.placements].any(axis=1)
        counts = np.array([bool(reason) for reason in self.count_reasons])
        return hosts | counts | bool(self.query_reasons)

    def reasons(self, i: int) -> tuple[str, ...]:
        """Sentences about what of placement i lies outside the training domain."""
        hosts = [reason for j in np.unique(self.placements[i]) for reason in self.host_reasons[j]]
        return (*self.query_reasons, *hosts, *filter(None, [self.count_reasons[i]]))

    @property
    def all_reasons(self) -> tuple[str, ...]:
        """Sentences about what of any placement lies outside the training domain, each once."""
        hosts = [reason for reasons in self.host_reasons for reason in reasons]
        return tuple(dict.fromkeys((*self.query_reasons, *hosts, *filter(None, self.count_reasons))))


def is_voted(metric: str, votes: npt.ArrayLike, members: int) -> BoolArray:
    """Whether the members predict success (S) or back-pressure (RO) together; a tie speaks against the placement.

    Examples
    --------
    >>> is_voted("S", [0, 1, 2], 2).tolist(), is_voted("RO", [0, 1, 2], 2).tolist()
    ([False, False, True], [False, True, True])
    """
    doubled = 2 * np.asarray(votes)
    return doubled >= members if metric == "RO" else doubled > members


@dataclass(frozen=True)
class Scores:
    """Scores by m members of k placements, before anything is decided.

    Attributes
    ----------
    costs
        (m, k, 3): ln of T (tuples/s), Lp and Le (s).
    votes
        (m, k, 2): logits of back-pressure and success.
    kinds
        (k,): of runs, by which intervals are calibrated (`engine.costream.intervals`).
    units
        (k, 3): of errors, in ln.
    distance
        (k,): from what was trained, in units within which 90 % of runs of the same kind lie.
    """

    costs: FloatArray
    votes: FloatArray
    kinds: IntArray
    units: FloatArray
    distance: FloatArray

    @property
    def centre(self) -> FloatArray:
        """Mean of the members, (k, 3), in ln."""
        mean: FloatArray = self.costs.mean(axis=0)
        return mean

    @property
    def spread(self) -> FloatArray:
        """Standard deviation of the members, (k, 3), in units."""
        spread: FloatArray = self.costs.std(axis=0) / self.units
        return spread

    def errors(self, true: FloatArray) -> FloatArray:
        """Errors where these are ln of the true costs, (k, 3), in units."""
        errors: FloatArray = (true - self.centre) / self.units
        return errors

    def votes_of(self, metric: str) -> IntArray:
        """Members that predict success (S) or back-pressure (RO), (k,). A logit of 0 speaks against the placement."""
        logits = self.votes[:, :, VOTES.index(metric)]
        votes: IntArray = (logits >= 0 if metric == "RO" else logits > 0).sum(axis=0)
        return votes

    def intervals(self, bounds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the intervals, (k, 3) each, in ln; by the ``bounds`` of an archive."""
        low, high = np.moveaxis(bounds[:, self.kinds], (0, 2), (2, 0))
        return self.centre + self.units * (low - self.spread), self.centre + self.units * (high + self.spread)


class Ensemble:
    """Members that correct the fluid together, with their card.

    Parameters
    ----------
    arrays
        Trees of the members, training points, and what was calibrated (`engine.costream.weights`).
    card
        Their card.
    """

    def __init__(self, arrays: Arrays, card: ModelCard) -> None:
        self.card, self.arrays = card, dict(arrays)
        self.factors = dict(zip(OPERATOR_KINDS, arrays["factors"].tolist(), strict=True))
        self._points = TrainingPoints(arrays["points"], float(arrays["unit"][0]))

    @classmethod
    def load(cls, path: Path) -> Ensemble:
        """An ensemble from ``path`` (.npz) and the card beside it.

        Raises
        ------
        WeightsError, DocumentError
            As `load_weights`.
        """
        return cls(*load_weights(path))

    @classmethod
    def parse(cls, data: bytes, card: Any) -> Ensemble:
        """An ensemble from an archive's bytes and its card's document.

        Raises
        ------
        WeightsError, DocumentError
            As `read_weights` and `read_card`.
        """
        parsed = read_card(card)
        return cls(read_weights(data, parsed), parsed)

    def predict(self, graph: QueryGraph, hosts: Sequence[HostNode], placements: npt.ArrayLike) -> PlacementPredictions:
        """Predictions for placements, whole numbers of shape (k, n).

        Raises
        ------
        PredictionError
            If a prediction is not finite.
        """
        places = np.asarray(placements, dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            facts = self.facts(graph, hosts, places)
            scores = self.score(facts)
        wrong = ~np.isfinite(scores.costs).all(axis=(0, 2)) | ~np.isfinite(scores.votes).all(axis=(0, 2))
        if wrong.any():
            raise PredictionError(
                f"Model {self.card.version} predicts numbers that are not finite for {int(wrong.sum())} of "
                f"{counted(len(places), 'placement')}; allowed: finite numbers"
            )
        domain, used = self.card.domain, set(np.unique(places).tolist())
        counts = [len(set(row)) for row in places.tolist()]
        reason_of = {count: domain.count_reason(count) for count in set(counts)}
        return PlacementPredictions(
            placements=places,
            costs=self._costs(scores),
            success_votes=scores.votes_of("S"),
            backpressure_votes=scores.votes_of("RO"),
            members=self.card.members,
            use=facts.use,
            query_reasons=domain.query_reasons(graph),
            host_reasons=tuple(domain.host_reasons(j, host) if j in used else () for j, host in enumerate(hosts)),
            count_reasons=tuple(reason_of[count] for count in counts),
        )

    def facts(self, graph: QueryGraph, hosts: Sequence[HostNode], placements: IntArray) -> FluidFacts:
        """Facts of placements; cost factors hold on the stream processor that they were fitted on."""
        factors = self.factors if graph.processor == self.card.processor else dict.fromkeys(OPERATOR_KINDS, 1.0)
        return facts_of(graph, hosts, placements, factors)

    def score(self, facts: FluidFacts) -> Scores:
        """Scores by the members of placements, of whatever queries.

        Notes
        -----
        ln cost = ln fluid + w·residual + offset, where w falls from 1 to 0 between the two distances of
        ``shrinkage``, and is 0 on a stream processor that nothing was trained on, and the offset is 0 on any but that
        of the executions it was fitted to; a vote's logit is w·learned + (1 - w)·fluid's.
        """
        distance = self._points.distance(facts.summary)
        begin, end = self.arrays["shrinkage"].tolist()
        near = np.clip((end - distance) / (end - begin), 0.0, 1.0)
        weight = np.where(facts.processor == NOMINAL_PROCESSOR, near, 0.0)[:, None]
        learned = member_outputs(self.arrays, self.card.members, facts.summary) * weight
        is_fitted = facts.processor == self.card.processor
        offsets = np.where(is_fitted[:, None], self.arrays["offsets"][shortage_of(facts.use)], 0.0)
        costs = facts.costs + learned[:, :, : len(COSTS)] + offsets
        votes = learned[:, :, len(COSTS) :] + (1.0 - weight) * facts.votes
        return Scores(costs, votes, kinds_of(facts, weight[:, 0] > 0.5), units_of(facts), distance)

    def _costs(self, scores: Scores) -> dict[str, CostInterval]:
        low, high = scores.intervals(self.arrays["bounds"])
        ends = (scores.centre, low, high)
        return {metric: CostInterval(*(_exp(end[:, i]) for end in ends)) for i, metric in enumerate(COSTS)}


def _exp(values: FloatArray) -> FloatArray:
    return np.exp(np.clip(values, -_MAX_LN, _MAX_LN))


@cache
def shipped_ensemble() -> Ensemble:
    """The ensemble that comes with Sluice; loaded once per process."""
    return Ensemble.load(_SHIPPED)
