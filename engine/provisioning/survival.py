"""Survival: what the loss of every single node would do, once its operators are placed on what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.estimation import Progress
from engine.provisioning.what_if import Outcome, what_if

__all__ = ["Survival", "lose_each"]


@dataclass(frozen=True, eq=False)
class Survival:
    """Outcomes of losing each node, in the order of the fleet, and of losing none."""

    now: Outcome
    losses: dict[str, Outcome]

    def breaks(self, node: str) -> tuple[str, ...]:
        """Queries whose objective is kept now and broken by the loss of `node`; all of them if nothing can run."""
        kept = {query for query, report in (self.now.queries or {}).items() if report.state in ("holds", "at_risk")}
        after = self.losses[node].queries
        if after is None:
            return tuple(query for query in self.now.queries or {} if query in kept)
        return tuple(query for query, report in after.items() if query in kept and report.state == "breached")

    @property
    def survives(self) -> bool:
        """Whether the loss of any one node breaks no objective and leaves every operator a place."""
        return all(outcome.refusal is None and not self.breaks(node) for node, outcome in self.losses.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            "survives": self.survives,
            "now": self.now.to_dict(),
            "losses": [
                {"node": node, "breaks": list(self.breaks(node))} | outcome.to_dict()
                for node, outcome in self.losses.items()
            ],
            "message": self.message,
        }

    @property
    def message(self) -> str:
        if not self.losses:
            return "there is no node to lose"
        bad = [node for node, outcome in self.losses.items() if outcome.refusal is not None or self.breaks(node)]
        if not bad:
            return "the loss of any one node breaks no objective that is kept now"
        broken = dict.fromkeys(query for node in bad for query in self.breaks(node))
        return f"the loss of {_some(bad)} breaks {_some(list(broken)) or 'what runs'}"


def lose_each(
    deployment: Deployment,
    *,
    nodes: Sequence[str] | None = None,
    place: str = "fill",
    seed: int = 0,
    mace_every: int = 1,
    flow: bool = True,
    rounds: int = 2,
    closed: Sequence[str] = (),
    progress: Progress | None = None,
) -> Survival:
    """Lose every node in turn (or those named) and estimate every query.

    Parameters
    ----------
    nodes : sequence of str, optional
        Nodes to lose; all unless given.
    place : str
        ``fill`` places only what was on the lost node; ``search`` may move everything.
    flow : bool
        False estimates by Mace alone.

    Raises
    ------
    DocumentError
        If a node does not exist.
    """
    names = [node.id for node in deployment.nodes] if nodes is None else list(nodes)
    unknown = [
        Fault(f"nodes[{i}]", f"item {i} is {name!r}, which is no node")
        for i, name in enumerate(names)
        if name not in deployment.node_index
    ]
    if unknown:
        raise DocumentError(unknown, "question")
    tell = progress or (lambda share, step: None)
    common = {"seed": seed, "mace_every": mace_every, "flow": flow, "rounds": rounds, "closed": closed}
    now = what_if(deployment, [{"name": "now"}], **common)[0]  # type: ignore[arg-type]
    losses = {}
    for i, name in enumerate(names):
        tell(i / len(names), f"Losing {name}, {i + 1} of {len(names)}")
        scenario = {"name": name, "changes": [{"lose_node": name}], "place": place}
        losses[name] = what_if(deployment, [scenario], **common)[0]  # type: ignore[arg-type]
    tell(1.0, "Done")
    return Survival(now, losses)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
