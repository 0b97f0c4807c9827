"""Admission on a fleet worked out by hand: every verdict, every reason, every kind of alternative."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.admission.answer import AdmissionPolicy, NodeEffect, ReasonSubject
from engine.admission.changes import LaterStart, NewNode, OperatorMove
from engine.admission.decision import decide
from engine.document.deployment import Deployment, Replica
from engine.document.elements import Evidence
from engine.estimation.estimate import estimate
from engine.policies.rules import EvidenceRules
from tests.engine.admission.stories import (
    ARRIVALS,
    MEASURED,
    again,
    alternatives,
    candidate,
    codes,
    effect,
    operator,
    running,
)

DOUBTING = AdmissionPolicy(choices=False, evidence=EvidenceRules(assumed="review"))
RISKY = AdmissionPolicy(choices=False, evidence=EvidenceRules(at_risk="admit"))
TRUSTING = AdmissionPolicy(choices=False, evidence=EvidenceRules(coarse="admit"))

QUIET = AdmissionPolicy(choices=False)


class TestVerdicts:
    def test_candidate_that_breaks_no_objective_is_admitted(self) -> None:
        decision = decide(running(), candidate(), policy=AdmissionPolicy(thin_below=0.0))
        assert decision.verdict == "admit"
        assert codes(decision, "ok") == ["all_hold"]
        assert decision.alternatives == ()
        assert effect(decision, "p").before_s == pytest.approx(1.05)
        assert effect(decision, "p").after_s == pytest.approx(1.85)
        assert effect(decision, "c").after_s == pytest.approx(1.82)
        assert effect(decision, "c").low_s < 1.8 and 1.85 < effect(decision, "c").high_s < 2.0
        assert decision.headline == "Every objective holds: the worst case of c would be 1.8\u00a0s, against 2\u00a0s"
        assert decision.snapshot == running().digest

    def test_candidate_that_breaks_a_neighbours_objective_is_rejected(self) -> None:
        decision = decide(running(1.6), candidate())
        assert decision.verdict == "reject"
        expected = "p would miss its objective: its worst case would go from 1 s to 1.8 s, against 1.6 s"
        without = "without the nodes asked for it would pass"
        assert decision.headline.replace("\u00a0", " ") == f"{expected}, because both queries use n1; {without}"
        reason = next(reason for reason in decision.reasons if reason.code == "neighbour_breached")
        assert (reason.bound, reason.unit, reason.where) == (1.6, "s", "n1")
        assert reason.subject == ReasonSubject("query", "p")
        assert reason.value == pytest.approx(1.85)
        assert reason.when_p is not None
        assert reason.when_s == reason.when_p - 1.0
        assert "node_overloaded" in codes(decision, "bad")
        assert effect(decision, "p").after_state == "breached"
        assert effect(decision, "p").shares == ("n1",)

    def test_candidate_that_misses_its_own_objective_is_rejected(self) -> None:
        decision = decide(running(), candidate(1.5))
        assert decision.verdict == "reject"
        assert "objective_breached" in codes(decision, "bad")
        assert "because n1 would run at 2.80 of its capacity at peak" in decision.headline

    def test_candidate_that_passes_after_a_move_is_admitted_with_changes(self) -> None:
        decision = decide(running(1.6), candidate(), changes=[{"kind": "move", "operator": "c/op", "node": "n2"}])
        assert decision.verdict == "admit_with_changes"
        assert decision.placement == {"c/op": (Replica("n2"),)}
        assert decision.nodes == (NodeEffect("n1", 2.0, 2.0), NodeEffect("n2", 0.0, 0.8))

    def test_candidate_on_a_draining_node_is_placed_elsewhere(self) -> None:
        decision = decide(running(), candidate(), policy=AdmissionPolicy(closed_nodes=("n1",)))
        assert decision.verdict == "admit_with_changes"
        assert decision.placement["c/op"][0].node == "n2"
        assert codes(decision, "watch") == ["placement_altered"]

    def test_candidate_that_passes_with_a_later_start_is_queued(self) -> None:
        decision = decide(running(1.6), candidate(may_wait_s=5.0))
        assert decision.verdict == "queue"
        # After the burst there is room: the first such start is the third second.
        assert (decision.start_p, decision.start_s) == (3, 2.0)
        assert decision.headline.startswith("c would pass if it starts 2\u00a0s later")
        assert decision.changes == ()

    def test_candidate_that_cannot_wait_long_enough_is_rejected(self) -> None:
        decision = decide(running(1.6), candidate(may_wait_s=1.0))
        assert decision.verdict == "reject"
        assert "cannot_wait" in codes(decision, "info")
        assert decision.start_p is None

    def test_candidate_whose_interval_crosses_its_objective_is_reviewed(self) -> None:
        document = candidate(1.9, spread=0.2)
        decision = decide(running(4.0), document, policy=QUIET)
        assert decision.verdict == "review"
        assert codes(decision, "watch") == ["at_risk"]
        own = effect(decision, "c")
        assert own.after_state == "at_risk"
        assert own.low_s < own.after_s < 1.9 < own.high_s
        relaxed = decide(running(4.0), document, policy=RISKY)
        assert relaxed.verdict == "admit"
        assert codes(relaxed, "watch") == ["at_risk"]

    def test_candidate_that_puts_a_neighbour_at_risk_is_reviewed(self) -> None:
        decision = decide(running(2.4, spread=0.1), candidate(3.0), policy=QUIET)
        assert effect(decision, "p").before_state == "holds"
        assert decision.verdict == "review"
        assert codes(decision, "watch") == ["neighbour_at_risk"]

    def test_neighbour_already_at_risk_causes_no_review(self) -> None:
        decision = decide(running(1.2, spread=0.1), candidate(3.0, node="n2"), policy=QUIET)
        assert effect(decision, "p").before_state == "at_risk"
        assert decision.verdict == "admit"
        assert "neighbour_at_risk" in codes(decision, "info")

    def test_assumed_statistics_are_reviewed_where_the_policy_says_so(self) -> None:
        document = candidate()
        del document["operators"][0]["evidence"]
        lenient, strict = (decide(running(), document, policy=(DOUBTING if on else QUIET)) for on in (False, True))
        assert (lenient.verdict, strict.verdict) == ("admit", "review")
        assert "assumed_statistics" in codes(lenient, "info")
        assert "assumed_statistics" in codes(strict, "watch")
        assert (lenient.measure, strict.measure) == ((), ("c/op",))
        assert lenient.evidence == {"assumed": 1, "predicted": 0, "measured": 0}

    def test_measured_statistics_of_too_few_events_are_reviewed(self) -> None:
        document = candidate()
        document["operators"][0]["evidence"] = {"kind": "measured", "events": 12}
        assert "few_events" in codes(decide(running(), document), "info")
        assert decide(running(), document, policy=DOUBTING).verdict == "review"
        assert "few_events" not in codes(decide(running(), document, policy=AdmissionPolicy(min_events=10)))


class TestReasons:
    def test_neighbour_already_over_its_objective_does_not_reject_a_candidate(self) -> None:
        decision = decide(running(0.8), candidate(cost=0.01))
        assert decision.verdict == "admit"
        assert "neighbour_already_over" in codes(decision, "info")
        assert "all_hold" not in codes(decision)

    def test_neighbour_over_its_objective_that_gets_worse_rejects_a_candidate(self) -> None:
        # 1.85 s after 1.05 s is more than a hundredth of its bound.
        decision = decide(running(0.8), candidate())
        assert decision.verdict == "reject"
        assert "misses its objective already and would get worse" in decision.headline

    def test_counts_that_hide_bursts_are_for_a_person(self) -> None:
        source = running(9.0).sources[0]
        counted = replace(running(9.0), sources=(replace(source, arrivals_step_s=4.0),))
        decision = decide(counted, candidate(9.0))
        assert decision.verdict == "review" and "coarse_counts" in codes(decision, "watch")
        assert "counts per 4" in next(reason.message for reason in decision.reasons if reason.code == "coarse_counts")
        assert alternatives(decision) == {}  # the candidate reads such counts itself: no place cures that
        trusting = decide(counted, candidate(9.0), policy=TRUSTING)
        assert trusting.verdict == "admit" and "coarse_counts" in codes(trusting, "info")
        known = replace(counted.sources[0], dispersion=1.5, dispersion_step_s=0.5)
        assert decide(replace(counted, sources=(known,)), candidate(9.0)).verdict == "admit"

    def test_plan_that_is_not_understood_in_full_is_for_a_person(self) -> None:
        assert decide(running(9.0), candidate(9.0)).verdict == "admit"
        document = candidate(9.0)
        document["operators"][0]["unread"] = ["Match: its results wait for the events that complete a pattern"]
        decision = decide(running(9.0), document)
        assert decision.verdict == "review" and "plan_unread" in codes(decision, "watch")
        assert "complete a pattern" in next(r.message for r in decision.reasons if r.code == "plan_unread")

    def test_answers_from_outside_are_for_a_person(self) -> None:
        document = candidate(9.0)
        document["operators"][0]["waits_outside"] = True
        decision = decide(running(9.0), document)
        assert decision.verdict == "review" and "plan_unread" in codes(decision, "watch")

    def test_neighbours_plan_that_is_not_understood_is_for_a_person(self) -> None:
        neighbour = running(9.0)
        operators = tuple(replace(op, unread=("Ponder: the operator is not known",)) for op in neighbour.operators)
        decision = decide(replace(neighbour, operators=operators), candidate(9.0))
        assert decision.verdict == "review" and "plan_unread" in codes(decision, "watch")

    def test_statistics_that_cover_seconds_are_for_a_person(self) -> None:
        document = candidate(9.0)
        document["operators"][0]["measured_s"] = 15.0
        decision = decide(running(9.0), document)
        assert decision.verdict == "review" and "still_measuring" in codes(decision, "watch")
        neighbour = running(9.0)
        operators = tuple(replace(op, measured_s=15.0) for op in neighbour.operators)
        assert decide(replace(neighbour, operators=operators), candidate(9.0)).verdict == "review"

    def test_neighbour_that_runs_at_an_unknown_cost_is_for_a_person(self) -> None:
        neighbour = running(9.0)
        operators = tuple(
            replace(
                op,
                inputs=tuple(replace(entry, cycles_per_event=1e-6, batches=(), never_ran=True) for entry in op.inputs),
                evidence=Evidence("unknown", 5000.0),
            )
            for op in neighbour.operators
        )
        decision = decide(replace(neighbour, operators=operators), candidate(9.0))
        assert decision.verdict == "review" and "cost_unknown" in codes(decision, "watch")
        assert "neighbour_unmeasured" not in codes(decision, "watch")
        assert effect(decision, "p").after_state == "unknown"

    def test_candidate_that_runs_at_an_unknown_cost_elsewhere_is_for_a_person(self) -> None:
        document = candidate(9.0)
        del document["operators"][0]["inputs"][0]["cycles_per_event"]
        document["operators"][0]["inputs"][0].pop("batches", None)
        document["operators"][0]["evidence"] = {"kind": "unknown", "events": 5000}
        decision = decide(running(9.0), document)
        assert decision.verdict == "review" and "cost_unknown" in codes(decision, "watch")
        assert decision.evidence["unknown"] == 1

    def test_candidate_without_objective_is_admitted(self) -> None:
        decision = decide(running(), candidate(None))
        assert decision.verdict == "admit"
        assert "no_objective" in codes(decision, "info")
        assert effect(decision, "c").after_state == "none"

    def test_load_above_mean_capacity_is_rejected(self) -> None:
        decision = decide(running(None), candidate(None, cost=4.0))
        assert decision.verdict == "reject"
        reason = next(reason for reason in decision.reasons if reason.code == "node_overloaded")
        assert (reason.severity, reason.bound, reason.unit, reason.id) == ("bad", 1.0, "share", "n1")
        assert reason.value == pytest.approx(sum(ARRIVALS) * 9.0 / 800.0)

    def test_candidate_without_an_open_node_is_rejected_and_offered_a_new_node(self) -> None:
        policy = AdmissionPolicy(closed_nodes=("n1", "n2"))
        decision = decide(running(), candidate(node=None), policy=policy)
        assert decision.verdict == "reject"
        assert codes(decision) == ["no_place"]
        assert "takes nothing new" in decision.headline
        assert [e.after_s for e in decision.effects] == [pytest.approx(1.05), None]
        assert list(alternatives(decision)) == ["add_node-1"]
        assert (
            again(decision, "add_node-1", running(), candidate(node=None), policy=policy).verdict
            == "admit_with_changes"
        )

    def test_theorem_alarm_is_among_the_reasons(self) -> None:
        """The chain of the counterexample: the second burst waits behind the first, while its own node idles."""
        d = 30
        bursts = [[1.0 if first <= p < first + 5 else 0.0 for p in range(d)] for first in (0, 5)]
        deployment = Deployment.parse(
            {
                "subinterval_s": 1.0,
                "sources": [{"id": name, "arrivals": x} for name, x in zip("ab", bursts, strict=True)],
                "nodes": [{"id": name, "capacity_cps": 100.0} for name in ("n1", "n2")],
            }
        )
        first = {
            "id": "c/1",
            "node": "n1",
            "evidence": MEASURED,
            "inputs": [
                {"from": "a", "selectivity": 0.001, "cycles_per_event": 200.0, "cost_cv2": 0.0},
                {"from": "b", "selectivity": 1.0, "cycles_per_event": 0.001, "cost_cv2": 0.0},
            ],
        }
        document = {"query": "c", "operators": [first, operator("c/2", 200.0, "c/1", node="n2")]}
        decision = decide(deployment, document)
        assert decision.verdict == "admit"
        assert "theorem_alarm" in codes(decision, "info")

    def test_objective_on_the_mean_is_judged_by_the_mean(self) -> None:
        document = candidate()
        document["objective"] = {"statistic": "mean", "bound_s": 0.1}
        decision = decide(running(), document)
        assert decision.verdict == "reject"
        assert "its mean would be" in decision.headline
        for alternative in decision.alternatives:
            assert again(decision, alternative.id, running(), document).verdict == alternative.verdict


class TestAlternatives:
    def test_move_of_the_candidates_operator_is_an_alternative(self) -> None:
        decision = decide(running(1.6), candidate())
        alternative = alternatives(decision)["move-1"]
        assert alternative.changes == (OperatorMove("c/op", "n2"),)
        assert alternative.title == "Place c/op on n2"
        assert "n2 goes to 0.80 of its capacity at peak" in alternative.detail

    def test_move_of_a_neighbours_operator_is_an_alternative_if_the_policy_allows(self) -> None:
        decision = decide(running(1.6), candidate())
        alternative = alternatives(decision)["move-2"]
        assert alternative.title == "Move p/op from n1 to n2"
        assert next(e for e in alternative.effects if e.query == "p").after_s == pytest.approx(1.05)
        still = decide(running(1.6), candidate(), policy=AdmissionPolicy(may_move_neighbours=False))
        assert "move-2" not in alternatives(still)

    def test_largest_passing_share_of_the_rate_is_an_alternative(self) -> None:
        # p is done 1.05 + 0.8 share late, and the upper end of that has to be within 1.6 s.
        decision = decide(running(1.6, ("n1",)), candidate())
        alternative = alternatives(decision)["scale_rate-1"]
        (change,) = alternative.changes
        assert (change.kind, change.query) == ("scale_rate", "c")
        late = next(e for e in alternative.effects if e.query == "p")
        assert late.after_s == pytest.approx(1.05 + 0.8 * change.share)
        assert 1.5 < late.high_s <= 1.6

    def test_smallest_passing_new_node_is_an_alternative(self) -> None:
        # Greedy moves to the new node once its excess is below the 1.8 s of n1: from 80 / 2.8 = 28.6 cycles/s on.
        decision = decide(running(1.6, ("n1",)), candidate())
        alternative = alternatives(decision)["add_node-1"]
        assert alternative.changes == (
            NewNode("new-1", "n1", pytest.approx(29.7), 1),
            OperatorMove("c/op", "new-1"),
        )
        assert alternative.title == "Add a node with 30% of the capacity of n1"

    def test_two_new_nodes_are_an_alternative_where_one_is_too_few(self) -> None:
        # Two operators of 2.2 times what a node can do in the burst: one more node takes only one of them.
        document = {
            "query": "c",
            "operators": [operator("c/1", 5.5), operator("c/2", 5.5)],
            "objective": {"statistic": "worst", "bound_s": 1.5},
        }
        decision = decide(running(1.6, ("n1",)), document)
        added = [c for c in alternatives(decision)["add_node-1"].changes if c.kind == "add_node"]
        assert [change.id for change in added] == ["new-1", "new-2"]

    def test_lowest_objective_that_holds_is_an_alternative(self) -> None:
        decision = decide(running(), candidate(1.5, spread=0.02))
        own = effect(decision, "c")
        change = alternatives(decision)["objective-1"].changes[0]
        assert own.high_s <= change.bound_s <= own.high_s + 0.1
        assert change.bound_s == round(change.bound_s, 1)
        assert "objective-1" not in alternatives(decide(running(1.6), candidate(1.5)))

    def test_first_passing_start_is_an_alternative(self) -> None:
        decision = decide(running(1.6), candidate())
        alternative = alternatives(decision)["start_at-1"]
        assert alternative.changes == (LaterStart(3, 2.0),)
        assert alternative.title == "Start it 2\u00a0s later"
        late = again(decision, "start_at-1", running(1.6), candidate())
        assert (late.verdict, late.start_p, late.start_s) == ("admit_with_changes", 3, 2.0)

    def test_start_with_too_short_a_horizon_is_no_alternative(self) -> None:
        strict = AdmissionPolicy(start_horizon_share=0.9)
        assert "start_at-1" not in alternatives(decide(running(1.6), candidate(), policy=strict))

    def test_placement_without_the_asked_nodes_is_an_alternative(self) -> None:
        document = {
            "query": "c",
            "operators": [operator("c/1", 2.0, node="n1"), operator("c/2", 2.0, node="n1")],
            "objective": {"statistic": "worst", "bound_s": 1.0},
        }
        deployment = running(1.1, ("n1", "n2", "n3"))
        decision = decide(deployment, document)
        alternative = alternatives(decision)["place_again-1"]
        assert {change.node for change in alternative.changes} == {"n2", "n3"}
        assert again(decision, "place_again-1", deployment, document).verdict == "admit_with_changes"

    def test_verdict_due_to_a_pin_says_what_it_would_be_without(self) -> None:
        decision = decide(running(1.6), candidate())
        reason = next(reason for reason in decision.reasons if reason.code == "pinned")
        assert reason.message.startswith("Without the nodes asked for c would pass on n2: its worst case would be")
        free = decide(running(1.6), candidate(node=None))
        assert (free.verdict, effect(free, "c").after_s) == ("admit", reason.value)
        assert "pinned" not in codes(free)

    def test_pin_that_does_not_decide_is_not_blamed(self) -> None:
        decision = decide(running(1.6), candidate(0.5, cost=5.0))
        assert decision.verdict == "reject"
        reason = next(reason for reason in decision.reasons if reason.code == "pinned")
        assert reason.message == "The nodes asked for do not decide: on n2 the verdict on c would be reject as well"
        assert "without the nodes asked for" not in decision.headline

    def test_no_two_alternatives_make_the_same_changes(self) -> None:
        offered = [alternative.changes for alternative in decide(running(1.6), candidate()).alternatives]
        assert all(changes not in offered[:i] for i, changes in enumerate(offered))

    def test_alternatives_build_on_changes_already_made(self) -> None:
        changes = [{"kind": "scale_rate", "query": "c", "share": 0.95}]
        decision = decide(running(1.6, ("n1",)), candidate(), changes=changes)
        assert decision.verdict == "reject"
        assert alternatives(decision)["scale_rate-1"].changes[0].share == pytest.approx(0.43, abs=0.05)
        assert alternatives(decision)["add_node-1"].changes[0].to_dict() == changes[0]

    def test_scaled_rate_of_a_candidate_leaves_neighbours_on_the_same_source_alone(self) -> None:
        changes = [{"kind": "scale_rate", "query": "c", "share": 0.5}]
        decision = decide(running(), candidate(node="n2"), changes=changes)
        assert effect(decision, "p").after_s == pytest.approx(1.05)
        assert decision.nodes[1].after_peak == pytest.approx(0.4)

    def test_new_node_has_the_links_of_the_node_it_is_modelled_on(self) -> None:
        """A node without links would be reached for free, which flatters it."""
        links = [{"from": a, "to": b, "delay_s": 0.4} for a, b in (("n1", "n2"), ("n2", "n1"))]
        document = candidate(3.0, node=None)
        document["operators"].append(operator("c/2", 0.1, "c/op", node="new-1"))
        document["operators"][1].pop("node")
        changes = [
            {"kind": "add_node", "id": "new-1", "like": "n1", "capacity_cps": 100.0},
            {"kind": "move", "operator": "c/op", "node": "n2"},
            {"kind": "move", "operator": "c/2", "node": "new-1"},
        ]
        decision = decide(running(links=links), document, changes=changes)
        assert effect(decision, "c").after_s == pytest.approx(0.421)  # with both of an event's services


class TestDecision:
    def test_decision_serialises_to_json_with_the_documented_keys(self) -> None:
        document = decide(running(1.6), candidate(spread=0.05)).to_dict()
        json.dumps(document, allow_nan=False)
        assert {
            "verdict",
            "headline",
            "query",
            "snapshot",
            "reasons",
            "effects",
            "placement",
            "choices",
            "changes",
        } <= set(document)
        assert {"start_p", "start_s", "evidence", "nodes", "policy"} <= set(document)
        reason = document["reasons"][0]
        assert set(reason) >= {
            "code",
            "severity",
            "subject",
            "bound",
            "value",
            "unit",
            "where",
            "when_p",
            "when_s",
            "message",
        }
        assert set(document["choices"][0]) == {
            "id", "kind", "title", "detail", "changes", "verdict", "estimate_s", "effects",
        }  # fmt: skip

    def test_effects_equal_the_estimate_of_the_joined_deployment(self) -> None:
        whole = running(2.4, spread=0.1)
        decision = decide(whole, candidate(3.0, spread=0.1), policy=QUIET)
        joined = Deployment.parse(
            whole.to_document()
            | {
                "operators": [
                    *whole.to_document()["operators"],
                    candidate(spread=0.1)["operators"][0] | {"query": "c"},
                ]
            }
        )
        expected = estimate(joined)
        for query in ("p", "c"):
            result = effect(decision, query)
            assert result.after_s == pytest.approx(expected.queries[query].estimate_s)
            assert result.low_s == pytest.approx(expected.queries[query].low_s)
            assert result.high_s == pytest.approx(expected.queries[query].high_s)

    def test_progress_rises_and_an_exception_from_it_ends_the_decision(self) -> None:
        reports: list[tuple[float, str]] = []
        decide(running(1.6), candidate(), progress=lambda share, step: reports.append((share, step)))
        shares = [share for share, _ in reports]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert len({step for _, step in reports}) > 5

        class Cancelled(Exception):
            pass

        def cancel(share: float, step: str) -> None:
            if share > 0.5:
                raise Cancelled

        with pytest.raises(Cancelled):
            decide(running(1.6), candidate(), progress=cancel)

    def test_candidate_is_admitted_to_an_empty_fleet(self) -> None:
        empty = Deployment.parse(
            {"subinterval_s": 1.0, "subintervals": 8, "nodes": [{"id": "n1", "capacity_cps": 100.0}]}
        )
        document: dict[str, Any] = candidate() | {"sources": [{"id": "a", "arrivals": ARRIVALS}]}
        decision = decide(empty, document)
        assert decision.verdict == "admit"
        assert [e.query for e in decision.effects] == ["c"]
