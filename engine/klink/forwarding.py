"""Messages between nodes that share a query's operators, so that each can compute its slack."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SOURCE", "forwarding_messages"]

#: Where watermarks come from, if no operator makes them.
SOURCE = "source"


def forwarding_messages(ops: Sequence[tuple[str, str]], watermark_at: str = SOURCE) -> list[tuple[str, str, list[str]]]:
    """Messages as (sender, receiver, contents), sorted: `delay` of watermarks and `cost:OPERATOR`.

    Parameters
    ----------
    ops
        Operators and the node of each, in the order of the pipeline.
    watermark_at
        The operator that makes the watermarks, or the source, which the first operator's node sees first.

    Notes
    -----
    The node that first sees a watermark tells its delay to every other one: those downstream of a source, both ways
    of an operator. An operator's cost goes to every other node with an operator upstream of it: work that is left
    lies downstream.

    References
    ----------
    Klink, section 4; its text sends costs downstream, its example upstream, which alone is of use.

    Examples
    --------
    >>> forwarding_messages([("O1", "A"), ("O2", "B")])
    [('A', 'B', ['delay']), ('B', 'A', ['cost:O2'])]
    """
    contents: dict[tuple[str, str], set[str]] = {}
    first = next((node for name, node in ops if watermark_at in (SOURCE, name)), None)
    for index, (name, node) in enumerate(ops):
        for upstream in {other for _, other in ops[:index]} - {node}:
            contents.setdefault((node, upstream), set()).add(f"cost:{name}")
        if first is not None and node != first:
            contents.setdefault((first, node), set()).add("delay")
    return [(sender, receiver, sorted(info)) for (sender, receiver), info in sorted(contents.items())]
