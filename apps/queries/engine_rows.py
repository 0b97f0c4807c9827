"""Rows of the database as elements of the engine, and as operators of a candidate's document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from apps.fleet.models import Node
from apps.queries.bodies import evidence_of
from apps.queries.models import Operator, OperatorInput, Query, QueryVersion
from engine import elements
from engine.elements import FloatArray, frozen_array

__all__ = [
    "candidate_operator",
    "engine_node",
    "engine_objective",
    "engine_operator",
    "engine_sources",
    "inputs_of",
    "operator_id",
    "private_arrivals",
    "source_name",
]

# Documents are at a quarter of a subinterval, and so are the polynomials of operators with a model.
_SLICE_SHARE = 0.25


def operator_id(query: str, operator: str) -> str:
    """An operator's id in the cluster's documents; a name that has the query's prefix already stays as it is."""
    return operator if operator.startswith(f"{query}/") else f"{query}/{operator}"


def inputs_of(version: QueryVersion) -> Iterable[OperatorInput]:
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
        memory_bytes=None if node.pool.memory_bytes is None else float(node.pool.memory_bytes),
        labels={**node.pool.labels, **node.labels},
    )


def engine_objective(query: Query) -> elements.Objective:
    return elements.Objective(query.name, query.objective_statistic, float(query.objective_bound_s or 0))


def source_name(source: str, query: str, private: bool) -> str:
    """What a query reads: the source itself, or its private copy `source@query`."""
    return f"{source}@{query}" if private else source


def private_arrivals(values: FloatArray, *, rate_share: float, start_s: float, slice_s: float) -> FloatArray:
    """A query's share of a source's events per slice; nothing before its start."""
    late = np.arange(len(values)) * slice_s < start_s - 1e-9 * slice_s
    return frozen_array(np.where(late, 0.0, values * rate_share))


def engine_sources(
    queries: Sequence[Query], reads: Mapping[int, Iterable[str]], arrays: Mapping[str, FloatArray]
) -> tuple[elements.Source, ...]:
    """Each source once in its original, and once for every query that has a share of it.

    `reads` are the sources that each running version reads.
    """
    found: dict[str, elements.Source] = {}
    for query in queries:
        for source in reads[query.running_version_id]:
            name = source_name(source, query.name, query.reads_privately)
            if name not in found:
                values = arrays[source]
                if query.reads_privately:
                    share, slice_s = query.rate_share, query.cluster.slice_s
                    values = private_arrivals(values, rate_share=share, start_s=query.start_s, slice_s=slice_s)
                found[name] = elements.Source(name, values)
    return tuple(found[name] for name in sorted(found))


def engine_operator(
    query: str, row: Operator, replicas: tuple[elements.Replica, ...], private: bool
) -> elements.Operator:
    inputs = list(row.inputs.all())
    evidence, extra = evidence_of(inputs), row.extra
    return elements.Operator(
        id=operator_id(query, row.name),
        replicas=replicas,
        inputs=tuple(_engine_input(query, entry, private) for entry in inputs),
        bytes_per_event=row.bytes_per_event,
        stateless=row.stateless,
        query=query,
        kind=row.kind,
        window=elements.Window(**extra["window"]) if extra.get("window") else None,
        state_bytes=extra.get("state_bytes"),
        tuple_values_in=extra.get("tuple_values_in"),
        tuple_values_out=extra.get("tuple_values_out"),
        # Without its age: the engine decides by kind and events, and a snapshot must not change with the clock alone.
        evidence=elements.Evidence(evidence["kind"], float(evidence["events"])),
        reads=_names(extra.get("reads")),
        writes=_names(extra.get("writes")),
        expression=extra.get("expression"),
    )


def _names(listed: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(listed)


def _engine_input(query: str, entry: OperatorInput, private: bool) -> elements.Input:
    model = _model_of_slice(entry.model) if entry.model else None
    return elements.Input(
        source=_input_name(query, entry, private),
        selectivity=entry.selectivity,
        cycles_per_event=entry.cycles_per_event,
        model=elements.InputModel(tuple(model["output"]), tuple(model["cycles"])) if model else None,
        batches=tuple(elements.Batch(**batch) for batch in entry.batches),
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


def candidate_operator(query: str, row: Operator, asked: Any, private: bool) -> dict[str, Any]:
    inputs = list(row.inputs.all())
    evidence = evidence_of(inputs)
    body: dict[str, Any] = {
        "id": operator_id(query, row.name),
        "kind": row.kind,
        "bytes_per_event": row.bytes_per_event,
        "stateless": row.stateless,
        "evidence": {"kind": evidence["kind"], "events": evidence["events"]},
        "inputs": [_candidate_input(query, entry, private) for entry in inputs],
    }
    return body | row.extra | _where(asked if asked is not None else row.requested)


def _candidate_input(query: str, entry: OperatorInput, private: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"from": _input_name(query, entry, private)}
    body |= {"selectivity": entry.selectivity, "cycles_per_event": entry.cycles_per_event}
    if entry.model:
        body["model"] = _model_of_slice(entry.model)
    return body | ({"batches": entry.batches} if entry.batches else {})


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
