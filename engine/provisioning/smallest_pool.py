"""The smallest pool that keeps every objective, with proof: what goes wrong one node below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.document.cycles import common_unit
from engine.document.deployment import Deployment, Node
from engine.estimation.estimate import Progress
from engine.provisioning.answers.pools import PoolAnswer
from engine.provisioning.combinations import node_of
from engine.provisioning.nodes import pool_of
from engine.provisioning.pool.proof import Prover, need_objectives
from engine.provisioning.pool.search import smallest_of
from engine.provisioning.question import PoolQuestion

__all__ = ["smallest_pool"]

_CONFIRM = 12  # sizes by which Flow may move the answer, unless the question says otherwise


def smallest_pool(
    deployment: Deployment,
    question: PoolQuestion | None = None,
    *,
    like: str | Mapping[str, Any] | None = None,
    most: int = 64,
    progress: Progress | None = None,
) -> PoolAnswer:
    """Fewest nodes of one type that keep every objective.

    Parameters
    ----------
    deployment : Deployment
        The running deployment, at w or at w / `mace_every`.
    question : PoolQuestion, optional
        Load, losses and effort.
    like : str or mapping, optional
        A node to be like, or a type with ``capacity_cps``, ``cores`` and ``price_per_hour``.
    most : int
        Size of the largest pool to look at.
    progress : callable, optional
        Listener of progress.

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
    What waits now is left out: no purchase makes it younger, and it is gone before one helps.
    """
    question, deployment = question or PoolQuestion(), deployment.without_backlogs()
    need_objectives(deployment)
    clock = question.clock(progress)
    clock.tell(0.0, "Laying out the pools")
    base = question.base(deployment)
    model = replace(node_of(like, unit=common_unit(deployment.nodes)), pool=None) if isinstance(like, Mapping) else like
    if not question.keep_present:
        model = model if isinstance(model, Node) else pool_of(question.loaded(deployment), 0, model).model
        model = replace(model, id="", pool=None)
    pool = pool_of(base, most, model)
    prover = Prover(pool.deployment, question.on(base), clock)
    return smallest_of(pool, most, prover, _CONFIRM if question.confirm is None else question.confirm)
