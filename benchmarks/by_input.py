"""A deployment with one operator per input, for what Mace-Flow loses where an operator's inputs are apart in time.

Flow lets all work of an operator begin with the first of its inputs to arrive. Where a branch is held up behind another
node's backlog, the operator's work for it then seems to be done before it came. With every input as an operator of its
own on the same server, loads, outputs and Mace stay what they are, and Flow sees each branch at its own time.
"""

from __future__ import annotations

from dataclasses import replace

from engine.deployment import Deployment, Operator

__all__ = ["by_input"]


def by_input(deployment: Deployment) -> Deployment:
    """The same work, input by input; only for operators without non-linear models or load combinations."""
    parts: dict[str, list[str]] = {source.id: [source.id] for source in deployment.sources}
    operators: list[Operator] = []
    for i in deployment.order:
        operator = deployment.operators[i]
        names = [f"{operator.id}@{number}" for number in range(len(operator.inputs))]
        for name, entry in zip(names, operator.inputs, strict=True):
            inputs = tuple(replace(entry, source=part) for part in parts[entry.source])
            operators.append(replace(operator, id=name, inputs=inputs))
        parts[operator.id] = names
    return replace(deployment, operators=tuple(operators))
