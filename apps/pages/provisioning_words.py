"""Changes of a scenario in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["change_words", "option_words"]


def change_words(change: Mapping[str, Any]) -> str:
    """A change of a scenario as a phrase."""
    kind = next(iter(change.keys() & _WORDS.keys()), "")
    return _WORDS[kind](change) if kind else ", ".join(f"{name} {value}" for name, value in change.items())


def option_words(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parameters of a search as (name, value) a reader knows; lists have a place of their own on the page."""
    rows = [(name, value) for name, value in options.items() if not isinstance(value, (list, dict))]
    return [(_OPTIONS.get(name, name.replace("_", " ")), _value_words(value)) for name, value in rows]


def _value_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


_OPTIONS = {
    "lose_one": "Hold with any one node lost",
    "keep_present": "The nodes of now stay",
    "pool": "Nodes are added to pool",
    "headroom_s": "Headroom to keep, s",
    "max_nodes": "At most nodes",
    "bound_s": "Objective of every query, s",
    "objective_factor": "Every objective times",
    "factor": "Every source times",
    "seed": "Seed",
    "most": "Largest growth looked at",
    "flow": "With Flow",
    "intervals": "With intervals",
}

_WORDS: dict[str, Any] = {
    "scale_source": lambda c: (
        f"{'every source' if c['scale_source'] == '*' else c['scale_source']} at {c['by']:g} times its load"
    ),
    "scale_query": lambda c: f"{c['scale_query']} at {c['by']:g} times its load",
    "add_nodes": lambda c: (
        f"{c['add_nodes']} node{'s' if c['add_nodes'] > 1 else ''} more{' like ' + c['like'] if c.get('like') else ''}"
    ),
    "lose_node": lambda c: f"{c['lose_node']} lost",
    "capacity": lambda c: f"another capacity of {c['capacity']}",
    "resize_pool": lambda c: f"{c['nodes']} nodes in pool {c['resize_pool']}",
    "objective": lambda c: f"{c['objective']} within {c['bound_s']:g} s",
    "add_query": lambda c: f"{c['add_query'].get('query', 'a query')} added",
    "remove_query": lambda c: f"{c['remove_query']} removed",
    "arrivals": lambda c: f"other arrivals of {c['arrivals']}",
}
