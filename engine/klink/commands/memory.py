"""``memory`` of the command line: which of several queries frees most waiting events in one cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, Listed, Mapped, Number, Table
from engine.klink.memory import best_gain, gain_as_printed, pick_by_gain
from engine.wording import join

__all__ = ["command"]

_MOST = 1e15  # events, times and ratios beyond it are a mistake
_SERIES = Listed(Number(least=0, most=_MOST), least=1)

_PROBLEM = Table(
    "memory problem",
    Field(
        "queries",
        Mapped(
            Table(
                "a query",
                Field("queued", _SERIES, required=True, help="events before each operator"),
                Field("selectivity", _SERIES, required=True, help="events out per event in"),
                Field("cost_ms", _SERIES, required=True, help="CPU time of an event"),
            )
        ),
        required=True,
    ),
    Field("slacks", Mapped(Number(least=-_MOST, most=_MOST)), required=True, help="of each query, ms"),
    Field("r", Number(above=0), required=True, help="length of a cycle, ms"),
)


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Events each query can remove in a cycle, to which operator; the query that runs; the paper's formula beside."""
    faults: list[Fault] = []
    read = _PROBLEM.read(document, "", "", faults)
    if read is not BAD:
        _judge(read, faults)
    if faults:
        raise DocumentError(faults, "memory problem")
    gains, printed = {}, {}
    for name, query in read["queries"].items():
        gains[name] = best_gain(query["queued"], query["selectivity"], query["cost_ms"], read["r"])
        printed[name] = gain_as_printed(query["queued"], query["selectivity"])
    return {
        "gain": {name: list(gain) for name, gain in gains.items()},
        "picked": pick_by_gain({name: gain for name, (gain, _) in gains.items()}, read["slacks"]),
        "gain_as_printed": {name: list(gain) for name, gain in printed.items()},
    }


def _judge(read: Mapping[str, Any], faults: list[Fault]) -> None:
    queries, slacks = read["queries"], read["slacks"]
    if queries is BAD or slacks is BAD:
        return
    if not queries:
        faults.append(Fault("queries", "queries is empty; allowed: at least one query"))
    for name, query in queries.items():
        if name not in slacks:
            faults.append(Fault(join("slacks", name), f"{name} has no slack; every query needs one"))
        if query is not BAD:
            _judge_lengths(query, join("queries", name), faults)
    unknown = [name for name in slacks if name not in queries]
    faults.extend(Fault(join("slacks", name), f"{name} is not among the queries") for name in unknown)


def _judge_lengths(query: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
    queued = query["queued"]
    for key in ("selectivity", "cost_ms"):
        series = query[key]
        if queued is not BAD and series is not BAD and len(series) != len(queued):
            message = f"{key} has {len(series)} operators; allowed: {len(queued)}, as many as queued"
            faults.append(Fault(join(path, key), message))
