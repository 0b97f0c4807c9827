"""Deployment: a frozen, validated, array-backed picture of nodes, links, sources, operators and placement.

Every model of the engine takes it. Database snapshots and JSON documents turn into it at the edge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.arrays import FloatArray, IntArray, frozen_array
from engine.document.backlog import InputBacklog, list_backlogs, settle_backlogs, strip_backlogs
from engine.document.checks import DeploymentParts, check_parts, check_replicas, find_excessive_rates
from engine.document.cycles import forbid_other_units
from engine.document.elements import (
    Batch,
    Combine,
    Constraints,
    DeploymentContent,
    Evidence,
    Input,
    InputModel,
    Link,
    MicroBatchTrigger,
    Node,
    Objective,
    Operator,
    Replica,
    Server,
    Source,
    Window,
    coarsen_node,
    coarsen_operator,
    coarsen_source,
)
from engine.document.export import canonical_text, to_document
from engine.document.policies import other_policies
from engine.document.reader import json_schema, read_deployment
from engine.document.topology import (
    DataflowGraph,
    PlacementLayout,
    capacities_of,
    closures_of,
    graph_of,
    layout_of,
    order_of,
    servers_of,
)
from engine.errors import DocumentError, Fault
from engine.kinds import NumberSeries

__all__ = [
    "Batch",
    "Combine",
    "Constraints",
    "Deployment",
    "Evidence",
    "Input",
    "InputModel",
    "Link",
    "MicroBatchTrigger",
    "Node",
    "Objective",
    "Operator",
    "Replica",
    "Server",
    "Source",
    "Window",
    "json_schema",
    "private_name",
    "rename_inputs",
    "with_node_like",
]


_NAMES = "operator_index", "source_index", "node_index", "queries", "query_index", "_operators_by_query", "backlogs"
_OF_THE_WHOLE = ("oldest_backlog_s", "has_models", "has_series", "source_count")  # a part keeps them


@dataclass(frozen=True, eq=False)
class Deployment(DeploymentContent):
    """A deployment: what runs where, and what arrives.

    Build one with `Deployment.parse`, or derive it from another with the
    ``with_`` methods, which check what they change; the constructor itself checks nothing.

    Examples
    --------
    >>> small = Deployment.parse({
    ...     "subinterval_s": 1.0,
    ...     "sources": [{"id": "s", "arrivals": [10, 30]}],
    ...     "nodes": [{"id": "n", "capacity_cps": 100.0}],
    ...     "operators": [{"id": "f", "node": "n",
    ...                    "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 5}]}]})
    >>> small.subintervals, [server.name for server in small.servers]
    (2, ['n'])
    """

    def __post_init__(self) -> None:
        # Whatever is derived from a deployment (more nodes, a query that joins) keeps units apart as well.
        limits = forbid_other_units(self.constraints, self.operators, self.nodes)
        object.__setattr__(self, "constraints", limits)

    @classmethod
    def parse(cls, document: Any, *, placed: bool = True) -> Deployment:
        """Read a deployment document; numpy arrays may stand where lists of numbers belong.

        Without `placed`, operators may lack a node (a placement is still to be found).

        Raises
        ------
        DocumentError
            With every fault of the document, each with its path.
        """
        return cls(**read_deployment(document, placed=placed))

    def to_document(self) -> dict[str, object]:
        """The document that parses back to this deployment; series become lists of floats."""
        return to_document(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical content."""
        return hashlib.sha256(canonical_text(self).encode()).hexdigest()

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Topological order of the operators as indices; the listing order breaks ties."""
        return tuple(order_of(self.operators)[0])

    @cached_property
    def servers(self) -> tuple[Server, ...]:
        """Cores of the nodes in listing order, then the links that have a bandwidth."""
        return servers_of(self.nodes, self.links)

    @cached_property
    def queries(self) -> tuple[str, ...]:
        """The queries of the operators, in the order in which they appear."""
        return tuple(dict.fromkeys(operator.query for operator in self.operators if operator.query))

    @cached_property
    def queries_by_node(self) -> dict[str, set[str]]:
        """Queries with an operator on each node that is used."""
        found: dict[str, set[str]] = {}
        for operator in self.operators:
            if operator.query:
                for replica in operator.replicas:
                    found.setdefault(replica.node, set()).add(operator.query)
        return found

    def operators_of(self, query: str) -> tuple[int, ...]:
        """Indices of the operators of `query`."""
        return self._operators_by_query.get(query, ())

    @cached_property
    def _operators_by_query(self) -> dict[str | None, tuple[int, ...]]:
        found: dict[str | None, list[int]] = {}
        for i, operator in enumerate(self.operators):
            found.setdefault(operator.query, []).append(i)
        return {query: tuple(indices) for query, indices in found.items()}

    @cached_property
    def query_index(self) -> dict[str, int]:
        """Position of every query by its name."""
        return {query: i for i, query in enumerate(self.queries)}

    @cached_property
    def operator_index(self) -> dict[str, int]:
        """Position of every operator by its id."""
        return {operator.id: i for i, operator in enumerate(self.operators)}

    @cached_property
    def source_index(self) -> dict[str, int]:
        """Position of every source by its id."""
        return {source.id: i for i, source in enumerate(self.sources)}

    def with_above(self, streams: Iterable[str]) -> tuple[list[Source], list[Operator]]:
        """Sources and operators of some names with all that is above them, in their order; other names are left out."""
        found, todo = set[str](), list(streams)
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                i = self.operator_index.get(name)
                todo += [] if i is None else [entry.source for entry in self.operators[i].inputs]
        sources = sorted(self.source_index[name] for name in found & self.source_index.keys())
        operators = sorted(self.operator_index[name] for name in found & self.operator_index.keys())
        return [self.sources[i] for i in sources], [self.operators[i] for i in operators]

    @cached_property
    def node_index(self) -> dict[str, int]:
        """Position of every node by its id."""
        return {node.id: i for i, node in enumerate(self.nodes)}

    @cached_property
    def other_policies(self) -> dict[str, str]:
        """Policy of each node that operators are on and that is not scheduled by stimulus time, in listing order."""
        return other_policies(self.nodes, self.operators, self.scheduling)

    def objective_of(self, query: str) -> Objective | None:
        """The latency objective of `query`, if it has one."""
        return self._objectives_by_query.get(query)

    @cached_property
    def _objectives_by_query(self) -> dict[str, Objective]:
        return {objective.query: objective for objective in reversed(self.objectives)}

    @cached_property
    def backlogs(self) -> tuple[InputBacklog, ...]:
        """Backlogs of inputs where the horizon begins, of whatever standing; empty where nothing waits."""
        return list_backlogs(self)

    @cached_property
    def oldest_backlog_s(self) -> float | None:
        """Largest age of what waits where the horizon begins, 0 where none is stated; None where nothing waits."""
        return max((found.behind_s or 0.0 for found in self.backlogs if found.waits), default=None)

    def without_backlogs(self) -> Deployment:
        """The same deployment with nothing waiting, of a horizon that does not begin now."""
        names = (name for name in _OF_THE_WHOLE if name != "oldest_backlog_s")
        stripped = strip_backlogs(self)
        if stripped is self and self.oldest_backlog_s is not None:  # a part of a whole in which something waits
            stripped = replace(self)
        return self._inherit(stripped, "other_policies", *names)

    def with_probes(self, operators: tuple[Operator, ...], sources: tuple[Source, ...]) -> Deployment:
        """The same deployment with other rates at some operators, and more sources; a part stays one."""
        names = "has_models", "has_series", "other_policies"
        derived = self._inherit(replace(self, operators=operators, sources=sources), *names)
        derived.__dict__["source_count"] = self.source_count + len(sources) - len(self.sources)
        return derived

    @cached_property
    def arrivals(self) -> FloatArray:
        """Arrivals of all sources, shape (sources, d), events per subinterval."""
        rows = [source.arrivals for source in self.sources]
        return frozen_array(np.vstack(rows) if rows else np.zeros((0, self.subintervals)))

    @cached_property
    def capacities(self) -> FloatArray:
        """Capacity of every server per second: one row if all are constant, else one row per subinterval."""
        return capacities_of(self.nodes, self.links, self.servers, self.subintervals if self.has_series else 1)

    @cached_property
    def has_series(self) -> bool:
        """Whether a capacity varies: all drains are then computed in another way; a part keeps the whole's."""
        return any(node.capacity_series_cps is not None for node in self.nodes)

    @cached_property
    def graph(self) -> DataflowGraph:
        """The dataflow as flat arrays; independent of the placement."""
        return graph_of(self.sources, self.operators, self.order, self.queries, models=self.has_models)

    @cached_property
    def has_models(self) -> bool:
        """Whether an input is not linear: loads are then computed in another way; a part keeps the whole's."""
        return any(entry.model for operator in self.operators for entry in operator.inputs)

    @cached_property
    def source_count(self) -> int:
        """Number of sources, by which loads are computed in one of two ways; a part keeps the whole's."""
        return len(self.sources)

    @cached_property
    def layout(self) -> PlacementLayout:
        """The placement as flat arrays.

        Raises
        ------
        UnplacedError
            If an operator has no node.
        """
        return layout_of(self.nodes, self.operators, self.links, self.servers)

    @cached_property
    def closures(self) -> tuple[IntArray, IntArray]:
        """For each query the replicas at and above its sinks: starts (queries + 1,) and sorted replica numbers."""
        return closures_of(self.graph, self.layout, len(self.sources), len(self.queries))

    def coarsened(self, factor: int) -> Deployment:
        """The same deployment with `factor` subintervals summed into one (an incomplete last one is filled with zeros).

        Capacity series are averaged. A polynomial model is restated for the longer subinterval as if its events were
        spread evenly: k c0 + c1 x + c2 x^2 / k.
        """
        if factor < 1:
            raise ValueError(f"factor is {factor}; allowed: a whole number of at least 1")
        if factor == 1:
            return self
        settled = self.settled()
        derived = replace(
            settled,
            subinterval_s=self.subinterval_s * factor,
            subintervals=-(-self.subintervals // factor),
            sources=tuple(coarsen_source(source, factor) for source in settled.sources),
            nodes=tuple(coarsen_node(node, factor) for node in self.nodes),
            operators=tuple(coarsen_operator(operator, factor) for operator in settled.operators),
        )
        names = "layout", "other_policies", *_OF_THE_WHOLE
        return self._inherit(derived, *names, *([] if self.graph.models else ["graph"]))

    def with_placement(self, placement: Mapping[str, Sequence[Replica]]) -> Deployment:
        """The same deployment with the named operators on other nodes."""
        parts = DeploymentParts(self.subintervals)
        nodes = {node.id: node for node in self.nodes}
        operators = list(self.operators)
        for name, replicas in placement.items():
            i = self.operator_index.get(name)
            if i is None:
                parts.unknown(f"placement.{name}", name, "operator", self.operator_index)
                continue
            operators[i] = replace(operators[i], replicas=tuple(replicas))
            check_replicas(parts, f"operators[{i}]", operators[i], nodes)
        _refuse(parts.faults)
        derived = replace(self, operators=tuple(operators))
        return self._inherit(derived, "graph", "arrivals", "order", "servers", "capacities", *_NAMES, *_OF_THE_WHOLE)

    def placed_at(self, node: str) -> Deployment:
        """The same deployment with every operator that has no place on a node, so that loads can be computed."""
        stand_in = (Replica(node),)
        return self.with_placement({op.id: stand_in for op in self.operators if not op.replicas})

    def with_arrivals(self, arrivals: Mapping[str, object]) -> Deployment:
        """The same deployment with other arrivals at the named sources, each of shape (d,).

        What waits where the horizon begins came at the rates of before.
        """
        parts = DeploymentParts(self.subintervals, self.sources)
        known = {source.id: i for i, source in enumerate(self.sources)}
        settled = self.settled()
        sources, operators = list(settled.sources), settled.operators
        for name, values in arrivals.items():
            read = NumberSeries().read(values, "arrivals", name, parts.faults)
            if name not in known:
                parts.unknown(f"arrivals.{name}", name, "source", known)
            elif isinstance(read, np.ndarray):
                sources[known[name]] = replace(sources[known[name]], arrivals=read)
                if len(read) != self.subintervals:
                    message = f"{name} has {len(read)} numbers; allowed: {self.subintervals}"
                    parts.faults.append(Fault(f"arrivals.{name}", message))
        _refuse(parts.faults or find_excessive_rates(sources, self.nodes, operators, self.subinterval_s))
        derived = replace(self, sources=tuple(sources), operators=operators)
        return self._inherit(derived, "graph", "layout", "order", "servers", "capacities")

    def extended(
        self,
        operators: Iterable[Operator] = (),
        sources: Iterable[Source] = (),
        objectives: Iterable[Objective] = (),
    ) -> Deployment:
        """The same deployment with more operators, sources and objectives."""
        return replace(
            self,
            operators=self.operators + tuple(operators),
            sources=self.sources + tuple(sources),
            objectives=self.objectives + tuple(objectives),
        )._checked()

    def joined(
        self,
        operators: tuple[Operator, ...],
        sources: tuple[Source, ...],
        objective: Objective | None,
        priorities: Mapping[str, int],
        pins: Mapping[str, str],
    ) -> Deployment:
        """The same deployment with a query more, unchecked; what the others were found to have they have still."""
        limits = self.constraints
        derived = replace(
            self,
            operators=self.operators + operators,
            sources=self.sources + sources,
            objectives=self.objectives + ((objective,) if objective else ()),
            priorities={**self.priorities, **priorities},
            constraints=replace(limits, pin={**limits.pin, **pins}) if pins else limits,
        )
        inputs = [entry for operator in operators for entry in operator.inputs]
        read = {entry.source for entry in inputs}
        waiting = (source for source in (*self.sources, *sources) if source.backlog)
        brings_backlog = any(entry.backlog for entry in inputs) or any(source.id in read for source in waiting)
        names = ["servers", "capacities", "has_series", "node_index"]
        names += [] if brings_backlog or self.backlogs else ["backlogs", "oldest_backlog_s"]
        names += [] if any(entry.model for entry in inputs) else ["has_models"]
        _ = self.oldest_backlog_s, self.has_models, self.has_series, self.node_index
        at = len(self.operators)
        derived.__dict__["operator_index"] = self.operator_index | {op.id: at + i for i, op in enumerate(operators)}
        by_query = dict(self._operators_by_query)
        for i, operator in enumerate(operators, start=at):
            by_query[operator.query] = (*by_query.get(operator.query, ()), i)
        derived.__dict__["_operators_by_query"] = by_query
        return self._inherit(derived, *names)

    def with_query_as(
        self, operators: Sequence[Operator], sources: Iterable[Source], objective: Objective | None
    ) -> Deployment:
        """The same deployment with operators of one of its queries as they are given, more sources, and an objective.

        Without an objective that of the query stays. Where nothing differs it is the same object.
        """
        given = {operator.id: operator for operator in operators}
        changed = tuple(given.get(operator.id, operator) for operator in self.operators)
        objectives = tuple(
            objective if objective is not None and was.query == objective.query else was for was in self.objectives
        )
        if all(a is b for a, b in zip(changed, self.operators, strict=True)) and objectives == self.objectives:
            return self
        more = self.sources + tuple(sources)
        return replace(self, operators=changed, sources=more, objectives=objectives)._checked()

    def without_query(self, query: str) -> Deployment:
        """The same deployment without the operators, objective and priority of `query`."""
        gone = {operator.id for operator in self.operators if operator.query == query}
        limits = self.constraints
        constraints = replace(
            limits,
            pin={name: node for name, node in limits.pin.items() if name not in gone},
            forbid={name: nodes for name, nodes in limits.forbid.items() if name not in gone},
            apart=tuple(group for group in limits.apart if not gone & set(group)),
            may_split=None if limits.may_split is None else tuple(n for n in limits.may_split if n not in gone),
        )
        return replace(
            self,
            operators=tuple(operator for operator in self.operators if operator.query != query),
            objectives=tuple(objective for objective in self.objectives if objective.query != query),
            priorities={name: value for name, value in self.priorities.items() if name != query},
            plans={name: value for name, value in self.plans.items() if name != query},
            constraints=constraints,
        )._checked()

    def settled(self) -> Deployment:
        """The same with the events and the age of all that waits, as far as present rates tell them."""
        if not self.backlogs:
            return self
        sources, operators = settle_backlogs(self.sources, self.operators, self.subinterval_s)
        return replace(self, sources=sources, operators=operators)

    def restricted(
        self, kept: Collection[str], *, with_sources: bool = True, nodes: Collection[str] = ()
    ) -> Deployment:
        """Some of the operators, which read no others, and their nodes; ages of what waits stay as in the whole.

        Sources that nobody of them reads stay as well, unless they are not wanted; of nodes some others, by their ids.
        """
        index = self.operator_index
        operators = tuple(self.operators[i] for i in sorted(index[name] for name in kept if name in index))
        queries = {operator.query for operator in operators}
        nodes = {replica.node for operator in operators for replica in operator.replicas} | {*nodes}
        read = {entry.source for operator in operators for entry in operator.inputs}
        part = replace(
            self,
            operators=operators,
            sources=self.sources if with_sources else self._sources_of(read),
            nodes=tuple(node for node in self.nodes if node.id in nodes),
            links=tuple(link for link in self.links if link.source in nodes and link.target in nodes),
            objectives=tuple(objective for objective in self.objectives if objective.query in queries),
            priorities={},
            constraints=Constraints(),
            plans={},
        )
        whole = _OF_THE_WHOLE + (("arrivals",) if with_sources else ())
        part.__dict__.update({name: getattr(self, name) for name in whole})
        if "other_policies" in self.__dict__:
            part.__dict__["other_policies"] = {name: of for name, of in self.other_policies.items() if name in nodes}
        return part

    def _sources_of(self, names: Collection[str]) -> tuple[Source, ...]:
        return tuple(
            self.sources[i] for i in sorted(self.source_index[name] for name in names & self.source_index.keys())
        )

    def _checked(self) -> Deployment:
        parts = DeploymentParts(
            self.subintervals,
            self.sources,
            self.nodes,
            self.operators,
            self.links,
            self.objectives,
            self.priorities,
            self.constraints,
            self.plans,
        )
        check_parts(parts)
        _refuse(parts.faults or find_excessive_rates(self.sources, self.nodes, self.operators, self.subinterval_s))
        return self

    def _inherit(self, derived: Deployment, *names: str) -> Deployment:
        """Hand over derived arrays that the change leaves as they are, where they have been made already."""
        for name in names:
            if name in self.__dict__:
                derived.__dict__[name] = self.__dict__[name]
        return derived


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise DocumentError(faults)


def with_node_like(deployment: Deployment, node: Node, like: str) -> Deployment:
    """One more node, connected as the node it is modelled on is; to that one by the worst of its links."""
    links = [replace(link, source=node.id) for link in deployment.links if link.source == like]
    links += [replace(link, target=node.id) for link in deployment.links if link.target == like]
    if links:
        limits = [link.bandwidth_bytes_s for link in links if link.bandwidth_bytes_s is not None]
        bandwidth, delay_s = min(limits, default=None), max(link.delay_s for link in links)
        links += [Link(a, b, bandwidth, delay_s) for a, b in ((like, node.id), (node.id, like))]
    return replace(deployment, nodes=(*deployment.nodes, node), links=(*deployment.links, *links))


def private_name(name: str, query: str, brought: Collection[str], taken: Collection[str]) -> str:
    """``source@query``, which a source that the query brings (one of `brought`) may be called already."""
    suffix = f"@{query}"
    private = name if name.endswith(suffix) and name in brought else name + suffix
    while private in taken:
        private += suffix
    return private


def rename_inputs(operator: Operator, name_of: Callable[[str], str | None]) -> Operator:
    """The operator with its inputs under other names, where `name_of` has one."""
    inputs = tuple(replace(entry, source=name_of(entry.source) or entry.source) for entry in operator.inputs)
    return replace(operator, inputs=inputs)
