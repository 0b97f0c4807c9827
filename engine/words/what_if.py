"""Clauses of what-ifs: what a change changes."""

from __future__ import annotations

from engine.words import counted
from engine.words.templates import Template

__all__ = ["SENTENCES"]


def _capacity_words(capacity: str, by: float | None, capacity_cps: float | None, **_: object) -> str:
    return f"node {capacity} at {f'{capacity_cps:g} cycles/s a core' if by is None else f'{by:g} times its capacity'}"


def _source_words(scale_source: str, by: float, **_: object) -> str:
    return f"{'every source' if scale_source == '*' else f'source {scale_source}'} at {by:g} times its load"


SENTENCES: dict[str, Template] = {
    "scale_source": _source_words,
    "scale_query": "query {scale_query} at {by:g} times its load",
    "arrivals": "source {arrivals} with other arrivals",
    "add_nodes": lambda add_nodes, like, **_: f"{counted(add_nodes, 'node')} added{f' like {like}' if like else ''}",
    "lose_node": "node {lose_node} lost",
    "capacity": _capacity_words,
    "resize_pool": "pool {resize_pool} from {was} to {nodes:counted node}",
    "objective": "objective of {objective}: {was} at most {bound_s:g} s",
    "add_query": "query {was} added",
    "remove_query": "query {remove_query} removed",
}
