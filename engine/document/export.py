"""Export of a deployment: its document, and the canonical form that its digest is made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.arrays import FloatArray
from engine.document.cycles import NOMINAL
from engine.document.elements import (
    SAMPLE,
    STATED,
    Backlog,
    Constraints,
    DeploymentContent,
    Input,
    Link,
    Node,
    Operator,
    Source,
)
from engine.document.kinds import FORMAT, VERSION
from engine.query_graph.graph import NOMINAL_PROCESSOR
from engine.records import Record

__all__ = ["backlog_document", "canonical_text", "operator_document", "operator_text", "to_document"]

SeriesWriter = Callable[[FloatArray], Any]
_TEXT = "_canonical_text"  # attribute of an operator or a source


def to_document(deployment: DeploymentContent) -> dict[str, object]:
    """The document that parses back to `deployment`."""
    return _document(deployment, lambda series: series.tolist())


def canonical_text(deployment: DeploymentContent) -> str:
    """The document as JSON, every series replaced by the SHA-256 of its little-endian float64 bytes.

    Of a backlog the age is left out, and a stale one altogether: a content does not change with the clock alone. Texts
    of operators and sources are kept with these, which deployments share and nobody changes.
    """
    ageless = _ageless(deployment)
    document = _document(replace(ageless, sources=(), operators=()), _series_digest)
    texts = {name: _json(value) for name, value in document.items()}
    texts["operators"] = f"[{','.join(map(operator_text, ageless.operators))}]"
    texts["sources"] = f"[{','.join(_kept_text(source, _source_digested) for source in ageless.sources)}]"
    return "{" + ",".join(f"{_json(name)}:{texts[name]}" for name in sorted(texts)) + "}"


def operator_text(operator: Operator) -> str:
    """An operator as it stands in a canonical text."""
    return _kept_text(operator, operator_document)


def _kept_text(element: Any, write: Callable[[Any], object]) -> str:
    """JSON of an element, which never changes."""
    kept: dict[str, str] = vars(element)
    if _TEXT not in kept:
        kept[_TEXT] = _json(write(element))
    return kept[_TEXT]


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _source_digested(source: Source) -> dict[str, object]:
    return _source(source, _series_digest)


def _series_digest(series: FloatArray) -> str:
    return hashlib.sha256(series.astype("<f8").tobytes()).hexdigest()


def _ageless(deployment: DeploymentContent) -> DeploymentContent:
    """The deployment with backlogs that have no age; those that are too old are no longer there."""

    def known(backlog: Backlog | None) -> Backlog | None:
        return None if backlog is None or backlog.is_stale else replace(backlog, age_s=None)

    backlogs = [source.backlog for source in deployment.sources]
    backlogs += [entry.backlog for operator in deployment.operators for entry in operator.inputs]
    if all(backlog is None for backlog in backlogs):
        return deployment
    operators = tuple(
        replace(operator, inputs=tuple(replace(entry, backlog=known(entry.backlog)) for entry in operator.inputs))
        for operator in deployment.operators
    )
    sources = tuple(replace(source, backlog=known(source.backlog)) for source in deployment.sources)
    return replace(deployment, sources=sources, operators=operators)


def _document(deployment: DeploymentContent, series: SeriesWriter) -> dict[str, object]:
    is_nominal = deployment.stream_processor == NOMINAL_PROCESSOR
    document = {
        "format": FORMAT,
        "version": VERSION,
        "subinterval_s": deployment.subinterval_s,
        "subintervals": deployment.subintervals,
        "sources": [_source(source, series) for source in deployment.sources],
        "nodes": [_node(node, series) for node in deployment.nodes],
        "operators": [operator_document(operator) for operator in deployment.operators],
        "links": [_link(link) for link in deployment.links],
        "combine": _stated(deployment.combine),
    }
    optional = {
        "scheduling": deployment.scheduling,
        "statistics_of": None if deployment.statistics_of == SAMPLE else deployment.statistics_of,
        "stream_processor": None if is_nominal else deployment.stream_processor,
        "objectives": [objective.to_dict() for objective in deployment.objectives],
        "priorities": dict(deployment.priorities),
        "constraints": _constraints(deployment.constraints),
        "plans": {
            query: [[operator_document(operator) for operator in plan] for plan in plans]
            for query, plans in deployment.plans.items()
        },
    }
    return document | {name: value for name, value in optional.items() if value}


def _fields(element: Any, names: tuple[str, ...]) -> dict[str, object]:
    """The named attributes that are set."""
    values = {name: getattr(element, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _stated(record: Record) -> dict[str, object]:
    """A record without the fields that state nothing."""
    return {name: value for name, value in record.to_dict().items() if value is not None}


def _node(node: Node, series: SeriesWriter) -> dict[str, object]:
    document = _fields(node, ("id", "capacity_cps", "cores", "pool", "price_per_hour", "memory_bytes", "scheduling"))
    document |= _fields(node, ("cycles_per_ns",))
    if node.cycle_unit != NOMINAL:
        document["cycle_unit"] = node.cycle_unit
    if node.capacity_series_cps is not None:
        document["capacity_series_cps"] = series(node.capacity_series_cps)
    return document | ({"labels": dict(node.labels)} if node.labels else {})


def _source(source: Source, series: SeriesWriter) -> dict[str, object]:
    document: dict[str, object] = {"id": source.id, "arrivals": series(source.arrivals)}
    document |= _fields(source, ("arrivals_step_s", "dispersion", "dispersion_step_s"))
    document |= _backlog(source.backlog)
    return document | ({"event_fields": source.event_fields.to_dict()} if source.event_fields else {})


def _link(link: Link) -> dict[str, object]:
    ends = {"from": link.source, "to": link.target}
    return ends | {"bandwidth_bytes_s": link.bandwidth_bytes_s, "delay_s": link.delay_s}


def operator_document(operator: Operator) -> dict[str, Any]:
    """An operator as it stands in a document."""
    plain = (
        "id",
        "bytes_per_event",
        "stateless",
        "keyed",
        "waits_outside",
        "query",
        "kind",
        "buffer_timeout_s",
        "state_bytes",
        "state_on_disk",
        "tuple_values_in",
        "tuple_values_out",
        "measured_s",
        "quiet_share",
        "cost_by",
    )
    document = _fields(operator, (*plain, "expression"))
    document["inputs"] = [_input(entry) for entry in operator.inputs]
    lists = {"reads": operator.reads, "writes": operator.writes, "unread": operator.unread}
    document |= {name: list(value) for name, value in lists.items() if value is not None}
    elements: dict[str, Record | None] = {
        "filter": operator.filter,
        "join": operator.join,
        "aggregate": operator.aggregate,
        "window": operator.window,
        "trigger": operator.trigger,
        "checkpoint": operator.checkpoint,
        "marginal_cost": operator.marginal_cost,
        "evidence": operator.evidence,
    }
    document |= {name: _stated(element) for name, element in elements.items() if element is not None}
    return document | _placement(operator)


def _placement(operator: Operator) -> dict[str, object]:
    replicas = operator.replicas
    if not replicas:
        return {}
    if len(replicas) == 1 and replicas[0].fraction == 1.0:
        return {"node": replicas[0].node, "core": replicas[0].core}
    return {"split": [_fields(replica, ("node", "core", "fraction")) for replica in replicas]}


def _input(entry: Input) -> dict[str, object]:
    document: dict[str, object] = {"from": entry.source, "selectivity": entry.selectivity}
    if not entry.never_ran:
        document["cycles_per_event"] = entry.cycles_per_event
    if entry.model:
        document["model"] = {"output": list(entry.model.output), "cycles": list(entry.model.cycles)}
    if entry.batches:
        document["batches"] = [batch.to_dict() for batch in entry.batches]
    document |= _fields(entry, ("cost_cv2", "cost_dispersion", "cost_dispersion_events"))
    return document | _backlog(entry.backlog)


def backlog_document(backlog: Backlog) -> dict[str, object]:
    """A backlog as it stands in a document."""
    origin = {} if backlog.origin == STATED else {"origin": backlog.origin}
    return {name: value for name, value in _stated(backlog).items() if name != "origin"} | origin


def _backlog(backlog: Backlog | None) -> dict[str, object]:
    return {} if backlog is None else {"backlog": backlog_document(backlog)}


def _constraints(limits: Constraints) -> dict[str, object]:
    return {name: value for name, value in _stated(limits).items() if value or name in ("max_moves", "may_split")}
