"""Predictions of an ensemble for placements of a query: means, 80 % intervals, votes, and what is outside the domain.

Source: Costream (ICDE 2024), section V: mean of the members for costs, majority for success and back-pressure. A tie
counts against the placement: as failure, and as back-pressure.

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
from engine.costream.batch import Float32Array, GraphBatch, PlacementBatch, prepare_placements
from engine.costream.network import METRICS, OUTPUTS, CostNetwork
from engine.costream.weights import Member, ModelCard, load_weights, read_card, read_weights
from engine.errors import EngineError
from engine.query_graph.graph import HostNode, QueryGraph
from engine.words import counted

__all__ = [
    "COSTS",
    "LEVEL",
    "CostInterval",
    "Ensemble",
    "PlacementPredictions",
    "PredictionError",
    "ensemble_bounds",
    "interval_scale",
    "is_voted",
    "shipped_ensemble",
    "votes_of",
]

COSTS = ("T", "Lp", "Le")

# Share of true values that an interval is meant to hold.
LEVEL = 0.8

_MAX_LN = 34.5  # 1e15: nothing is faster or lasts longer
_MIN_WIDTH = 1e-6  # of an interval's half in ln: bounds on the wrong side of the mean count as none
_SHIPPED = Path(__file__).parent / "weights" / "costream.npz"

BoolArray = npt.NDArray[np.bool_]


class PredictionError(EngineError):
    """Predictions that are no numbers: weights or the question go beyond what the arithmetic holds."""

    code = "prediction"


@dataclass(frozen=True)
class CostInterval:
    """A metric's mean and 80 % interval per placement, float64 (k,): tuples/s (T) or seconds (Lp, Le)."""

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
    member_costs
        Per metric each member's prediction, float64 (m, k).
    success_votes, backpressure_votes
        int64 (k,): members that predict success, and back-pressure; an undecided one counts as failure and as
        back-pressure.
    members
        m.
    query_reasons
        What of the query lies outside the training domain, as sentences: for every placement.
    host_reasons
        The same per host, of those that any placement uses: for the placements that do.
    count_reasons
        The same per placement, of its number of hosts; mostly empty.
    """

    placements: IntArray
    costs: Mapping[str, CostInterval]
    member_costs: Mapping[str, FloatArray]
    success_votes: IntArray
    backpressure_votes: IntArray
    members: int
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


def votes_of(outputs: Float32Array, metric: str) -> IntArray:
    """Members that predict success (S) or back-pressure (RO), (k,), from `OUTPUTS` of the members (m, k, 11).

    An output of 0 speaks against the placement.
    """
    scores = outputs[:, :, METRICS.index(metric)]
    votes: IntArray = (scores >= 0 if metric == "RO" else scores > 0).sum(axis=0)
    return votes


def is_voted(metric: str, votes: npt.ArrayLike, members: int) -> BoolArray:
    """Whether the members predict success (S) or back-pressure (RO) together; a tie speaks against the placement.

    Examples
    --------
    >>> is_voted("S", [0, 1, 2], 2).tolist(), is_voted("RO", [0, 1, 2], 2).tolist()
    ([False, False, True], [False, True, True])
    """
    doubled = 2 * np.asarray(votes)
    return doubled >= members if metric == "RO" else doubled > members


def ensemble_bounds(outputs: Float32Array) -> dict[str, tuple[FloatArray, FloatArray, FloatArray]]:
    """Per metric of `COSTS` ln of the mean, and the unscaled halves of its interval below and above in ln, (k,) each.

    Parameters
    ----------
    outputs
        `OUTPUTS` of the members, (m, k, 11). The mean is that of the costs, not of their logarithms; the halves are
        means of the members' own.
    """
    column = {name: np.clip(outputs[:, :, i].astype(np.float64), -_MAX_LN, _MAX_LN) for i, name in enumerate(OUTPUTS)}
    bounds = {}
    for metric in COSTS:
        centre = column[metric]
        below = np.maximum(centre - column[f"{metric}_low"], _MIN_WIDTH).mean(axis=0)
        above = np.maximum(column[f"{metric}_high"] - centre, _MIN_WIDTH).mean(axis=0)
        bounds[metric] = np.log(np.exp(centre).mean(axis=0)), below, above
    return bounds


def interval_scale(true: npt.ArrayLike, bounds: tuple[FloatArray, FloatArray, FloatArray]) -> float:
    """Factor of split-conformal scaling: the least that makes intervals of calibration runs hold `LEVEL` of them.

    Parameters
    ----------
    true
        ln of the true costs of runs that were not trained on, (k,).
    bounds
        Of a metric, from `ensemble_bounds`.

    Notes
    -----
    A run's score is its deviation in ln, in units of the interval's half on its side; the factor is the
    ceil((k + 1) * `LEVEL`)-th smallest score.
    """
    centre, below, above = bounds
    deviation = np.asarray(true, dtype=np.float64) - centre
    scores = np.sort(np.where(deviation < 0, -deviation / below, deviation / above))
    rank = min(len(scores), int(np.ceil((len(scores) + 1) * LEVEL)))
    return float(scores[rank - 1])


class Ensemble:
    """Networks that predict together, with their card.

    Parameters
    ----------
    members
        Parameters of each member.
    card
        Their card.
    """

    def __init__(self, members: Sequence[Member], card: ModelCard) -> None:
        self.card = card
        self.members = tuple(members)
        self.networks = tuple(CostNetwork(member, card.form) for member in members)

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
            If an output of a network is not finite.
        """
        places = np.asarray(placements, dtype=np.int64)
        batch, outputs = self._score(graph, hosts, places)
        domain = self.card.domain
        used = set(np.unique(batch.pair_hosts).tolist())
        counts = np.diff(batch.starts).tolist()
        reason_of = {count: domain.count_reason(count) for count in set(counts)}
        return PlacementPredictions(
            placements=places,
            costs=self._costs(outputs),
            member_costs={metric: _exp(outputs[:, :, i]) for i, metric in enumerate(COSTS)},
            success_votes=votes_of(outputs, "S"),
            backpressure_votes=votes_of(outputs, "RO"),
            members=len(self.networks),
            query_reasons=domain.query_reasons(graph),
            host_reasons=tuple(domain.host_reasons(j, host) if j in used else () for j, host in enumerate(hosts)),
            count_reasons=tuple(reason_of[count] for count in counts),
        )

    def evaluate(self, batch: GraphBatch) -> Float32Array:
        """`OUTPUTS` of each member for graphs of differing shape, (m, g, 11)."""
        return np.stack([network.evaluate(batch) for network in self.networks])

    def _score(
        self, graph: QueryGraph, hosts: Sequence[HostNode], places: IntArray
    ) -> tuple[PlacementBatch, Float32Array]:
        """The placements as arrays, and `OUTPUTS` of each member for each of them, (m, k, 11), all finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            batch = prepare_placements(graph, hosts, places)
            outputs = np.stack([network.score(batch) for network in self.networks])
        wrong = int((~np.isfinite(outputs)).any(axis=(0, 2)).sum())
        if wrong:
            raise PredictionError(
                f"Model {self.card.version} predicts numbers that are not finite for {wrong} of "
                f"{counted(len(places), 'placement')}; allowed: finite numbers"
            )
        return batch, outputs

    def _costs(self, outputs: Float32Array) -> dict[str, CostInterval]:
        costs = {}
        for metric, (centre, below, above) in ensemble_bounds(outputs).items():
            scale = self.card.interval_scale[metric]
            low, high = _exp(centre - scale * below), _exp(centre + scale * above)
            costs[metric] = CostInterval(_exp(centre), low, high)
        return costs


def _exp(values: npt.NDArray[Any]) -> FloatArray:
    return np.exp(np.clip(values.astype(np.float64), -_MAX_LN, _MAX_LN))


@cache
def shipped_ensemble() -> Ensemble:
    """The ensemble that comes with Sluice; loaded once per process."""
    return Ensemble.load(_SHIPPED)
