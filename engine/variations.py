"""Small variations of a deployment that several questions share: one more node, sources read by one query only."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from engine.deployment import Deployment, Link, Node, Operator

__all__ = ["private_name", "renamed", "with_node_like"]


def with_node_like(deployment: Deployment, node: Node, like: str) -> Deployment:
    """One more node, connected as the node it is modelled on is; to that one by the worst of its links."""
    links = [replace(link, source=node.id) for link in deployment.links if link.source == like]
    links += [replace(link, target=node.id) for link in deployment.links if link.target == like]
    if links:
        limits = [link.bandwidth_bytes_s for link in links if link.bandwidth_bytes_s is not None]
        bandwidth, delay_s = min(limits, default=None), max(link.delay_s for link in links)
        links += [Link(a, b, bandwidth, delay_s) for a, b in ((like, node.id), (node.id, like))]
    return replace(deployment, nodes=(*deployment.nodes, node), links=(*deployment.links, *links))


def private_name(name: str, query: str, brought: Collection[str], taken: Collection[str]) -> str:
    """``source@query``, which a source that the query brings (one of `brought`) may be called already."""
    suffix = f"@{query}"
    private = name if name.endswith(suffix) and name in brought else name + suffix
    while private in taken:
        private += suffix
    return private


def renamed(operator: Operator, name_of: Callable[[str], str | None]) -> Operator:
    """The operator with its inputs under other names, where `name_of` has one."""
    inputs = tuple(replace(entry, source=name_of(entry.source) or entry.source) for entry in operator.inputs)
    return replace(operator, inputs=inputs)
