"""What a scenario does to every query and node, before and after."""

from __future__ import annotations

from typing import Any

from engine.admission.evaluation import Evaluation, Outcome
from engine.admission.scenario import Question, Scenario

__all__ = ["effects_of", "effects_without", "nodes_of"]


def effects_of(question: Question, scenario: Scenario, before: Evaluation, after: Evaluation) -> list[dict[str, Any]]:
    """One entry per running query, in their order, and one for the candidate."""
    own = set(scenario.nodes_of(question.candidate.query))
    effects = [
        _effect(before.outcomes[q], after.outcomes[q], [node for node in scenario.nodes_of(q) if node in own])
        for q in question.running.queries
    ]
    candidate = after.outcomes[question.candidate.query]
    return [*effects, _effect(None, candidate, list(scenario.nodes_of(question.candidate.query)))]


def effects_without(question: Question, before: Evaluation) -> list[dict[str, Any]]:
    """The effects of a candidate that can be placed nowhere: none; of itself nothing is known."""
    objective = question.candidate.objective
    nothing: dict[str, Any] = {
        "query": question.candidate.query,
        "statistic": objective.statistic if objective else "worst",
        "bound_s": objective.bound_s if objective else None,
        "before_s": None,
        "after_s": None,
        "low_s": None,
        "high_s": None,
        "change_s": None,
        "before_state": "none",
        "after_state": "none",
        "under_resolution": False,
        "resolution_s": None,
        "shares": [],
        "bottleneck": None,
        "is_candidate": True,
    }
    running = [before.outcomes[query] for query in question.running.queries]
    return [*(_effect(outcome, outcome, []) for outcome in running), nothing]


def _effect(was: Outcome | None, now: Outcome, shares: list[str]) -> dict[str, Any]:
    return {
        "query": now.query,
        "statistic": now.statistic,
        "bound_s": now.bound_s,
        "before_s": was.estimate_s if was else None,
        "after_s": now.estimate_s,
        "low_s": now.low_s,
        "high_s": now.high_s,
        "change_s": now.estimate_s - was.estimate_s if was else None,
        "before_state": was.state if was else "none",
        "after_state": now.state,
        "under_resolution": now.estimate_s < now.resolution_s,
        "resolution_s": now.resolution_s,
        "shares": shares,
        "bottleneck": now.bottleneck.server if now.bottleneck else None,
        "is_candidate": was is None,
    }


def nodes_of(before: Evaluation, after: Evaluation) -> list[dict[str, Any]]:
    """Peak load of the busiest core of every node, before and after; a new node has no before."""
    was, now = before.node_peaks(), after.node_peaks()
    return [{"node": name, "before_peak": was.get(name), "after_peak": peak} for name, peak in now.items()]
