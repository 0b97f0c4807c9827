"""What of the CPU budget each query could have had: fair shares by weight."""

from __future__ import annotations

from collections.abc import Sequence

from agent.runtime.chain import Chain
from engine.jarvis.fairness import max_min

__all__ = ["granted_ns"]


def granted_ns(total_ns: float, chains: Sequence[Chain]) -> list[float]:
    """For each query the CPU time it could have had in this epoch, given what the others have a use for.

    Its max-min share had it asked for everything; so what it used, and what nobody did. Others keep the margin that
    they plan with, or many queries together would leave none.
    """
    demands = [chain.demand_ns for chain in chains]
    weights = [chain.config.weight for chain in chains]
    return [max_min(total_ns, [*demands[:i], float("inf"), *demands[i + 1 :]], weights)[i] for i in range(len(chains))]
