"""Refusals of admission, and its command."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.admission.answer import AdmissionPolicy
from engine.admission.decision import decide
from engine.admission.text import decision_text
from engine.errors import DocumentError
from engine.policies.rules import EvidenceRules
from tests.engine.admission.stories import ARRIVALS, candidate, operator, running

DOUBTING = AdmissionPolicy(choices=False, evidence=EvidenceRules(assumed="review"))


def faults(call: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        call()
    return {fault.path: fault.message for fault in caught.value.faults}


def candidate_faults(document: Any) -> dict[str, str]:
    return faults(lambda: decide(running(), document))


def changes_faults(*changes: Any, policy: AdmissionPolicy | None = None) -> dict[str, str]:
    return faults(lambda: decide(running(), candidate(), changes=changes, policy=policy))


class TestCandidates:
    def test_every_fault_of_a_candidate_is_reported_at_once(self) -> None:
        document = {
            "query": "p",
            "operators": [operator("p/op", 1.0, node="n9"), operator("x", -1.0), operator("y", 1.0, "nowhere")],
            "sources": [{"id": "a", "arrivals": [1.0] * 8}, {"id": "b", "arrivals": [1.0] * 7}],
            "objective": {"statistic": "q2", "bound_s": 0},
        }
        result = candidate_faults(document)
        assert set(result) == {
            "candidate.query",
            "candidate.operators[0].id",
            "candidate.operators[0].node",
            "candidate.operators[1].inputs[0].cycles_per_event",
            "candidate.operators[2].inputs[0].from",
            "candidate.sources[0].arrivals",
            "candidate.sources[1].arrivals",
            "candidate.objective.statistic",
            "candidate.objective.bound_s",
        }
        assert "not those of the running source" in result["candidate.sources[0].arrivals"]

    def test_candidate_may_repeat_a_running_source_unchanged(self) -> None:
        document = candidate(sources=[{"id": "a", "arrivals": ARRIVALS}])
        assert decide(running(), document).to_dict() == decide(running(), candidate()).to_dict()

    def test_duplicate_operator_id_is_refused(self) -> None:
        document = candidate(operators=[operator("x", 1.0), operator("x", 1.0)])
        assert "is taken" in candidate_faults(document)["candidate.operators[1].id"]

    @pytest.mark.parametrize("document", [None, [], "c", {}])
    def test_document_without_a_candidate_is_refused(self, document: Any) -> None:
        assert all(path.startswith("candidate") for path in candidate_faults(document))


class TestChanges:
    def test_changes_that_name_unknown_things_are_refused(self) -> None:
        result = changes_faults(
            {"kind": "scale_rate", "query": "p", "share": 0.5},
            {"kind": "move", "operator": "p/opp", "node": "n3"},
            {"kind": "move", "operator": "c/op", "node": "n2", "core": 1},
            {"kind": "add_node", "id": "n1", "like": "n1", "capacity_cps": 1.0},
            {"kind": "add_node", "id": "n4", "like": "n7", "capacity_cps": 1.0},
            {"kind": "start_at", "p": 9},
            {"kind": "objective", "query": "d", "statistic": "worst", "bound_s": 1.0},
        )
        assert set(result) == {
            "changes[0].query",
            "changes[1].operator",
            "changes[1].node",
            "changes[2].core",
            "changes[3].id",
            "changes[4].like",
            "changes[5].p",
            "changes[6].query",
        }
        assert "did you mean 'p/op'?" in result["changes[1].operator"]

    def test_malformed_changes_are_refused(self) -> None:
        result = changes_faults(
            7,
            {"kind": "stop"},
            {"kind": "scale_rate", "query": "c", "share": 0},
            {"kind": "scale_rate", "query": "c", "share": 1.5},
            {"kind": "start_at", "p": 3, "seconds": 9.0},
            {"kind": "move", "operator": "c/op"},
            {"kind": "objective", "query": "c", "statistic": "worst", "bound_s": 1.0, "by": "me"},
        )
        assert set(result) == {
            "changes[0].kind",
            "changes[1].kind",
            "changes[2].share",
            "changes[3].share",
            "changes[4].seconds",
            "changes[5].node",
            "changes[6].by",
        }

    def test_repeated_change_is_refused(self) -> None:
        move = {"kind": "move", "operator": "c/op", "node": "n2"}
        assert set(changes_faults(move, move)) == {"changes[1]"}

    def test_move_of_a_neighbour_is_refused_where_the_policy_forbids_it(self) -> None:
        move = {"kind": "move", "operator": "p/op", "node": "n2"}
        assert decide(running(), candidate(), changes=[move]).verdict == "admit_with_changes"
        assert set(changes_faults(move, policy=AdmissionPolicy(may_move_neighbours=False))) == {"changes[0].operator"}

    def test_changes_that_are_no_list_are_refused(self) -> None:
        assert set(faults(lambda: decide(running(), candidate(), changes="all"))) == {"changes"}  # type: ignore[arg-type]


def test_policy_is_read_strictly() -> None:
    assert AdmissionPolicy.parse({}) == AdmissionPolicy()
    assert AdmissionPolicy.parse({"closed_nodes": ["n1"], "min_events": 5}).closed_nodes == ("n1",)
    assert set(faults(lambda: AdmissionPolicy.parse({"evidence": {"at_risk": 1}, "mood": "good"}))) == {
        "evidence.at_risk",
        "mood",
    }
    assert set(faults(lambda: AdmissionPolicy.parse({"start_horizon_share": 2}))) == {"start_horizon_share"}


class TestText:
    def test_text_says_why_operators_are_apart_and_what_to_measure(self) -> None:
        guess = {"kind": "assumed"}
        own = [operator("c/a", 2.0, evidence=guess), operator("c/b", 2.0, "c/a", evidence=guess)]
        fleet = running(None, operators=[operator("p/op", 1.0, node="n1", query="p")])
        decision = decide(fleet, candidate(9.0, operators=own), policy=DOUBTING).to_dict()
        told = [entry["sentence"] for entry in decision["apart"] if entry["why"] != "company"]
        text = decision_text(decision)
        assert "Measure first\n  c/a\n  c/b\n" in text
        assert told
        assert all(f"  {sentence}" in text for sentence in (said.replace("\u00a0", " ") for said in told))


class TestCommand:
    @pytest.fixture
    def document(self) -> dict[str, Any]:
        return running(1.2).to_document() | {"candidate": candidate()}

    def run(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        status = main(["admit", *arguments])
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def test_admit_command_prints_the_decision(
        self, document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "ask.json"
        file.write_text(json.dumps(document))
        status, lines = self.run(capsys, str(file))
        assert status == 0
        assert lines[0]["result"] == decide(running(1.2), candidate()).to_dict()

    def test_admit_command_takes_policy_and_changes(
        self, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        document["changes"] = [{"kind": "move", "operator": "c/op", "node": "n2"}]
        text = io.TextIOWrapper(io.BytesIO(json.dumps(document).encode()))
        monkeypatch.setattr(sys, "stdin", text)
        status, lines = self.run(capsys, "--policy", '{"min_events": 3}', "--mace-every", "2", "-")
        assert status == 0
        assert lines[0]["result"]["verdict"] == "admit_with_changes"
        assert lines[0]["result"]["policy"]["min_events"] == 3

    def test_admit_command_reports_faults_per_file(
        self, document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        good.write_text(json.dumps(document))
        bad.write_text(json.dumps({name: value for name, value in document.items() if name != "candidate"}))
        status, lines = self.run(capsys, str(bad), str(good))
        assert status == 1
        assert lines[0]["error"]["faults"][0]["path"] == "candidate"
        assert "result" in lines[1]
        status, lines = self.run(capsys, "--policy", '{"mood": 1}', str(good))
        assert status == 1
        assert lines[0]["error"]["faults"][0]["path"] == "policy.mood"
