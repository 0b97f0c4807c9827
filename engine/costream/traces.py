"""Traces as a corpus stores them: query, hosts, placement and costs, in the form that `read_trace` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph

__all__ = ["host_document", "operator_document", "trace_document"]


def trace_document(graph: QueryGraph, hosts: Sequence[HostNode], placement: Sequence[int]) -> dict[str, Any]:
    """Query, hosts and placement, operators in topological order.

    Examples
    --------
    >>> source = OperatorNode("source", 6, 6, rate_eps=9, n_int=6)
    >>> graph = QueryGraph((OperatorNode("sink", 6, 6), source), ((1, 0),))
    >>> document = trace_document(graph, [HostNode(100, 1000, 25, 0.16, 0)], (0, 0))
    >>> document["query"]["ops"][0]["rate"], document["query"]["edges"], document["placement"]
    (9, [[0, 1]], [0, 0])
    """
    place = {i: row for row, i in enumerate(graph.order)}
    edges = sorted([place[a], place[b]] for a, b in graph.edges)
    return {
        "query": {"ops": [operator_document(graph.operators[i]) for i in graph.order], "edges": edges},
        "hosts": [host_document(host) for host in hosts],
        "placement": [placement[i] for i in graph.order],
    }


def operator_document(operator: OperatorNode) -> dict[str, Any]:
    """An operator as `read_operator` takes it."""
    fields: dict[str, Any] = {"type": operator.kind}
    if operator.kind == "source":
        fields |= {"rate": operator.rate_eps, "n_int": operator.n_int, "n_str": operator.n_str, "n_dbl": operator.n_dbl}
    elif operator.kind == "filter":
        fields |= {"fn": operator.function, "dtype": operator.value_type, "sel": operator.selectivity}
    elif operator.kind == "join":
        fields |= {"keytype": operator.value_type}
    elif operator.kind == "agg":
        fields |= {"fn": operator.function, "atype": operator.value_type, "gtype": operator.group_type}
    if operator.window_policy:
        fields |= {
            "wpolicy": operator.window_policy,
            "wtype": operator.window_type,
            "wsize": operator.window_size,
            "wslide": operator.window_slide,
            "sel": operator.selectivity,
        }
    return fields | {"win": operator.values_in, "wout": operator.values_out}


def host_document(host: HostNode) -> dict[str, Any]:
    """A host as `read_hosts` takes it."""
    return {
        "cpu": host.cpu_percent,
        "ram": host.ram_mb,
        "bandwidth": host.bandwidth_mbit_s,
        "latency": round(1e3 * host.latency_s, 9),
        "bin": host.strength,
    }
