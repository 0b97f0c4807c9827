"""Who runs next: queries share the CPU budget fairly by weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.runtime.chain import Chain
from agent.runtime.cpu import WORTH_RECORDS
from agent.runtime.stage import Stage
from engine.jarvis.fairness import max_min

__all__ = ["granted_ns", "run_operators"]

LONG_RUN_NS = 10_000_000  # of one run, by which shares may be off


def run_operators(chains: Sequence[Chain], left_ns: Callable[[], float], *, last: bool) -> None:
    """Run operators until nothing is left to do, or of the budget; with `last`, few records do not wait for more.

    The query that has had the least CPU time in this epoch for its weight comes first, which fills their shares up
    evenly: max-min fairness, what one leaves goes to the others.
    """
    ready = {id(chain): chain for chain in chains if chain.ready(last=last)}
    while ready and (left := left_ns()) > 0:
        chain = min(ready.values(), key=lambda one: one.used_ns / one.config.weight)
        stage = chain.ready(last=last)
        records = _chunk(stage, left) if stage else 0
        if stage is None or not records:
            del ready[id(chain)]
        else:
            chain.work(stage, records)


def _chunk(stage: Stage, left_ns: float) -> int:
    most = max(stage.cost.records_within(LONG_RUN_NS), WORTH_RECORDS)
    return min(stage.waiting, stage.cost.records_within(left_ns), most)


def granted_ns(total_ns: float, chains: Sequence[Chain]) -> list[float]:
    """For each query the CPU time it could have had in this epoch, given what the others have a use for.

    Its max-min share had it asked for everything; so what it used, and what nobody did. Others keep the margin that
    they plan with, or many queries together would leave none.
    """
    demands = [chain.demand_ns for chain in chains]
    weights = [chain.config.weight for chain in chains]
    return [max_min(total_ns, [*demands[:i], float("inf"), *demands[i + 1 :]], weights)[i] for i in range(len(chains))]
