"""Clauses of what-ifs: what a change changes; and sentences of events: what their loads rest on."""

from __future__ import annotations

from engine.words import counted
from engine.words.templates import Template

__all__ = ["EVENTS", "SENTENCES"]


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
    "objective": "objective of {objective}: {was} at most {bound_s:seconds}",
    "add_query": "query {was} added",
    "remove_query": "query {remove_query} removed",
}

EVENTS: dict[str, Template] = {
    "forecast": "The ordinary load of {names:listed} is that of the newest forecast.",
    "typical_week": "The ordinary load of {names:listed} is the median of the same hours of the newest four weeks on "
    "record: it does not grow.",
    "as_it_is": "The ordinary load of {names:listed} is that of its arrivals as they are: nothing is known of its day "
    "or week.",
    "own_peaks": "Nodes are sized for every source at its own peak at once.",
    "delay_by_mace": "What to delay is found by Mace with all nodes up, which tends to be lower than what is realised.",
    "not_read": "{names:listed} {names:either has|have} a factor, and nobody reads {names:either it|them} now.",
    "without_queries": "{names:listed} {names:either has|have} a factor, and no running query that reads a source.",
    "trace": "{names:listed} {names:either comes|come} as the last time, on the same hours from {since}.",
    "no_trace": "Nothing is on record of the last time, from {since}: the rest keeps its factor.",
}
