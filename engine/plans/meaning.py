"""What may change places without changing the result, and why other things may not.

Everything rests on what a document states: kinds, `stateless`, windows, `reads` and `writes`. What is not stated is
never guessed: a rule then does not apply, and the reason says what was missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.elements import Operator
from engine.plans.dataflow import Dataflow, local_name

__all__ = ["Refusal", "barrier", "filter_blocked", "free", "join_blocked", "pushable_side"]


@dataclass(frozen=True)
class Refusal:
    """A rule that was not applied. `over` is what stands in the way; both are empty for a rule that was not tried."""

    rule: str
    operator: str
    over: str
    why: str

    @property
    def words(self) -> str:
        """filter `rules` is not moved below `parse`: what parse writes is not stated."""
        if not self.operator:
            return f"nothing is {'fused' if self.rule == 'fuse' else 'rewritten'}: {self.why}"
        verb = {"fuse": "is not fused with", "join order": "does not change places with"}.get(self.rule)
        return f"`{self.operator}` {verb or 'is not moved below'} `{self.over}`: {self.why}"


def free(operator: Operator) -> bool:
    """Whether the operator takes one event at a time and forgets it: it may be part of a chain that is put in order."""
    return not barrier(operator)


def barrier(operator: Operator) -> str:
    """Why nothing moves past an operator; empty for a stateless filter or map of one input."""
    name = local_name(operator)
    if operator.window is not None and operator.window.policy == "count":
        return f"{name} counts events in a window, and other events would fall into it"
    if operator.kind not in ("filter", "map"):
        return f"{name} is {_a(operator.kind)}" if operator.kind else f"what kind of operator {name} is is not stated"
    if operator.stateless is None:
        return f"whether {name} keeps state is not stated"
    if not operator.stateless or operator.window is not None:
        return f"{name} keeps state"
    if len(operator.inputs) != 1:
        return f"{name} reads {len(operator.inputs)} streams"
    if operator.inputs[0].model is not None:
        return f"the statistics of {name} are a model of its rate"
    return ""


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def filter_blocked(moved: Operator, over: Operator) -> str:
    """Why a stateless filter may not go before the stateless filter or map it follows; empty if it may.

    Two filters commute, as neither changes an event. A filter and a map commute if the filter reads nothing that the
    map writes: it then says the same of every output of the map as of the input they came from.
    """
    if over.kind == "filter":
        return ""
    if over.writes is None:
        return f"what {local_name(over)} writes is not stated"
    if moved.reads is None:
        return f"what {local_name(moved)} reads is not stated"
    common = sorted(set(moved.reads) & set(over.writes))
    if common:
        return f"it reads {_names(common)}, which {local_name(over)} writes"
    return ""


def _names(fields: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in fields)


def join_blocked(join: Operator) -> str:
    """Why nothing may be moved below a join whichever side it is about; empty if it depends on the fields."""
    name = local_name(join)
    if len(join.inputs) != 2:
        return f"{name} joins {len(join.inputs)} streams; the rule is for two"
    if any(entry.model is not None for entry in join.inputs):
        return f"the statistics of {name} are a model of its rate"
    if join.window is None:
        return f"the window of {name} is not stated"
    if join.window.policy == "count":
        return f"{name} counts events in a window, and other events would fall into it"
    if join.writes is None:
        return f"what {name} writes is not stated"
    return ""


def pushable_side(flow: Dataflow, moved: Operator, join: Operator) -> tuple[int | None, str]:
    """Which input of a join a filter behind it reads only the fields of: (position, "") or (None, why).

    A field that the other side cannot hold comes from this one. A key of the join is the same on both sides.
    """
    why = join_blocked(join)
    if why:
        return None, why
    if moved.reads is None:
        return None, f"what {local_name(moved)} reads is not stated"
    if not moved.reads:
        return None, f"{local_name(moved)} reads no field, so it belongs to neither side"
    reads, keys = set(moved.reads), set(join.reads or ())
    if made := sorted(reads & set(join.writes or ())):
        return None, f"it reads {_names(made)}, which {local_name(join)} writes"
    shared: list[str] = []
    unknown = []
    for side in (0, 1):
        other = flow.fields(join.inputs[1 - side].source)
        if other is None:
            unknown.append(join.inputs[1 - side].source)
        elif not (both := sorted((reads & other) - keys)):
            return side, ""
        else:
            shared = both
    if unknown:
        return None, f"which fields the events of {_stream(flow, unknown[0])} hold is not stated"
    return None, f"{_names(shared)} may come from either side"


def _stream(flow: Dataflow, name: str) -> str:
    return local_name(flow.by_id[name]) if name in flow.by_id else name
