"""Findings: risks, the gravest first, and the first sentences of a report with its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from apps.estimates.models import EstimateRun
from apps.fleet.choices import NodeState
from apps.queries.choices import ObjectiveState
from apps.reports.choices import ReportKind
from apps.ui.numbers import percent, seconds
from engine.words import counted, listed

__all__ = ["report_finding", "risk_facts"]


_ORDER = ("high", "medium", "low")
_NAMED = 5


def risk_facts(
    run: EstimateRun | None, fleet: dict[str, Any], rows: list[dict[str, Any]], purchases: dict[str, Any]
) -> list[dict[str, str]]:
    """Broken objectives, those at risk, losses that break one, draining nodes, what makes estimates less certain."""
    risks = [
        *_objective_risks(rows),
        *_losses(purchases.get("losses") or []),
        *_overloaded(fleet),
        *_draining(fleet),
        *_alarm(run),
        *_scheduling(run),
        *_assumed(rows),
    ]
    return sorted(risks, key=lambda risk: _ORDER.index(risk["level"]))


def _risk(level: str, subject: str, text: str) -> dict[str, str]:
    return {"level": level, "subject": subject, "text": text}


def _objective_risks(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        estimate, bound = seconds(row["estimate_s"], apart_from=row["bound_s"]), seconds(row["bound_s"])
        cause = [row["cause"]] if row["cause"] else []
        evidence = f"{row['evidence'][:1].upper()}{row['evidence'][1:]}."
        if row["state"] == ObjectiveState.BREACHED:
            text = f"The estimate is {estimate}, the objective {bound}." if row["measured_s"] is None else evidence
            text = row["standing"] if row["headroom_share"] is None else text
            yield _risk("high", row["query"], " ".join([text, *cause]))
        elif row["state"] == ObjectiveState.AT_RISK:
            high = seconds(row["high_s"], apart_from=row["bound_s"])
            text = f"The interval reaches {high}, the objective is {bound}." if row["measured_s"] is None else evidence
            yield _risk("medium", row["query"], " ".join([text, *cause]))
        elif row["state"] == ObjectiveState.UNKNOWN:
            yield _risk("medium", row["query"], row["standing"])


def _losses(losses: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for loss in losses:
        if loss.get("at_risk"):
            names = listed(loss["at_risk"], _NAMED)
            text = f"Its loss puts {counted(len(loss['at_risk']), 'objective')} at risk: {names}."
            yield _risk("medium", loss["node"], text)
        if not loss["broken"]:
            continue
        names, objectives = listed(loss["broken"], _NAMED), counted(len(loss["broken"]), "objective")
        yield _risk("high", loss["node"], f"Its loss breaks {objectives}: {names}. {loss.get('why', '')}".strip())


def _overloaded(fleet: dict[str, Any]) -> Iterator[dict[str, str]]:
    for node in fleet["nodes"]:
        if (node["mean_load"] or 0) >= 1:
            yield _risk(
                "high",
                node["name"],
                f"Its busiest core gets {percent(node['mean_load'])} of what it can do on the mean: work piles up.",
            )


def _draining(fleet: dict[str, Any]) -> Iterator[dict[str, str]]:
    names = [node["name"] for node in fleet["nodes"] if node["state"] == NodeState.DRAINING]
    if len(names) == 1:
        yield _risk("low", names[0], "1 node is draining: counted here, but soon gone.")
    elif names:
        text = f"{len(names)} nodes are draining: counted here, but soon gone."
        yield _risk("low", listed(names, _NAMED), text)


def _alarm(run: EstimateRun | None) -> Iterator[dict[str, str]]:
    if run is not None and run.facts.alarm.untrusted:
        yield _risk("medium", "Estimate", run.facts.alarm.message)


def _scheduling(run: EstimateRun | None) -> Iterator[dict[str, str]]:
    facts = run.facts if run is not None else None
    if facts is not None and facts.scheduling is not None:
        upper = "" if facts.upper_wc is None else f" It is {seconds(facts.upper_wc)}."
        words = f"{facts.scheduling.words}{upper} Estimates are those of stimulus time."
        yield _risk("low", "Scheduling", words)


def _assumed(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    names = [row["query"] for row in rows if row["assumed"]]
    if len(names) == 1:
        yield _risk("low", names[0], "1 query rests on assumed costs: how wrong they may be is not known.")
    elif names:
        text = f"{len(names)} queries rest on assumed costs: how wrong they may be is not known."
        yield _risk("low", listed(names, _NAMED), text)


def report_finding(facts: dict[str, Any]) -> str:
    """Plain text of at most 500 characters."""
    parts = _latency_sentence(facts) if facts["kind"] == ReportKind.LATENCY else _provisioning_sentence(facts)
    return " ".join(part for part in parts if part)[:500]


def _provisioning_sentence(facts: dict[str, Any]) -> list[str]:
    if not facts["fleet"]["nodes"]:
        return ["The cluster has no nodes yet. Register nodes under Fleet; the next report will speak of them."]
    rows = [row for row in facts["objectives"]["rows"] if row["bound_s"]]
    if not rows:
        return ["No running query has an objective, so there is nothing to hold the fleet against."]
    return [
        _objectives_sentence(rows),
        _purchase_sentence(facts.get("purchases")),
        _shortage_sentence(facts.get("forecast"), ZoneInfo(facts["time_zone"])),
    ]


def _objectives_sentence(rows: list[dict[str, Any]]) -> str:
    held = sum(row["state"] == ObjectiveState.HOLDS for row in rows)
    broken = [row for row in rows if row["state"] == ObjectiveState.BREACHED]
    risky = [row for row in rows if row["state"] == ObjectiveState.AT_RISK]
    objectives = counted(len(rows), "objective")
    if len(broken) == 1:
        return f"{held} of {objectives} hold; {broken[0]['query']} is over."
    if broken:
        return f"{held} of {objectives} hold; {_named_queries(broken)} are over."
    if risky:
        return f"{held} of {objectives} hold; {_named_queries(risky)} may go over."
    unknown = [row for row in rows if row["state"] == ObjectiveState.UNKNOWN]
    if unknown:
        return f"{held} of {objectives} hold; nothing is known of the latency of {_named_queries(unknown)}."
    nearest = rows[0]
    left_s, share = seconds(nearest["headroom_s"]), percent(nearest["headroom_share"])
    return f"{held} of {objectives} hold. Least headroom: {nearest['query']}, {left_s} ({share} of its objective)."


def _named_queries(rows: list[dict[str, Any]]) -> str:
    names = [row["query"] for row in rows]
    return listed(names) if len(names) <= 2 else f"{len(names)} queries"


def _purchase_sentence(purchases: dict[str, Any] | None) -> str:
    if not purchases or not purchases.get("available"):
        return ""
    return str(purchases.get("finding", ""))


def _shortage_sentence(forecast: dict[str, Any] | None, zone: ZoneInfo) -> str:
    if not forecast or not forecast.get("available") or not forecast["shortages"]:
        return ""
    first = forecast["shortages"][0]
    local = datetime.fromisoformat(first["first_at"]).astimezone(zone)
    since = f"{local.day} {local:%b, %H:%M}"
    if first["band"] == "risk":
        return f"The objective of {first['query']} is at risk from {since}: random costs and arrivals may break it."
    if first["band"] == "high":
        return f"The objective of {first['query']} is violated from {since} at the 90% band."
    return f"The objective of {first['query']} is violated from {since} at the expected load."


def _latency_sentence(facts: dict[str, Any]) -> list[str]:
    rows = facts["objectives"]["rows"]
    if not rows:
        names = ", ".join(f"{fact['query']} ({fact['state'].lower()})" for fact in facts["absent"][:5])
        return [f"Nothing of it runs now: {names}." if names else "Nothing of it runs now."]
    if len(rows) == 1:
        return [_query_sentence(rows[0])]
    judged = [row for row in rows if row["bound_s"]]
    worst = max(rows, key=lambda row: row["worst_s"])
    held = sum(row["state"] == ObjectiveState.HOLDS for row in judged)
    first = (
        f"{held} of {counted(len(judged), 'objective')} hold."
        if judged
        else f"{len(rows)} queries, none with an objective."
    )
    return [first, f"The longest worst case is that of {worst['query']}: {seconds(worst['worst_s'])}."]


def _query_sentence(row: dict[str, Any]) -> str:
    query, worst = row["query"], seconds(row["worst_s"])
    first = f"In the worst case an event of {query} takes {worst}."
    if row.get("scheduling"):
        upper_s = row["scheduling"]["upper_s"]
        bound = (
            "no bound is proven for the policy of its nodes"
            if upper_s is None
            else f"at most {seconds(upper_s)} as scheduled"
        )
        first = f"In the worst case an event of {query} takes {worst} by stimulus time; {bound}."
    if not row["bound_s"]:
        return f"{first} It has no objective."
    judged = _JUDGED.get(row["state"], "The objective is {}: it is not judged.").format(seconds(row["bound_s"]))
    if row["statistic"] == "worst":
        return f"{first} {judged}"
    return f"{first} Its {row['statistic']} is {seconds(row['estimate_s'])}. {judged}"


_JUDGED = {
    ObjectiveState.HOLDS: "The objective is {}: it holds.",
    ObjectiveState.AT_RISK: "The objective is {}: it may be missed.",
    ObjectiveState.BREACHED: "The objective is {}: it is missed.",
    ObjectiveState.UNKNOWN: "The objective is {}: nothing comes out, so nobody knows whether it holds.",
}
