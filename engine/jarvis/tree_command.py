"""``partition-tree`` of the command line: where each stream of a tree of nodes is cut, and why not further up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.jarvis.tree import Choice, Load, Stream, Tree
from engine.jarvis.tree_search import EXACT_MOST, cut, options_of

__all__ = ["command"]


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Cut the streams of a tree document (`engine.jarvis.tree.TREE`).

    Options: `exact_most`, combinations up to which the best plan is sought; above it a good one is.
    """
    tree = Tree.parse(document)
    plan = cut(tree, exact_most=options.get("exact_most", EXACT_MOST))
    load = plan.load(tree)
    remote_s = load.remote_s()
    return {
        "exact": plan.exact,
        "sent_bytes": plan.sent_bytes,
        "streams": [
            {
                "node": tree.nodes[stream.path[0]].id,
                "cuts": {tree.nodes[node].id: after for node, after in zip(stream.path[:-1], choice.cuts, strict=True)},
                "sent_bytes": choice.sent_bytes,
                "reason": _reason(tree, load, stream, choice),
            }
            for stream, choice in zip(tree.streams, plan.choices, strict=True)
        ],
        "nodes": [
            {
                "id": node.id,
                "local_s": load.local_s(i),
                "remote_s": remote_s[i] if node.parent is not None else None,
                "incoming_bytes": load.incoming_bytes[i],
            }
            for i, node in enumerate(tree.nodes)
        ],
    }


def _reason(tree: Tree, load: Load, stream: Stream, choice: Choice) -> str:
    """What stands against the next choice that would send less."""
    better = [one for one in options_of(tree, stream) if one.sent_bytes < choice.sent_bytes]
    if not better:
        return "nothing that may run on its way and fits an epoch sends less"
    nearest = min(better, key=lambda one: (_less_near(one, choice), sum(one.cuts), one.sent_bytes))
    load.add(stream, choice, -1.0)
    load.add(stream, nearest)
    node, local_s, allowed_s = next(load.late(), (None, 0.0, 0.0))
    load.add(stream, nearest, -1.0)
    load.add(stream, choice)
    cuts = ", ".join(
        f"{after} at {tree.nodes[at].id}" for at, after in zip(stream.path[:-1], nearest.cuts, strict=True)
    )
    saved = f"cut after {cuts} it would send {choice.sent_bytes - nearest.sent_bytes:,.0f} bytes less"
    if node is None:
        return saved
    whose = "of an epoch" if allowed_s >= tree.epoch_s else "to send that on and run it further up"
    return f"{saved}, but {tree.nodes[node].id} would take {local_s:.3g} s, longer than the {allowed_s:.3g} s {whose}"


def _less_near(other: Choice, choice: Choice) -> bool:
    """It runs less than the choice somewhere on the way."""
    return any(cut < chosen for cut, chosen in zip(other.cuts, choice.cuts, strict=True))
