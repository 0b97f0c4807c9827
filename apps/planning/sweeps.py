"""Sweeps over numbers of nodes: the bench's question and its answer at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Annotated, ClassVar

from django.db.models import Sum

from apps.core.errors import Fault, Impossible, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.planning.benches import BENCHES, SharedBench, is_quick, is_quick_size
from apps.planning.what_if_options import Inputs, resized_pool, sweep_sizes
from apps.queries.models import Operator
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from apps.queries.snapshots.parts import is_large
from apps.queries.snapshots.sketch import cluster_sketch
from engine.document.deployment import Deployment, Node
from engine.document.elements import Objective as EngineObjective
from engine.document.policies import PolicyGap, any_placement_gap
from engine.document.unknown_costs import unknown_grounds
from engine.errors import suggestion
from engine.provisioning.answers.pools import PoolSize
from engine.records import Record, Unwritten, Words
from engine.words import duration_words

__all__ = [
    "BREAKS",
    "FRAGILE",
    "HOLDS",
    "UNPROVEN",
    "BenchFigures",
    "BenchObjective",
    "BenchQuestion",
    "BenchSize",
    "BenchSweep",
    "bench_question",
    "bench_snapshot",
    "bench_sweep",
]

BREAKS, FRAGILE, HOLDS = "breached", "at_risk", "holds"
UNPROVEN = "unknown"  # holds by what is known: not by the policies of nodes, nor by costs that nobody measured


@dataclass(frozen=True)
class BenchObjective:
    """A query's objective as the bench was given it; `limit_s` is less the headroom."""

    statistic: str
    bound_s: float
    limit_s: float


@dataclass(frozen=True)
class BenchSize(Record):
    """Figures for one number of nodes."""

    TITLE: ClassVar[str] = "a number of nodes"

    nodes: int
    cost_per_hour: Annotated[float | None, Words("Null where a price is missing.")]
    state: Annotated[
        str,
        Words(
            "holds, at_risk (only with a node lost), breached, or unknown: nothing is known of the latency of a query "
            "(`unknown`), or it holds by stimulus time, and nobody knows how much higher latencies end under the "
            "policies of the nodes."
        ),
    ]
    worst_s: Annotated[
        float | None, Words("Mace, all nodes up; null if not all can be placed or some query never catches up.")
    ]
    share: Annotated[
        float | None,
        Words("Largest latency over what its objective leaves; null where a query with one never catches up."),
    ]
    queries: Annotated[
        dict[str, float | None], Words("Seconds by query, all nodes up; null for one that never catches up.")
    ]
    late: Annotated[tuple[str, ...], Words("Queries beyond their objective.")]
    unknown: Annotated[
        tuple[str, ...],
        Words("Queries with an objective of whose latency nothing is known: their figures are the least it can be."),
    ]
    endless: Annotated[
        tuple[str, ...],
        Words("Queries that never catch up, with an objective or without: a server gets more than its capacity."),
    ]
    lost_s: Annotated[float | None, Words("Mace with the node lost that hurts most.")]
    lost_share: float | None
    lost_node: str
    lost_late: tuple[str, ...]
    lost_endless: tuple[str, ...]
    stuck: Annotated[str, Words("What fits nowhere, if something does not.")]
    is_now: Unwritten[bool] = False

    @property
    def holds(self) -> bool:
        """Whether it keeps every objective, under the policies of the nodes or, where unproven, by stimulus time."""
        return self.state in (HOLDS, UNPROVEN) and not self.unknown


class BenchSweep:
    """The sizes of a sweep against the objectives asked for.

    Parameters
    ----------
    now : int
        Number of nodes now.
    sizes : sequence of PoolSize
    objectives : mapping
        By query, as asked.
    lose_one : bool
        Whether objectives are to hold with one node lost, too.
    is_unproven : bool
        Whether the figures are of stimulus time and nobody knows how much higher they end under the nodes' policies.
    unknown : sequence of str
        Queries with an objective of whose latency nothing is known, whatever the number of nodes.
    """

    def __init__(
        self,
        now: int,
        sizes: Sequence[PoolSize],
        objectives: Mapping[str, BenchObjective],
        lose_one: bool,
        is_unproven: bool = False,
        unknown: Sequence[str] = (),
    ) -> None:
        self.now, self.objectives, self.lose_one = now, dict(objectives), lose_one
        self.is_unproven, self.unknown = is_unproven, tuple(unknown)
        self.sizes = [self._size(size) for size in sizes]

    def _size(self, size: PoolSize) -> BenchSize:
        lost = size.lost
        stuck = f"{size.stuck} fits no node" if size.stuck else ""
        state = BREAKS if size.stuck or size.late else HOLDS
        if state == HOLDS and lost is not None and self.lose_one:
            if lost.stuck:
                stuck = f"{lost.stuck.operator} fits nowhere once {lost.stuck.node} is lost"
            state = FRAGILE if lost.stuck or lost.late else HOLDS
        if state == HOLDS and (self.is_unproven or self.unknown):
            state = UNPROVEN
        return BenchSize(
            nodes=size.nodes,
            cost_per_hour=size.cost_per_hour,
            worst_s=_known(size.worst_s),
            share=_known(size.over_bound) if self.objectives else None,
            queries={query: _known(value) for query, value in size.queries.items()},
            late=size.late,
            unknown=self.unknown,
            endless=size.endless,
            lost_s=_known(lost.worst_s) if lost else None,
            lost_share=_known(lost.over_bound) if lost and self.objectives else None,
            lost_node=(lost.node if lost else None) or "",
            lost_late=lost.late if lost else (),
            lost_endless=lost.endless if lost else (),
            stuck=stuck,
            state=state,
            is_now=size.nodes == self.now,
        )

    def at(self, nodes: int | None) -> BenchSize | None:
        """The size of that many nodes, if it was looked at."""
        return next((size for size in self.sizes if size.nodes == nodes), None)

    @cached_property
    def smallest(self) -> BenchSize | None:
        """The smallest number of nodes that keeps every objective."""
        return next((size for size in self.sizes if size.holds), None)

    def before(self, size: BenchSize) -> BenchSize | None:
        """The next smaller number that was looked at."""
        smaller = [other for other in self.sizes if other.nodes < size.nodes]
        return smaller[-1] if smaller else None

    @cached_property
    def bound_s(self) -> float | None:
        """The one worst case that all queries are to keep; None where objectives differ, or are no worst cases."""
        bounds = {(objective.statistic, objective.bound_s) for objective in self.objectives.values()}
        statistic, bound_s = next(iter(bounds), ("", None))
        return bound_s if len(bounds) == 1 and statistic == "worst" else None


@dataclass(frozen=True)
class BenchFigures(Record):
    """Worst cases by number of nodes."""

    TITLE: ClassVar[str] = "figures of the bench"

    snapshot: str
    basis: Annotated[str, Words("What the numbers rest on, and how a forecast's pool sizes differ.")]
    now: Annotated[int, Words("Number of nodes now.")]
    smallest: Annotated[int | None, Words("Fewest nodes that keep every objective, if only by stimulus time.")]
    lacking: Annotated[str, Words("What the figures lack where nodes run other policies than stimulus time.")]
    sizes: tuple[BenchSize, ...]


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


@dataclass(frozen=True)
class BenchQuestion:
    """Question to a bench: a snapshot with the inputs applied.

    Attributes
    ----------
    deployment : Deployment
        What runs, with the objectives that the inputs ask for, less the headroom, and by stimulus time: a bound is
        divided by the factor of the nodes' policies where one is known.
    objectives : mapping
        The same as people see them.
    like : str, Node or None
        What further nodes are like.
    is_sketch : bool
        Whether the snapshot is a sketch, which a job's answer is asked with.
    """

    snapshot: Snapshot
    inputs: Inputs
    deployment: Deployment
    objectives: Mapping[str, BenchObjective]
    like: str | Node | None
    gap: PolicyGap | None = None
    is_sketch: bool = False

    @property
    def is_unproven(self) -> bool:
        """Whether nobody knows how much higher the figures end under the policies of the nodes."""
        return self.gap is not None and self.gap.factor is None

    @cached_property
    def unknown(self) -> dict[str, str]:
        """Queries with an objective of whose latency nothing is known, and why."""
        deployment = self.snapshot.deployment
        grounds = {query: unknown_grounds(deployment, query) for query in self.objectives}
        return {query: str(reason) for query, reason in grounds.items() if reason is not None}

    @property
    def waiting(self) -> list[str]:
        """Queries for which events wait now; a number of nodes is for what comes, and leaves those out."""
        found = self.snapshot.deployment.backlogs
        return sorted({backlog.query for backlog in found if backlog.waits and backlog.query})

    @property
    def lacking(self) -> str:
        """Sentence on what the figures lack under the policies of the nodes; empty where they lack nothing."""
        if self.gap is None:
            return ""
        words = str(self.gap.words(None))
        taken = "which objectives are divided by" if self.gap.factor is not None else "so a person decides"
        return f"{words[0].upper()}{words[1:]}, {taken}."

    @property
    def key(self) -> str:
        """Key of the bench that answers it: what runs, what nodes cost, and the objectives."""
        bounds = sorted((entry.query, entry.statistic, entry.bound_s) for entry in self.deployment.objectives)
        prices = [(node.id, node.price_per_hour) for node in self.deployment.nodes]
        return f"{self.snapshot.digest}:{hashlib.sha256(repr((bounds, prices)).encode()).hexdigest()}"

    @property
    def now(self) -> int:
        return len(self.deployment.nodes)

    @property
    def basis(self) -> str:
        """Basis of its number of nodes, and that of the forecast's, which is another question."""
        horizon = duration_words(self.deployment.subinterval_s * self.deployment.subintervals)
        load = f"the load of the estimate's {horizon}" if self.inputs.is_now else f"the load asked for, over {horizon}"
        lost = "with any one node lost" if self.inputs.lose_one else "with all nodes up"
        return (
            f"For {load}, with mean costs, {lost}: the fewest nodes that keep every objective. A forecast's number is "
            "for the loads of the coming weeks, with random costs and all nodes up: what costs least to regret."
            f"{self.lacking and ' '}{self.lacking}"
        )

    @property
    def is_quick(self) -> bool:
        return not self.is_sketch and is_quick(self.deployment)

    @property
    def model(self) -> Node | None:
        """Template of further nodes, where none of that kind exists yet."""
        return self.like if isinstance(self.like, Node) else None

    def bench(self, patience_s: float) -> SharedBench | None:
        """The bench kept for it; None while it is prepared."""
        return BENCHES.ask(self.key, self.deployment, self.snapshot.closed_nodes, patience_s)

    def answered_by(self, bench: SharedBench, sizes: Sequence[int] | None = None) -> BenchSweep:
        """The answer of a bench that is ready."""
        counts = sizes or sweep_sizes(self.deployment, self.inputs)
        answer = bench.sweep(self.inputs.factors(self.deployment), counts, self.like)
        return self.read(answer)

    def read(self, sizes: Sequence[PoolSize]) -> BenchSweep:
        """Sizes against the objectives asked for."""
        return BenchSweep(self.now, sizes, self.objectives, self.inputs.lose_one, self.is_unproven, list(self.unknown))

    def changes(self, nodes: int) -> list[dict[str, object]]:
        """The same with so many nodes, as changes of a scenario."""
        return self.inputs.changes(self.snapshot.deployment, nodes, self.model)


def bench_snapshot(cluster: Cluster) -> tuple[Snapshot, bool]:
    """Snapshot that a question is made of, or a sketch of a cluster whose answers are a job's; whether it is one."""
    if is_large(cluster):
        operators = Operator.objects.filter(version__running_as__cluster=cluster).count()
        cores = cluster.nodes.aggregate(cores=Sum("cores", default=0))["cores"]
        if not is_quick_size(operators, cluster.slices, cores):
            return cluster_sketch(cluster), True
    return cluster_snapshot(cluster), False


def bench_question(
    cluster: Cluster, inputs: Inputs, snapshot: Snapshot | None = None, *, is_sketch: bool = False
) -> BenchQuestion:
    """Question about the present cluster.

    Raises
    ------
    Malformed
        A source or pool that is not there, or a headroom that leaves nothing of an objective.
    """
    if snapshot is None:
        snapshot, is_sketch = bench_snapshot(cluster)
    deployment = snapshot.deployment
    like = _like(cluster, deployment, inputs.pool)
    faults = [*_source_faults(deployment, inputs), *_headroom_faults(deployment, inputs)]
    if inputs.pool and like is None:
        pools = ", ".join(cluster.pools.values_list("name", flat=True)) or "none"
        faults.append(Fault("options.pool", f"pool is {inputs.pool!r}; allowed: {pools}"))
    if faults:
        raise Malformed(f"The options have {fault_count(faults)}; first: {faults[0].message}", faults)
    asked = {
        objective.query: BenchObjective(objective.statistic, objective.bound_s, objective.bound_s - inputs.headroom_s)
        for objective in inputs.objectives(deployment)
    }
    statistics = {objective.statistic for objective in asked.values()}
    gap = any_placement_gap(deployment.nodes, deployment.scheduling, statistics)
    factor = 1.0 if gap is None or gap.factor is None else gap.factor
    limits = tuple(
        EngineObjective(query, objective.statistic, objective.limit_s / factor) for query, objective in asked.items()
    )
    return BenchQuestion(snapshot, inputs, replace(deployment, objectives=limits), asked, like, gap, is_sketch)


def bench_sweep(cluster: Cluster, inputs: Inputs, *, patience_s: float = 0.0) -> tuple[BenchQuestion, BenchSweep]:
    """Answer in this process, by Mace alone.

    Raises
    ------
    Malformed
        As of `bench_question`.
    Impossible
        No nodes, nothing running, or the cluster is too large for an answer in about a second.
    Unavailable
        The bench is still being prepared after `patience_s`.
    """
    question = bench_question(cluster, inputs)
    if not question.deployment.nodes:
        raise Impossible(f"Cluster {cluster.slug} has no nodes.", [("cluster", f"{cluster.slug} has no nodes")])
    if not question.deployment.operators:
        raise Impossible(f"Nothing runs in {cluster.slug}.", [("cluster", f"{cluster.slug} runs no query")])
    if not question.is_quick:
        message = f"{cluster.slug} is too large for an answer at once; ask a what-if with find=sweep"
        raise Impossible(f"{message}, which a job answers.", [("cluster", message)], code="too_large")
    bench = BENCHES.require(question.key, question.deployment, question.snapshot.closed_nodes, patience_s)
    return question, question.answered_by(bench, inputs.sizes)


def _like(cluster: Cluster, deployment: Deployment, pool: str) -> str | Node | None:
    """The last node of the pool; of a pool without nodes, one as it would be."""
    chosen = resized_pool(deployment, pool)
    if not pool or chosen == pool:
        return next((node.id for node in reversed(deployment.nodes) if node.pool == chosen), None)
    row = cluster.pools.filter(name=pool).first()
    if row is None:
        return None
    price = None if row.price_per_hour is None else float(row.price_per_hour)
    memory = None if row.memory_bytes is None else float(row.memory_bytes)
    return Node(
        f"like {row.name}",
        row.capacity_cps,
        cores=row.cores,
        pool=row.name,
        price_per_hour=price,
        memory_bytes=memory,
        cycle_unit=row.cycle_unit,
        cycles_per_ns=row.cycles_per_ns,
    )


def _source_faults(deployment: Deployment, inputs: Inputs) -> list[Fault]:
    source_ids = [source.id for source in deployment.sources]
    return [
        Fault(
            f"options.sources.{name}",
            f"{name!r} is no source that is read"
            + (suggestion(name, source_ids) or f"; allowed: {', '.join(source_ids[:8]) or 'none'}"),
        )
        for name in inputs.sources
        if name not in source_ids
    ]


def _headroom_faults(deployment: Deployment, inputs: Inputs) -> list[Fault]:
    tightest = min((objective.bound_s for objective in inputs.objectives(deployment)), default=None)
    if tightest is None or inputs.headroom_s < tightest:
        return []
    allowed = f"less than {tightest:g}, the tightest objective in seconds"
    return [Fault("options.headroom_s", f"headroom_s is {inputs.headroom_s:g}; allowed: {allowed}")]
