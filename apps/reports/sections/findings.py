"""Risks, the gravest first, and the first sentences of a report with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from apps.estimates.models import EstimateRun
from apps.fleet.choices import NodeState
from apps.planning.capacities import SaturationTimes, saturation_words
from apps.queries.choices import ObjectiveState
from apps.reports.report import AnyReport, LatencyReport, ProvisioningReport, ReportRisk
from apps.reports.sections.fleet import ReportFleet
from apps.reports.sections.forecast import ReportForecast
from apps.reports.sections.objectives import ReportObjectives, ReportQuery
from apps.reports.sections.purchases import ReportLoss, ReportPurchases
from apps.ui.numbers import percent, seconds
from engine.words import counted, listed, statistic_words

__all__ = ["report_finding", "report_risks"]

_ORDER = ("high", "medium", "low")
_NAMED = 5
_LITTLE_HEADROOM = 0.1  # share by which all rates may grow until a server is full


def report_risks(
    run: EstimateRun | None, fleet: ReportFleet, queries: Sequence[ReportQuery], losses: Sequence[ReportLoss]
) -> list[ReportRisk]:
    """Broken objectives, those at risk, losses that break one, draining nodes, what makes estimates less certain."""
    draining = [node.name for node in fleet.nodes if node.state == NodeState.DRAINING]
    assumed = [row.query for row in queries if row.assumed]
    risks = [
        *_objectives(queries),
        *_losses(losses),
        *_overloaded(fleet),
        *_several(draining, "1 node is", "nodes are", "draining: counted here, but soon gone."),
        *_estimate(run),
        *_several(assumed, "1 query rests", "queries rest", "on assumed costs: how wrong they may be is not known."),
    ]
    return sorted(risks, key=lambda risk: _ORDER.index(risk.level))


def _objectives(queries: Sequence[ReportQuery]) -> Iterator[ReportRisk]:
    for row in queries:
        bound = seconds(row.bound_s)
        evidence = f"{row.evidence[:1].upper()}{row.evidence[1:]}."
        level: Literal["high", "medium"] = "medium"
        if row.state == ObjectiveState.BREACHED:
            level = "high"
            text = f"The estimate is {seconds(row.estimate_s, apart_from=row.bound_s)}, the objective {bound}."
            text = text if row.measured_s is None else evidence
            text = row.standing if row.headroom_share is None else text
        elif row.state == ObjectiveState.AT_RISK:
            text = f"The interval reaches {seconds(row.high_s, apart_from=row.bound_s)}, the objective is {bound}."
            text = text if row.measured_s is None else evidence
        elif row.state == ObjectiveState.UNKNOWN:
            yield ReportRisk(level, row.query, row.standing or evidence)
            continue
        else:
            continue
        yield ReportRisk(level, row.query, f"{text} {row.cause}" if row.cause else text)


def _losses(losses: Sequence[ReportLoss]) -> Iterator[ReportRisk]:
    for loss in losses:
        if loss.at_risk:
            objectives, names = counted(len(loss.at_risk), "objective"), listed(loss.at_risk, _NAMED)
            yield ReportRisk("medium", loss.node, f"Its loss puts {objectives} at risk: {names}.")
        if loss.broken:
            objectives, names = counted(len(loss.broken), "objective"), listed(loss.broken, _NAMED)
            yield ReportRisk("high", loss.node, f"Its loss breaks {objectives}: {names}. {loss.why}".strip())


def _overloaded(fleet: ReportFleet) -> Iterator[ReportRisk]:
    for node in fleet.nodes:
        if (node.mean_load or 0) >= 1:
            text = f"Its busiest core gets {percent(node.mean_load)} of what it can do on the mean: work piles up."
            yield ReportRisk("high", node.name, text)


def _several(names: Sequence[str], single: str, many: str, rest: str) -> Iterator[ReportRisk]:
    """One low risk of all the names."""
    if len(names) == 1:
        yield ReportRisk("low", names[0], f"{single} {rest}")
    elif names:
        yield ReportRisk("low", listed(names, _NAMED), f"{len(names)} {many} {rest}")


def _estimate(run: EstimateRun | None) -> Iterator[ReportRisk]:
    if run is None:
        return
    if run.facts.alarm.untrusted:
        yield ReportRisk("medium", "Estimate", str(run.facts.alarm.message))
    if run.facts.scheduling is not None:
        upper = "" if run.facts.upper_wc is None else f" It is {seconds(run.facts.upper_wc)}."
        words = f"{run.facts.scheduling.words}{upper} Estimates are those of stimulus time."
        yield ReportRisk("low", "Scheduling", words)
    yield from _capacity(run)


def _capacity(run: EstimateRun) -> Iterator[ReportRisk]:
    """Little headroom of the cluster, the objective that breaks first where that is soon, and when it saturates.

    Headroom is that to saturation where nobody knows when objectives break.
    """
    kept = run.facts.capacity
    if kept is None or kept.factor is None or kept.measured_s is not None:
        return
    factor = kept.factor if kept.tightest_factor is None else kept.tightest_factor
    capacity, share = SaturationTimes.of(run.cluster).of_cluster(kept), factor - 1.0
    first = capacity.first_objective
    if share < _LITTLE_HEADROOM:
        breaks = "" if first is None else f" {first.words}"
        yield ReportRisk("high" if share < 0.0 else "medium", "Capacity", f"{capacity.words}{breaks}")
    if capacity.forecast is not None and capacity.forecast.earliest_at_s is not None:
        level = "low" if capacity.forecast.at_s is None else "medium"
        yield ReportRisk(level, "Capacity", saturation_words(capacity))


def report_finding(facts: AnyReport) -> str:
    """Plain text of at most 500 characters."""
    parts = _latency(facts) if isinstance(facts, LatencyReport) else _provisioning(facts)
    return " ".join(part for part in parts if part)[:500]


def _provisioning(facts: ProvisioningReport) -> list[str]:
    if not facts.fleet.nodes:
        return ["The cluster has no nodes yet. Register nodes under Fleet; the next report will speak of them."]
    if not facts.objectives.judged:
        return ["No running query has an objective, so there is nothing to hold the fleet against."]
    sentences = [_objectives_sentence(facts.objectives)]
    if isinstance(facts.purchases, ReportPurchases):
        sentences.append(facts.purchases.finding)
    if isinstance(facts.forecast, ReportForecast) and facts.forecast.shortages:
        first = facts.forecast.shortages[0]
        local = first.first_at.astimezone(facts.zone)
        sentences.append(first.sentence(f"{local.day} {local:%b, %H:%M}"))
    return sentences


def _objectives_sentence(objectives: ReportObjectives) -> str:
    rows, counts = objectives.judged, objectives.counts
    by_state = {state: [row.query for row in rows if row.state == state] for state in ObjectiveState}
    held = f"{counts.held} of {counted(len(rows), 'objective')} hold"
    if broken := by_state[ObjectiveState.BREACHED]:
        expected = " expected to be" if all(row.is_expected for row in rows if row.query in broken) else ""
        return f"{held}; {_named_queries(broken)} {'is' if len(broken) == 1 else 'are'}{expected} over."
    if risky := by_state[ObjectiveState.AT_RISK]:
        return f"{held}; {_named_queries(risky)} may go over."
    if unknown := by_state[ObjectiveState.UNKNOWN]:
        return f"{held}; of {_named_queries(unknown)} it is not known."
    nearest = rows[0]
    left_s, share = seconds(nearest.headroom_s), percent(nearest.headroom_share)
    return f"{held}. Least headroom: {nearest.query}, {left_s} ({share} of its objective)."


def _named_queries(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= 2 else f"{len(names)} queries"


def _latency(facts: LatencyReport) -> list[str]:
    rows, judged = facts.objectives.rows, facts.objectives.judged
    if not rows:
        names = ", ".join(map(str, facts.absent[:5]))
        return [f"Nothing of it runs now: {names}." if names else "Nothing of it runs now."]
    if len(rows) == 1:
        return [_query_sentence(rows[0])]
    worst = max(rows, key=lambda row: row.worst_s)
    held = f"{facts.objectives.counts.held} of {counted(len(judged), 'objective')} hold."
    return [
        held if judged else f"{len(rows)} queries, none with an objective.",
        f"The longest worst case is that of {worst.query}: {seconds(worst.worst_s)}.",
    ]


def _query_sentence(row: ReportQuery) -> str:
    first = f"In the worst case an event of {row.query} takes {seconds(row.worst_s)}"
    if row.scheduling:
        upper_s = row.scheduling.upper_s
        first = f"{first} by stimulus time; " + (
            "no bound is proven for the policy of its nodes"
            if upper_s is None
            else f"at most {seconds(upper_s)} as scheduled"
        )
    if not row.bound_s:
        return f"{first}. It has no objective."
    name = statistic_words(row.statistic)
    statistic = "" if row.statistic == "worst" else f" Its {name} is {seconds(row.estimate_s)}."
    verdict = "it is expected to be missed" if row.is_expected else _VERDICTS.get(row.state, "it is not judged")
    return f"{first}.{statistic} The objective is {seconds(row.bound_s)}: {verdict}."


_VERDICTS: dict[str, str] = {
    ObjectiveState.HOLDS: "it holds",
    ObjectiveState.AT_RISK: "it may be missed",
    ObjectiveState.BREACHED: "it is missed",
    ObjectiveState.UNKNOWN: "nobody knows whether it holds",
}
