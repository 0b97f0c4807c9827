"""Admission where errors are easy: useless alternatives, closed places, headlines that claim too much."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission import evaluation
from engine.admission.answer import AdmissionPolicy
from engine.admission.decision import decide
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from engine.estimation import base as estimate_base
from engine.policies.rules import EvidenceRules
from tests.engine.admission.stories import again, alternatives, candidate, codes, effect, operator, running

RISKY = AdmissionPolicy(choices=False, evidence=EvidenceRules(at_risk="admit"))


def moved(name: str, node: str) -> dict[str, Any]:
    return {"kind": "move", "operator": name, "node": node}


class TestUsefulAlternatives:
    def test_new_node_that_the_candidate_would_not_use_is_not_offered(self) -> None:
        # n2 is empty: the candidate would go there however small a node was bought beside it
        decision = decide(running(bound_s=1.2), candidate())
        assert "move-1" in alternatives(decision)
        assert "add_node-1" not in alternatives(decision)

    def test_new_node_is_not_offered_where_a_move_is_enough(self) -> None:
        # of its two operators the second alone has to leave n1; it would go to a sliver of a node as well
        asked = candidate() | {"operators": [operator("c/a", 0.1, node="n1"), operator("c/b", 2.0, "c/a", node="n1")]}
        result = {alternative.kind for alternative in decide(running(bound_s=1.2), asked).alternatives}
        assert "move" in result
        assert "add_node" not in result

    def test_candidate_is_placed_on_the_new_node_it_was_offered(self) -> None:
        full = running(bound_s=1.2, nodes=("n1",))
        decision = decide(full, candidate())
        taken = again(decision, "add_node-1", full, candidate())
        assert {replica.node for replica in taken.placement["c/op"]} == {"new-1"}

    def test_tiny_share_of_the_rate_is_no_alternative(self) -> None:
        heavy = candidate(3.0, cost=80.0)  # at 1 % of its rate it would pass
        slivered = decide(running(3.0), heavy, changes=[{"kind": "scale_rate", "query": "c", "share": 0.01}])
        assert slivered.verdict == "admit_with_changes"
        assert not any(alternative.kind == "scale_rate" for alternative in decide(running(3.0), heavy).alternatives)

    def test_start_after_the_last_arrival_is_not_offered(self) -> None:
        burst = {"sources": [{"id": "own", "arrivals": [1000.0, *[1.0] * 7]}], "may_wait_s": 100.0}
        late = candidate(cost=2.0) | burst | {"operators": [operator("c/op", 2.0, "own", node="n2")]}
        decision = decide(running(), late)
        assert decision.verdict == "reject"
        assert "start_at-1" not in alternatives(decision)

    def test_titles_of_moves_between_cores_name_the_cores(self) -> None:
        document = running(bound_s=1.2).to_document() | {"nodes": [{"id": "n1", "capacity_cps": 100.0, "cores": 2}]}
        decision = decide(Deployment.parse(document), candidate())
        titles = {alternative.title for alternative in decision.alternatives if alternative.kind == "move"}
        assert titles == {"Place c/op on core 1 of n1", "Move p/op from core 0 of n1 to core 1 of n1"}


class TestClosedPlaces:
    def test_move_to_a_closed_node_is_refused(self) -> None:
        with pytest.raises(DocumentError) as caught:
            decide(running(), candidate(), policy=AdmissionPolicy(closed_nodes=("n2",)), changes=[moved("c/op", "n2")])
        assert [(fault.path, fault.message) for fault in caught.value.faults] == [
            ("changes[0].node", "node is 'n2'; n2 takes nothing new")
        ]

    @pytest.mark.parametrize(
        ("constraints", "why"),
        [
            ({"pin": {"p/op": "n1"}}, "it is pinned to n1"),
            ({"forbid": {"p/op": ["n2"]}}, "n2 is forbidden to it"),
        ],
    )
    def test_move_against_a_constraint_is_refused(self, constraints: dict[str, Any], why: str) -> None:
        with pytest.raises(DocumentError) as caught:
            decide(running(constraints=constraints), candidate(), changes=[moved("p/op", "n2")])
        assert [fault.message for fault in caught.value.faults] == [f"node is 'n2'; {why}"]


class TestHeadlines:
    def test_headline_says_which_query_misses_its_objective_anyway(self) -> None:
        decision = decide(running(bound_s=0.5), candidate(node="n2"))
        assert decision.verdict == "admit"
        assert decision.headline.startswith("c may run: ")
        assert decision.headline.endswith("; p misses its objective with or without it")
        assert "all_hold" not in codes(decision)

    def test_headline_names_every_query_that_would_miss_its_objective(self) -> None:
        decision = decide(running(bound_s=1.2), candidate(bound_s=1.2))
        assert codes(decision, "bad")[:2] == ["objective_breached", "neighbour_breached"]
        assert decision.headline.startswith("p would miss its objective")
        assert decision.headline.endswith("; c would miss its own too; without the nodes asked for it would pass")

    def test_peak_just_above_capacity_is_written_with_enough_digits(self) -> None:
        decision = decide(running(), candidate(cost=2.51, node="n2"))
        peaks = [reason.message for reason in decision.reasons if reason.code == "node_overloaded"]
        assert peaks == ["n2 would be over its capacity at peak: its load would go from 0.000 to 1.004"]


class TestStates:
    def test_objective_below_the_resolution_is_reviewed(self) -> None:
        fine = candidate(bound_s=0.9, node="n2")
        decision = decide(running(), fine)
        assert decision.verdict == "review"
        assert codes(decision, "watch") == ["under_resolution"]
        assert "finer than arrivals are counted (1\u00a0s)" in decision.headline
        assert decide(running(), fine, policy=RISKY).verdict == "admit"

    def test_objective_below_one_events_service_is_breached(self) -> None:
        decision = decide(running(), candidate(bound_s=0.01, node="n2"))
        assert codes(decision, "bad") == ["objective_breached"]

    def test_neighbour_that_improves_from_breached_to_at_risk_causes_no_review(self) -> None:
        # p is late behind another operator; alone on n2 only its upper end is over
        operators = [operator("lone", 0.6, node="n1"), operator("p/op", 5.0, node="n1", query="p", spread=0.05)]
        crowded = running(bound_s=1.25, operators=operators)
        decision = decide(crowded, candidate(node="n1", cost=0.001), changes=[moved("p/op", "n2")])
        result = effect(decision, "p")
        assert (result.before_state, result.after_state) == ("breached", "at_risk")
        assert "neighbour_at_risk" in codes(decision, "info")

    def test_move_of_an_operator_without_a_query_affects_queries_on_its_new_node(self) -> None:
        fleet = running(
            nodes=("n1", "n2", "n3"),
            operators=[operator("p/op", 5.0, node="n1", query="p"), operator("lone", 2.0, node="n3")],
        )
        decision = decide(fleet, candidate(node="n2"), changes=[moved("lone", "n1")])
        assert effect(decision, "p").after_s > effect(decision, "p").before_s


class TestReuseOfEstimates:
    def test_estimate_of_the_running_fleet_is_reused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        evaluated: list[Deployment] = []
        real = estimate_base.estimate

        def counting(deployment: Deployment, **options: Any) -> Any:
            evaluated.append(deployment)
            return real(deployment, **options)

        monkeypatch.setattr(evaluation, "_before", {})
        monkeypatch.setattr(evaluation, "_bases", {})
        monkeypatch.setattr(estimate_base, "estimate", counting)
        policy = AdmissionPolicy(robustness=False)
        first = decide(running(), candidate(node="n2"), policy=policy)
        again_too = decide(Deployment.parse(running().to_document()), candidate(node="n2"), policy=policy)
        assert first.to_dict() == again_too.to_dict()
        assert len(evaluated) == 1  # what runs, once; the candidate is a change of it
        decide(running(bound_s=3.0), candidate(node="n2"), policy=policy)
        assert len(evaluated) == 2  # another objective is another fleet

    def test_number_of_reused_estimates_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evaluation, "_before", {})
        for bound_s in range(2, 12):
            decide(running(bound_s=float(bound_s)), candidate(node="n2"), policy=AdmissionPolicy(choices=False))
        assert len(evaluation._before) == 4
