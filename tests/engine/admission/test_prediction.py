"""Admission of queries that never ran: the prediction speaks for the candidate, nominal costs for its neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.admission.alternatives import measured_verdict
from engine.admission.answer import AdmissionDecision, AdmissionPolicy, ReasonSubject, named_reason
from engine.admission.decision import command, decide, open_decision
from engine.admission.text import decision_text
from engine.command_options import AdmitOptions
from engine.costream.accuracy import PredictionRecord
from engine.costream.answer import PredictedVote
from engine.costream.first_placement import PlacementQuestion, find_first_placement, pins_of
from engine.document.candidate import read_candidate
from tests.engine.admission.stories import codes, effect
from tests.engine.costream.anchors import anchor_ensemble
from tests.engine.costream.test_first_placement import candidate, running, running_document

BORNE_OUT = PredictionRecord(runs=30, held=26, queries=3)


def decided(
    bound_s: float | None = None,
    *,
    statistic: str = "mean",
    old_s: float = 9.0,
    measured_from: str = "window_end",
    record: PredictionRecord | None = BORNE_OUT,
    **model: Any,
) -> AdmissionDecision:
    objectives = [{"query": "old", "statistic": "worst", "bound_s": old_s}]
    base = running(objectives=objectives)
    asked = candidate() if bound_s is None else candidate(objective={"statistic": statistic, "bound_s": bound_s})
    for operator in asked["operators"]:
        if "window" in operator:
            operator["window"] = {**operator["window"], "measured_from": measured_from}
    read = read_candidate(asked, base)
    prediction = find_first_placement(PlacementQuestion(base, read.operators), anchor_ensemble(**model))
    return decide(base, asked, prediction=prediction, record=record)


def test_candidate_whose_whole_interval_holds_is_admitted_where_it_was_predicted() -> None:
    decision = decided(1.0, half=0.1)
    assert decision.verdict == "admit" and "predicted" in codes(decision, "ok")
    assert {part.node for parts in decision.placement.values() for part in parts} == {"strong"}
    own = effect(decision, "new")
    assert own.is_predicted and own.after_state == "holds" and own.high_s < 1.0
    said = next(reason.message for reason in decision.reasons if reason.code == "never_ran")
    assert "predicted, not measured" in said and "trained on 5 simulated traces" in said


def test_command_predicts_a_candidate_that_never_ran_and_says_which_runs_are_missing() -> None:
    document = running_document() | {"candidate": candidate(objective={"statistic": "mean", "bound_s": 60.0})}
    decision = command(document, AdmitOptions(policy={"choices": False, "robustness": False}))
    assert decision.verdict == "review" and effect(decision, "new").is_predicted
    said = {reason.code: reason.message for reason in decision.reasons}
    assert "simulated traces" in said["never_ran"]
    assert "30 more runs of 3 further queries" in said["prediction_unproven"]


def test_room_of_a_predicted_candidate_is_no_part_of_its_decision() -> None:
    base, asked = running(), candidate()
    prediction = find_first_placement(
        PlacementQuestion(base, read_candidate(asked, base).operators), anchor_ensemble(half=0.1)
    )
    opened = open_decision(base, asked, prediction=prediction, record=BORNE_OUT)
    assert (opened.decision.verdict, opened.why_without("robustness")) == ("admit", "predicted")
    assert opened.decision.thin is False


def test_interval_across_the_objective_is_for_a_person() -> None:
    decision = decided(0.5, half=0.2)  # 4.001 s, a window of 4 s: from 0 to 0.89 s
    assert decision.verdict == "review" and "0.5" in decision.headline and "0.89" in decision.headline
    assert effect(decision, "new").after_state == "at_risk"


def test_objective_that_counts_from_each_event_holds_the_wait_for_the_window() -> None:
    from_end, from_event = (decided(2.5, half=0.1, measured_from=start) for start in ("window_end", "event"))
    wait_s = effect(from_event, "new").after_s - effect(from_end, "new").after_s
    assert wait_s == pytest.approx(2.0, rel=0.01)  # half a window of 4 s
    assert from_end.verdict == "admit"
    refused = decided(1.0, half=0.1, measured_from="event")
    assert refused.verdict == "reject" and "wait for windows" in refused.headline


def test_interval_beyond_the_objective_is_refused() -> None:
    decision = decided(0.5, half=0.02, shift=0.5)
    assert decision.verdict == "reject" and codes(decision, "bad") == ["objective_breached"]


def test_latency_below_that_of_filled_windows_tells_nothing_of_the_rest() -> None:
    decision = decided(1.0, half=0.05, shift=-0.1)  # 3.6 s, a window of 4 s
    assert decision.verdict == "review" and "filling_unpredicted" in codes(decision, "watch")
    assert "filling_unpredicted" not in codes(decided(1.0, half=0.1), "watch")


def test_estimate_is_never_below_what_links_take() -> None:
    pinned = candidate(objective={"statistic": "mean", "bound_s": 0.01})
    for operator, node in zip(pinned["operators"], ("weak", "strong"), strict=True):
        operator["node"] = node
    base = running()
    read = read_candidate(pinned, base)
    question = PlacementQuestion(base, read.operators, pins=pins_of(read.operators))
    prediction = find_first_placement(question, anchor_ensemble(half=0.01, shift=-0.1))
    assert prediction.floor_s == 0.02
    decision = decide(base, pinned, prediction=prediction)
    assert effect(decision, "new").low_s >= 0.02 and "objective_breached" in codes(decision, "bad")


def test_candidate_outside_the_domain_is_for_a_person() -> None:
    decision = decided(1.0, half=0.1, outside=True)
    assert decision.verdict == "review" and "outside_domain" in codes(decision, "watch")


def table(bound_s: float, *, times: float = 1.0, weak_cps: float = 2.4e9, node: str = "") -> str:
    """Output of the command line about a candidate that reads `times` the usual events."""
    document = running_document()
    for source in document["sources"]:
        source["arrivals"] = [times * events for events in source["arrivals"]]
    for row in document["nodes"]:
        row["capacity_cps"] = weak_cps if row["id"] == "weak" else row["capacity_cps"]
    asked = candidate(objective={"statistic": "mean", "bound_s": bound_s})
    if node:
        asked["operators"][0]["node"] = node
    decision = command(document | {"candidate": asked}, AdmitOptions())
    assert decision.verdict in ("review", "reject")
    return decision_text(decision.to_dict())


def test_alternative_to_too_much_load_is_less_of_it() -> None:
    text = table(10.0, times=100.0)
    assert "scale_rate-1: Admit it with" in text and "Tried as well, and none passes: other placements" in text


def test_alternative_to_a_host_outside_the_domain_is_one_within() -> None:
    text = table(4.0, weak_cps=2.4e8, node="weak")
    assert "place_again-1: Place it on strong (review)" in text
    assert "Once it is measured" in text and "it would then be admitted" in text


def test_refusal_without_an_alternative_says_what_was_tried() -> None:
    text = table(1e-3, times=100.0)
    assert "No alternative passes; tried: other placements" in text and "new nodes" in text
    assert "it would then be rejected" in text


def test_candidate_that_fails_everywhere_is_refused() -> None:
    decision = decided(None, failing=True)
    assert decision.verdict == "reject" and codes(decision, "bad") == ["predicted_failure"]
    assert decision.alternatives == ()


def test_candidate_that_fails_everywhere_outside_the_domain_is_for_a_person() -> None:
    decision = decided(None, failing=True, outside=True)
    assert decision.verdict == "review"
    assert codes(decision, "watch") == ["outside_domain", "predicted_failure"] and not codes(decision, "bad")
    assert "lies outside what the model was trained on: host strong: cpu" in decision.headline


def test_candidate_that_fails_within_the_domain_too_is_refused() -> None:
    decision = decided(None, failing=True, outside=200.0)  # the strong host alone has more than 200 % left
    assert decision.verdict == "reject" and codes(decision, "bad") == ["predicted_failure"]


def test_candidate_that_cannot_be_predicted_is_for_a_person() -> None:
    base = running(sources=[{"id": "s", "arrivals": [100.0] * 8}])
    read = read_candidate(candidate(), base)
    prediction = find_first_placement(PlacementQuestion(base, read.operators), anchor_ensemble())
    assert codes(decide(base, candidate(), prediction=prediction), "watch") == ["prediction_incomplete"]
    alone = decide(base, candidate())
    assert alone.verdict == "review" and codes(alone, "watch") == ["never_ran"]


def test_candidate_whose_prediction_is_no_number_is_for_a_person() -> None:
    decision = decided(1.0, extreme=True)
    assert decision.verdict == "review" and "numbers that are not finite" in decision.headline


def test_decision_says_that_the_candidate_never_ran() -> None:
    assert decided(1.0).to_dict()["never_ran"]
    assert decide(running(), candidate()).to_dict()["never_ran"]  # nothing predicts it
    known = candidate()
    for operator in known["operators"]:
        operator["inputs"][0]["cycles_per_event"] = 10.0
    assert not decide(running(), known).to_dict()["never_ran"]


def test_decision_without_a_place_says_that_the_candidate_never_ran() -> None:
    closed = AdmissionPolicy(closed_nodes=("strong", "weak"), choices=False)
    decision = decide(running(), candidate(), policy=closed)
    assert decision.verdict == "reject" and decision.to_dict()["never_ran"]


def test_node_that_would_be_overloaded_by_nominal_costs_refuses_the_candidate() -> None:
    busy = {"from": "s", "selectivity": 1.0, "cycles_per_event": 2.35e7}  # 98 % of the core
    base = running(
        nodes=[{"id": "weak", "capacity_cps": 2.4e9, "memory_bytes": 16e9}],
        links=[],
        operators=[{"id": "old/op", "query": "old", "node": "weak", "inputs": [busy]}],
    )
    read = read_candidate(candidate(), base)
    prediction = find_first_placement(PlacementQuestion(base, read.operators), anchor_ensemble())
    assert prediction.state == "predicted"
    decision = decide(base, candidate(), prediction=prediction, record=BORNE_OUT)
    assert decision.verdict == "reject" and "node_overloaded" in codes(decision, "bad")
    by_nominal_costs = decide(base, candidate(), prediction=prediction)
    assert by_nominal_costs.verdict == "review" and not codes(by_nominal_costs, "bad")
    assert "nominal costs" in by_nominal_costs.headline


def test_nothing_is_admitted_where_members_disagree_or_hosts_are_nearly_full() -> None:
    base, asked = running(), candidate(objective={"statistic": "mean", "bound_s": 3.0})
    prediction = find_first_placement(
        PlacementQuestion(base, read_candidate(asked, base).operators), anchor_ensemble(half=0.1)
    )
    assert (
        prediction.costs is not None and decide(base, asked, prediction=prediction, record=BORNE_OUT).verdict == "admit"
    )
    split = replace(prediction.costs, backpressure=PredictedVote(1, holds=False))
    full = replace(prediction.costs, use=0.87)
    for costs, code, words in ((split, "votes_at_risk", "1 of 3"), (full, "capacity_at_risk", "used to 87%")):
        unsure = replace(prediction, costs=costs, options=None)
        decision = decide(base, asked, prediction=unsure, record=BORNE_OUT)
        assert decision.verdict == "review" and code in codes(decision, "watch") and words in decision.headline
        assert decision.searched is not None and decision.searched.verdict_measured == "admit"
        assert "scale_rate" in decision.searched.tried  # less load, or another place, could do without a person
        unproven = decide(base, asked, prediction=unsure, policy=AdmissionPolicy(choices=False, robustness=False))
        assert measured_verdict(unproven.reasons) == "admit"


def test_measuring_rejects_only_what_was_estimated_beyond_a_bound() -> None:
    def once_measured(decision: AdmissionDecision) -> str | None:
        assert decision.verdict == "review" and decision.searched is not None
        return decision.searched.verdict_measured

    assert once_measured(decided(0.5, half=0.2)) == "review"  # its interval reaches over the objective
    assert once_measured(decided(None, failing=True, outside=True)) == "review"  # votes that are no knowledge
    assert once_measured(decided(0.5, half=0.02, shift=0.5, record=None)) == "reject"
    assert once_measured(decided(None, failing=True, record=None)) == "reject"
    assumed = named_reason("assumed_statistics", "bad", ReasonSubject("statistic", "new"), ("new/keep",))
    assert measured_verdict([assumed]) == "admit"
    neighbour = named_reason("neighbour_at_risk", "watch", ReasonSubject("query", "old"), review=True)
    assert measured_verdict([neighbour]) == "review"


@pytest.mark.parametrize("record", [None, PredictionRecord(29, 29, 3), PredictionRecord(100, 79, 9)])
def test_interval_within_the_objective_admits_only_once_runs_bear_the_model_out(record: PredictionRecord) -> None:
    decision = decided(1.0, half=0.1, record=record)
    assert decision.verdict == "review" and "prediction_unproven" in codes(decision, "watch")
    assert "new is" not in decision.headline and "No prediction decides here yet" in decision.headline
    assert decided(1.0, half=0.1).verdict == "admit"


def test_candidate_without_objective_is_for_a_person_until_runs_bear_the_model_out() -> None:
    assert decided(None, record=None).verdict == "review"
    assert decided(None).verdict == "admit"


def test_interval_beyond_the_objective_rejects_only_once_runs_bear_the_model_out() -> None:
    decision = decided(0.5, half=0.02, shift=0.5, record=None)
    assert decision.verdict == "review" and not codes(decision, "bad")
    assert "would miss its objective" in decision.headline and "do not bear out" in decision.headline


def test_votes_alone_reject_nothing_until_runs_bear_the_model_out() -> None:
    decision = decided(None, failing=True, record=None)
    assert decision.verdict == "review" and "predicted_failure" in codes(decision, "watch")


def test_known_costs_of_a_candidate_that_never_ran_in_part_reject_without_a_record() -> None:
    base = running(objectives=[{"query": "old", "statistic": "worst", "bound_s": 9.0}])
    asked = candidate()
    asked["operators"] = [
        {"id": "new/known", "node": "strong", "inputs": [{"from": "s", "selectivity": 1.0, "cycles_per_event": 1e8}]},
        *asked["operators"],
    ]
    read = read_candidate(asked, base)
    question = PlacementQuestion(base, read.operators, pins=pins_of(read.operators))
    prediction = find_first_placement(question, anchor_ensemble())
    decision = decide(base, asked, prediction=prediction)
    assert decision.verdict == "reject" and "node_overloaded" in codes(decision, "bad")
