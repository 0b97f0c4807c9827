"""What Jarvis is measured against: static cuts, and the best cut without a share (Jarvis, section VI).

Each takes a chain's frontier and gives the plan of one epoch. `all_src` and `filter_src` are static: they may cost more
than a budget, and then records overflow (`engine.jarvis.predicting`).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.jarvis.partition import Frontier, Partition

__all__ = ["BASELINES", "all_sp", "all_src", "baseline", "best_op", "filter_cut", "filter_src"]

BASELINES = ("all-sp", "all-src", "filter-src", "best-op")  #: methods of settings that give an operator all or nothing


def baseline(method: str, frontier: Frontier, n_records: float, budget_s: float, kinds: Sequence[str]) -> Partition:
    """The plan of one of `BASELINES` for an epoch of `budget_s` CPU seconds; only best-op keeps to them.

    Examples
    --------
    >>> frontier = Frontier.of(relay=[0.5, 0.5], cost=[1e-6, 4e-6], sizes=[80, 80, 60])
    >>> [baseline(name, frontier, 40_000, 0.08, ["filter", "aggregate"]).lo for name in BASELINES]
    [0, 2, 1, 1]
    """
    if method == "best-op":
        return best_op(frontier, n_records, budget_s)
    if method == "filter-src":
        return filter_src(frontier, n_records, kinds)
    return {"all-sp": all_sp, "all-src": all_src}[method](frontier, n_records)


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
