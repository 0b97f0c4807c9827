"""Reader of deployment documents: from JSON to the checked parts of a deployment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.document.checks import (
    DeploymentParts,
    UnreadReference,
    check_backlog,
    check_cost_noise,
    check_parts,
    check_window,
    find_excessive_rates,
)
from engine.document.cycles import NOMINAL, convert_operators
from engine.document.elements import (
    SAMPLE,
    AggregateFeatures,
    Backlog,
    Batch,
    Combine,
    Constraints,
    EventFields,
    Evidence,
    FilterFeatures,
    Input,
    InputModel,
    JoinFeatures,
    Link,
    MicroBatchTrigger,
    Node,
    Objective,
    Operator,
    Replica,
    Source,
    Window,
)
from engine.document.tables import DEPLOYMENT
from engine.document.translation import source_rates, with_nominal_costs
from engine.errors import DocumentError, Fault
from engine.fields import BAD

__all__ = ["build_operators", "build_source", "collect_references", "is_whole", "read_deployment", "with_unit"]


def is_whole(record: Any) -> bool:
    """Whether a record was read without a fault, all the way down."""
    if record is BAD:
        return False
    if isinstance(record, dict):
        return all(is_whole(item) for item in record.values())
    if isinstance(record, list):
        return all(is_whole(item) for item in record)
    return True


def read_deployment(document: Any, *, placed: bool) -> dict[str, Any]:
    """The arguments of a `Deployment`, checked.

    Raises
    ------
    DocumentError
        With every fault of the document.
    """
    faults: list[Fault] = []
    record = DEPLOYMENT.read(document, "", "", faults)
    if record is BAD:
        raise DocumentError(faults)
    sections = {name: _section(record, name) for name in ("sources", "nodes", "operators", "links", "objectives")}
    parts = DeploymentParts(_good(record, "subintervals"), subinterval_s=_good(record, "subinterval_s"), faults=faults)
    parts.broken = {item["id"] for items in sections.values() for item in items if _has_id(item)}
    with_unit(sections["nodes"], sections["operators"], _good(record, "cycle_unit"))
    parts.sources = [build_source(item, f"sources[{i}]", faults) for i, item in enumerate(sections["sources"])]
    parts.nodes = [_node(item, f"nodes[{i}]", faults) for i, item in enumerate(sections["nodes"])]
    parts.operators = build_operators(sections["operators"], "operators", faults, placed=placed)
    parts.operators = convert_operators(parts.operators, parts.nodes, "operators", faults)
    parts.links = [_link(item) for item in sections["links"]]
    parts.objectives = [Objective(**item) if is_whole(item) else None for item in sections["objectives"]]
    parts.priorities = _good(record, "priorities") or {}
    parts.constraints = _constraints(_good(record, "constraints"))
    plans = _plans(_good(record, "plans"), parts.nodes, _good(record, "cycle_unit"), faults)
    parts.plans = plans
    parts.broken -= {
        element.id for kind in (parts.sources, parts.nodes, parts.operators) for element in kind if element
    }
    parts.references = collect_references(sections["operators"], parts.operators) + _link_ends(
        sections["links"], parts.links
    )
    parts.queries_legible = all(isinstance(i, dict) and i.get("query") is not BAD for i in sections["operators"])
    check_parts(parts)
    combine = _combine(_good(record, "combine"), faults)
    if faults:
        raise DocumentError(faults)
    sources, operators = tuple(parts.sources), tuple(parts.operators)
    for path, plan in [("operators", operators), *_alternatives(plans)]:
        faults += find_excessive_rates(sources, parts.nodes, plan, record["subinterval_s"], path)  # type: ignore[arg-type]
    if faults:
        raise DocumentError(faults)
    rates = source_rates(sources, record["subinterval_s"])  # type: ignore[arg-type]
    nodes = tuple(node for node in parts.nodes if node is not None)
    return {
        "subinterval_s": record["subinterval_s"],
        "subintervals": parts.subintervals or len(parts.sources[0].arrivals),  # type: ignore[union-attr]
        "sources": sources,
        "nodes": nodes,
        "operators": with_nominal_costs(operators, rates, record["subinterval_s"], nodes),  # type: ignore[arg-type]
        "links": tuple(parts.links),
        "combine": combine,
        "scheduling": record.get("scheduling"),
        "statistics_of": record.get("statistics_of") or SAMPLE,
        "objectives": tuple(parts.objectives),
        "priorities": dict(record.get("priorities", {})),
        "constraints": parts.constraints,
        "plans": {
            query: tuple(with_nominal_costs(plan, rates, record["subinterval_s"], nodes) for plan in alternatives)
            for query, alternatives in plans.items()
        },
    }


def with_unit(nodes: Sequence[Any], operators: Sequence[Any], unit: str | None) -> None:
    """Give nodes and costs that name no unit of cycles the one of their document, in place."""
    for node in nodes:
        if isinstance(node, dict) and node.get("cycle_unit") is None:
            node["cycle_unit"] = unit or NOMINAL
    for operator in operators:
        if unit is not None and isinstance(operator, dict) and is_whole(operator.get("evidence")):
            evidence = operator.get("evidence") or {"kind": "assumed"}
            operator["evidence"] = evidence if evidence.get("cycle_unit") else {**evidence, "cycle_unit": unit}


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
    references = []
    for i, (item, operator) in enumerate(zip(items, operators, strict=True)):
        if operator is not None or not isinstance(item, dict):
            continue
        here, owner = f"{path}[{i}]", item["id"] if is_whole(item["id"]) else None
        places = [(f"{here}.node", item.get("node"))] + [
            (f"{here}.split[{k}].node", part["node"]) for k, part in _records(item.get("split"))
        ]
        references += [UnreadReference(where, name, "node") for where, name in places if isinstance(name, str)]
        if isinstance(item.get("query"), str):
            references.append(UnreadReference(f"{here}.query", item["query"], "query"))
        references += [
            UnreadReference(f"{here}.inputs[{k}].from", entry["from"], "source or operator", owner)
            for k, entry in _records(item.get("inputs"))
            if isinstance(entry["from"], str)
        ]
    return references


def _link_ends(items: Sequence[Any], links: Sequence[Link | None]) -> list[UnreadReference]:
    return [
        UnreadReference(f"links[{i}].{end}", item[end], "node")
        for i, (item, link) in enumerate(zip(items, links, strict=True))
        if link is None and isinstance(item, dict)
        for end in ("from", "to")
        if isinstance(item[end], str)
    ]


def _records(items: Any) -> list[tuple[int, dict[str, object]]]:
    """The items of a list that are objects, with their places."""
    return [(k, item) for k, item in enumerate(items) if isinstance(item, dict)] if isinstance(items, list) else []


def _good(record: Mapping[str, object], name: str) -> Any:
    value = record.get(name)
    return value if is_whole(value) else None


def _section(record: Mapping[str, Any], name: str) -> list[Any]:
    value = record.get(name, [])
    return [] if value is BAD else list(value)


def _has_id(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("id"), str)


def build_source(item: Any, path: str, faults: list[Fault]) -> Source | None:
    """A source from its record, or None if the record is faulty."""
    if item is BAD:
        return None
    check_backlog(item.get("backlog"), f"{path}.backlog", faults)
    if not is_whole(item):
        return None
    fields = {name: value for name, value in item.items() if name not in ("id", "arrivals", "event_fields")}
    if item.get("backlog"):
        fields["backlog"] = Backlog(**item["backlog"])
    if item.get("event_fields"):
        fields["event_fields"] = EventFields(**item["event_fields"])
    return Source(item["id"], item["arrivals"], **fields)


def _node(item: Any, path: str, faults: list[Fault]) -> Node | None:
    if item is BAD:
        return None
    given = [name for name in ("capacity_cps", "capacity_series_cps") if name in item]
    if len(given) != 1:
        state = "are both given" if given else "are both missing"
        faults.append(
            Fault(f"{path}.capacity_cps", f"capacity_cps and capacity_series_cps {state}; allowed: exactly one")
        )
    series = item.get("capacity_series_cps")
    if series is not None and series is not BAD and series[-1] <= 0:
        where = f"{path}.capacity_series_cps[{len(series) - 1}]"
        message = "the last item of capacity_series_cps is 0 and would hold for ever; allowed: a number above 0"
        faults.append(Fault(where, message))
    return Node(**item) if is_whole(item) and len(given) == 1 else None


def build_operators(items: Sequence[Any], path: str, faults: list[Fault], *, placed: bool) -> list[Operator | None]:
    """Operators from their records, None in the place of a faulty one. With `placed`, each must name its node."""
    return [_operator(item, f"{path}[{i}]", faults, placed) for i, item in enumerate(items)]


def _operator(item: Any, path: str, faults: list[Fault], placed: bool) -> Operator | None:
    if item is BAD:
        return None
    before = len(faults)
    replicas = _replicas(item, path, faults, placed)
    entries = item["inputs"] if item["inputs"] is not BAD else ()
    inputs = tuple(_input(entry, f"{path}.inputs[{k}]", faults) for k, entry in enumerate(entries) if entry is not BAD)
    window = item.get("window")
    if window and window is not BAD:
        check_window(window, f"{path}.window", faults)
    _feature_faults(item, path, faults)
    if len(faults) > before or not is_whole(item):
        return None
    fields = {name: value for name, value in item.items() if name not in ("node", "core", "split", "inputs")}
    if window:
        fields["window"] = Window(**window)
    if item.get("trigger"):
        fields["trigger"] = MicroBatchTrigger(**item["trigger"])
    fields |= {name: kind(**item[name]) for name, (kind, _) in _FEATURES.items() if item.get(name)}
    if item.get("evidence"):
        fields["evidence"] = Evidence(**item["evidence"])
    fields |= {name: tuple(item[name]) for name in ("reads", "writes", "unread") if name in item}
    return Operator(replicas=replicas, inputs=inputs, **fields)


#: Features by their field: the class that keeps them, and the kind of operator that has them.
_FEATURES: dict[str, tuple[type[Any], str]] = {
    "filter": (FilterFeatures, "filter"),
    "join": (JoinFeatures, "join"),
    "aggregate": (AggregateFeatures, "aggregate"),
}


def _feature_faults(item: dict[str, Any], path: str, faults: list[Fault]) -> None:
    """Features of another kind of operator, and evidence of a cost that is not there."""
    kind = item.get("kind")
    for name, (_, owner) in _FEATURES.items():
        if item.get(name) and kind not in (None, BAD, owner):
            faults.append(
                Fault(f"{path}.{name}", f"{name} is given for an operator of kind {kind!r}; allowed: {owner}")
            )
    evidence = item.get("evidence")
    if not evidence or not is_whole(evidence) or evidence["kind"] != "measured":
        return
    for k, entry in _records(item["inputs"]):
        if "cycles_per_event" not in entry and entry.get("model") is None:
            message = "evidence.kind is 'measured', but an input has no cycles_per_event; allowed: assumed, predicted"
            faults.append(Fault(f"{path}.inputs[{k}].cycles_per_event", message))


def _replicas(item: dict[str, Any], path: str, faults: list[Fault], placed: bool) -> tuple[Replica, ...]:
    if "split" in item:
        if item.get("stateless") is False:
            faults.append(
                Fault(f"{path}.split", "split is given for an operator with state; allowed: with stateless true")
            )
        if "node" in item or "core" in item:
            other = "node" if "node" in item else "core"
            faults.append(Fault(f"{path}.{other}", f"{other} is given beside split; allowed: one of the two"))
        return tuple(Replica(**part) for part in item["split"] if is_whole(part)) if item["split"] is not BAD else ()
    if "node" not in item:
        if placed:
            faults.append(Fault(f"{path}.node", "node is missing; a placed operator needs node or split"))
        elif "core" in item:
            faults.append(Fault(f"{path}.core", "core is given without a node; allowed: both or none"))
        return ()
    return (Replica(item["node"], item.get("core", 0)),)


def _input(entry: dict[str, Any], path: str, faults: list[Fault]) -> Input:
    model = entry.get("model")
    if model is None and "selectivity" not in entry:
        faults.append(Fault(f"{path}.selectivity", "selectivity is missing; an input without a model needs it"))
    kept = {name: value for name, value in entry.items() if name != "from"}
    check_cost_noise(entry, path, faults)
    check_backlog(entry.get("backlog"), f"{path}.backlog", faults)
    if entry.get("backlog") and is_whole(entry["backlog"]):
        kept["backlog"] = Backlog(**entry["backlog"])
    kept["never_ran"] = model is None and "cycles_per_event" not in entry
    if model is not None and is_whole(model):
        kept["model"] = InputModel(tuple(model["output"]), tuple(model["cycles"]))
    batches = entry.get("batches")
    if batches and is_whole(batches):
        kept["batches"] = tuple(Batch(**batch) for batch in batches)
    elif batches is not None:
        kept.pop("batches")
    return Input(entry["from"], **kept)


def _link(item: Any) -> Link | None:
    if not is_whole(item):
        return None
    return Link(item["from"], item["to"], item.get("bandwidth_bytes_s"), item.get("delay_s", 0.0))


def _combine(item: dict[str, Any] | None, faults: list[Fault]) -> Combine:
    if item is None:
        return Combine()
    interference = item["kind"] == "interference"
    if interference and "alpha" not in item:
        faults.append(Fault("combine.alpha", "alpha is missing; interference needs a number of at least 0"))
    if not interference and "alpha" in item:
        faults.append(Fault("combine.alpha", f"alpha is given for {item['kind']}; allowed: with interference only"))
    return Combine(**item)


def _constraints(item: dict[str, Any] | None) -> Constraints:
    if not item:
        return Constraints()
    may_split = item.get("may_split")
    return Constraints(
        pin=item.get("pin", {}),
        forbid={name: tuple(nodes) for name, nodes in item.get("forbid", {}).items()},
        apart=tuple(tuple(group) for group in item.get("apart", ())),
        max_moves=item.get("max_moves"),
        may_split=None if may_split is None else tuple(may_split),
    )


def _plans(
    item: dict[str, Any] | None, nodes: Sequence[Node | None], unit: str | None, faults: list[Fault]
) -> dict[str, tuple[tuple[Operator, ...], ...]]:
    plans = {}
    for query, alternatives in (item or {}).items():
        read = []
        for i, plan in enumerate(alternatives):
            with_unit((), plan, unit)
            path = f"plans.{query}[{i}]"
            built = convert_operators(build_operators(plan, path, faults, placed=False), nodes, path, faults)
            read.append(tuple(operator for operator in built if operator))
        plans[query] = tuple(read)
    return plans
