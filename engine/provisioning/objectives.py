"""Objectives against realised latencies."""

from __future__ import annotations

from collections.abc import Collection

from engine.document.elements import Objective
from engine.document.policies import PolicyGap
from engine.estimation.noise.realisation import realise
from engine.estimation.noise.summary import RealisedQuery, RealisedStatistic
from engine.estimation.query_flow import FlowedQueries
from engine.estimation.reports import QueryReport
from engine.estimation.waits.estimate import query_waits, with_waits
from engine.estimation.waits.summary import NO_WAITS
from engine.latency_state import LatencyStanding
from engine.provisioning.answers.objectives import RealisedObjective

__all__ = ["objective_of_report", "realised_objectives"]

_NAMED = 6  # queries in a list, the last of a longer one being the number of those left out


def realised_objectives(
    flowed: FlowedQueries,
    *,
    lost: str | None = None,
    queries: Collection[str] | None = None,
) -> dict[str, RealisedObjective]:
    """Realised figures of every query with an objective, or of those among `queries`."""
    deployment = flowed.deployment
    queues = realise(deployment, flowed.flow, queries=queries)
    waits = query_waits(deployment)
    known = with_waits(waits, queues)

    def realised(entry: Objective) -> RealisedObjective:
        own_s = known[entry.query].statistics[entry.statistic].estimate_s
        return _realised(
            entry,
            known[entry.query],
            flowed.standings[entry.query],
            lost,
            flowed.reporter.policy_gap(entry.query, entry.statistic, waits.get(entry.query, NO_WAITS).bound_s),
            own_s - queues[entry.query].statistics[entry.statistic].estimate_s,
        )

    return {entry.query: realised(entry) for entry in deployment.objectives if entry.query in known}


def objective_of_report(query: str, report: QueryReport, lost: str | None = None) -> RealisedObjective | None:
    """The realised figures that an estimate's report has of its objective; None without either."""
    if report.bound_s is None or report.noise is None:
        return None
    entry = Objective(query, report.statistic, report.bound_s)
    return _realised(entry, report.noise, report.standing, lost, report.gap, report.wait_s)


def _realised(
    entry: Objective,
    known: RealisedQuery,
    standing: LatencyStanding,
    lost: str | None,
    gap: PolicyGap | None,
    wait_s: float,
) -> RealisedObjective:
    figures: RealisedStatistic = known.statistics[entry.statistic]
    return RealisedObjective(
        query=entry.query,
        statistic=entry.statistic,
        bound_s=entry.bound_s,
        estimate_s=figures.estimate_s,
        low_s=figures.low_s,
        high_s=figures.high_s,
        lost=lost,
        standing=standing,
        gap=gap,
        wait_s=wait_s,
        assumed=(*known.assumed, *known.not_modelled),
        coarse_sources=known.assumed_sources,
    )
