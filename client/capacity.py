"""Capacities of queries and clusters as text for people, and as an exit status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from client.report import OPEN, PASSED, REFUSED
from engine.listing import column_lines
from engine.words import duration_words

__all__ = ["CAPACITY_EXIT_TEXT", "capacity_status", "cluster_capacity_text", "query_capacity_text"]

CAPACITY_EXIT_TEXT = """exit status:
  0  known, with headroom
  1  not told: the console was not reached, refused it, or has no estimate yet
  2  wrong usage
  3  no headroom: more comes than is sustained, or an objective breaks at the present rate
  4  not known: a cost was not measured, nothing arrives, nothing is known of an objective
     or nobody has looked when it breaks, or statistics cover too little time"""


def capacity_status(capacities: Sequence[Mapping[str, Any]]) -> int:
    """0 where all have headroom, 3 where one has none, 4 where one is not known."""
    if any(_lacks_headroom(capacity) for capacity in capacities):
        return REFUSED
    return PASSED if all(_is_known(capacity) for capacity in capacities) else OPEN


def _is_known(capacity: Mapping[str, Any]) -> bool:
    is_open = capacity.get("unknown_objectives") or capacity.get("measured_s") is not None
    is_open = is_open or (capacity.get("factor") is not None and not capacity.get("objectives_known"))
    return capacity.get("state") in ("known", "no_source", "no_load") and not is_open


def _lacks_headroom(capacity: Mapping[str, Any]) -> bool:
    factor, objective = capacity.get("factor"), capacity.get("objective")
    if (factor is not None and factor < 1.0) or capacity.get("broken_objectives"):
        return True
    return objective is not None and (objective.get("factor") is None or objective["factor"] < 1.0)


def query_capacity_text(answer: Mapping[str, Any]) -> str:
    """Facts of a query's capacity, line by line."""
    capacity = answer["capacity"]
    rows = [["capacity", str(capacity.get("words"))], *_details(capacity)]
    if answer.get("saturation"):
        rows.append(["forecast", str(answer["saturation"])])
    if answer.get("catch_up"):
        rows.append(["backlog", _catch_up_words(answer["catch_up"])])
    rows.append(["estimated", _age_words(answer)])
    return "\n".join(column_lines(rows, ""))


def _details(capacity: Mapping[str, Any]) -> Iterator[list[str]]:
    headroom, share = capacity.get("headroom_per_s"), capacity.get("headroom_share")
    if headroom is not None and share is not None:
        yield ["rate headroom", f"{_rate(headroom)} ({100.0 * share:+.0f} %)"]
    objective, first = capacity.get("objective"), capacity.get("first_objective")
    if objective is not None:
        yield ["objective", str(objective["words"])]
    yield from (["objective", str(unknown["words"])] for unknown in capacity.get("unknown_objectives") or ())
    if first is not None and first.get("query") != (objective or {}).get("query"):
        yield ["first to break", str(first["words"])]
    if capacity.get("state") == "known" and not capacity.get("objectives_known"):
        yield ["objective", "not looked at in this estimate"]
    if capacity.get("busiest_share_per_s") is not None:
        yield ["rule of DS2", f"{_rate(capacity['busiest_share_per_s'])} by the busiest operator alone"]


def _catch_up_words(times: Mapping[str, Any]) -> str:
    behind_s, back_at, low_at = times.get("behind_s"), times.get("back_at"), times.get("low_at")
    behind = "" if behind_s is None else f"behind by {duration_words(behind_s)}: "
    if times.get("state") == "unknown":
        return f"{behind}nobody knows when it is back"
    if back_at is None:
        return f"{behind}never back at this load"
    high_at = times.get("high_at")
    high = "after the horizon" if high_at is None else _moment(high_at)
    return f"{behind}back at {_moment(back_at)}" + ("" if low_at is None else f" ({_moment(low_at)} to {high})")


def cluster_capacity_text(answer: Mapping[str, Any]) -> str:
    """The capacity of a cluster, and a table of its queries, the least headroom first."""
    rows = [["query", "sustains", "interval", "now", "objective up to", "limited by"]]
    for entry in answer.get("queries") or ():
        capacity = entry["capacity"]
        low, high = capacity.get("low_per_s"), capacity.get("high_per_s")
        interval = f"{_rate(low)} to {_rate(high)}" if low is not None and high is not None else "-"
        limit = capacity.get("limit") or {}
        where = f"{limit['operator'] or '-'} on {limit['server']}" if limit else "-"
        is_open = capacity.get("state") == "known" and not capacity.get("objectives_known")
        rows.append(
            [
                str(entry["query"]),
                _sustained(capacity),
                interval,
                _rate(capacity.get("now_per_s")),
                "not looked at" if is_open else _up_to(capacity),
                where,
            ]
        )
    lines = [*_cluster_lines(answer), ""]
    lines += column_lines(rows, "") if len(rows) > 1 else ["No query has a capacity."]
    if answer.get("more"):
        lines.append(f"{answer['more']} more with more headroom")
    return "\n".join([*lines, "", f"Estimated {_age_words(answer)}"])


def _up_to(capacity: Mapping[str, Any]) -> str:
    """Rate up to which a query's own objective is kept."""
    objective, unknown = capacity.get("objective"), capacity.get("unknown_objectives") or ()
    if objective is None:
        return "unknown" if any(entry.get("is_own") for entry in unknown) else "-"
    return "no rate" if objective.get("rate_per_s") is None else _rate(objective["rate_per_s"])


def _cluster_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Lines about the cluster as a whole."""
    capacity = answer["capacity"]
    yield str(capacity.get("words"))
    broken = capacity.get("broken_objectives") or ()
    if broken:
        yield f"Broken at the present rate: {', '.join(broken)}"
    if capacity.get("first_objective"):
        yield f"First to break: {capacity['first_objective']['words']}"
    yield from (str(unknown["words"]) for unknown in capacity.get("unknown_objectives") or ())
    if capacity.get("more_unknown"):
        yield f"Of {capacity['more_unknown']} more nobody knows when they break"
    if answer.get("saturation"):
        yield str(answer["saturation"])


def _sustained(capacity: Mapping[str, Any]) -> str:
    """The rate, or as far as it is known."""
    if capacity.get("rate_per_s") is not None:
        return _rate(capacity["rate_per_s"])
    if capacity.get("at_most_per_s") is not None:
        return f"unknown, at most {_rate(capacity['at_most_per_s'])}"
    return "unknown" if capacity.get("state") == "unknown" else str(capacity.get("state", "-")).replace("_", " ")


def _age_words(answer: Mapping[str, Any]) -> str:
    stale = "; the cluster has changed since" if answer.get("is_stale") else ""
    return f"{_moment(answer['estimated_at'])}{stale}"


def _moment(text: str) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}/s" if abs(value) < 10_000 else f"{value:,.0f}/s"
