"""Admission where it is easy to be wrong: choices that cure nothing, places that are shut, words that say too much."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission import evaluation
from engine.admission.decision import decide
from engine.admission.policy import AdmissionPolicy
from engine.document.deployment import Deployment
from engine.errors import DocumentError
from tests.engine.admission.stories import again, candidate, choices, codes, effect, operator, running


def moved(name: str, node: str) -> dict[str, Any]:
    return {"kind": "move", "operator": name, "node": node}


class TestChoicesThatCureSomething:
    def test_a_new_node_is_offered_only_where_the_candidate_goes_there(self) -> None:
        # n2 is empty: the candidate would go there however small a node was bought beside it
        decision = decide(running(bound_s=1.0), candidate())
        assert "move-1" in choices(decision)
        assert "add_node-1" not in choices(decision)

    def test_no_new_node_where_placing_again_is_enough(self) -> None:
        # of its two operators the second alone has to leave n1; it would go to a sliver of a node as well
        asked = candidate() | {"operators": [operator("c/a", 0.1, node="n1"), operator("c/b", 2.0, "c/a", node="n1")]}
        found = {choice.kind for choice in decide(running(bound_s=1.0), asked).choices}
        assert "move" in found
        assert "add_node" not in found

    def test_a_new_node_that_is_offered_is_used(self) -> None:
        full = running(bound_s=1.0, nodes=("n1",))
        decision = decide(full, candidate())
        taken = again(decision, "add_node-1", full, candidate())
        assert {replica["node"] for replica in taken.placement["c/op"]} == {"new-1"}

    def test_a_sliver_of_the_rate_is_no_choice(self) -> None:
        heavy = candidate(cost=80.0)  # at 1 % of its rate it would pass
        slivered = decide(running(), heavy, changes=[{"kind": "scale_rate", "query": "c", "share": 0.01}])
        assert slivered.verdict == "admit_with_changes"
        assert not any(choice.kind == "scale_rate" for choice in decide(running(), heavy).choices)

    def test_a_start_after_all_that_it_would_read_is_no_start(self) -> None:
        burst = {"sources": [{"id": "own", "arrivals": [1000.0, *[1.0] * 7]}], "may_wait_s": 100.0}
        late = candidate(cost=2.0) | burst | {"operators": [operator("c/op", 2.0, "own", node="n2")]}
        decision = decide(running(), late)
        assert decision.verdict == "reject"
        assert "start_at-1" not in choices(decision)

    def test_moves_between_cores_of_a_node_name_the_cores(self) -> None:
        document = running(bound_s=1.0).to_document() | {"nodes": [{"id": "n1", "capacity_cps": 100.0, "cores": 2}]}
        decision = decide(Deployment.parse(document), candidate())
        titles = {choice.title for choice in decision.choices if choice.kind == "move"}
        assert titles == {"Place c/op on n1#1", "Move p/op from n1#0 to n1#1"}


class TestPlacesThatAreShut:
    def test_no_change_moves_to_a_node_that_takes_nothing_new(self) -> None:
        with pytest.raises(DocumentError) as caught:
            decide(running(), candidate(), policy=AdmissionPolicy(closed_nodes=("n2",)), changes=[moved("c/op", "n2")])
        assert [(fault.path, fault.message) for fault in caught.value.faults] == [
            ("changes[0].node", "node is 'n2'; it takes nothing new")
        ]

    @pytest.mark.parametrize(
        ("constraints", "why"),
        [
            ({"pin": {"p/op": "n1"}}, "operator 'p/op' is pinned to 'n1'"),
            ({"forbid": {"p/op": ["n2"]}}, "it is forbidden to operator 'p/op'"),
        ],
    )
    def test_no_change_moves_against_the_constraints(self, constraints: dict[str, Any], why: str) -> None:
        with pytest.raises(DocumentError) as caught:
            decide(running(constraints=constraints), candidate(), changes=[moved("p/op", "n2")])
        assert [fault.message for fault in caught.value.faults] == [f"node is 'n2'; {why}"]


class TestWords:
    def test_a_query_that_is_late_anyway_does_not_hold(self) -> None:
        decision = decide(running(bound_s=0.5), candidate(node="n2"))
        assert decision.verdict == "admit"
        assert decision.headline.startswith("c may run: ")
        assert decision.headline.endswith("; p misses its objective with or without it")
        assert "all_hold" not in codes(decision)

    def test_everyone_who_would_be_late_is_named(self) -> None:
        decision = decide(running(bound_s=1.0), candidate(bound_s=1.0))
        assert codes(decision, "bad")[:2] == ["objective_breached", "neighbour_breached"]
        assert decision.headline.startswith("p would miss its objective")
        assert decision.headline.endswith("; c would miss its own too")

    def test_a_peak_just_above_capacity_looks_so(self) -> None:
        decision = decide(running(), candidate(cost=2.51, node="n2"))
        peaks = [reason.message for reason in decision.reasons if reason.code == "node_overloaded"]
        assert peaks == ["n2 would be over its capacity at peak: its load would go from 0.000 to 1.004"]


class TestStates:
    def test_a_bound_finer_than_the_estimate_is_not_said_to_hold(self) -> None:
        decision = decide(running(), candidate(bound_s=1e-6, node="n2"))
        assert decision.verdict == "review"
        assert codes(decision, "watch") == ["under_resolution"]
        assert decide(
            running(), candidate(bound_s=1e-6, node="n2"), policy=AdmissionPolicy(review_at_risk=False)
        ).verdict == ("admit")

    def test_a_late_neighbour_that_gets_better_asks_for_no_review(self) -> None:
        # p is late behind another operator; alone on n2 only its upper end is over
        operators = [operator("lone", 0.6, node="n1"), operator("p/op", 5.0, node="n1", query="p", spread=0.05)]
        crowded = running(bound_s=1.05, operators=operators)
        decision = decide(crowded, candidate(node="n1", cost=0.001), changes=[moved("p/op", "n2")])
        found = effect(decision, "p")
        assert (found["before_state"], found["after_state"]) == ("breached", "at_risk")
        assert "neighbour_at_risk" in codes(decision, "info")

    def test_moving_an_operator_of_no_query_is_felt_where_it_goes(self) -> None:
        fleet = running(
            nodes=("n1", "n2", "n3"),
            operators=[operator("p/op", 5.0, node="n1", query="p"), operator("lone", 2.0, node="n3")],
        )
        decision = decide(fleet, candidate(node="n2"), changes=[moved("lone", "n1")])
        assert effect(decision, "p")["after_s"] > effect(decision, "p")["before_s"]


class TestWhatRunsIsEvaluatedOnce:
    def test_the_next_question_about_the_same_fleet_reuses_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        evaluated: list[Deployment] = []
        real = evaluation.estimate

        def counting(deployment: Deployment, **options: Any) -> Any:
            evaluated.append(deployment)
            return real(deployment, **options)

        monkeypatch.setattr(evaluation, "_before", {})
        monkeypatch.setattr(evaluation, "estimate", counting)
        first = decide(running(), candidate(node="n2"))
        again_too = decide(Deployment.parse(running().to_document()), candidate(node="n2"))
        assert first.to_dict() == again_too.to_dict()
        assert len(evaluated) == 3  # what runs once, with the candidate twice
        decide(running(bound_s=3.0), candidate(node="n2"))
        assert len(evaluated) == 5  # another objective is another fleet

    def test_few_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evaluation, "_before", {})
        for bound_s in range(2, 12):
            decide(running(bound_s=float(bound_s)), candidate(node="n2"), policy=AdmissionPolicy(choices=False))
        assert len(evaluation._before) == 4
