"""Admission where a horizon begins with events that wait."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission.answer import AdmissionDecision
from engine.admission.decision import decide
from engine.document.deployment import Deployment


def running(backlog: dict[str, Any] | None) -> Deployment:
    source = {"id": "s", "arrivals": [40.0] * 600} | ({"backlog": backlog} if backlog else {})
    return Deployment.parse(
        {
            "subinterval_s": 1.0,
            "sources": [source],
            "nodes": [{"id": "n", "capacity_cps": 100.0}],
            "objectives": [{"query": "q", "statistic": "worst", "bound_s": 30.0}],
            "operators": [operator("f", "s") | {"query": "q"}],
        }
    )


def operator(name: str, source: str) -> dict[str, Any]:
    entry = {"from": source, "selectivity": 1.0, "cycles_per_event": 1.0, "cost_cv2": 0.1}
    return {"id": name, "node": "n", "evidence": {"kind": "measured", "events": 1e5}, "inputs": [entry]}


def asked(waits: dict[str, Any] | None, rate: float, **source: Any) -> AdmissionDecision:
    own = {"id": "u", "arrivals": [rate] * 600} | source
    candidate = {
        "query": "c",
        "operators": [operator("g", "u")],
        "sources": [own],
        "objective": {"statistic": "worst", "bound_s": 200.0},
    }
    return decide(running(waits), candidate)


def codes(decision: AdmissionDecision) -> set[str]:
    return {reason.code for reason in decision.reasons}


def test_candidate_that_delays_a_neighbours_catching_up_is_told() -> None:
    decision = asked({"behind_s": 200.0}, 30.0)
    (reason,) = (reason for reason in decision.reasons if reason.code == "catch_up_delayed")
    assert (reason.value, reason.bound) == (pytest.approx(800.0 / 3.0, rel=0.02), pytest.approx(400.0 / 3.0, rel=0.02))
    effect = next(effect for effect in decision.effects if effect.query == "q")
    assert effect.catch_up_before.at_s < effect.catch_up_after.at_s
    assert decision.verdict == "review"


def test_miss_by_what_waits_already_is_not_blamed_on_the_candidate() -> None:
    decision = asked({"behind_s": 200.0}, 1.0)
    assert "neighbour_breached" not in codes(decision)
    assert "neighbour_already_over" in codes(decision)
    assert decision.verdict == "admit"


def test_candidate_that_keeps_a_neighbour_from_catching_up_is_for_a_person() -> None:
    decision = asked({"behind_s": 200.0}, 52.0)
    assert decision.verdict == "review"
    assert any(reason.code == "catch_up_delayed" and reason.review for reason in decision.reasons)


def test_backlog_too_old_to_use_is_for_a_person() -> None:
    decision = asked({"behind_s": 200.0, "age_s": 1e4}, 1.0)
    assert decision.verdict == "review"
    assert "backlog_unknown" in codes(decision)


def test_candidate_that_comes_with_a_backlog_harms_neighbours() -> None:
    decision = asked(None, 30.0, backlog={"behind_s": 100.0})
    assert decision.verdict == "reject"
    assert {"neighbour_breached", "catch_up"} <= codes(decision)


def test_candidate_begins_with_the_newest_event_of_a_source_that_others_read() -> None:
    candidate = {"query": "c", "operators": [operator("g", "s")], "objective": {"statistic": "worst", "bound_s": 500.0}}
    decision = decide(running({"behind_s": 50.0}), candidate)
    effect = next(effect for effect in decision.effects if effect.query == "c")
    # What waits is served first: 2,000 events, not 4,000, and its own age is no part of its latency.
    assert effect.after_s == pytest.approx(20.0, rel=0.1)
