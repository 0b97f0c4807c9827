"""The smallest pool that keeps every objective, with proof: what goes wrong one node below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.document.deployment import Deployment, Node
from engine.estimation.estimate import Progress
from engine.provisioning.changes import scaled_loads
from engine.provisioning.clock import ProgressClock
from engine.provisioning.combinations import node_of
from engine.provisioning.confirmation import tightened
from engine.provisioning.mix import cheapest_mix
from engine.provisioning.mix_answer import MixAnswer
from engine.provisioning.nodes import lose as lose_nodes
from engine.provisioning.nodes import pool_of
from engine.provisioning.pool.proof import Prover, need_objectives
from engine.provisioning.pool.search import PoolAnswer, smallest_of

__all__ = ["MixAnswer", "PoolAnswer", "cheapest_mix", "smallest_pool"]


def smallest_pool(
    deployment: Deployment,
    *,
    like: str | Mapping[str, Any] | None = None,
    keep_present: bool = True,
    lose: int = 0,
    headroom_s: float = 0.0,
    headroom_share: float = 0.0,
    factor: float | Mapping[str, float] = 1.0,
    most: int = 64,
    rounds: int = 4,
    confirm: int = 12,
    seed: int = 0,
    mace_every: int = 1,
    closed: Sequence[str] = (),
    split: bool = True,
    leave_out: bool = False,
    budget_s: float | None = None,
    progress: Progress | None = None,
) -> PoolAnswer:
    """Fewest nodes of one type that keep every objective.

    Parameters
    ----------
    deployment : Deployment
        What runs, at w or at w / `mace_every`.
    like : str or mapping, optional
        A node to be like, or a type with ``capacity_cps``, ``cores`` and ``price_per_hour``.
    keep_present : bool
        Whether new nodes join the present ones or take their place.
    lose : int
        1 if every objective must also be kept with any one node lost.
    headroom_s, headroom_share : float
        What to leave of every bound.
    factor : float or mapping
        Load, as a multiple of the present one; by source if a mapping.
    most : int
        The largest pool looked at.
    rounds : int
        Rounds of the placement search for each size.
    confirm : int
        How many sizes up or down Flow may still move the answer.
    split : bool
        Whether stateless operators that alone break an objective are split, into at most 8 equal parts; where
        ``may_split`` is given, only those it lists.
    leave_out : bool
        Whether to go on without the objectives that no number of such nodes keeps. They are in `beyond`.
    budget_s : float, optional
        Seconds after which no further size is begun; the answer is the best bracket by then (`complete` is False).

    Returns
    -------
    PoolAnswer

    Raises
    ------
    DocumentError
        If there is no objective, or a parameter makes no sense.

    Notes
    -----
    A placement on a pool is one on a larger pool too, so keeping the objectives is monotone in the number of nodes by
    Mace, and the answer is found by bisection. That a smaller pool fails is proven only where a lower bound says so.
    """
    need_objectives(deployment)
    clock = ProgressClock(progress, budget_s)
    clock.tell(0.0, "Laying out the pools")
    base = tightened(scaled_loads(deployment, factor), headroom_s, headroom_share)
    model = replace(node_of(like), pool=None) if isinstance(like, Mapping) else like
    if not keep_present:
        model = model if isinstance(model, Node) else pool_of(base, 0, model).model
        base = lose_nodes(base, {node.id for node in base.nodes})
        model = replace(model, id="", pool=None)
    pool = pool_of(base, most, model)
    prover = Prover(
        pool.deployment,
        mace_every=mace_every,
        lose=lose,
        rounds=rounds,
        seed=seed,
        closed=[name for name in closed if name in base.node_index],
        clock=clock,
        split=split,
        leave_out=leave_out,
    )
    return smallest_of(pool, most, prover, confirm)
