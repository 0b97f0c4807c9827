"""Neighbouring stateless operators made one: a function call takes the place of the queue between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.elements import Operator
from engine.plans.chains import chains_of
from engine.plans.dataflow import Dataflow, local_name
from engine.plans.meaning import Refusal
from engine.plans.statistics import fused_input, weakest
from engine.plans.steps import Step

__all__ = ["NAME_LENGTH", "fused", "parts_of"]

NAME_LENGTH = 120


def fused(flow: Dataflow, hop_cycles: float, refused: list[Refusal]) -> tuple[Dataflow, list[Step]]:
    """Every pair of neighbours in a chain fused that may be; `hop_cycles` are saved for each event between them."""
    steps: list[Step] = []
    if not hop_cycles:
        if any(len(chain) > 1 for chain in chains_of(flow)):
            refused.append(
                Refusal("fuse", "", "", "the cycles that a queue between two operators costs are not stated")
            )
        return flow, steps
    for chain in chains_of(flow):
        done = chain[0]
        for following in chain[1:]:
            second = flow.by_id[following.id]
            if why := _blocked(done, second):
                refused.append(Refusal("fuse", local_name(second), local_name(done), why))
                done = second
                continue
            one = _one(done, second, hop_cycles)
            steps.append(Step("fuse", f"`{local_name(done)}` and `{local_name(second)}` fused into one operator"))
            flow = flow.changed(one, *flow.reading(second.id, one.id), without=(done.id, second.id))
            done = one
    return flow, steps


def _blocked(first: Operator, second: Operator) -> str:
    if first.replicas and second.replicas and first.replicas != second.replicas:
        return "they run on different cores, and one core would have to do the work of both"
    if len(_id(first, second)) > NAME_LENGTH:
        return f"the name of the two would be longer than {NAME_LENGTH} characters"
    return ""


def _id(first: Operator, second: Operator) -> str:
    return f"{first.id}+{local_name(second)}"


def _one(first: Operator, second: Operator, hop_cycles: float) -> Operator:
    """An operator that does the work of both."""
    return replace(
        first,
        id=_id(first, second),
        kind="filter" if first.kind == second.kind == "filter" else "map",
        inputs=(fused_input(first.inputs[0], second.inputs[0], hop_cycles),),
        bytes_per_event=second.bytes_per_event,
        tuple_values_out=second.tuple_values_out,
        evidence=weakest(first, second),
        reads=_union(first.reads, second.reads),
        writes=_union(_writes(first), _writes(second)),
        expression={"fused": [*_expressions(first), *_expressions(second)]},
    )


def _writes(operator: Operator) -> tuple[str, ...] | None:
    return () if operator.kind == "filter" and operator.writes is None else operator.writes


def _union(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if one is None or other is None else tuple(dict.fromkeys((*one, *other)))


def _expressions(operator: Operator) -> list[dict[str, Any]]:
    if parts_of(operator) is not None:
        return list(operator.expression["fused"])
    known = {} if operator.expression is None else {"expression": operator.expression}
    return [{"id": local_name(operator), **known}]


def parts_of(operator: Operator) -> Sequence[str] | None:
    """Names of the operators that were fused into this one, in the order of the data; None if it is a plain one."""
    expression = operator.expression
    if isinstance(expression, dict) and set(expression) == {"fused"}:
        return [part["id"] for part in expression["fused"]]
    return None
