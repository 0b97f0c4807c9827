"""Limits of a placement, and proofs that they cannot be met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from engine.document.deployment import Deployment, Operator
from engine.document.memory import MEMORY_SLACK, state_need_bytes
from engine.document.open_hosts import CLOSED, OpenHosts
from engine.errors import Fault, InfeasibleError, OptionError, suggestion
from engine.placement.answer import AppliedLimits
from engine.words import counted, listed, size_words

__all__ = ["PlacementLimits", "limits_of", "refuse_impossible_limits"]

_NAMED = 6  # names in a list, the last of a longer one being the number of those left out


@dataclass(frozen=True, eq=False)
class PlacementLimits:
    """Constraints of a deployment, with nodes that are emptied and operators that stay where they are."""

    deployment: Deployment
    closed: frozenset[str]
    fixed: frozenset[str]
    apart: tuple[tuple[str, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        groups = [tuple(dict.fromkeys(group)) for group in self.deployment.constraints.apart]
        object.__setattr__(self, "apart", tuple(group for group in groups if len(group) > 1))

    @property
    def max_moves(self) -> int | None:
        return self.deployment.constraints.max_moves

    @property
    def may_split(self) -> frozenset[str]:
        """Operators that may be split; none where nothing is said."""
        return frozenset(self.deployment.constraints.may_split or ())

    def open_nodes(self, name: str) -> list[bool]:
        """Nodes that an operator may move to, as flags."""
        if not self._hosts.is_limited(name) and name not in self._part_bytes:
            return self._not_closed
        return [not self.why_not(name, node.id) for node in self.deployment.nodes]

    @cached_property
    def _hosts(self) -> OpenHosts:
        return OpenHosts(self.deployment, self.closed)

    @cached_property
    def _not_closed(self) -> list[bool]:
        return [node.id not in self.closed for node in self.deployment.nodes]

    @cached_property
    def _part_bytes(self) -> dict[str, float]:
        """Bytes of memory that the smallest replica of each operator takes, of those that are known to take some."""
        return {
            operator.id: need * min((replica.fraction for replica in operator.replicas), default=1.0)
            for operator in self.deployment.operators
            if (need := state_need_bytes(operator))
        }

    def may_stay(self, name: str, node: str) -> bool:
        """Whether an operator that is on `node` may remain; closed nodes keep only what is fixed there."""
        refusal = self._hosts.refusal(name, node)
        return refusal is None or (refusal.kind == CLOSED and name in self.fixed)

    def why_not(self, name: str, node: str) -> str:
        """Reason that an operator may not move to a node; empty if it may."""
        refusal = self._hosts.refusal(name, node)
        if refusal is not None:
            return str(refusal)
        need = self._part_bytes.get(name, 0.0)
        memory = self.deployment.nodes[self.deployment.node_index[node]].memory_bytes
        if memory is None or need <= memory * (1.0 + MEMORY_SLACK):
            return ""
        return f"its state takes {size_words(need)}, and the memory of {node} is {size_words(memory)}"

    def nodes_left(self, operator: Operator) -> list[str]:
        """Nodes an operator may end on, as far as it alone decides."""
        here = {replica.node for replica in operator.replicas}
        if operator.id in self.fixed:
            kept = [node.id for node in self.deployment.nodes if node.id in here]
            return [name for name in kept if self.may_stay(operator.id, name)]
        return [
            node.id
            for node, is_open in zip(self.deployment.nodes, self.open_nodes(operator.id), strict=True)
            if is_open or (node.id in here and self.may_stay(operator.id, node.id))
        ]

    @property
    def applied(self) -> AppliedLimits:
        """The constraints as applied."""
        limits = self.deployment.constraints
        return AppliedLimits(
            dict(limits.pin),
            {name: tuple(nodes) for name, nodes in limits.forbid.items()},
            tuple(tuple(group) for group in limits.apart),
            limits.max_moves,
            tuple(sorted(self.may_split)),
            tuple(sorted(self.closed)),
            tuple(sorted(self.fixed)),
        )


def limits_of(deployment: Deployment, closed: Collection[str], fixed: Collection[str]) -> PlacementLimits:
    """The limits; raises `OptionError` for nodes and operators that do not exist, all at once."""
    faults = [
        Fault(f"{field}[{i}]", f"{field} names {name!r}, which is no {what}{suggestion(name, list(known))}")
        for field, names, known, what in (
            ("closed", closed, deployment.node_index, "node"),
            ("fixed", fixed, deployment.operator_index, "operator"),
        )
        for i, name in enumerate(names)
        if name not in known
    ]
    if faults:
        raise OptionError(f"The placement was asked for with {len(faults)} unknown names", faults)
    return PlacementLimits(deployment, frozenset(closed), frozenset(fixed))


def refuse_impossible_limits(limits: PlacementLimits) -> None:
    """Raise for every limit that cannot be met, before any search.

    Raises
    ------
    InfeasibleError
        There is no node; an operator has no node left; operators apart have too few nodes; operators must move that
        may not; an operator with state is to be split.
    """
    deployment = limits.deployment
    if deployment.operators and not deployment.nodes:
        raise InfeasibleError(
            "There is no node to place operators on", [Fault("nodes", "nodes has no items; allowed: at least one node")]
        )
    faults = [*_homeless(limits), *_crowded(limits), *_stuck(limits), *_stateful(limits)]
    if faults:
        count = counted(len(faults), "constraint")
        raise InfeasibleError(f"No placement respects {count}; first: {faults[0].message}", faults)


def _homeless(limits: PlacementLimits) -> Iterator[Fault]:
    """Faults of operators that no node is open to."""
    for i, operator in enumerate(limits.deployment.operators):
        path, fixed = f"operators[{i}].node", operator.id in limits.fixed
        if fixed and not operator.replicas:
            yield Fault(path, f"operator {operator.id!r} must stay where it is, but has no place yet")
        elif fixed and not all(limits.may_stay(operator.id, replica.node) for replica in operator.replicas):
            yield Fault(path, f"operator {operator.id!r} must stay and must leave: {_why(limits, operator)}")
        elif not limits.nodes_left(operator):
            yield Fault(path, f"operator {operator.id!r} fits no node: {_why(limits, operator)}")


def _why(limits: PlacementLimits, operator: Operator) -> str:
    nodes = {replica.node for replica in operator.replicas} if operator.id in limits.fixed else None
    names = [node.id for node in limits.deployment.nodes if nodes is None or node.id in nodes]
    reasons = dict.fromkeys(why for name in names if (why := limits.why_not(operator.id, name)))
    return "; ".join(list(reasons)[:5]) + (f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else "")


def _crowded(limits: PlacementLimits) -> Iterator[Fault]:
    """Faults of anti-affinity groups with more operators than nodes."""
    deployment = limits.deployment
    for i, group in enumerate(limits.apart):
        members = [deployment.operators[deployment.operator_index[name]] for name in group]
        left = [limits.nodes_left(operator) for operator in members]
        if not all(left):
            continue  # said already
        if not _each_has_one(left):
            between = sorted({name for names in left for name in names})
            yield Fault(
                f"constraints.apart[{i}]",
                f"operators {', '.join(group)} must be on different nodes, "
                f"but have only {listed(between, _NAMED)} between them",
            )


def _each_has_one(choices: list[list[str]]) -> bool:
    """Whether each operator can have a node of its own among its choices (bipartite matching)."""
    holder: dict[str, int] = {}

    def seat(index: int, seen: set[str]) -> bool:
        for name in choices[index]:
            if name not in seen:
                seen.add(name)
                if name not in holder or seat(holder[name], seen):
                    holder[name] = index
                    return True
        return False

    return all(seat(operator, set()) for operator in range(len(choices)))


def _stuck(limits: PlacementLimits) -> Iterator[Fault]:
    """Faults of limits that force more moves than allowed."""
    if limits.max_moves is None:
        return
    deployment = limits.deployment
    must = {
        operator.id: sum(not limits.may_stay(operator.id, replica.node) for replica in operator.replicas)
        for operator in deployment.operators
    }
    forced = Counter({name: count for name, count in must.items() if count})
    # Groups can share the operator that moves, therefore only the one that needs most of them counts.
    for counts in sorted((_must_part(deployment, group, forced) for group in limits.apart), key=len)[-1:]:
        forced |= counts
    if forced.total() > limits.max_moves:
        names = listed(list(forced), _NAMED)
        yield Fault(
            "constraints.max_moves",
            f"max_moves is {limits.max_moves}; the other constraints make at least {forced.total()} move: {names}",
        )


def _must_part(deployment: Deployment, group: tuple[str, ...], forced: Counter[str]) -> Counter[str]:
    """One of two operators apart that share a node now, unless it has to move anyhow."""
    held: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for name in group:
        operator = deployment.operators[deployment.operator_index[name]]
        if name in forced or len(operator.replicas) != 1:
            continue
        node = operator.replicas[0].node
        if held.setdefault(node, name) != name:
            counts[name] = 1
    return counts


def _stateful(limits: PlacementLimits) -> Iterator[Fault]:
    for k, name in enumerate(limits.deployment.constraints.may_split or ()):
        operator = limits.deployment.operators[limits.deployment.operator_index[name]]
        if operator.is_divisible is False:
            message = f"may_split names {name!r}, which has state that is not by key; allowed: stateless or keyed ones"
            yield Fault(f"constraints.may_split[{k}]", message)
