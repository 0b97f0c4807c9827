"""Rules that reach across the parts of a deployment: names, references, lengths, cycles, shares, magnitudes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.document.elements import (
    Backlog,
    Constraints,
    Input,
    Link,
    Node,
    Objective,
    Operator,
    Source,
)
from engine.document.topology import cycles_of, order_of
from engine.errors import Fault, suggestion

__all__ = [
    "MAX_BUSY",
    "MAX_CYCLES",
    "MAX_EVENTS",
    "DeploymentParts",
    "UnreadReference",
    "check_parts",
    "check_replicas",
    "find_excessive_rates",
    "is_mergeable",
]

_SHARE_TOLERANCE = 1e-9
_STEP_TOLERANCE = 1e-6
_SUGGESTIONS = 50  # the search for near names is slow; nobody reads that many
_NAMED = 8  # names listed as allowed


@dataclass(frozen=True)
class UnreadReference:
    """A name that an element with faults of its own refers to, so that it is checked with all the rest."""

    path: str
    name: str
    what: str  # "node", "source or operator"; "query": the one it belongs to
    owner: str | None = None  # id of the operator that reads `name`


@dataclass
class DeploymentParts:
    """Parts of a deployment under construction. An element that could not be read is None; its id, if known, is in
    `broken`.
    """

    subintervals: int | None
    sources: Sequence[Source | None] = ()
    nodes: Sequence[Node | None] = ()
    operators: Sequence[Operator | None] = ()
    links: Sequence[Link | None] = ()
    objectives: Sequence[Objective | None] = ()
    priorities: Iterable[str] = ()
    constraints: Constraints | None = None
    plans: Iterable[str] = ()
    broken: set[str] = field(default_factory=set)
    references: Sequence[UnreadReference] = ()
    queries_legible: bool = False  # whether every faulty operator says of which query it is
    faults: list[Fault] = field(default_factory=list)
    subinterval_s: float | None = None  # where steps of counts are to be checked

    def unknown(self, path: str, name: str, what: str, known: Iterable[str]) -> None:
        """Note that `name` is no `what`, unless it belongs to an element that is faulty itself."""
        if name not in self.broken:
            names = list(known)
            near = suggestion(name, names) if len(self.faults) < _SUGGESTIONS else ""
            listed = f"; allowed: {', '.join(sorted(names)[:_NAMED])}{' …' if len(names) > _NAMED else ''}"
            allowed = near or (listed if names else "")
            self.faults.append(Fault(path, f"{path.rsplit('.', 1)[-1]} names {name!r}, which is no {what}{allowed}"))


def check_parts(parts: DeploymentParts) -> None:
    """Add every fault of `parts` to its list."""
    _unique_names(parts)
    _lengths(parts)
    _steps(parts)
    nodes = {node.id: node for node in parts.nodes if node}
    names = {element.id for element in (*parts.sources, *parts.operators) if element}
    for i, operator in enumerate(parts.operators):
        if operator:
            _operator(parts, f"operators[{i}]", operator, nodes, names)
    for reference in parts.references:
        known = {"node": nodes, "source or operator": names}.get(reference.what)
        if known is not None and reference.name not in known:
            parts.unknown(reference.path, reference.name, reference.what, known)
    _links(parts, nodes)
    _cycles(parts)
    _queries(parts)
    _constraints(parts, nodes)


def _unique_names(parts: DeploymentParts) -> None:
    names: dict[str, str] = {}
    for section, elements in (("sources", parts.sources), ("operators", parts.operators)):
        _unique(parts, section, elements, names)
    _unique(parts, "nodes", parts.nodes, {})


def _unique(
    parts: DeploymentParts, section: str, elements: Sequence[Source | Operator | Node | None], names: dict[str, str]
) -> None:
    for i, element in enumerate(elements):
        if element is None:
            continue
        path = f"{section}[{i}].id"
        if element.id in names:
            parts.faults.append(Fault(path, f"id {element.id!r} is taken by {names[element.id]}; ids must differ"))
        else:
            names[element.id] = path


def _lengths(parts: DeploymentParts) -> None:
    subintervals = parts.subintervals
    for i, source in enumerate(parts.sources):
        if source is None:
            continue
        if subintervals is None:
            subintervals = len(source.arrivals)
        _length(parts, f"sources[{i}].arrivals", len(source.arrivals), subintervals)
    if subintervals is None and not any(source is None for source in parts.sources):
        parts.faults.append(Fault("subintervals", "subintervals is missing; it is needed where there is no source"))
    for i, node in enumerate(parts.nodes):
        if node is not None and node.capacity_series_cps is not None and subintervals is not None:
            _length(parts, f"nodes[{i}].capacity_series_cps", len(node.capacity_series_cps), subintervals)


def _length(parts: DeploymentParts, path: str, length: int, subintervals: int) -> None:
    if length != subintervals:
        name = path.rsplit(".", 1)[-1]
        parts.faults.append(
            Fault(
                path,
                f"{name} has {length} numbers; allowed: {subintervals}, the number of subintervals of the deployment",
            )
        )


def _steps(parts: DeploymentParts) -> None:
    """Widths at which counts are known are multiples of a subinterval, and no longer than the horizon."""
    width_s = parts.subinterval_s
    for i, source in enumerate(parts.sources):
        if source is None:
            continue
        given = [name for name in ("dispersion", "dispersion_step_s") if getattr(source, name) is not None]
        if len(given) == 1:
            missing = "dispersion" if given == ["dispersion_step_s"] else "dispersion_step_s"
            message = f"{missing} is missing; {given[0]} needs it"
            parts.faults.append(Fault(f"sources[{i}].{missing}", message))
        if width_s is None:
            continue
        horizon_s = len(source.arrivals) * width_s
        at_s = source.dispersion_step_s
        if at_s is not None and at_s > horizon_s * (1.0 + _STEP_TOLERANCE):
            message = f"dispersion_step_s is {at_s:g}; allowed: a number above 0, up to the horizon ({horizon_s:g} s)"
            parts.faults.append(Fault(f"sources[{i}].dispersion_step_s", message))
        step_s = source.arrivals_step_s
        if step_s is None:
            continue
        multiple = round(step_s / width_s)
        if (
            multiple < 1
            or abs(step_s / width_s - multiple) > _STEP_TOLERANCE * multiple
            or multiple > len(source.arrivals)
        ):
            message = (
                f"arrivals_step_s is {step_s:g}; allowed: a multiple of the subinterval ({width_s:g} s) up to the "
                f"horizon ({horizon_s:g} s)"
            )
            parts.faults.append(Fault(f"sources[{i}].arrivals_step_s", message))


def _operator(parts: DeploymentParts, path: str, operator: Operator, nodes: dict[str, Node], names: set[str]) -> None:
    for k, entry in enumerate(operator.inputs):
        if entry.source not in names:
            parts.unknown(f"{path}.inputs[{k}].from", entry.source, "source or operator", names)
    check_replicas(parts, path, operator, nodes)


def check_replicas(parts: DeploymentParts, path: str, operator: Operator, nodes: dict[str, Node]) -> None:
    """Nodes and cores exist, shares add up to 1, and an operator with state that does not merge is in one piece."""
    split = len(operator.replicas) > 1 or (operator.replicas and operator.replicas[0].fraction != 1.0)
    for k, replica in enumerate(operator.replicas):
        place = f"{path}.split[{k}]" if split else path
        node = nodes.get(replica.node)
        if node is None:
            parts.unknown(f"{place}.node", replica.node, "node", nodes)
        elif not 0 <= replica.core < node.cores:
            allowed = f"a number from 0 to {node.cores - 1} on node {node.id!r}"
            parts.faults.append(Fault(f"{place}.core", f"core is {replica.core}; allowed: {allowed}"))
    total = sum(replica.fraction for replica in operator.replicas)
    if split and abs(total - 1.0) > _SHARE_TOLERANCE:
        parts.faults.append(Fault(f"{path}.split", f"the fractions of split add up to {total:.12g}; allowed: 1"))
    if split and operator.is_divisible is False and not is_mergeable(operator.expression):
        parts.faults.append(
            Fault(f"{path}.split", "split is given for an operator with state; allowed: with stateless or keyed true")
        )


def is_mergeable(expression: Any) -> bool:
    """Whether an executable operator keeps state whose parts merge: partial aggregates of the same groups."""
    return isinstance(expression, Mapping) and expression.get("op") == "aggregate"


def _links(parts: DeploymentParts, nodes: dict[str, Node]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for i, link in enumerate(parts.links):
        if link is None:
            continue
        for end, name in (("from", link.source), ("to", link.target)):
            if name not in nodes:
                parts.unknown(f"links[{i}].{end}", name, "node", nodes)
        pair = (link.source, link.target)
        if link.source == link.target:
            message = f"to is {link.target!r}, where the link starts; allowed: another node"
            parts.faults.append(Fault(f"links[{i}].to", message))
        if pair in seen:
            parts.faults.append(
                Fault(f"links[{i}]", f"the link {pair[0]}->{pair[1]} is given twice; links[{seen[pair]}] has it")
            )
        seen.setdefault(pair, i)


def _sketch_operators(parts: DeploymentParts, index: dict[str, int]) -> list[Operator]:
    """Stand-ins for faulty operators, made of their references; `index` receives their positions."""
    reads: dict[str, list[Input]] = {}
    for reference in parts.references:
        if reference.owner is not None and reference.owner not in index:
            reads.setdefault(reference.owner, []).append(Input(reference.name))
    for name in reads:
        path = next(reference.path for reference in parts.references if reference.owner == name)
        index[name] = int(path.partition("[")[2].partition("]")[0])
    return [Operator(name, (), tuple(inputs)) for name, inputs in reads.items()]


def _cycles(parts: DeploymentParts) -> None:
    operators = [operator for operator in parts.operators if operator]
    index = {operator.id: i for i, operator in enumerate(parts.operators) if operator}
    operators += _sketch_operators(parts, index)
    left = order_of(operators)[1]
    for names in cycles_of([operators[i] for i in left]):
        where = f"operators[{index[names[0]]}].inputs"
        ring = " -> ".join((*names, names[0]))
        parts.faults.append(Fault(where, f"the operators {ring} form a cycle; allowed: none"))


def _queries(parts: DeploymentParts) -> None:
    known = {operator.query for operator in parts.operators if operator and operator.query} | set(parts.plans)
    known |= {reference.name for reference in parts.references if reference.what == "query"}
    seen: dict[str, int] = {}
    complete = all(parts.operators) or parts.queries_legible
    for i, objective in enumerate(parts.objectives):
        if objective is None:
            continue
        if complete and objective.query not in known:
            parts.unknown(f"objectives[{i}].query", objective.query, "query of an operator", known)
        if objective.query in seen:
            message = f"query {objective.query!r} has an objective already; allowed: one for each query"
            parts.faults.append(Fault(f"objectives[{i}].query", message))
        seen.setdefault(objective.query, i)
    for query in parts.priorities:
        if complete and query not in known:
            parts.unknown(f"priorities.{query}", query, "query of an operator", known)


def _constraints(parts: DeploymentParts, nodes: dict[str, Node]) -> None:
    limits = parts.constraints
    if limits is None:
        return
    operators = {operator.id for operator in parts.operators if operator}

    def known(path: str, name: str, what: str) -> None:
        table: Iterable[str] = nodes if what == "node" else operators
        if name not in table:
            parts.unknown(path, name, what, table)

    for name, node in limits.pin.items():
        known(f"constraints.pin.{name}", name, "operator")
        known(f"constraints.pin.{name}", node, "node")
    for name, forbidden in limits.forbid.items():
        known(f"constraints.forbid.{name}", name, "operator")
        for k, node in enumerate(forbidden):
            known(f"constraints.forbid.{name}[{k}]", node, "node")
        if limits.pin.get(name) in forbidden:
            message = f"operator {name!r} is pinned to {limits.pin[name]!r}, which is forbidden to it"
            parts.faults.append(Fault(f"constraints.forbid.{name}", message))
    for i, group in enumerate(limits.apart):
        for k, name in enumerate(group):
            known(f"constraints.apart[{i}][{k}]", name, "operator")
    for k, name in enumerate(limits.may_split or ()):
        known(f"constraints.may_split[{k}]", name, "operator")


#: Events in one subinterval out of an operator: whole numbers beyond are not exact in floats.
MAX_EVENTS = 1e15
#: Cycles in one subinterval, of one operator.
MAX_CYCLES = 1e60
#: Subintervals that the load of one may keep a core busy for. Kernels number subintervals by whole numbers of 64 bits.
MAX_BUSY = 1e9


def find_excessive_rates(
    sources: Sequence[Source],
    nodes: Sequence[Node],
    operators: Sequence[Operator],
    subinterval_s: float,
    path: str = "operators",
) -> list[Fault]:
    """Faults of the first operators whose events, cycles or time outgrow what can be computed with.

    Works with the largest subinterval of each source, so that it costs one step an input. What reads a faulty operator
    is not named again. Names must be sound: references exist and form no cycle.

    Notes
    -----
    Of operator j with inputs i, at peaks: events_j = sum of sigma_ji * events_i, cycles_j = sum of omega_ji * events_i,
    or the input's polynomials with the absolute values of their coefficients; busy = cycles_j * fraction / (C w).
    """
    faults: list[Fault] = []
    peaks = {
        source.id: _with_waiting(float(source.arrivals.max(initial=0.0)), source.backlog, subinterval_s)
        for source in sources
    }
    capacities = {node.id: _least_capacity(node) * subinterval_s for node in nodes}
    for i in order_of(operators)[0]:
        operator = operators[i]
        arriving = [_with_waiting(peaks.get(e.source, 0.0), e.backlog, subinterval_s) for e in operator.inputs]
        flows = [_flow(entry, peak) for entry, peak in zip(operator.inputs, arriving, strict=True)]
        events, cycles = sum(flow[0] for flow in flows), sum(flow[1] for flow in flows)
        fault = (
            _fault("puts out", events, MAX_EVENTS, "events in a subinterval")
            or _fault("costs", cycles, MAX_CYCLES, "cycles in a subinterval")
            or _busy_fault(operator, cycles, capacities)
        )
        if fault:
            faults.append(Fault(f"{path}[{i}]", f"operator {operator.id!r} {fault}"))
        peaks[operator.id] = 0.0 if fault else events
    return faults


def _with_waiting(peak: float, backlog: Backlog | None, subinterval_s: float) -> float:
    """Events of a stream in its largest subinterval, and those that wait, as if they came at once."""
    if backlog is None:
        return peak
    if backlog.events is not None:
        return peak + backlog.events
    return peak * (1.0 + (backlog.behind_s or 0.0) / subinterval_s)


def _least_capacity(node: Node) -> float:
    """The smallest capacity above 0 of a core, cycles/s; 0 where it never has any."""
    if node.capacity_series_cps is None:
        return float(node.capacity_cps or 0.0)
    series = node.capacity_series_cps
    return float(series[series > 0.0].min(initial=float(series.max(initial=0.0))))


def _flow(entry: Input, peak: float) -> tuple[float, float]:
    """Events out and cycles that `peak` events of an input cause at most."""
    if entry.model is None:
        return entry.selectivity * peak, entry.cycles_per_event * peak
    return _polynomial(entry.model.output, peak), _polynomial(entry.model.cycles, peak)


def _polynomial(coefficients: Sequence[float], x: float) -> float:
    value = 0.0
    for coefficient in reversed(coefficients):  # Horner; multiplication gives inf where a power would raise
        value = value * x + abs(coefficient)
    return value


def _busy_fault(operator: Operator, cycles: float, capacities: dict[str, float]) -> str | None:
    for replica in operator.replicas:
        capacity = capacities.get(replica.node, 0.0)
        if capacity > 0.0:
            busy = cycles * replica.fraction / capacity
            verb = f"in one subinterval brings {replica.node!r} the work of"
            if fault := _fault(verb, busy, MAX_BUSY, "subintervals"):
                return fault
    return None


def _fault(verb: str, value: float, allowed: float, unit: str) -> str | None:
    if value <= allowed:
        return None
    return f"{verb} up to {value:.3g} {unit}; allowed: up to {allowed:g}"
