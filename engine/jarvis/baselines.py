"""What Jarvis is measured against: static cuts, and the best cut without a share (Jarvis, section VI).

Each takes a chain's frontier and gives the plan of one epoch. `all_src` and `filter_src` are static: they may cost more
than a budget, which is for the caller to look at (`Standing.fits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.jarvis.partition import Frontier, Partition, outcome

__all__ = ["BASELINES", "Comparison", "Standing", "all_sp", "all_src", "best_op", "compare", "filter_cut", "filter_src"]

BASELINES = ("all-sp", "all-src", "filter-src", "best-op")


def all_sp(frontier: Frontier, n_records: float) -> Partition:
    """Everything runs at the stream processor."""
    return frontier.cut(0, n_records)


def all_src(frontier: Frontier, n_records: float) -> Partition:
    """Everything that may run at the source runs there (Gigascope)."""
    return frontier.cut(frontier.operators, n_records)


def filter_src(frontier: Frontier, n_records: float, kinds: Sequence[str]) -> Partition:
    """The source filters and nothing else (Everflow); `kinds` are those of the operators, in order."""
    return frontier.cut(filter_cut(kinds), n_records)


def best_op(frontier: Frontier, n_records: float, budget_s: float) -> Partition:
    """The cut that sends least of those that fit the budget; of equal ones the cheapest (Sonata)."""
    fitting = [k for k, cpu_s in enumerate(frontier.cpu_s) if cpu_s * n_records <= budget_s]
    best = min(fitting or [0], key=lambda k: (frontier.sent[k], frontier.cpu_s[k], k))
    return frontier.cut(best, n_records)


def filter_cut(kinds: Sequence[str]) -> int:
    """How many leading operators it takes to run the first filters: they, and what prepares records for them.

    None where there is no filter, or only one behind a join or an aggregate.

    Examples
    --------
    >>> filter_cut(["window", "filter", "filter", "aggregate"]), filter_cut(["join", "filter"])
    (3, 0)
    """
    first = next((i for i, kind in enumerate(kinds) if kind in ("filter", "join", "aggregate")), len(kinds))
    cut = next((i for i in range(first, len(kinds)) if kinds[i] != "filter"), len(kinds))
    return cut if cut > first else 0


@dataclass(frozen=True, slots=True)
class Standing:
    """One strategy in one epoch."""

    load_factors: tuple[float, ...]
    bytes_sent: float
    cpu_s: float
    fits: bool  #: its cost is within the budget; where it is not, records overflow and more is sent than said here


@dataclass(frozen=True, slots=True)
class Comparison:
    """The best plan of a budget beside the baselines, in bytes whatever it was to keep small."""

    plan: Partition
    jarvis: Standing
    baselines: Mapping[str, Standing]  #: by the names in `BASELINES`

    def saved(self, baseline: str) -> float:
        """Share of the baseline's bytes that the plan does not send; 0 of none, below 0 if it sends more."""
        theirs = self.baselines[baseline].bytes_sent
        return 1 - self.jarvis.bytes_sent / theirs if theirs > 0 else 0.0


def compare(
    relay: Sequence[float],
    cost: Sequence[float],
    sizes: Sequence[float],
    kinds: Sequence[str],
    *,
    budget_s: float,
    n_records: float,
    objective: str = "bytes",
) -> Comparison:
    """Predict an epoch of `n_records` with `budget_s` of CPU time: the best plan and every baseline.

    Parameters
    ----------
    relay, cost, sizes
        As for `Frontier.of`.
    kinds
        M of them, such as ``filter``.
    objective
        ``bytes`` or ``records``: what the plan, and Best-OP, send as little of as possible.

    Raises
    ------
    DocumentError
        With every fault of the chain, budget or number of records.
    """
    frontier = Frontier.of(relay, cost, sizes if objective == "bytes" else None)
    plan = frontier.at(budget_s, n_records)

    def standing(partition: Partition) -> Standing:
        found = outcome(relay, cost, sizes, partition.load_factors, n_records)
        fits = found.cpu_s <= budget_s * (1 + 1e-9)
        return Standing(partition.load_factors, found.objective, found.cpu_s, fits)

    cuts = (
        all_sp(frontier, n_records),
        all_src(frontier, n_records),
        filter_src(frontier, n_records, kinds),
        best_op(frontier, n_records, budget_s),
    )
    return Comparison(plan, standing(plan), dict(zip(BASELINES, map(standing, cuts), strict=True)))
