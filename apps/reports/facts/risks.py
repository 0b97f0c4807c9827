"""What may go wrong, the gravest first: each risk with its level, its subject, and one sentence with the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apps.estimates.choices import ObjectiveState
from apps.estimates.models import EstimateRun
from apps.fleet.choices import NodeState
from apps.ui.numbers import counted, percent, ratio, seconds

__all__ = ["risk_facts"]

_ORDER = ("high", "medium", "low")
_NAMED = 5


def risk_facts(
    run: EstimateRun | None, fleet: dict[str, Any], rows: list[dict[str, Any]], purchases: dict[str, Any]
) -> list[dict[str, str]]:
    """Broken objectives, those at risk, losses that break one, draining nodes, what makes estimates less certain."""
    found = [
        *_objectives(rows),
        *_losses(purchases.get("losses") or []),
        *_overloaded(fleet),
        *_draining(fleet),
        *_alarm(run),
        *_scheduling(run),
        *_assumed(rows),
    ]
    return sorted(found, key=lambda risk: _ORDER.index(risk["level"]))


def _risk(level: str, subject: str, text: str) -> dict[str, str]:
    return {"level": level, "subject": subject, "text": text}


def _objectives(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        estimate, bound = seconds(row["estimate_s"], apart_from=row["bound_s"]), seconds(row["bound_s"])
        where = (
            f" {row['bottleneck']} runs at {ratio(row['bottleneck_load'])} of capacity at its peak."
            if row["bottleneck"]
            else ""
        )
        if row["state"] == ObjectiveState.BREACHED:
            yield _risk("high", row["query"], f"The estimate is {estimate}, the objective {bound}.{where}")
        elif row["state"] == ObjectiveState.AT_RISK:
            high = seconds(row["high_s"], apart_from=row["bound_s"])
            yield _risk("medium", row["query"], f"The interval reaches {high}, the objective is {bound}.{where}")


def _losses(losses: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for loss in losses:
        if not loss["broken"]:
            continue
        names = ", ".join(loss["broken"][:_NAMED]) + (" and more" if len(loss["broken"]) > _NAMED else "")
        whose = counted(len(loss["broken"]), "objective")
        yield _risk("high", loss["node"], f"Its loss breaks {whose}: {names}. {loss.get('why', '')}".strip())


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
    if names:
        verb = "is" if len(names) == 1 else "are"
        yield _risk(
            "low",
            ", ".join(names[:_NAMED]),
            f"{counted(len(names), 'node')} {verb} draining: counted here, but soon gone.",
        )


def _alarm(run: EstimateRun | None) -> Iterator[dict[str, str]]:
    alarm = (run.result or {}).get("alarm") if run is not None else None
    if alarm and alarm.get("untrusted"):
        yield _risk("medium", "Estimate", alarm.get("message") or "Mace and Flow differ more than they should.")


def _scheduling(run: EstimateRun | None) -> Iterator[dict[str, str]]:
    result = (run.result or {}) if run is not None else {}
    if "scheduling" in result:
        upper = f"It is {seconds(result['upper_wc'])}; estimates are those of stimulus time."
        yield _risk("low", "Scheduling", f"{result['scheduling']['words']} {upper}")


def _assumed(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    names = [row["query"] for row in rows if row["assumed"]]
    if names:
        shown = ", ".join(names[:_NAMED]) + (" and more" if len(names) > _NAMED else "")
        noun = "query rests" if len(names) == 1 else "queries rest"
        yield _risk("low", shown, f"{len(names)} {noun} on assumed costs: how wrong they may be is not known.")
