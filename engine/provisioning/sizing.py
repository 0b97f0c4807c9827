"""The smallest pool that keeps every objective, with proof: what goes wrong one node below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.deployment import Deployment, Node
from engine.estimation import Progress
from engine.provisioning.board import Placement
from engine.provisioning.confirming import Miss, tightened
from engine.provisioning.mix import MixAnswer, cheapest_mix
from engine.provisioning.node_types import node_of
from engine.provisioning.nodes import lose as lose_nodes
from engine.provisioning.pools import pool_of
from engine.provisioning.proving import Proof, Prover, need_objectives
from engine.provisioning.scenario import scaled_loads
from engine.provisioning.solver import PoolSize

__all__ = ["MixAnswer", "PoolAnswer", "cheapest_mix", "smallest_pool"]


@dataclass(frozen=True, eq=False)
class PoolAnswer:
    """How many nodes it takes.

    Attributes
    ----------
    nodes, added : int or None
        Of the whole pool, and on top of those present; None if no pool up to `most` was found.
    confirmed : bool
        Whether Flow agrees; False where the steps allowed for that were used up.
    proof : Proof or None
        Why one node less is too few, or why no number of nodes is enough. None where the pool cannot be smaller.
    miss : Miss or None
        Where not confirmed, what Flow still finds wrong.
    sizes : tuple of PoolSize
        Every size that was placed on the way.
    """

    nodes: int | None
    present: int
    model: Node
    most: int
    confirmed: bool
    best: PoolSize | None
    placement: Placement
    proof: Proof | None
    miss: Miss | None
    sizes: tuple[PoolSize, ...]
    flows: int

    @property
    def added(self) -> int | None:
        return None if self.nodes is None else self.nodes - self.present

    def to_dict(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "present": self.present,
            "added": self.added,
            "type": {
                "like": self.model.id or None,
                "capacity_cps": self.model.capacity_cps,
                "cores": self.model.cores,
                "price_per_hour": self.model.price_per_hour,
            },
            "most": self.most,
            "confirmed": self.confirmed,
            "cost_per_hour": None if self.best is None else self.best.cost_per_hour,
            "best": None if self.best is None else self.best.to_dict(),
            "placement": {
                name: [{"node": r.node, "core": r.core, "fraction": r.fraction} for r in replicas]
                for name, replicas in self.placement.items()
            },
            "proof": None if self.proof is None else self.proof.to_dict(),
            "miss": None if self.miss is None else self.miss.to_dict(),
            "sizes": [entry.to_dict() for entry in self.sizes],
            "flows": self.flows,
            "message": self.message,
        }

    @property
    def message(self) -> str:
        if self.nodes is None:
            why = f": {self.proof.message}" if self.proof else ""
            return f"no pool of up to {self.most} nodes was found that keeps every objective{why}"
        count = "1 node keeps" if self.nodes == 1 else f"{self.nodes} nodes keep"
        sure = "" if self.confirmed else " by Mace; Flow does not confirm it"
        less = f" With one less, {self.proof.message}." if self.proof else ""
        return f"{count} every objective{sure}.{less}"


def smallest_pool(
    deployment: Deployment,
    *,
    like: str | Mapping[str, Any] | None = None,
    keep_present: bool = True,
    lose: int = 0,
    headroom_s: float = 0.0,
    headroom_share: float = 0.0,
    factor: float | Mapping[str, float] = 1.0,
    most: int = 64,
    rounds: int = 4,
    confirm: int = 4,
    seed: int = 0,
    mace_every: int = 1,
    closed: Sequence[str] = (),
    progress: Progress | None = None,
) -> PoolAnswer:
    """Fewest nodes of one type that keep every objective.

    Parameters
    ----------
    deployment : Deployment
        What runs, at w or at w / `mace_every`.
    like : str or mapping, optional
        A node to be like, or a type with ``capacity_cps``, ``cores`` and ``price_per_hour``.
    keep_present : bool
        Whether new nodes join the present ones or take their place.
    lose : int
        1 if every objective must also be kept with any one node lost.
    headroom_s, headroom_share : float
        What to leave of every bound.
    factor : float or mapping
        Load, as a multiple of the present one; by source if a mapping.
    most : int
        The largest pool looked at.
    rounds : int
        Rounds of the placement search for each size.
    confirm : int
        How many sizes up or down Flow may still move the answer.

    Returns
    -------
    PoolAnswer

    Raises
    ------
    DocumentError
        If there is no objective, or a parameter makes no sense.

    Notes
    -----
    A placement on a pool is one on a larger pool too, so keeping the objectives is monotone in the number of nodes by
    Mace, and the answer is found by bisection. That a smaller pool fails is proven only where a lower bound says so.
    """
    need_objectives(deployment)
    base = tightened(scaled_loads(deployment, factor), headroom_s, headroom_share)
    model = node_of(like) if isinstance(like, Mapping) else like
    if not keep_present:
        model = model if isinstance(model, Node) else pool_of(base, 0, model).model
        base = lose_nodes(base, {node.id for node in base.nodes})
        model = replace(model, id="", pool=None)
    pool = pool_of(base, most, model)
    prover = Prover(
        pool.deployment,
        mace_every=mace_every,
        lose=lose,
        rounds=rounds,
        seed=seed,
        closed=[name for name in closed if name in base.node_index],
        progress=progress,
    )
    search = _Search(prover, max(pool.present, 1), max(most, pool.present))
    best, miss, confirmed, proof = search.answer(confirm)
    return PoolAnswer(
        nodes=None if best is None else best.nodes,
        present=pool.present,
        model=pool.model,
        most=search.most,
        confirmed=confirmed,
        best=best,
        placement={} if best is None else prover.board.placement(best.assignment),
        proof=proof,
        miss=miss,
        sizes=tuple(search.sizes[n] for n in sorted(search.sizes)),
        flows=prover.flows[0],
    )


class _Search:
    """Bisection over the sizes from `least` to `most`."""

    def __init__(self, prover: Prover, least: int, most: int) -> None:
        self.prover, self.least, self.most = prover, least, most
        self.sizes: dict[int, PoolSize] = {}
        self.misses: dict[int, Miss | None] = {}

    def at(self, nodes: int) -> PoolSize:
        """The best placement on a size; it is no worse than those of the smaller sizes tried before."""
        if nodes not in self.sizes:
            self.prover.tell(0.1 + 0.5 * len(self.sizes) / 12, f"Placing on {nodes} nodes")
            smaller = [n for n in self.sizes if n < nodes]
            carried = self.sizes[max(smaller)] if smaller else None
            self.sizes[nodes] = self.prover.solver.solve_jointly(nodes, carried)
        return self.sizes[nodes]

    def miss(self, nodes: int) -> Miss | None:
        """What Flow finds wrong with a size."""
        if nodes not in self.misses:
            self.misses[nodes] = self.prover.confirm(self.at(nodes))
        return self.misses[nodes]

    def answer(self, confirm: int) -> tuple[PoolSize | None, Miss | None, bool, Proof | None]:
        """The smallest size found, what Flow still finds wrong with it, whether it is confirmed, and the proof."""
        never = self.prover.refutation(self.most)
        if never is not None:
            return None, None, False, Proof(self.most, None, never, None)
        nodes = self._by_mace()
        if nodes is None:
            entry = self.at(self.most)
            return None, None, False, self._against(entry)
        steps = 0
        while self.miss(nodes) is not None and steps < confirm and nodes < self.most:
            nodes, steps = nodes + 1, steps + 1
        found = self.misses[nodes]
        while found is None and steps < confirm and nodes > self.least and self._may_do(nodes - 1):
            nodes, steps = nodes - 1, steps + 1
        return self.at(nodes), found, found is None, self._below(nodes)

    def _by_mace(self) -> int | None:
        """Gallop up from the least size that is not proven too small, then bisect."""
        low = self._first(self.least, self.most, lambda n: self.prover.refutation(n) is None)
        step, high = 1, low
        while not self.prover.keeps(self.at(high)):
            if high == self.most:
                return None
            low, high, step = high + 1, min(self.most, high + step), step * 2
        return self._first(low, high, lambda n: self.prover.keeps(self.at(n)))

    @staticmethod
    def _first(low: int, high: int, good: Any) -> int:
        """The first number in ``low..high`` that is good; `high` is."""
        while low < high:
            middle = (low + high) // 2
            if good(middle):
                high = middle
            else:
                low = middle + 1
        return high

    def _may_do(self, nodes: int) -> bool:
        """Whether Flow keeps every objective where Mace does not quite."""
        entry = self.at(nodes)
        if entry.stuck is not None or self.prover.refutation(nodes) is not None:
            return False
        if entry.lost is not None and entry.lost.stuck is not None:
            return False
        return self.miss(nodes) is None

    def _below(self, nodes: int) -> Proof | None:
        """The case against one node less; None where there can be no less."""
        return None if nodes <= self.least else self._against(self.at(nodes - 1))

    def _against(self, entry: PoolSize) -> Proof:
        stuck = entry.stuck or (entry.lost.stuck[1] if entry.lost and entry.lost.stuck else None)
        miss = None if stuck else self.miss(entry.nodes)
        return replace(self.prover.proof(entry, miss), stuck=stuck)
