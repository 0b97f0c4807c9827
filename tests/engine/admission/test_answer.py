"""Answers of admission as records: what is written is read back, words follow from the fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.admission.answer import AdmissionDecision, AdmissionPolicy, DecisionCurves
from engine.admission.changes import LaterStart, NewNode, OperatorMove, stored_changes
from engine.admission.decision import decide
from engine.errors import DocumentError
from engine.words.admission import AdmissionFinding
from tests.engine.admission.stories import candidate, running


@pytest.mark.parametrize(
    ("bound_s", "policy"),
    [(100.0, AdmissionPolicy()), (1.6, AdmissionPolicy()), (1.6, AdmissionPolicy(closed_nodes=("n1", "n2")))],
    ids=["admitted with its robustness", "rejected with alternatives", "without a place"],
)
def test_decision_is_read_back_as_it_was_written(bound_s: float, policy: AdmissionPolicy) -> None:
    decision = decide(running(bound_s), candidate(), policy=policy)
    document = json.loads(json.dumps(decision.to_dict()))
    read = AdmissionDecision.parse(document)
    assert read.to_dict() == document
    assert (read.effects, read.robustness) == (decision.effects, decision.robustness)
    assert DecisionCurves.parse(document["curves"]) == read.curves


def test_words_of_a_stored_decision_follow_from_its_fields() -> None:
    document = decide(running(1.6), candidate()).to_dict()
    document["headline"], document["reasons"][0]["message"] = "Nothing of it is true", "Nor is this"
    read = AdmissionDecision.parse(document)
    assert read.headline.startswith("p would miss its objective: its worst case would go from ")
    assert read.reasons[0].message.startswith("p would miss its objective: ")


def test_finding_states_consequence_and_cause_apart() -> None:
    reason = decide(running(1.6), candidate()).reasons[0].to_dict()
    assert reason["finding"]["consequence"] == "p would miss its objective"
    assert reason["message"] == f"p would miss its objective: {reason['finding']['cause']}"


def test_cause_is_explained_in_a_sentence_in_which_names_keep_their_letters() -> None:
    assert AdmissionFinding("a would miss", "its worst case would be 3 s").explanation == "Its worst case would be 3 s."
    assert AdmissionFinding("assumed", "basket/join", is_named=True).explanation == "basket/join."
    assert AdmissionFinding("All is well").explanation == ""
    assert AdmissionFinding("All is well").adding("; thin").message == "All is well; thin"
    assert AdmissionFinding("a would miss", "it is late").adding("; b too").message == "a would miss: it is late; b too"


def test_stored_changes_are_read_back_by_their_kind() -> None:
    changes = (NewNode("new-1", "n1", 2e9, 2), OperatorMove("q/work", "b", 1), LaterStart(5, 20.0))
    assert stored_changes([change.to_dict() for change in changes]) == changes


@pytest.mark.parametrize("change", [{"kind": "move", "operator": "q"}, {"kind": "move", "operator": "q", "node": 1}])
def test_stored_change_that_is_no_change_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match="node"):
        stored_changes([change])
