"""Changes of a scenario in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["change_words"]


def change_words(change: Mapping[str, Any]) -> str:
    """A change of a scenario as a phrase."""
    kind = next(iter(change.keys() & _WORDS.keys()), "")
    return _WORDS[kind](change) if kind else ", ".join(f"{name} {value}" for name, value in change.items())


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
