"""Pictures of a ranking of plans: estimates with their intervals on one scale, and plans as small graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.ui.dag import DagEdge, DagNode, dag_picture
from apps.ui.numbers import seconds, significant

__all__ = ["changed_operators", "interval_dots", "plan_graph"]

_WIDTH = 300.0
_NO_SCALE = 'vector-effect="non-scaling-stroke"'
_ROUND = 'stroke-linecap="round"'


def interval_dots(plan: Mapping[str, Any], most_s: float, bound_s: float | None, name: str) -> SafeString:
    """One plan on the scale of all: a line from low to high, a dot at the estimate, the objective as an upright."""

    def x(value_s: float) -> float:
        return round(min(value_s / most_s, 1.0) * (_WIDTH - 12) + 6, 1) if most_s else 6.0

    parts = [f'<path d="M0 10h{_WIDTH:g}" stroke="var(--line)" {_NO_SCALE}/>']
    if bound_s is not None and bound_s <= most_s:
        parts.append(f'<path d="M{x(bound_s):g} 0v20" stroke="var(--c-objective)" stroke-width="1.5" {_NO_SCALE}/>')
    if plan["low_s"] is not None:
        low, high = x(plan["low_s"]), x(plan["high_s"])
        band = f'd="M{low:g} 10H{high:g}" stroke="var(--c-band)" stroke-width="8"'
        parts.append(f"<path {band} {_NO_SCALE}/>")
        parts.append(
            f'<path d="M{low:g} 5v10M{high:g} 5v10" stroke="var(--c-estimate)" stroke-width="1.5" {_NO_SCALE}/>'
        )
    at = x(plan["estimate_s"])
    parts.append(f'<path d="M{at:g} 10h.01" stroke="var(--c-estimate)" stroke-width="9" {_ROUND} {_NO_SCALE}/>')
    words = f"{name}: estimate {seconds(plan['estimate_s'])}"
    if plan["low_s"] is not None:
        words += f", interval {seconds(plan['low_s'])} to {seconds(plan['high_s'])}"
    if bound_s is not None:
        words += f", objective {seconds(bound_s)}"
    return format_html(
        '<svg class="dots" viewBox="0 0 300 20" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        words,
        mark_safe("".join(parts)),  # numbers and names of colours only
    )


def changed_operators(plan: Mapping[str, Any], other: Mapping[str, Any] | None) -> set[str]:
    """Ids of the plan's operators that are new, or read something else than in the other plan."""
    if other is None:
        return set()
    before = {op["id"]: [entry["from"] for entry in op["inputs"]] for op in other["operators"]}
    return {op["id"] for op in plan["operators"] if before.get(op["id"]) != [e["from"] for e in op["inputs"]]}


def plan_graph(plan: Mapping[str, Any], query: str, other: Mapping[str, Any] | None, label: str) -> SafeString:
    """The plan from left to right; what differs from the other plan stands out."""
    changed, prefix = changed_operators(plan, other), f"{query}/"
    names = {op["id"] for op in plan["operators"]}
    # an operator of kind source stands for what it reads
    readers = [op for op in plan["operators"] if op.get("kind") != "source"]
    sources = dict.fromkeys(e["from"] for op in readers for e in op["inputs"] if e["from"] not in names)
    # an operator's name has no NUL, so a source of the same name stays another block
    keys = {name: f"source\0{name}" for name in sources}
    nodes = [DagNode(keys[name], name.partition("@")[0], detail="source") for name in sources]
    nodes += [
        DagNode(
            op["id"],
            op["id"].removeprefix(prefix),
            place=_place(plan["placement"].get(op["id"], [])),
            detail=_detail(op),
            on_path=op["id"] in changed,
        )
        for op in plan["operators"]
    ]
    edges = [
        DagEdge(keys.get(entry["from"], entry["from"]), op["id"], on_path=op["id"] in changed)
        for op in plan["operators"]
        for entry in op["inputs"]
        if entry["from"] in names or entry["from"] in keys
    ]
    told = ", ".join(sorted(name.removeprefix(prefix) for name in changed))
    return dag_picture(nodes, edges, f"{label}. Differs in {told}." if told else label)


def _place(replicas: Sequence[Mapping[str, Any]]) -> str:
    nodes = list(dict.fromkeys(replica["node"] for replica in replicas))
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else ""


def _detail(operator: Mapping[str, Any]) -> str:
    entries = operator["inputs"]
    known = f"selectivity {significant(entries[0]['selectivity'])}" if len(entries) == 1 else f"{len(entries)} inputs"
    kind = operator.get("kind") or "other"
    return known if kind == "other" else f"{kind}, {known}"
