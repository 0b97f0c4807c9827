"""The cheapest mix of node types that keeps every objective: combinations by ascending cost, pruned by lower bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.deployment import Deployment
from engine.estimation import Progress
from engine.provisioning.board import Placement
from engine.provisioning.confirming import tightened
from engine.provisioning.mixes import Counts, Mixes
from engine.provisioning.node_types import NodeType, read_types
from engine.provisioning.nodes import lose as lose_nodes
from engine.provisioning.proving import Proof, need_objectives
from engine.provisioning.scenario import scaled_loads
from engine.provisioning.solver import PoolSize, Solver

__all__ = ["MixAnswer", "cheapest_mix"]


@dataclass(frozen=True, eq=False)
class MixAnswer:
    """The cheapest mix found.

    Attributes
    ----------
    counts : mapping or None
        New nodes by type; None if no mix within the limits was found.
    cost_per_hour : float or None
        Of the new nodes.
    least_cost_per_hour : float or None
        No mix that costs less can keep every objective (by Mace): every one is refuted by a lower bound. Equal to the
        cost where the answer is proven to be the cheapest. None if all mixes are refuted.
    refuted, tried : int
        Cheaper combinations that a bound refutes, and those that were placed without success.
    proofs : tuple of Proof
        The cheaper mixes that came nearest, and why they are not enough; for each type in use, one node less of it.
    complete : bool
        False if the search gave up before it had looked at every combination that could be cheaper.
    """

    types: tuple[NodeType, ...]
    present: int
    counts: dict[str, int] | None
    cost_per_hour: float | None
    least_cost_per_hour: float | None
    best: PoolSize | None
    placement: Placement
    refuted: int
    tried: int
    proofs: tuple[Proof, ...]
    complete: bool
    flows: int

    @property
    def proven(self) -> bool:
        """Whether nothing cheaper can do (by Mace)."""
        least, cost = self.least_cost_per_hour, self.cost_per_hour
        return self.counts is not None and least is not None and cost is not None and cost <= least * (1.0 + 1e-9)

    @property
    def message(self) -> str:
        if self.counts is None:
            why = f"; {self.proofs[0].message}" if self.proofs else ""
            given = "no mix within the limits" if self.complete else "no mix among those looked at"
            return f"{given} keeps every objective{why}"
        words = " and ".join(f"{count} {name}" for name, count in self.counts.items() if count) or "no new node"
        sure = "every cheaper mix is proven too small" if self.proven else "no cheaper mix was found"
        return f"{words} at {self.cost_per_hour:g} per hour; {sure}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "present": self.present,
            "cost_per_hour": self.cost_per_hour,
            "least_cost_per_hour": self.least_cost_per_hour,
            "proven": self.proven,
            "complete": self.complete,
            "refuted": self.refuted,
            "tried": self.tried,
            "best": None if self.best is None else self.best.to_dict(),
            "placement": {
                name: [{"node": r.node, "core": r.core, "fraction": r.fraction} for r in replicas]
                for name, replicas in self.placement.items()
            },
            "proofs": [proof.to_dict() for proof in self.proofs],
            "flows": self.flows,
            "message": self.message,
        }


def cheapest_mix(
    deployment: Deployment,
    types: Any,
    *,
    keep_present: bool = True,
    lose: int = 0,
    headroom_s: float = 0.0,
    headroom_share: float = 0.0,
    factor: float | Mapping[str, float] = 1.0,
    rounds: int = 2,
    most_tried: int = 100,
    seed: int = 0,
    mace_every: int = 1,
    closed: Sequence[str] = (),
    progress: Progress | None = None,
) -> MixAnswer:
    """Cheapest new nodes, of several types, with which every objective is kept.

    Parameters
    ----------
    types : list of dict
        Each with ``name``, ``capacity_cps``, ``cores`` (1), ``price_per_hour`` and ``max`` (16).
    keep_present : bool
        Whether new nodes join the present ones or take their place.
    lose : int
        1 if every objective must also be kept with any one node lost.
    headroom_s, headroom_share, factor
        As in `smallest_pool`.
    most_tried : int
        Combinations that are placed before the search gives up; those refuted by a bound cost next to nothing.

    Returns
    -------
    MixAnswer

    Raises
    ------
    DocumentError
        If a type has no price, or there is no objective.

    Notes
    -----
    Combinations are looked at by ascending cost, so the first that holds is the cheapest that the placement search can
    fill; where all cheaper ones are refuted by a lower bound, it is the cheapest there is (by Mace).
    """
    need_objectives(deployment)
    read = read_types(types)
    base = tightened(scaled_loads(deployment, factor), headroom_s, headroom_share)
    if not keep_present:
        base = lose_nodes(base, {node.id for node in base.nodes})
    mixes = Mixes(base, read, mace_every, lose, rounds, seed, closed, progress)
    return _Search(mixes, most_tried).answer()


class _Search:
    """The first combination by cost that holds."""

    def __init__(self, mixes: Mixes, most_tried: int) -> None:
        self.mixes, self.most_tried = mixes, most_tried
        self.refuted: list[Counts] = []
        self.least_cost: float | None = None
        self.tried: dict[Counts, Proof] = {}
        self.over: dict[Counts, float] = {}

    def answer(self) -> MixAnswer:
        prover = self.mixes.prover
        complete = True
        for cost, counts in self.mixes.by_cost():
            if len(self.tried) >= self.most_tried:
                complete = False
                break
            if self.mixes.refutation(counts) is not None:
                self.refuted.append(counts)
                continue
            if self.least_cost is None:
                self.least_cost = cost
            prover.tell(len(self.tried) / self.most_tried, f"Placing mix {len(self.tried) + 1} at {cost:g} per hour")
            solver = self.mixes.solver(counts)
            entry = solver.solve_jointly(len(solver.board.deployment.nodes))
            miss = prover.confirm(entry, solver) if prover.keeps(entry) else None
            if prover.keeps(entry) and miss is None:
                return self._found(counts, entry, solver)
            stuck = entry.stuck or (entry.lost.stuck[1] if entry.lost and entry.lost.stuck else None)
            self.tried[counts] = Proof(entry.nodes, cost, None, miss, stuck, self.mixes.words(counts))
            self.over[counts] = max(entry.over_bound, entry.lost.over_bound if entry.lost else 0.0)
        return self._made(None, None, None, complete)

    def _found(self, counts: Counts, entry: PoolSize, solver: Solver) -> MixAnswer:
        return self._made(counts, entry, solver, True)

    def _made(self, counts: Counts | None, entry: PoolSize | None, solver: Solver | None, complete: bool) -> MixAnswer:
        mixes = self.mixes
        return MixAnswer(
            types=mixes.types,
            present=mixes.present,
            counts=None if counts is None else mixes.words(counts),
            cost_per_hour=None if counts is None else mixes.cost(counts),
            least_cost_per_hour=self.least_cost,
            best=entry,
            placement={} if solver is None or entry is None else solver.board.placement(entry.assignment),
            refuted=len(self.refuted),
            tried=len(self.tried),
            proofs=tuple(self._proofs(counts)),
            complete=complete,
            flows=mixes.prover.flows[0],
        )

    def _proofs(self, counts: Counts | None) -> Iterator[Proof]:
        """The case against the nearest cheaper mixes, and against one node less of each type."""
        nearest = sorted(self.tried, key=lambda other: self.over[other])[:3]
        less = (
            []
            if counts is None
            else [(*counts[:t], counts[t] - 1, *counts[t + 1 :]) for t in range(len(counts)) if counts[t]]
        )
        last = self.refuted[-1:] if counts is None else []
        for other in dict.fromkeys((*less, *nearest, *last)):
            yield self._with_miss(other)

    def _with_miss(self, counts: Counts) -> Proof:
        """One case in full: with a counterexample where the bounds are silent."""
        prover = self.mixes.prover
        cost, words = self.mixes.cost(counts), self.mixes.words(counts)
        refutation = self.mixes.refutation(counts)
        nodes = self.mixes.present + sum(counts)
        if refutation is not None:
            return Proof(nodes, cost, refutation, None, None, words)
        known = self.tried.get(counts)
        if known is not None and (known.miss is not None or known.stuck is not None):
            return known
        solver = self.mixes.solver(counts)
        entry = solver.solve_jointly(nodes)
        stuck = entry.stuck or (entry.lost.stuck[1] if entry.lost and entry.lost.stuck else None)
        miss = None if stuck else prover.confirm(entry, solver)
        return Proof(nodes, cost, None, miss, stuck, words)
