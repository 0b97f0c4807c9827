"""A proposal as it is kept: whole and compressed, in a few numbers for lists, and move by move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apps.core.packing import unpack_json
from apps.placements.models import PlacementMove, PlacementRun

__all__ = ["facts_of", "move_rows", "result_of"]


def result_of(run: PlacementRun) -> dict[str, Any] | None:
    """The engine's proposal, as its command line prints it; None while it is looked for."""
    return None if run.result is None else unpack_json(run.result)


def facts_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What lists say of a proposal."""
    kept = ("objective", "value_before", "value_after", "mace_before_s", "mace_after_s", "flow_before_s")
    kept += ("flow_after_s", "bound_s", "bound_kind", "gap", "stopped", "elapsed_s", "rounds")
    facts = {name: answer.get(name) for name in kept}
    facts["moves"] = len(answer["moves"])
    facts["queries"], facts["operators"] = len(answer["queries"]), len(answer["placement"])
    facts["duration_s"] = sum(move["duration_s"] or 0.0 for move in answer["moves"])
    for moment in ("before", "after"):
        states = [query[f"{moment}_state"] for query in answer["queries"]]
        facts[f"breached_{moment}"] = states.count("breached")
        facts[f"tightest_{moment}"] = _tightest(answer["queries"], f"{moment}_s")
    return facts


def _tightest(queries: Sequence[Mapping[str, Any]], moment: str) -> dict[str, Any] | None:
    """The query whose latency is the largest share of its objective, priorities left out; None without any."""
    shares = {q["query"]: q[moment] / q["bound_s"] for q in queries if q["bound_s"] and q[moment] is not None}
    name = max(shares, key=lambda query: shares[query], default=None)
    return None if name is None else {"query": name, "share": shares[name]}


def move_rows(run: PlacementRun, answer: Mapping[str, Any]) -> list[PlacementMove]:
    """One unsaved row per move, in order."""
    return [_row(run, number, move) for number, move in enumerate(answer["moves"], start=1)]


def _row(run: PlacementRun, number: int, move: Mapping[str, Any]) -> PlacementMove:
    return PlacementMove(
        run=run,
        number=number,
        operator=move["operator"],
        query=move["query"] or move["operator"].partition("/")[0],
        before=_replicas(move["from"]),
        after=_replicas(move["to"]),
        kind=move["kind"],
        why=str(move.get("why") or "")[:300],
        state_bytes=move.get("state_bytes"),
        duration_s=move.get("duration_s") or 0.0,
        bump_s=move.get("bump_s") or 0.0,
        bump_query=move.get("bump_query") or "",
    )


def _replicas(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"node": part["node"], "core": part.get("core", 0), "fraction": part.get("fraction", 1.0)} for part in parts
    ]
