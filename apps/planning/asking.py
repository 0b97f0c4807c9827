"""The bench's quick answer: how worst cases and cost go with the number of nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apps.core.errors import Fault, Impossible, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.planning.benches import BENCHES, SharedBench, is_quick
from apps.planning.inputs import Inputs, pool_of, sizes_of
from apps.planning.sweeps import Objective, Sweep
from apps.queries.snapshots import Snapshot, cluster_snapshot
from engine.deployment import Deployment, Node
from engine.elements import Objective as EngineObjective
from engine.wording import suggest

__all__ = ["Question", "question_of", "sweep_now"]


@dataclass(frozen=True)
class Question:
    """What a bench is asked of a snapshot.

    Attributes
    ----------
    deployment : Deployment
        What runs, with the objectives that the inputs ask for, less the headroom.
    objectives : mapping
        The same as people see them.
    like : str, Node or None
        What further nodes are like.
    """

    snapshot: Snapshot
    inputs: Inputs
    deployment: Deployment
    objectives: Mapping[str, Objective]
    like: str | Node | None

    @property
    def key(self) -> str:
        """What identifies the bench that answers it: what runs, what nodes cost, and what is to be kept."""
        bounds = sorted((name, one.statistic, one.limit_s) for name, one in self.objectives.items())
        prices = [(node.id, node.price_per_hour) for node in self.deployment.nodes]
        return f"{self.snapshot.digest}:{hashlib.sha256(repr((bounds, prices)).encode()).hexdigest()}"

    @property
    def now(self) -> int:
        return len(self.deployment.nodes)

    @property
    def is_quick(self) -> bool:
        return is_quick(self.deployment)

    @property
    def model(self) -> Node | None:
        """What further nodes are like, where no node is like that yet."""
        return self.like if isinstance(self.like, Node) else None

    def bench(self, patience_s: float) -> SharedBench | None:
        """The bench kept for it; None while it is prepared."""
        return BENCHES.ask(self.key, self.deployment, self.snapshot.closed_nodes, patience_s)

    def answered_by(self, bench: SharedBench, sizes: Sequence[int] | None = None) -> Sweep:
        """The answer of a bench that is ready."""
        wanted = sizes or sizes_of(self.deployment, self.inputs)
        found = bench.sweep(self.inputs.factors(self.deployment), wanted, self.like)
        return self.read(found)

    def read(self, sizes: Sequence[Mapping[str, Any]]) -> Sweep:
        """Sizes as the engine gave them, against the objectives asked for."""
        return Sweep(self.now, sizes, self.objectives, self.inputs.lose_one)

    def changes(self, nodes: int) -> list[dict[str, Any]]:
        """The same with so many nodes, as changes of a scenario."""
        return self.inputs.changes(self.snapshot.deployment, nodes, self.model)


def question_of(cluster: Cluster, inputs: Inputs, snapshot: Snapshot | None = None) -> Question:
    """Ask of a cluster as it is now.

    Raises
    ------
    Malformed
        A source or pool that is not there, or a headroom that leaves nothing of an objective.
    """
    snapshot = snapshot or cluster_snapshot(cluster)
    deployment = snapshot.deployment
    like = _like(cluster, deployment, inputs.pool)
    faults = [*_source_faults(deployment, inputs), *_headroom_faults(deployment, inputs)]
    if inputs.pool and like is None:
        pools = ", ".join(cluster.pools.values_list("name", flat=True)) or "none"
        faults.append(Fault("options.pool", f"pool is {inputs.pool!r}; allowed: {pools}"))
    if faults:
        raise Malformed(f"The options have {fault_count(faults)}; first: {faults[0].message}", faults)
    asked = {
        one.query: Objective(one.statistic, one.bound_s, one.bound_s - inputs.headroom_s)
        for one in inputs.objectives(deployment)
    }
    limits = tuple(EngineObjective(query, one.statistic, one.limit_s) for query, one in asked.items())
    return Question(snapshot, inputs, replace(deployment, objectives=limits), asked, like)


def sweep_now(cluster: Cluster, options: Mapping[str, Any], *, patience_s: float = 0.0) -> tuple[Question, Sweep]:
    """Answer in this process, by Mace alone.

    Raises
    ------
    Malformed
        As of `question_of`.
    Impossible
        No nodes, nothing running, or the cluster is too large for an answer in about a second.
    Unavailable
        The bench is still being prepared after `patience_s`.
    """
    question = question_of(cluster, Inputs.of(options))
    if not question.deployment.nodes:
        raise Impossible(f"Cluster {cluster.slug} has no nodes.", [("cluster", f"{cluster.slug} has no nodes")])
    if not question.deployment.operators:
        raise Impossible(f"Nothing runs in {cluster.slug}.", [("cluster", f"{cluster.slug} runs no query")])
    if not question.is_quick:
        message = f"{cluster.slug} has {len(question.deployment.operators)} operators; ask a what-if with find=sweep"
        raise Impossible(f"{message}, which a job answers.", [("cluster", message)], code="too_large")
    bench = BENCHES.require(question.key, question.deployment, question.snapshot.closed_nodes, patience_s)
    return question, question.answered_by(bench, options.get("sizes"))


def _like(cluster: Cluster, deployment: Deployment, pool: str) -> str | Node | None:
    """The last node of the pool; of a pool without nodes, one as it would be."""
    chosen = pool_of(deployment, pool)
    if not pool or chosen == pool:
        return next((node.id for node in reversed(deployment.nodes) if node.pool == chosen), None)
    row = cluster.pools.filter(name=pool).first()
    if row is None:
        return None
    price = None if row.price_per_hour is None else float(row.price_per_hour)
    return Node(f"like {row.name}", row.capacity_cps, cores=row.cores, pool=row.name, price_per_hour=price)


def _source_faults(deployment: Deployment, inputs: Inputs) -> list[Fault]:
    known = [source.id for source in deployment.sources]
    return [
        Fault(
            f"options.sources.{name}",
            f"{name!r} is no source that is read"
            + (suggest(name, known) or f"; allowed: {', '.join(known[:8]) or 'none'}"),
        )
        for name in inputs.sources
        if name not in known
    ]


def _headroom_faults(deployment: Deployment, inputs: Inputs) -> list[Fault]:
    tightest = min((one.bound_s for one in inputs.objectives(deployment)), default=None)
    if tightest is None or inputs.headroom_s < tightest:
        return []
    allowed = f"less than {tightest:g}, the tightest objective in seconds"
    return [Fault("options.headroom_s", f"headroom_s is {inputs.headroom_s:g}; allowed: {allowed}")]
