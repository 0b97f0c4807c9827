"""Growth: by how much each query's own load, and everything together, may grow before an objective breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.admission.margins import sink_events
from engine.deployment import Deployment, Objective
from engine.elements import FloatArray
from engine.errors import DocumentError
from engine.estimation import Progress
from engine.mace import mace
from engine.provisioning.confirming import Miss, flow_miss
from engine.provisioning.growing import Growing, is_linear
from engine.provisioning.proving import need_objectives
from engine.provisioning.scenario import apply_changes
from engine.provisioning.what_if import mace_by_query
from engine.quantiles import statistic_of

__all__ = ["Growth", "Headroom", "headroom_by_query"]

_STEP = 0.01  # factors are found to a hundredth of themselves
_RUN = 20  # a confirmation by Flow, in units of a bisection, for the progress told
_LESS = 0.97  # what Flow does not confirm is tried again at this share


@dataclass(frozen=True, eq=False)
class Headroom:
    """How far one load may grow, everything staying where it is.

    Attributes
    ----------
    query : str or None
        Whose load; None for everything together.
    factor : float or None
        Largest factor with which every objective is kept; None if one is broken as it is (see `miss`). `most` where
        nothing broke up to the limit of the search.
    unlimited : bool
        Whether the limit of the search was reached.
    confirmed : bool
        Whether Flow agrees.
    miss : Miss or None
        What breaks first just above.
    """

    query: str | None
    factor: float | None
    unlimited: bool
    confirmed: bool
    miss: Miss | None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "factor": self.factor,
            "unlimited": self.unlimited,
            "confirmed": self.confirmed,
            "miss": None if self.miss is None else self.miss.to_dict(),
            "note": self.note,
        }


@dataclass(frozen=True, eq=False)
class Growth:
    """Headroom of everything together, and of every query alone."""

    together: Headroom
    queries: dict[str, Headroom]
    flows: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "together": self.together.to_dict(),
            "queries": {query: found.to_dict() for query, found in self.queries.items()},
            "flows": self.flows,
        }


def headroom_by_query(
    deployment: Deployment,
    *,
    queries: Sequence[str] | None = None,
    most: float = 16.0,
    confirm: int = 3,
    tightest: int = 8,
    mace_every: int = 1,
    flow: bool = True,
    progress: Progress | None = None,
) -> Growth:
    """Bisect the factor of each load by Mace and confirm by Flow.

    Parameters
    ----------
    queries : sequence of str, optional
        Queries to grow one at a time; all unless given.
    most : float
        The largest factor looked at.
    confirm : int
        Times Flow may lower a factor by 3 %.
    tightest : int
        Queries, those that break first by Mace, whose factor Flow confirms; the others have `confirmed` false.
    flow : bool
        False leaves out the confirmation.

    Raises
    ------
    DocumentError
        If there is no objective.
    UnplacedError
        If an operator has no node.

    Notes
    -----
    Mace never falls with the load, so there is one factor at which an objective breaks by Mace. Flow is not monotone:
    a smaller factor may break by Flow what a larger one keeps, which the confirmation does not look for.
    """
    need_objectives(deployment)
    tell = progress or (lambda share, step: None)
    names = list(deployment.queries if queries is None else queries)
    search = _Search(deployment, most, confirm, mace_every, flow)
    tell(0.0, "Growing everything together")
    together = search.confirmed(search.by_mace(None))
    found = {}
    steps = len(names) + (1 + _RUN * min(tightest, len(names)) if flow else 1)
    for i, query in enumerate(names):
        tell((i + 1) / steps, f"Growing {query}, {i + 1} of {len(names)}")
        found[query] = search.by_mace(query)
    if flow:
        open_ = sorted((q for q in names if found[q].factor is not None), key=lambda q: found[q].factor or 0.0)
        for k, query in enumerate(open_[:tightest]):
            tell((len(names) + 1 + _RUN * k) / steps, f"Flow of {query}, {k + 1} of {min(tightest, len(open_))}")
            found[query] = search.confirmed(found[query])
        for query in open_[tightest:]:
            found[query] = replace(found[query], note=f"by Mace alone: {tightest} queries break sooner")
    tell(1.0, "Done")
    return Growth(together, found, search.flows[0])


class _Search:
    def __init__(self, deployment: Deployment, most: float, confirm: int, mace_every: int, flow: bool) -> None:
        self.deployment, self.most, self.confirm = deployment, most, confirm
        self.mace_every, self.flow = mace_every, flow
        self.flows = [0]
        self.now = self._miss(deployment) if flow else None
        self.linear = is_linear(deployment)

    def by_mace(self, query: str | None) -> Headroom:
        """The factor of one load by Mace."""
        try:
            keeps = self._keeps(query)
        except DocumentError as error:
            return Headroom(query, None, False, False, None, error.faults[0].message)
        if self.now is not None or not keeps(1.0):
            return Headroom(query, None, False, self.flow, self.now, "an objective is broken as it is")
        factor = self._bisected(keeps)
        return Headroom(query, factor, factor >= self.most, False, None)

    def _bisected(self, keeps: Callable[[float], bool]) -> float:
        if keeps(self.most):
            return self.most
        low, high = 1.0, self.most
        while high - low > _STEP * low:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if keeps(middle) else (low, middle)
        return low

    def confirmed(self, found: Headroom) -> Headroom:
        """The same by Flow, which may lower the factor."""
        query, factor, unlimited, miss = found.query, found.factor, found.unlimited, None
        if not self.flow or factor is None:
            return found
        for _ in range(self.confirm):
            late = self._miss(self._grown(query, factor))
            if late is None:
                if miss is None and not unlimited:
                    miss = self._miss(self._grown(query, factor * (1.0 + 2 * _STEP)))
                return Headroom(query, factor, unlimited, True, miss)
            miss, unlimited = late, False
            factor = max(1.0, factor * _LESS)
        return Headroom(query, factor, False, factor == 1.0, miss)

    def _miss(self, deployment: Deployment) -> Miss | None:
        return flow_miss(deployment, mace_every=self.mace_every, runs=self.flows)

    def _grown(self, query: str | None, factor: float) -> Deployment:
        change = {"scale_source": "*"} if query is None else {"scale_query": query}
        return apply_changes(self.deployment, [change | {"by": factor}], path="growth")

    def _keeps(self, query: str | None) -> Callable[[float], bool]:
        """Whether every objective is kept by Mace at a factor."""
        self._grown(query, 1.0)  # a query without a source of its own is refused
        return self._by_difference.keeps(query) if self.linear else self._in_full(query)

    @cached_property
    def _by_difference(self) -> Growing:
        return Growing(self.deployment.coarsened(self.mace_every))

    def _in_full(self, query: str | None) -> Callable[[float], bool]:
        """For loads that are not linear: everything is worked out anew."""

        def keeps(factor: float) -> bool:
            coarse = self._grown(query, factor).coarsened(self.mace_every)
            found = mace(coarse)
            series = mace_by_query(found)
            return all(
                self._value(coarse, series[entry.query], entry) <= entry.bound_s
                for entry in coarse.objectives
                if entry.query in series
            )

        return keeps

    @staticmethod
    def _value(coarse: Deployment, series: FloatArray, entry: Objective) -> float:
        worst = float(series.max(initial=0.0))
        if entry.statistic == "worst" or worst <= entry.bound_s:
            return worst
        return statistic_of(series, sink_events(coarse)[entry.query], entry.statistic)
