"""What a definition says of its contents and readers, read strictly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apps.core.errors import Fault
from apps.core.serializers import unknown_message
from apps.fleet.models import Cluster
from apps.reports.choices import FORMATS, SECTIONS, ReportKind

__all__ = ["DEFAULTS", "format_faults", "read_parameters"]

DEFAULTS: dict[str, Any] = {"sections": list(SECTIONS), "horizon_days": 28, "growth": 0.6}
_MOST_DAYS = 366
_MOST_GROWTH = 20.0


def read_parameters(kind: str, given: Any, cluster: Cluster) -> tuple[dict[str, Any], list[Fault]]:
    """The parameters with defaults filled in, and what is wrong with them."""
    if not isinstance(given, Mapping):
        return {}, [Fault("parameters", f"parameters is {given!r}; allowed: an object")]
    if kind == ReportKind.LATENCY:
        return _latency(given, cluster)
    values = {**DEFAULTS, **given}
    faults = _unknown(given, list(DEFAULTS))
    if not _is_list_of(values["sections"], SECTIONS) or not values["sections"]:
        allowed = f"allowed is a list of {', '.join(SECTIONS)}"
        faults.append(Fault("parameters.sections", f"sections is {values['sections']!r}; {allowed}"))
    else:
        values["sections"] = [name for name in SECTIONS if name in values["sections"]]
    days = values["horizon_days"]
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _MOST_DAYS:
        message = f"horizon_days is {days!r}; allowed: a whole number from 1 to {_MOST_DAYS}"
        faults.append(Fault("parameters.horizon_days", message))
    growth = values["growth"]
    is_number = isinstance(growth, (int, float)) and not isinstance(growth, bool) and math.isfinite(growth)
    if not is_number or not 0 <= growth <= _MOST_GROWTH:
        message = f"growth is {growth!r}; allowed: a number from 0 to {_MOST_GROWTH:g}, 0.6 for 60 % more load"
        faults.append(Fault("parameters.growth", message))
    return values, faults


def _latency(given: Mapping[str, Any], cluster: Cluster) -> tuple[dict[str, Any], list[Fault]]:
    """One query, or every query of a team."""
    faults = _unknown(given, ["query", "team"])
    query, team = given.get("query") or "", given.get("team") or ""
    if bool(query) == bool(team):
        faults.append(Fault("parameters", "a latency report is about a query or about a team: give one of the two"))
    elif query and not cluster.queries.filter(name=query).exists():
        faults.append(Fault("parameters.query", f"{query!r} is no query of cluster {cluster.slug}"))
    elif team and not cluster.queries.filter(team=team).exists():
        faults.append(Fault("parameters.team", f"no query of cluster {cluster.slug} belongs to the team {team!r}"))
    return ({"query": query} if query else {"team": team}), faults


def format_faults(formats: Any) -> list[Fault]:
    """Formats are a list of those that exist; none is allowed: a mail then holds the text alone."""
    if _is_list_of(formats, FORMATS):
        return []
    return [Fault("formats", f"formats is {formats!r}; allowed is a list of {', '.join(FORMATS)}")]


def _unknown(given: Mapping[str, Any], allowed: list[str]) -> list[Fault]:
    return [Fault(f"parameters.{name}", unknown_message(str(name), allowed)) for name in given if name not in allowed]


def _is_list_of(values: Any, allowed: Mapping[str, Any]) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) and one in allowed for one in values)
