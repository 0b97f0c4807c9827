"""Why a source refuses a refined configuration: by what runs there, and by what it measured itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.jarvis.refined import ENOUGH_RECORDS, Refined
from engine.refined import not_for_here

__all__ = ["judge"]

MOST_CHANGE = 10.0  # of a cost, against what the source sees itself, on little evidence


def judge(
    refined: Refined,
    *,
    current: int,
    query: str,
    plan: str,
    agent: str,
    operators: Sequence[str],
    now_us: int,
    n_records: float = 0.0,
    budget_s: float = 0.0,
    known_costs: Sequence[float | None] = (),
) -> list[str]:
    """Why a source refuses a refined configuration, in words; empty where it takes it.

    Parameters
    ----------
    current
        Version that is in force; 0 while there is none.
    query, plan, agent
        What runs here: ``cluster/query``, digest of its pipeline, id of this agent.
    operators
        Ids of the operators that may run here, in order.
    now_us
        Microseconds since 1970.
    n_records, budget_s
        Records and CPU seconds of an epoch here; 0 where they are not known.
    known_costs
        CPU seconds per record of each operator as seen here; None of one that is not known well.
    """
    ids = [one.id for one in refined.operators]
    reasons = not_for_here(refined, current=current, agent=agent, now_us=now_us) + _other_plan(refined, query, plan)
    if ids and ids != list(operators):
        reasons.append(f"its operators are {', '.join(ids)}; here may run {', '.join(operators) or 'none'}")
    else:
        reasons += _changed_costs(refined, known_costs)
        reasons += _coarse_steps(refined, n_records, budget_s)
    if len(refined.settings.load_factors) > len(operators):
        reasons.append(f"it sets {len(refined.settings.load_factors)} load factors; here may run {len(operators)}")
    return reasons


def _other_plan(refined: Refined, query: str, plan: str) -> list[str]:
    reasons = []
    if refined.query != query:
        reasons.append(f"it is for query {refined.query}; here runs {query}")
    if refined.plan != plan:
        reasons.append(f"it is for plan {refined.plan[:12]}; here runs {plan[:12]}")
    return reasons


def _changed_costs(refined: Refined, known_costs: Sequence[float | None]) -> list[str]:
    """Costs more than tenfold off what is seen here whatever the number of groups, with little behind them."""
    reasons = []
    for one, known_s in zip(refined.operators, known_costs, strict=False):
        if known_s is None or one.records >= ENOUGH_RECORDS:
            continue
        least_s, most_s = one.cost_s, one.cost_s + (one.group_cost_s or 0.0)  # no record a group, or each
        if least_s > MOST_CHANGE * known_s or most_s * MOST_CHANGE < known_s:
            reasons.append(
                f"a record costs {1e6 * least_s:.3g} microseconds in {one.id} by it and {1e6 * known_s:.3g} here, more"
                f" than tenfold apart; {one.records} records stand behind it, {ENOUGH_RECORDS} are needed"
            )
    return reasons


def _coarse_steps(refined: Refined, n_records: float, budget_s: float) -> list[str]:
    """Operators of which one step of the load factor jumps from congested to idle, so that no search would settle."""
    settings = refined.settings
    if settings.method not in ("stepwise-lp", "stepwise") or budget_s <= 0:
        return []
    reasons, records, band_s = [], n_records, (settings.drained_thres + settings.idle_thres) * budget_s
    for one in refined.operators:
        whole_s = records * one.cost_at(records)
        if whole_s / settings.levels > band_s:
            reasons.append(
                f"one of {settings.levels} steps of {one.id} costs {1e3 * whole_s / settings.levels:.3g} ms an epoch;"
                f" between congested and idle are {1e3 * band_s:.3g}: levels of {math.ceil(whole_s / band_s)} would do"
            )
        records *= one.relay
    return reasons
