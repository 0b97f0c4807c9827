"""Small documents that the engine's tests build on: a base and differences."""

from __future__ import annotations

from typing import Any

__all__ = ["chain", "deployment", "entry", "figure3", "operator"]


def entry(source: str, selectivity: float = 1.0, cycles: float = 1.0, **more: Any) -> dict[str, Any]:
    """An input."""
    return {"from": source, "selectivity": selectivity, "cycles_per_event": cycles, **more}


def operator(name: str, node: str, *inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A placed operator."""
    return {"id": name, "node": node, "inputs": list(inputs), **more}


def deployment(**changes: Any) -> dict[str, Any]:
    """Source s, nodes A and B of 100 cycles/s, operators f on A and g on B."""
    base = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [100, 300, 0, 0]}],
        "nodes": [{"id": "A", "capacity_cps": 100.0}, {"id": "B", "capacity_cps": 100.0}],
        "operators": [operator("f", "A", entry("s", 0.5)), operator("g", "B", entry("f"))],
    }
    return base | changes


def figure3() -> dict[str, Any]:
    """The worked example of the paper's Fig. 3: w = 2, C = 1; loads of N1 and N3 fill in what the figure leaves out."""
    names = (("a", "O1", "N1"), ("b", "O2", "N2"), ("c", "O3", "N3"))
    arrivals = {"a": [2, 4, 0, 2, 3], "b": [3, 6, 0, 1, 4], "c": [3, 4, 1, 1, 2]}
    return {
        "subinterval_s": 2.0,
        "sources": [{"id": name, "arrivals": values} for name, values in arrivals.items()],
        "nodes": [{"id": node, "capacity_cps": 1.0} for _, _, node in names],
        "operators": [operator(name, node, entry(source)) for source, name, node in names],
    }


def chain(bursts: int, nodes: int) -> dict[str, Any]:
    """Source k bursts in its turn, costs node k twice its capacity, and the nodes before and after next to nothing."""
    d = 10 * bursts + 10 * bursts
    sources = [
        {"id": f"s{k}", "arrivals": [100.0 if 10 * k <= p < 10 * k + 10 else 0.0 for p in range(d)]}
        for k in range(nodes)
    ]
    operators = []
    for k in range(nodes):
        for step in range(nodes):
            above = f"s{k}" if step == 0 else f"q{k}.{step - 1}"
            cost = 2.0 if step == k else 1e-6
            operators.append(operator(f"q{k}.{step}", f"N{step}", entry(above, 1.0, cost)))
    return {
        "subinterval_s": 1.0,
        "sources": sources,
        "nodes": [{"id": f"N{k}", "capacity_cps": 100.0} for k in range(nodes)],
        "operators": operators,
    }
