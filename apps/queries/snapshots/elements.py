"""Rows of the database as elements of the engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from apps.fleet.models import Node
from apps.queries.bodies import cost_noise_of, evidence_of, with_operators
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement, Query, QueryVersion
from apps.queries.snapshots.contents import query_content, query_shorts
from engine.arrays import FloatArray, frozen_array
from engine.document import elements
from engine.document.export import operator_document, operator_text

__all__ = [
    "RunningQuery",
    "arrivals_noise",
    "candidate_operator",
    "engine_node",
    "engine_objective",
    "engine_operator",
    "engine_source",
    "event_fields",
    "operator_id",
    "private_arrivals",
    "running_queries",
    "source_name",
    "version_inputs",
]


# Documents are at a quarter of a subinterval, and so are the polynomials of operators with a model.
_SLICE_SHARE = 0.25


def operator_id(query: str, operator: str) -> str:
    """An operator's id in the cluster's documents; a name that has the query's prefix already stays as it is."""
    return operator if operator.startswith(f"{query}/") else f"{query}/{operator}"


def version_inputs(version: QueryVersion) -> Iterable[OperatorInput]:
    """Every input of a version with fetched operators."""
    return (entry for row in version.operators.all() for entry in row.inputs.all())


def engine_node(node: Node) -> elements.Node:
    price = node.pool.price_per_hour
    return elements.Node(
        node.name,
        capacity_cps=node.capacity_cps,
        cores=node.cores,
        pool=node.pool.name,
        price_per_hour=None if price is None else float(price),
        memory_bytes=None if node.memory_for_state is None else float(node.memory_for_state),
        labels=node.all_labels,
        cycle_unit=node.cycle_unit,
        cycles_per_ns=node.cycles_per_ns,
    )


def engine_objective(query: Query) -> elements.Objective:
    return elements.Objective(query.name, query.objective_statistic, float(query.objective_bound_s or 0))


def source_name(source: str, query: str, private: bool) -> str:
    """Source that a query reads: the source itself, or its private copy `source@query`."""
    return f"{source}@{query}" if private else source


def private_arrivals(values: FloatArray, rate_share: float) -> FloatArray:
    """A query's share of a source's events per slice."""
    return frozen_array(values * rate_share)


def event_fields(row: ArrivalSeries) -> elements.EventFields | None:
    """Fields of a source's events, where they are stated."""
    return elements.EventFields(**row.event_fields) if row.event_fields else None


def engine_source(row: ArrivalSeries, values: FloatArray, name: str) -> elements.Source:
    """A source with a row's facts, under a name of its own and with a query's share of its arrivals."""
    return elements.Source(name, values, event_fields(row), **arrivals_noise(row))


def arrivals_noise(row: ArrivalSeries) -> dict[str, float | None]:
    """Step and dispersion of a source's arrivals, as fields of a source in a document."""
    return {
        "arrivals_step_s": row.step_s,
        "dispersion": row.dispersion,
        "dispersion_step_s": row.dispersion_step_s,
    }


def engine_operator(
    query: str,
    row: Operator,
    replicas: tuple[elements.Replica, ...],
    private: bool,
    inputs: Sequence[OperatorInput] | None = None,
) -> elements.Operator:
    """An operator with its inputs: those of its row unless others are given, of one that is in no table any more."""
    inputs = list(row.inputs.all()) if inputs is None else inputs
    evidence, extra = evidence_of(inputs), row.extra
    return elements.Operator(
        id=operator_id(query, row.name),
        replicas=replicas,
        inputs=tuple(_engine_input(query, entry, private) for entry in inputs),
        bytes_per_event=row.bytes_per_event,
        stateless=row.stateless,
        query=query,
        kind=row.kind,
        filter=elements.FilterFeatures(**extra["filter"]) if extra.get("filter") else None,
        join=elements.JoinFeatures(**extra["join"]) if extra.get("join") else None,
        aggregate=elements.AggregateFeatures(**extra["aggregate"]) if extra.get("aggregate") else None,
        window=elements.Window(**extra["window"]) if extra.get("window") else None,
        trigger=elements.MicroBatchTrigger(**extra["trigger"]) if extra.get("trigger") else None,
        checkpoint=_checkpoint(extra.get("checkpoint")),
        buffer_timeout_s=extra.get("buffer_timeout_s"),
        keyed=extra.get("keyed"),
        waits_outside=extra.get("waits_outside"),
        state_bytes=extra.get("state_bytes"),
        state_on_disk=extra.get("state_on_disk"),
        tuple_values_in=extra.get("tuple_values_in"),
        tuple_values_out=extra.get("tuple_values_out"),
        # Without its age: the engine decides by kind and events, and a snapshot must not change with the clock alone.
        evidence=elements.Evidence(evidence["kind"], float(evidence["events"]), cycle_unit=evidence.get("cycle_unit")),
        reads=_names(extra.get("reads")),
        writes=_names(extra.get("writes")),
        expression=extra.get("expression"),
        unread=_names(extra.get("unread")),
        measured_s=extra.get("measured_s"),
        cost_by=extra.get("cost_by"),
        quiet_share=extra.get("quiet_share"),
        marginal_cost=elements.MarginalCost(**extra["marginal_cost"]) if extra.get("marginal_cost") else None,
    )


def _checkpoint(stored: Mapping[str, Any] | None) -> elements.OperatorCheckpoint | None:
    """Checkpoints of an operator; spreads are kept as lists."""
    if not stored:
        return None
    return elements.OperatorCheckpoint(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    )


def _names(listed: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(listed)


def _engine_input(query: str, entry: OperatorInput, private: bool) -> elements.Input:
    model = _model_of_slice(entry.model) if entry.model else None
    return elements.Input(
        source=_input_name(query, entry, private),
        selectivity=entry.selectivity,
        cycles_per_event=entry.cycles_per_event or 0.0,
        never_ran=entry.cycles_per_event is None,
        model=elements.InputModel(tuple(model["output"]), tuple(model["cycles"])) if model else None,
        batches=tuple(elements.Batch(**batch) for batch in entry.batches),
        **cost_noise_of(entry),
    )


def _input_name(query: str, entry: OperatorInput, private: bool) -> str:
    if entry.upstream:
        return operator_id(query, entry.upstream.name)
    return source_name(entry.source_id, query, private)


def _model_of_slice(model: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Polynomials in the events of a subinterval, restated for a slice whose events are a quarter of them."""
    return {
        name: [c0 * _SLICE_SHARE, c1, c2 / _SLICE_SHARE]
        for name, (c0, c1, c2) in ((name, model[name]) for name in ("output", "cycles"))
    }


def candidate_operator(query: str, row: Operator, asked: Any, private: bool) -> dict[str, object]:
    """An operator as it stands in the document of a candidate, with the places that were asked for."""
    operator = replace(engine_operator(query, row, (), private), query=None)
    return operator_document(operator) | _where(asked if asked is not None else row.requested)


def _where(asked: Any) -> dict[str, Any]:
    """A node's name, one replica or several, as an operator of a document says it."""
    if not asked:
        return {}
    if isinstance(asked, str):
        return {"node": asked}
    replicas = [asked] if isinstance(asked, Mapping) else list(asked)
    if len(replicas) == 1 and replicas[0].get("fraction", 1.0) == 1.0:
        return {"node": replicas[0]["node"], "core": replicas[0].get("core", 0)}
    return {"split": [dict(replica) for replica in replicas]}


_Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class RunningQuery:
    """A running query: its operators in their places, the sources it reads, and short words for its content.

    `first_placed` is the key of its first replica on the nodes that are there.
    """

    query: Query
    operators: tuple[elements.Operator, ...]
    reads: tuple[str, ...]
    shorts: Mapping[str, str]
    first_placed: float

    @cached_property
    def content(self) -> str:
        """Identity of its content."""
        return query_content(self.query, self.shorts)

    @cached_property
    def compared(self) -> tuple[Any, ...]:
        """All that a snapshot has of it."""
        texts = [operator_text(operator) for operator in self.operators]
        return self.query.name, self.content, self.query.backlogs, texts, self.reads, self.first_placed, self.engine

    @cached_property
    def engine(self) -> str | None:
        """Engine that it was imported from, where its row was read with it."""
        engine: str | None = getattr(self.query, "engine", None)
        return engine

    @cached_property
    def never_ran(self) -> bool:
        """Whether the cost of one of its operators is not known."""
        return any(operator.never_ran for operator in self.operators)


def running_queries(queries: Sequence[Query], nodes: Mapping[int, str]) -> dict[int, RunningQuery]:
    """Running queries by their keys.

    Parameters
    ----------
    queries : sequence of Query
        All with a running version.
    nodes : mapping
        Names of the nodes that are there, by primary key; replicas elsewhere do not count.
    """
    running: dict[int, RunningQuery] = {}
    for i in range(0, len(queries), _AT_ONCE):
        running |= _read_running({query.running_version_id: query for query in queries[i : i + _AT_ONCE]}, nodes)
    return running


_AT_ONCE = 1000  # queries; databases take some ten thousand parameters in a statement


def _read_running(by_version: Mapping[int | None, Query], nodes: Mapping[int, str]) -> dict[int, RunningQuery]:
    placed: dict[int, list[elements.Replica]] = {}
    first: dict[int | None, int] = {}
    rows = Placement.objects.filter(operator__version__in=by_version).order_by("pk")
    for pk, version, operator, node, core, fraction in rows.values_list(
        "pk", "operator__version_id", "operator_id", "node_id", "core", "fraction"
    ):
        if node in nodes:
            placed.setdefault(operator, []).append(elements.Replica(nodes[node], core, fraction))
            first.setdefault(version, pk)
    running = {}
    for version in with_operators(QueryVersion.objects.filter(pk__in=by_version)):
        query = by_version[version.pk]
        operators = list(version.operators.all())
        replicas = [tuple(placed.get(row.pk, ())) for row in operators]
        running[query.pk] = RunningQuery(
            query,
            tuple(
                engine_operator(query.name, row, where, query.reads_privately)
                for row, where in zip(operators, replicas, strict=True)
            ),
            tuple(dict.fromkeys(entry.source_id for entry in version_inputs(version) if entry.source_id)),
            query_shorts(version, replicas),
            first.get(version.pk, math.inf),
        )
    return running
