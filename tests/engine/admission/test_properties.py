"""Properties of every decision, on random fleets."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.admission.answer import AdmissionPolicy
from engine.admission.changes import RateChange
from engine.admission.decision import decide
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, scenario_of
from engine.document.candidate import read_candidate
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.estimation.mace import mace
from engine.placement.greedy import place
from engine.plans.related_queries import related_queries, restrict_to_queries

PASSING = {"admit", "admit_with_changes", "review"}
VERDICTS = PASSING | {"queue", "reject"}


def batches(rng: np.random.Generator, cost: float) -> list[dict[str, float]]:
    spread = rng.uniform(0.9, 1.1, 4)
    return [{"events": 50.0, "outputs": 50.0, "cycles": 50.0 * cost * float(x)} for x in spread]


def query(rng: np.random.Generator, name: str, source: str, nodes: list[str] | None) -> list[dict[str, Any]]:
    operators = []
    for k in range(int(rng.integers(1, 4))):
        cost = float(rng.uniform(0.5, 4.0))
        read = {
            "from": source if k == 0 else f"{name}/{k - 1}",
            "selectivity": float(rng.uniform(0.3, 1.0)),
            "cycles_per_event": cost,
        }
        if rng.random() < 0.7:
            read["batches"] = batches(rng, cost)
        place_of = {"node": str(rng.choice(nodes))} if nodes else {}
        operators.append({"id": f"{name}/{k}", "query": name, "inputs": [read], "bytes_per_event": 2.0, **place_of})
    return operators


def story(seed: int) -> tuple[Deployment, dict[str, Any]]:
    """A fleet of two to four nodes with up to three queries in bursts, and a candidate."""
    rng = np.random.default_rng(seed)
    nodes = [f"n{i}" for i in range(int(rng.integers(2, 5)))]
    arrivals = {name: rng.poisson(np.where(rng.random(40) < 0.2, 30.0, 6.0)).astype(float).tolist() for name in "ab"}
    names = [f"q{i}" for i in range(int(rng.integers(1, 4)))]
    links = [{"from": nodes[0], "to": nodes[1], "bandwidth_bytes_s": 100.0, "delay_s": 0.1}]
    running = Deployment.parse(
        {
            "subinterval_s": 0.5,
            "sources": [{"id": name, "arrivals": values} for name, values in arrivals.items()],
            "nodes": [{"id": name, "capacity_cps": 120.0, "cores": int(rng.integers(1, 3))} for name in nodes],
            "operators": [op for name in names for op in query(rng, name, str(rng.choice(["a", "b"])), nodes)],
            "links": links if rng.random() < 0.5 else [],
            "objectives": [
                {
                    "query": name,
                    "statistic": str(rng.choice(["worst", "mean", "q0.9"])),
                    "bound_s": float(rng.uniform(0.3, 4.0)),
                }
                for name in names
            ],
        }
    )
    asked = nodes if rng.random() < 0.5 else None
    candidate = {
        "query": "c",
        "operators": [{k: v for k, v in op.items() if k != "query"} for op in query(rng, "c", "a", asked)],
        "objective": {"statistic": "worst", "bound_s": float(rng.uniform(0.3, 4.0))},
        "may_wait_s": float(rng.choice([0.0, 8.0])),
    }
    return running, candidate


seeds = st.integers(0, 10_000)
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(relaxed, max_examples=15)
@given(seeds)
def test_every_alternative_keeps_its_promise(seed: int) -> None:
    running, candidate = story(seed)
    decision = decide(running, candidate, mace_every=2)
    assert decision.verdict in VERDICTS
    assert [e.query for e in decision.effects] == [*running.queries, "c"]
    if decision.verdict in {"admit", "admit_with_changes"}:
        assert not decision.alternatives
    for alternative in decision.alternatives:
        assert alternative.verdict in PASSING
        after = decide(running, candidate, mace_every=2, changes=alternative.changes)
        assert after.verdict == alternative.verdict
        assert after.effects == alternative.effects
        own = next(e for e in after.effects if e.is_candidate)
        assert own.after_s == alternative.estimate_s
        assert own.after_state in {"holds", "none"}
        assert list(after.changes) == list(alternative.changes)


@settings(relaxed, max_examples=8)
@given(seeds)
def test_equal_input_gives_equal_decisions(seed: int) -> None:
    running, candidate = story(seed)
    first, second = (json.dumps(decide(running, candidate, mace_every=2).to_dict()) for _ in range(2))
    assert first == second


def question_of(seed: int) -> CandidateQuestion:
    running, candidate = story(seed)
    return CandidateQuestion(running, read_candidate(candidate, running), AdmissionPolicy(), 2)


def with_share(question: CandidateQuestion, base: AdmissionScenario, share: float) -> float:
    """Mace of the candidate at a share of its rate, everything placed as in `base`."""
    changes = [RateChange("c", share)]
    scaled = scenario_of(question, changes).deployment.with_placement(base.replicas_of("c"))
    return float(mace(scaled).worst)


@relaxed
@given(seeds, st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_smaller_share_of_the_rate_never_raises_mace(seed: int, one: float, other: float) -> None:
    question = question_of(seed)
    base = scenario_of(question)
    low, high = sorted((one, other))
    assert with_share(question, base, low) <= with_share(question, base, high) * (1.0 + 1e-9)
    assert with_share(question, base, high) <= mace(base.deployment).worst * (1.0 + 1e-9)


@relaxed
@given(seeds)
def test_unrelated_queries_keep_their_estimate(seed: int) -> None:
    """Leaving unrelated queries out changes no estimate of the others."""
    question = question_of(seed)
    scenario = scenario_of(question)
    related = related_queries(scenario.deployment, question.running, scenario.touched)
    whole = estimate(scenario.deployment, mace_every=2, intervals=False).queries
    part = estimate(restrict_to_queries(scenario.deployment, related), mace_every=2, intervals=False).queries
    before = estimate(question.running, mace_every=2, intervals=False).queries
    for name in scenario.deployment.queries:
        expected = part[name] if name in related else before[name]
        assert whole[name].estimate_s == pytest.approx(expected.estimate_s, rel=1e-9, abs=1e-12)


@relaxed
@given(seeds)
def test_effects_agree_with_the_estimate_of_the_scenario(seed: int) -> None:
    running, candidate = story(seed)
    decision = decide(running, candidate, mace_every=2, policy=AdmissionPolicy(choices=False))
    placed = scenario_of(
        CandidateQuestion(running, read_candidate(candidate, running), AdmissionPolicy(), 2)
    ).deployment
    assert place(placed) == {}
    expected = estimate(placed, mace_every=2).queries
    for result in decision.effects:
        assert result.after_s == pytest.approx(expected[result.query].estimate_s)
        assert (result.high_s is None) == (expected[result.query].high_s is None)
