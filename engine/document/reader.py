"""Reader of deployment documents: from JSON to the checked parts of a deployment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from engine.document.checks import DeploymentParts, UnreadReference, check_parts, find_excessive_rates
from engine.document.cycles import CYCLE_UNITS, NOMINAL, convert_operators
from engine.document.elements import (
    SAMPLE,
    THESE,
    Backlog,
    Batch,
    Combine,
    Constraints,
    Input,
    InputModel,
    Link,
    Node,
    Objective,
    Operator,
    OperatorFeatures,
    Replica,
    Source,
    cost_noise_faults,
)
from engine.document.kinds import (
    CYCLE_UNIT,
    FORMAT,
    ID,
    INDEX,
    MAX_LINKS,
    MAX_NODES,
    MAX_OPERATORS,
    MAX_SOURCES,
    NOT_NEGATIVE,
    POSITIVE,
    PRIORITY,
    SCHEDULING,
    SUBINTERVALS,
    VERSION,
    WIDTH,
    CostCv2,
    CostDispersion,
    CostDispersionEvents,
)
from engine.document.translation import source_rates, with_nominal_costs
from engine.errors import DocumentError, Fault
from engine.kinds import Enumeration
from engine.query_graph.graph import NOMINAL_PROCESSOR
from engine.query_graph.processors import STREAM_PROCESSORS
from engine.records import BAD, ItemCount, Record, Words

__all__ = [
    "DeploymentRecord",
    "InputRecord",
    "OperatorRecord",
    "PartRecord",
    "collect_references",
    "faulty_items",
    "json_schema",
    "read_deployment",
    "read_operators",
    "with_unit",
]

_Id = Annotated[str, ID]


@dataclass(frozen=True, kw_only=True)
class InputRecord(Record):
    """An input of an operator."""

    TITLE: ClassVar[str] = "an input"
    JUDGES_PARTS: ClassVar[bool] = True

    source: Annotated[_Id, Field(alias="from"), Words("a source or another operator")]
    selectivity: Annotated[
        float | None, NOT_NEGATIVE, Words("events put out per event read; needed without a model")
    ] = None
    cycles_per_event: Annotated[
        float | None, NOT_NEGATIVE, Words("left out: it never ran, and a nominal cost stands in; or it is unknown")
    ] = None
    model: Annotated[InputModel | None, Words("polynomials in the events of a subinterval")] = None
    batches: Annotated[tuple[Batch, ...], Words("the sample behind the statistics, batch by batch")] = ()
    cost_cv2: CostCv2 = None
    cost_dispersion: CostDispersion = None
    cost_dispersion_events: CostDispersionEvents = None
    backlog: Annotated[Backlog | None, Words("events that wait here, in place of the source's; left out: its own")] = (
        None
    )

    def find_faults(self) -> Iterator[Fault]:
        """No selectivity, and half a dispersion."""
        if self.model is None and self.selectivity is None:
            yield Fault("selectivity", "selectivity is missing; an input without a model needs it")
        yield from cost_noise_faults(self.cost_dispersion, self.cost_dispersion_events)

    @property
    def has_cost(self) -> bool:
        """Whether it says what an event costs."""
        return self.cycles_per_event is not None or self.model is not None

    def entry(self) -> Input:
        """The input."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return Input(**given, never_ran=not self.has_cost)


@dataclass(frozen=True, kw_only=True)
class PartRecord(Record):
    """A part of a split operator."""

    TITLE: ClassVar[str] = "a part of a split"
    JUDGES_PARTS: ClassVar[bool] = True

    node: _Id
    core: Annotated[int, INDEX] = 0
    fraction: Annotated[float, POSITIVE]


@dataclass(frozen=True, kw_only=True)
class _Place(Record):
    id: _Id
    node: Annotated[str | None, ID] = None
    core: Annotated[int | None, INDEX] = None
    split: Annotated[tuple[PartRecord, ...], ItemCount(least=1), Words("instead of node: shares that add up to 1")] = ()
    inputs: tuple[InputRecord, ...]


#: Features of an operator by their field: the kind that has them.
_FEATURES = {"filter": "filter", "join": "join", "aggregate": "aggregate"}
_FEATURE_NAMES = tuple(item.name for item in fields(OperatorFeatures))


@dataclass(frozen=True, kw_only=True)
class OperatorRecord(OperatorFeatures, _Place):
    """An operator: the element, its place in one or several parts, and its inputs."""

    def find_faults(self) -> Iterator[Fault]:
        """A place beside a split, features of another kind of operator, and evidence of a cost that is not there."""
        if self.split:
            if self.stateless is False and not self.keyed:
                yield Fault("split", "split is given for an operator with state; allowed: with stateless or keyed true")
            if self.node is not None or self.core is not None:
                other = "core" if self.node is None else "node"
                yield Fault(other, f"{other} is given beside split; allowed: one of the two")
        for name, owner in _FEATURES.items():
            if getattr(self, name) is not None and self.kind not in (None, BAD, owner):
                message = f"{name} is given for an operator of kind {self.kind!r}; allowed: {owner}"
                yield Fault(name, message)
        evidence = None if self.evidence is BAD else self.evidence
        if evidence is None or self.inputs is BAD:
            return
        if evidence.kind == "unknown" and all(entry is not BAD and entry.has_cost for entry in self.inputs):
            message = "evidence.kind is 'unknown', but every input has a cost; allowed: assumed, predicted, measured"
            yield Fault("evidence.kind", message)
        if evidence.kind != "measured":
            return
        for k, entry in enumerate(self.inputs):
            if entry is not BAD and not entry.has_cost:
                message = (
                    "evidence.kind is 'measured', but an input has no cycles_per_event; allowed: assumed, predicted, "
                    "unknown"
                )
                yield Fault(f"inputs[{k}].cycles_per_event", message)

    def operator(self) -> Operator:
        """The operator."""
        replicas: tuple[Replica, ...] = ()
        if self.split:
            replicas = tuple(Replica(**vars(part)) for part in self.split)
        elif self.node is not None:
            replicas = (Replica(self.node, self.core or 0),)
        features = {name: getattr(self, name) for name in _FEATURE_NAMES}
        return Operator(self.id, replicas, tuple(entry.entry() for entry in self.inputs), **features)

    def references(self, path: str) -> Iterator[UnreadReference]:
        """Names that an operator with faults refers to, as far as they could be read."""
        owner = self.id if isinstance(self.id, str) else None
        parts = enumerate(() if self.split is BAD else self.split)
        places = [(f"{path}.node", self.node)]
        places += [(f"{path}.split[{k}].node", part.node) for k, part in parts if part is not BAD]
        for where, name in places:
            if isinstance(name, str):
                yield UnreadReference(where, name, "node")
        if isinstance(self.query, str):
            yield UnreadReference(f"{path}.query", self.query, "query")
        for k, entry in enumerate(() if self.inputs is BAD else self.inputs):
            if entry is not BAD and isinstance(entry.source, str):
                yield UnreadReference(f"{path}.inputs[{k}].from", entry.source, "source or operator", owner)


@dataclass(frozen=True, kw_only=True)
class DeploymentRecord(Record):
    """A deployment: sources, nodes, operators and links, and what is asked of them."""

    TITLE: ClassVar[str] = "a deployment"
    JUDGES_PARTS: ClassVar[bool] = True

    format: Annotated[str, Enumeration((FORMAT,))] = FORMAT
    version: Annotated[int, Enumeration((VERSION,))] = VERSION
    subinterval_s: Annotated[float, WIDTH]
    subintervals: Annotated[int | None, SUBINTERVALS, Words("needed only without sources")] = None
    sources: Annotated[tuple[Source, ...], ItemCount(most=MAX_SOURCES)] = ()
    nodes: Annotated[tuple[Node, ...], ItemCount(most=MAX_NODES)] = ()
    operators: Annotated[tuple[OperatorRecord, ...], ItemCount(most=MAX_OPERATORS)] = ()
    links: Annotated[tuple[Link, ...], ItemCount(most=MAX_LINKS)] = ()
    combine: Combine = field(default_factory=lambda: Combine("sum"))
    scheduling: Annotated[
        Annotated[str, SCHEDULING] | None, Words("policy of the nodes that name none; stimulus-time")
    ] = None
    cycle_unit: Annotated[
        Annotated[str, CYCLE_UNIT] | None, Words("unit of nodes and costs that name none; nominal")
    ] = None
    statistics_of: Annotated[
        Annotated[str, Enumeration((SAMPLE, THESE))] | None,
        Words("these: counted on the very arrivals estimated; a sample unless given"),
    ] = None
    stream_processor: Annotated[
        str,
        Enumeration(tuple(STREAM_PROCESSORS)),
        Words("runs its queries: by its costs those that never ran are estimated"),
    ] = NOMINAL_PROCESSOR
    objectives: tuple[Objective, ...] = ()
    priorities: Mapping[str, Annotated[int, PRIORITY]] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    plans: Mapping[str, tuple[tuple[OperatorRecord, ...], ...]] = field(default_factory=dict)


def json_schema() -> JsonSchemaValue:
    """The deployment document as JSON Schema (draft 2020-12).

    Rules that reach across fields (unknown nodes, cycles, lengths) are beyond a schema; `Deployment.parse` has them.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **DeploymentRecord.json_schema(),
        "title": "Sluice deployment",
        "description": f"Format {FORMAT}, version {VERSION}",
    }


def read_deployment(document: Any, *, placed: bool) -> dict[str, Any]:
    """The arguments of a `Deployment`, checked.

    Raises
    ------
    DocumentError
        With every fault of the document.
    """
    faults: list[Fault] = []
    unit = document.get("cycle_unit") if isinstance(document, Mapping) else None
    record = DeploymentRecord.read_parts(_with_units(document, unit), "", "", faults)
    sections = ("sources", "nodes", "operators", "links")
    if record is BAD or any(getattr(record, name) is BAD and isinstance(document[name], list) for name in sections):
        raise DocumentError(faults)  # of a list that is too long nothing else is read
    sources, nodes, operators = _listed(record.sources), _listed(record.nodes), _listed(record.operators)
    links, objectives = _listed(record.links), _listed(record.objectives)
    parts = DeploymentParts(
        None if record.subintervals is BAD else record.subintervals,
        subinterval_s=None if record.subinterval_s is BAD else record.subinterval_s,
        faults=faults,
    )
    parts.sources = _whole(sources, "sources", faults)
    parts.nodes = _whole(nodes, "nodes", faults)
    parts.operators = read_operators(operators, "operators", faults, placed=placed)
    parts.operators = convert_operators(parts.operators, parts.nodes, "operators", faults)
    parts.links = _whole(links, "links", faults)
    parts.objectives = _whole(objectives, "objectives", faults)
    parts.priorities = record.priorities if _is_whole("priorities", faults) else {}
    parts.constraints = record.constraints if _is_whole("constraints", faults) else Constraints()
    plans = _plans(record.plans, parts.nodes, faults) if _is_whole("plans", faults) else {}
    parts.plans = plans
    named = {item.id for item in (*sources, *nodes, *operators) if item is not BAD and item.id is not BAD}
    parts.broken = named - {
        element.id for kind in (parts.sources, parts.nodes, parts.operators) for element in kind if element
    }
    parts.references = [*collect_references(operators, parts.operators), *_link_ends(links, parts.links)]
    parts.queries_legible = all(item is not BAD and item.query is not BAD for item in operators)
    check_parts(parts)
    if faults:
        raise DocumentError(faults)
    elements, running = tuple(parts.sources), tuple(parts.operators)
    for path, plan in [("operators", running), *_alternatives(plans)]:
        faults += find_excessive_rates(elements, parts.nodes, plan, record.subinterval_s, path)  # type: ignore[arg-type]
    if faults:
        raise DocumentError(faults)
    rates = source_rates(elements, record.subinterval_s)  # type: ignore[arg-type]
    machines, processor = tuple(node for node in parts.nodes if node is not None), record.stream_processor
    return {
        "subinterval_s": record.subinterval_s,
        "subintervals": parts.subintervals or len(parts.sources[0].arrivals),  # type: ignore[union-attr]
        "sources": elements,
        "nodes": machines,
        "operators": with_nominal_costs(running, rates, record.subinterval_s, machines, processor=processor),  # type: ignore[arg-type]
        "links": tuple(parts.links),
        "combine": record.combine,
        "scheduling": record.scheduling,
        "statistics_of": record.statistics_of or SAMPLE,
        "stream_processor": processor,
        "objectives": tuple(parts.objectives),
        "priorities": record.priorities,
        "constraints": parts.constraints,
        "plans": {
            query: tuple(
                with_nominal_costs(plan, rates, record.subinterval_s, machines, processor=processor)
                for plan in alternatives
            )
            for query, alternatives in plans.items()
        },
    }


def _with_units(document: Any, unit: Any) -> Any:
    """The document with the unit of cycles that it names at nodes and costs that name none."""
    if not isinstance(document, Mapping):
        return document
    kept = dict(document)
    if isinstance(nodes := document.get("nodes"), (list, tuple)):
        known = unit if unit in CYCLE_UNITS else NOMINAL
        kept["nodes"] = [
            {**node, "cycle_unit": known} if isinstance(node, Mapping) and node.get("cycle_unit") is None else node
            for node in nodes
        ]
    if unit in CYCLE_UNITS:
        kept["operators"] = with_unit(document.get("operators", []), unit)
        if isinstance(plans := document.get("plans"), Mapping):
            kept["plans"] = {
                query: [with_unit(plan, unit) for plan in listed] if isinstance(listed, (list, tuple)) else listed
                for query, listed in plans.items()
            }
    return kept


def with_unit(operators: Any, unit: str) -> Any:
    """Operators of a document with a unit of cycles at costs that name none."""
    if not isinstance(operators, (list, tuple)):
        return operators
    return [_with_unit(item, unit) if isinstance(item, Mapping) else item for item in operators]


def _with_unit(operator: Mapping[str, object], unit: str) -> Mapping[str, object]:
    evidence = {"kind": "assumed"} if operator.get("evidence") is None else operator["evidence"]
    if not isinstance(evidence, Mapping) or evidence.get("cycle_unit"):
        return operator
    return {**operator, "evidence": {**evidence, "cycle_unit": unit}}


def faulty_items(faults: Iterable[Fault], path: str) -> set[int]:
    """Places of the items of a list that have faults."""
    item = re.compile(re.escape(path) + r"\[(\d+)\]")
    return {int(place[1]) for fault in faults if (place := item.match(fault.path))}


def _is_whole(name: str, faults: Iterable[Fault]) -> bool:
    return not any(re.match(rf"{name}\b", fault.path) for fault in faults)


def _listed(items: Any) -> Sequence[Any]:
    return () if items is BAD else items


def _whole(items: Sequence[Any], path: str, faults: Iterable[Fault]) -> list[Any]:
    """Items of a list, None in the place of those with faults."""
    faulty = faulty_items(faults, path)
    return [None if i in faulty else item for i, item in enumerate(items)]


def read_operators(documents: Sequence[Any], path: str, faults: list[Fault], *, placed: bool) -> list[Operator | None]:
    """Operators of documents, None in the place of one with faults. With `placed`, each must name its node."""
    for i, item in enumerate(documents):
        if item is BAD or item.split or item.node is not None:
            continue
        if placed:
            faults.append(Fault(f"{path}[{i}].node", "node is missing; a placed operator needs node or split"))
        elif item.core is not None:
            faults.append(Fault(f"{path}[{i}].core", "core is given without a node; allowed: both or none"))
    return [None if item is None else item.operator() for item in _whole(documents, path, faults)]


def _alternatives(
    plans: Mapping[str, Sequence[Sequence[Operator]]],
) -> Iterator[tuple[str, Sequence[Operator]]]:
    """Every alternative plan with its path in the document."""
    for query, alternatives in plans.items():
        yield from ((f"plans.{query}[{i}]", plan) for i, plan in enumerate(alternatives))


def collect_references(
    items: Sequence[Any], operators: Sequence[Operator | None], path: str = "operators"
) -> list[UnreadReference]:
    """References of the faulty operators that could be read: nodes and inputs."""
    references: list[UnreadReference] = []
    for i, (item, operator) in enumerate(zip(items, operators, strict=True)):
        if operator is None and item is not BAD:
            references += item.references(f"{path}[{i}]")
    return references


def _link_ends(items: Sequence[Any], links: Sequence[Link | None]) -> Iterator[UnreadReference]:
    for i, (item, link) in enumerate(zip(items, links, strict=True)):
        for end, name in () if link or item is BAD else (("from", item.source), ("to", item.target)):
            if isinstance(name, str):
                yield UnreadReference(f"links[{i}].{end}", name, "node")


def _plans(
    documents: Mapping[str, Sequence[Sequence[OperatorRecord]]], nodes: Sequence[Node | None], faults: list[Fault]
) -> dict[str, tuple[tuple[Operator, ...], ...]]:
    plans = {}
    for query, alternatives in documents.items():
        read = []
        for i, plan in enumerate(alternatives):
            path = f"plans.{query}[{i}]"
            built = convert_operators(read_operators(plan, path, faults, placed=False), nodes, path, faults)
            read.append(tuple(operator for operator in built if operator))
        plans[query] = tuple(read)
    return plans
