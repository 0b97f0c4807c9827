"""The first sentences of a report: what it found, with its numbers."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from apps.estimates.choices import ObjectiveState
from apps.reports.choices import ReportKind
from apps.ui.numbers import counted, percent, seconds

__all__ = ["finding_of"]


def finding_of(facts: dict[str, Any]) -> str:
    """Plain text of at most 500 characters."""
    parts = _latency(facts) if facts["kind"] == ReportKind.LATENCY else _provisioning(facts)
    return " ".join(part for part in parts if part)[:500]


def _provisioning(facts: dict[str, Any]) -> list[str]:
    if not facts["fleet"]["nodes"]:
        return ["The cluster has no nodes yet. Register nodes under Fleet; the next report will speak of them."]
    rows = [row for row in facts["objectives"]["rows"] if row["bound_s"]]
    if not rows:
        return ["No running query has an objective, so there is nothing to hold the fleet against."]
    return [
        _objectives(rows),
        _purchase(facts.get("purchases")),
        _shortage(facts.get("forecast"), ZoneInfo(facts["time_zone"])),
    ]


def _objectives(rows: list[dict[str, Any]]) -> str:
    held = sum(row["state"] == ObjectiveState.HOLDS for row in rows)
    broken = [row for row in rows if row["state"] == ObjectiveState.BREACHED]
    risky = [row for row in rows if row["state"] == ObjectiveState.AT_RISK]
    start = f"{held} of {counted(len(rows), 'objective')} hold"
    if broken:
        return f"{start}; {_named(broken)} {'is' if len(broken) == 1 else 'are'} over."
    if risky:
        return f"{start}; {_named(risky)} may go over."
    least = rows[0]
    left = f"{seconds(least['headroom_s'])} ({percent(least['headroom_share'])} of its objective)"
    return f"{start}. Least headroom: {least['query']}, {left}."


def _named(rows: list[dict[str, Any]]) -> str:
    names = [row["query"] for row in rows]
    return names[0] if len(names) == 1 else f"{names[0]} and {names[1]}" if len(names) == 2 else f"{len(names)} queries"


def _purchase(purchases: dict[str, Any] | None) -> str:
    if not purchases or not purchases.get("available"):
        return ""
    return str(purchases.get("finding", ""))


def _shortage(forecast: dict[str, Any] | None, zone: ZoneInfo) -> str:
    if not forecast or not forecast.get("available") or not forecast["shortages"]:
        return ""
    first = forecast["shortages"][0]
    local = datetime.fromisoformat(first["first_at"]).astimezone(zone)
    band = "at the 90% band" if first["band"] == "high" else "at the expected load"
    return f"The objective of {first['query']} is violated from {local.day} {local:%b, %H:%M} {band}."


def _latency(facts: dict[str, Any]) -> list[str]:
    rows = facts["objectives"]["rows"]
    if not rows:
        names = ", ".join(f"{one['query']} ({one['state'].lower()})" for one in facts["absent"][:5])
        return [f"Nothing of it runs now: {names}." if names else "Nothing of it runs now."]
    if len(rows) == 1:
        return [_one(rows[0])]
    judged = [row for row in rows if row["bound_s"]]
    worst = max(rows, key=lambda row: row["worst_s"])
    held = sum(row["state"] == ObjectiveState.HOLDS for row in judged)
    first = (
        f"{held} of {counted(len(judged), 'objective')} hold."
        if judged
        else f"{len(rows)} queries, none with an objective."
    )
    return [first, f"The longest worst case is that of {worst['query']}: {seconds(worst['worst_s'])}."]


def _one(row: dict[str, Any]) -> str:
    worst = f"In the worst case an event of {row['query']} takes {seconds(row['worst_s'], under=row['resolution_s'])}"
    if row.get("scheduling"):
        worst += f" by stimulus time, at most {seconds(row['scheduling']['upper_s'])} as scheduled"
    if not row["bound_s"]:
        return f"{worst}. It has no objective."
    words = {
        ObjectiveState.HOLDS: "it holds",
        ObjectiveState.AT_RISK: "it may be missed",
        ObjectiveState.BREACHED: "it is missed",
    }
    statistic = "" if row["statistic"] == "worst" else f", {row['statistic']} {seconds(row['estimate_s'])}"
    state = words.get(row["state"], "it is not judged")
    return f"{worst}{statistic}. The objective is {seconds(row['bound_s'])}: {state}."
