"""Search of a pool of one node type: the smallest that keeps every objective, and why not one less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.document.cycles import common_unit
from engine.document.deployment import Deployment, Node
from engine.estimation.estimate import Progress
from engine.provisioning.answers.pools import PoolAnswer, PoolNodeType, PoolSize, Proof
from engine.provisioning.combinations import node_of
from engine.provisioning.confirmation import Confirmation
from engine.provisioning.nodes import PoolRange, pool_of
from engine.provisioning.pool.bounds import splits_of
from engine.provisioning.pool.proof import Prover, need_objectives
from engine.provisioning.question import PoolQuestion
from engine.solvers import solving

__all__ = ["smallest_of", "smallest_pool"]


_SAME_SIZE = 2  # placements of a size that a walk may refuse before a larger one is looked at


def smallest_of(pool: PoolRange, most: int, prover: Prover, confirm: int) -> PoolAnswer:
    """The smallest pool among those of up to `most` nodes; walks may move the answer by `confirm` sizes."""
    search = _PoolSearch(prover, max(pool.present, 1), max(most, pool.present))
    best, found, proof = search.answer(confirm)
    placement = {} if best is None else prover.problem.placement(best.assignment)
    return PoolAnswer(
        nodes=None if best is None else best.nodes,
        present=pool.present,
        type=PoolNodeType.of(pool.model),
        most=search.most,
        confirmed=best is not None and found.miss is None,
        best=None if best is None else prover.plain(best),
        placement=placement,
        proof=proof,
        miss=found.miss,
        sizes=tuple(prover.plain(search.sizes[n]) for n in sorted(search.sizes)),
        flows=prover.flows[0],
        figures=prover.figures_of(found),
        least=search.low,
        splits=splits_of(prover.fine, placement),
        beyond=prover.beyond,
        complete=search.complete,
        confirmation=prover.confirmation,
    )


class _PoolSearch:
    """Bisection over the pool sizes from `least` to `most`."""

    def __init__(self, prover: Prover, least: int, most: int) -> None:
        self.prover, self.least, self.most = prover, least, most
        self.sizes: dict[int, PoolSize] = {}
        self.found: dict[int, Confirmation] = {}
        self._room: dict[int, int] = {}  # how often room had been made when a size was placed
        self.low = least
        self.complete = True

    def at(self, nodes: int) -> PoolSize:
        """The best placement on a size; it is no worse than those of the smaller sizes tried before."""
        if nodes not in self.sizes:
            self.prover.tell(0.1 + 0.5 * len(self.sizes) / 12, f"Placing on {nodes} nodes")
            smaller = [n for n in self.sizes if n < nodes]
            larger = [self.sizes[n] for n in sorted(self.sizes) if n > nodes][:1]
            carried = self.sizes[max(smaller)] if smaller else None
            self._room[nodes] = self.prover.rooms
            self.sizes[nodes] = self.prover.during(
                f"Placing on {nodes} nodes", lambda: self.prover.solver.solve_jointly(nodes, carried, larger)
            )
        return self.sizes[nodes]

    def confirmed(self, nodes: int) -> Confirmation:
        """The realised figures of a size, and what it misses."""
        if nodes not in self.found:
            self.found[nodes] = self.prover.confirm(self.at(nodes))
        return self.found[nodes]

    def answer(self, confirm: int) -> tuple[PoolSize | None, Confirmation, Proof | None]:
        """The smallest size found, its realised figures with what is still wrong, and the proof."""
        never = self.prover.refutation(self.most)
        if never is not None:
            self.low = self.most + 1 if never.operator is None else self.least
            return self._none(Proof(self.most, refutation=never))
        nodes = self._by_mace()
        if nodes is None and self.prover.relax():
            self.sizes, self.found = {}, {}
            nodes = self._by_mace()
        if nodes is None:
            return self._none(self._against(self.at(self.most)))
        steps = 0
        self.prover.tell(0.7, f"Confirming {nodes} nodes")
        found = self.confirmed(nodes)
        while found.miss is not None and steps < confirm and self.prover.hopeless is None:
            steps += 1
            more = self._tightened(nodes, min(self.most, nodes + (steps > _SAME_SIZE)))
            if more is None:
                break
            nodes, found = more, self.confirmed(more)
        if self.prover.hopeless is not None:
            return self._none(Proof(self.most, refutation=self.prover.hopeless))
        while found.miss is None and steps < confirm and nodes > self.least and self._may_do(nodes - 1):
            nodes, steps = nodes - 1, steps + 1
            found = self.confirmed(nodes)
        if found.miss is not None and found.miss.realised is None:
            found = self.prover.confirm(self.at(nodes), in_full=True)
        return self.at(nodes), found, self._below(nodes)

    @staticmethod
    def _none(proof: Proof) -> tuple[None, Confirmation, Proof]:
        return None, Confirmation({}, None), proof

    def _by_mace(self) -> int | None:
        """Gallop up from the least size that is not proven too small, then bisect; None if the time is over before."""
        self.low = low = self._first(self.least, self.most, lambda n: self.prover.refutation(n) is None)
        step, high = 1, low
        while not self.prover.keeps(self.at(high)):
            if high == self.most:
                return None
            if self._is_over():
                return self.most if self.prover.keeps(self.at(self.most)) else None
            low, high, step = high + 1, min(self.most, high + step), step * (4 if self.prover.is_large else 2)
        return self._first(low, high, lambda n: self.prover.keeps(self.at(n)), self._is_over)

    def _is_over(self) -> bool:
        self.complete = self.complete and not self.prover.clock.is_over
        return not self.complete

    @staticmethod
    def _first(low: int, high: int, good: Callable[[int], bool], over: Callable[[], bool] = lambda: False) -> int:
        """The first number in ``low..high`` that is good; `high` is. Where time is over, the best known."""
        while low < high and not over():
            middle = (low + high) // 2
            if good(middle):
                high = middle
            else:
                low = middle + 1
        return high

    def _tightened(self, refused: int, nodes: int) -> int | None:
        """The smallest size from `nodes` on that leaves room for what was `refused`; None if there is none."""
        rooms = self.prover.rooms
        if self.prover.clock.is_over or not self.prover.make_room(self.confirmed(refused), self.at(refused)):
            return max(nodes, refused + 1) if refused < self.most else None
        if self.prover.rooms == rooms:  # what more room does not help is accepted as it is
            del self.found[refused]
            return refused
        self.sizes = {n: entry for n, entry in self.sizes.items() if n < nodes}
        self.found = {n: known for n, known in self.found.items() if n < nodes}
        step, low, high = 1, nodes, nodes
        while not self.prover.keeps(self.at(high)):
            if high == self.most or self._is_over():
                return None
            low, high, step = high + 1, min(self.most, high + step), step * (4 if self.prover.is_large else 2)
        return self._first(low, high, lambda n: self.prover.keeps(self.at(n)), self._is_over)

    def _may_do(self, nodes: int) -> bool:
        """Whether every objective holds where Mace, with room for what is random, does not quite see it."""
        if self.prover.refutation(nodes) is not None:
            return False
        entry = self._again(nodes)
        if entry.stuck is not None:
            return False
        if entry.lost is not None and entry.lost.stuck is not None:
            return False
        return self.confirmed(nodes).miss is None

    def _again(self, nodes: int) -> PoolSize:
        """The placement of a size with the room that was made since; of two that fail, the one that fails by less."""
        known, entry = self.found.get(nodes), self.sizes.get(nodes)
        if known is None or known.miss is None or entry is None or self._room.get(nodes) == self.prover.rooms:
            return self.at(nodes)
        del self.sizes[nodes], self.found[nodes]
        again = self.at(nodes)
        if again.stuck is None and (miss := self.confirmed(nodes).miss) is not None and miss.worst >= known.miss.worst:
            self.sizes[nodes], self.found[nodes] = entry, known
        return self.sizes[nodes]

    def _below(self, nodes: int) -> Proof | None:
        """The case against one node less; None where there can be no less, or no time is left to look at it."""
        if nodes <= self.least or (self._is_over() and nodes - 1 not in self.sizes):
            return None
        return self._against(self.at(nodes - 1))

    def _against(self, entry: PoolSize) -> Proof:
        """The case against the best placement of a size, with realised figures unless a bound proves it."""
        stuck = entry.stuck or (entry.lost.stuck.operator if entry.lost and entry.lost.stuck else None)
        refutation = self.prover.refutation(entry.nodes)
        miss = None
        if not stuck:
            known = self.confirmed(entry.nodes)
            if known.miss is not None and known.miss.realised is None and refutation is None:
                known = self.prover.confirm(entry, in_full=True)
            miss = known.miss
        return Proof(entry.nodes, None, entry.cost_per_hour, False, refutation, miss, stuck)


_CONFIRM = 12  # sizes by which Flow may move the answer, unless the question says otherwise


def smallest_pool(
    deployment: Deployment,
    question: PoolQuestion | None = None,
    *,
    like: str | Mapping[str, object] | None = None,
    most: int = 64,
    progress: Progress | None = None,
) -> PoolAnswer:
    """Fewest nodes of one type that keep every objective.

    Parameters
    ----------
    deployment : Deployment
        The running deployment, at w or at w / `mace_every`.
    question : PoolQuestion, optional
        Load, losses and effort.
    like : str or mapping, optional
        A node to be like, or a type with ``capacity_cps``, ``cores`` and ``price_per_hour``.
    most : int
        Size of the largest pool to look at.
    progress : callable, optional
        Listener of progress.

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
    What waits now is left out: no purchase makes it younger, and it is gone before one helps.
    """
    solving()
    question, deployment = question or PoolQuestion(), deployment.without_backlogs()
    need_objectives(deployment)
    clock = question.clock(progress)
    clock.tell(0.0, "Laying out the pools")
    base = question.base(deployment)
    model = replace(node_of(like, unit=common_unit(deployment.nodes)), pool=None) if isinstance(like, Mapping) else like
    if not question.keep_present:
        model = model if isinstance(model, Node) else pool_of(question.loaded(deployment), 0, model).model
        model = replace(model, id="", pool=None)
    pool = pool_of(base, most, model)
    prover = Prover(pool.deployment, question.on(base), clock)
    return smallest_of(pool, most, prover, _CONFIRM if question.confirm is None else question.confirm)
