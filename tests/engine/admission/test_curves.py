"""Curves of decisions: they end where the numbers do, and show what changes alone."""

from __future__ import annotations

import pytest

from engine.admission.answer import AdmissionPolicy
from engine.admission.decision import decide
from engine.document.deployment import Deployment
from tests.engine.admission.stories import alternatives, candidate, effect, operator, running


def crowd(count: int) -> Deployment:
    """Query p, and `count` others beside it on the node that the candidate wants."""
    beside = [operator(f"q{i}/op", 0.05, node="n1", query=f"q{i}") for i in range(count)]
    bounds = [{"query": f"q{i}", "statistic": "worst", "bound_s": 9.0} for i in range(count)]
    own = [operator("p/op", 5.0, node="n1", query="p")]
    document = {"operators": [*own, *beside], "objectives": [{"query": "p", "statistic": "worst", "bound_s": 2.2}]}
    document["objectives"] += bounds
    return running(None, **document)


def test_curves_peak_at_the_worst_case_of_the_mean_path() -> None:
    decision = decide(running(), candidate())
    curves = decision.curves.to_dict()
    assert curves["step_s"] == 1.0
    assert max(curves["before"]["queries"]["p"]) == 1.0  # its burst is done a second late
    for query in ("p", "c"):
        path = curves["after"]["queries"][query]
        assert len(path) == 8
        assert max(path) == pytest.approx(effect(decision, query).flow_s, rel=1e-3)
    assert "c" not in curves["before"]["queries"]
    assert curves["before"]["nodes"] == {"n1": [0.5, 2.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]}
    assert curves["after"]["nodes"]["n1"][1] == 2.8


def test_alternative_has_the_curves_of_its_own_outcome() -> None:
    decision = decide(running(1.5), candidate())
    assert decision.verdict == "reject"
    curves = decision.curves.to_dict()
    assert set(curves["choices"]) == set(alternatives(decision))
    moved = curves["choices"]["move-1"]
    # On n2 the candidate leaves p and n1 as they are.
    assert "p" not in moved["queries"]
    assert list(moved["nodes"]) == ["n2"]
    own = next(e for e in alternatives(decision)["move-1"].effects if e.is_candidate)
    assert max(moved["queries"]["c"]) == pytest.approx(own.flow_s, rel=1e-3)
    assert {"n1", "n2"} <= set(curves["before"]["nodes"])


def test_new_node_has_no_curve_before() -> None:
    decision = decide(running(1.5, nodes=("n1",)), candidate())
    added = alternatives(decision)["add_node-1"].changes[0].id
    curves = decision.curves.to_dict()
    assert max(curves["choices"]["add_node-1"]["nodes"][added]) > 0.0
    assert added not in curves["before"]["nodes"]


def test_candidate_without_a_place_has_no_curves_after() -> None:
    decision = decide(running(), candidate(node=None), policy=AdmissionPolicy(closed_nodes=("n1", "n2")))
    assert decision.placement == {}
    curves = decision.curves.to_dict()
    assert curves["after"] == {}
    assert set(curves["choices"]) == {"add_node-1"}


def test_long_horizons_are_shown_in_at_most_120_steps() -> None:
    arrivals = [10.0] * 1000
    arrivals[500] = 60.0
    long = running(9.0, sources=[{"id": "a", "arrivals": arrivals, "dispersion": 0.0, "dispersion_step_s": 1.0}])
    decision = decide(long, candidate(9.0))
    curves = decision.curves.to_dict()
    assert curves["step_s"] == 9.0
    path = curves["after"]["queries"]["p"]
    assert len(path) == 112
    assert max(path) == pytest.approx(effect(decision, "p").flow_s, rel=1e-3)
    assert path.index(max(path)) == 500 // 9


def test_candidate_and_those_it_breaks_come_first_among_many() -> None:
    decision = decide(crowd(12), candidate(9.0, cost=4.0))
    assert effect(decision, "p").after_state == "breached"
    shown = decision.curves.to_dict()["after"]["queries"]
    assert len(shown) == 9
    assert {"c", "p"} <= set(shown)
