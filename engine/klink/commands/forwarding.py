"""``forwarding`` of the command line: what the nodes that share a query tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, Listed, Table, Text
from engine.klink.forwarding import SOURCE, messages

__all__ = ["command"]

_PROBLEM = Table(
    "forwarding problem",
    Field(
        "ops", Listed(Listed(Text(), least=2, most=2), least=1), required=True, help="[name, node] in pipeline order"
    ),
    Field("watermark_at", Text(), required=True, help="source, or the operator that makes watermarks"),
)


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Messages [from, to, [what]], sorted: `delay` of watermarks, `cost:NAME` of operators."""
    faults: list[Fault] = []
    read = _PROBLEM.read(document, "", "", faults)
    if read is not BAD and read["ops"] is not BAD:
        _judge(read, faults)
    if faults:
        raise DocumentError(faults, "forwarding problem")
    return {"messages": [list(message) for message in messages(read["ops"], read["watermark_at"])]}


def _judge(read: Mapping[str, Any], faults: list[Fault]) -> None:
    names: list[str] = []
    for index, op in enumerate(read["ops"]):
        name = BAD if op is BAD else op[0]
        if name is BAD:
            continue
        if name in names or name == SOURCE:
            other = "the name of what comes in" if name == SOURCE else "already an operator"
            faults.append(Fault(f"ops[{index}][0]", f"{name} is {other}; allowed: names that differ"))
        names.append(name)
    at = read["watermark_at"]
    if at is not BAD and at not in (SOURCE, *names):
        allowed = ", ".join((SOURCE, *names))
        faults.append(Fault("watermark_at", f"watermark_at is {at!r}; allowed: {allowed}"))
