"""Contents of a snapshot's parts as short texts, and differences between two snapshots in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.fleet.choices import CycleUnit
from apps.fleet.models import Cluster, Link, Node
from apps.queries.backlogs import backlog_content
from apps.queries.bodies import cost_noise_of
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Query, QueryVersion
from apps.ui.numbers import Quantity, byte_rate, cps, percent, seconds
from engine.document.elements import STIMULUS_TIME, Replica
from engine.document.policies import loosest_policy

__all__ = [
    "AgentPolicy",
    "link_content",
    "node_content",
    "node_policies",
    "part_content",
    "policy_reader",
    "query_content",
    "query_shorts",
    "snapshot_changes",
    "source_content",
]

_WORDS = {
    "capacity_cps": "capacity",
    "bandwidth_bytes_s": "bandwidth",
    "delay_s": "delay",
    "rate_share": "admitted share of its rate",
    "data": "arrivals",
    "backlog": "what waits",
    "scheduling": "scheduling policy",
    "subinterval_s": "subinterval",
    "horizon_s": "horizon",
    "step_s": "step of the counts",
    "dispersion": "dispersion of arrivals",
    "dispersion_step_s": "step of the dispersion",
}

_UNITS: Mapping[str, Callable[[Any], Quantity]] = {
    "capacity_cps": cps,
    "bandwidth_bytes_s": byte_rate,
    "delay_s": seconds,
    "rate_share": percent,
    "subinterval_s": seconds,
    "horizon_s": seconds,
}
_VALUES = {"None": "no limit", "True": "on", "False": "off"}


def snapshot_changes(old_parts: Mapping[str, str], new_parts: Mapping[str, str]) -> list[str]:
    """Differences between two snapshots, in words: "node n07: capacity changed from 2 Gcycles/s to 3 Gcycles/s"."""
    changes = []
    for part in sorted(old_parts.keys() | new_parts.keys()):
        title = part.replace(":", " ", 1)
        if part not in old_parts:
            changes.append(f"{title} was added")
        elif part not in new_parts:
            changes.append(f"{title} was removed")
        elif old_parts[part] != new_parts[part]:
            changes.append(f"{title}: {_difference(old_parts[part], new_parts[part])}")
    return changes


def part_content(**aspects: Any) -> str:
    """`capacity_cps=3e+09 cores=4`: short values stand in words, longer ones as `#` and the start of their digest."""
    return " ".join(f"{name}={value}" for name, value in aspects.items())


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def node_content(node: Node, policy: str | None) -> str:
    """Size and state of a node, and the policy of its agents where it is not stimulus time."""
    memory = {} if node.memory_for_state is None else {"memory_bytes": node.memory_for_state}
    unit = {} if node.cycle_unit == CycleUnit.NOMINAL else {"cycle_unit": node.cycle_unit}
    factor = {} if node.cycles_per_ns is None else {"cycles_per_ns": node.cycles_per_ns}
    size = {"capacity_cps": node.capacity_cps, "cores": node.cores, "state": node.state}
    scheduling = {} if policy in (None, STIMULUS_TIME) else {"scheduling": policy}
    return part_content(**size, **memory, **unit, **factor, **scheduling)


def link_content(link: Link) -> str:
    return part_content(bandwidth_bytes_s=link.bandwidth_bytes_s, delay_s=link.delay_s)


def source_content(row: ArrivalSeries) -> str:
    """The arrivals, and the fields of an event where they are stated."""
    stated = {"event_fields": _short(row.event_fields) if row.event_fields else None, "step_s": row.step_s}
    stated |= {"dispersion": row.dispersion, "dispersion_step_s": row.dispersion_step_s}
    kept = {name: value for name, value in stated.items() if value is not None}
    return part_content(data=f"#{row.digest[:16]}", **kept)


def query_shorts(version: QueryVersion, replicas: Sequence[Sequence[Replica]]) -> dict[str, str]:
    """Plan, statistics and placement of a version with fetched operators; `replicas` of each of them."""
    rows = list(version.operators.all())
    return {
        "plan": _short([_plan(row) for row in rows]),
        "statistics": _short([_statistics(entry) for row in rows for entry in row.inputs.all()]),
        "placement": _short([[(r.node, r.core, r.fraction) for r in parts] for parts in replicas]),
    }


def query_content(query: Query, shorts: Mapping[str, str]) -> str:
    bound = query.objective_bound_s
    return part_content(
        objective="none" if bound is None else f"{query.objective_statistic}<={bound!r}s",
        priority=query.priority,
        rate_share=query.rate_share,
        **({"team": query.team_id} if query.team_id else {}),
        **shorts,
        **({"backlog": waiting} if (waiting := backlog_content(query)) else {}),
    )


def _plan(row: Operator) -> list[Any]:
    reads = [entry.upstream.name if entry.upstream else [entry.source_id] for entry in row.inputs.all()]
    return [row.name, row.kind, row.stateless, row.bytes_per_event, row.extra, reads]


def _statistics(entry: OperatorInput) -> list[Any]:
    numbers = [entry.selectivity, entry.cycles_per_event, entry.model, entry.batches]
    unit = [] if entry.cycle_unit == CycleUnit.NOMINAL else [str(entry.cycle_unit)]
    return [*numbers, str(entry.evidence), entry.events, *cost_noise_of(entry).items(), *unit]


def _difference(old: str, new: str) -> str:
    before, after = _aspects(old), _aspects(new)
    words = []
    for name in [name for name in after if before.get(name) != after[name]]:
        aspect = _WORDS.get(name, name.replace("_", " "))
        if after[name].startswith("#") or name not in before:
            words.append(f"{aspect} changed")
        else:
            words.append(f"{aspect} changed from {' to '.join(_value_pair(name, before[name], after[name]))}")
    return ", ".join(words) or "changed"


def _value_pair(name: str, before: str, after: str) -> tuple[str, str]:
    """Two values as the pages write them, in full where a few digits do not tell them apart."""
    texts = _value_text(name, before), _value_text(name, after)
    return texts if texts[0] != texts[1] else (before, after)


def _value_text(name: str, text: str) -> str:
    if text in _VALUES:
        return _VALUES[text]
    if name == "objective":
        statistic, _, bound = text.removesuffix("s").partition("<=")
        return f"{statistic} ≤ {_plain(seconds(bound))}" if bound else text
    return _plain(_UNITS[name](text)) if name in _UNITS else text


def _plain(quantity: Quantity) -> str:
    return str(quantity).replace("\N{NO-BREAK SPACE}", " ")


def _aspects(content: str) -> dict[str, str]:
    return dict(aspect.split("=", 1) for aspect in content.split(" ") if "=" in aspect)


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """Policy of an agent: at the node it is registered at, or else at that of its name."""

    agent: str
    node_id: int | None
    policy: str


PolicyReader = Callable[[Cluster], Iterable[AgentPolicy]]
_reader: PolicyReader | None = None  # set once, as the apps are loaded


def policy_reader(function: PolicyReader) -> PolicyReader:
    """Register the function that returns the policies that agents of a cluster reported last."""
    global _reader
    _reader = function
    return function


def node_policies(cluster: Cluster, nodes: Sequence[Node]) -> dict[str, str]:
    """Policy in force at each node's agent, as it said last; nodes without an agent have none.

    Where a node has several agents, the loosest policy of theirs decides.
    """
    by_id, by_name = {node.pk: node for node in nodes}, {node.name: node for node in nodes}
    said: dict[str, list[str]] = {}
    for entry in () if _reader is None else _reader(cluster):
        node = by_id.get(entry.node_id or 0) or by_name.get(entry.agent)
        if node is not None:
            said.setdefault(node.name, []).append(entry.policy)
    return {name: loosest_policy(policies) for name, policies in said.items()}
