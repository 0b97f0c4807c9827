"""`predict` and `candidates` of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.costream.network import initial_parameters
from engine.costream.weights import save_weights
from tests.engine.costream.ensembles import make_card, trace_document


@pytest.fixture
def weights(tmp_path: Path) -> str:
    path = tmp_path / "net.npz"
    save_weights(path, [initial_parameters("recommended", 8, seed) for seed in range(3)], make_card())
    return str(path)


def _run(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], document: Any) -> dict[str, Any]:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(document))
    status = main([*arguments, str(file)])
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert status == int("error" in line)
    return line


def _problem(**extra: Any) -> dict[str, Any]:
    trace = trace_document()
    return {"query": trace["query"], "hosts": trace["hosts"]} | extra


def test_predictions_are_printed_with_their_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    problem = _problem(placements=[[0, 1, 0, 2, 3, 3], [3] * 6])
    problem["hosts"][0]["cpu"] = 20
    result = _run(tmp_path, capsys, ["predict", "--weights", weights], problem)["result"]
    assert result["card"].startswith("Trained on 1 simulated trace")
    assert [row["placement"] for row in result["predictions"]] == problem["placements"]
    for row in result["predictions"]:
        assert row["end_to_end_latency_s"]["low"] < row["end_to_end_latency_s"]["mean"]
        assert row["votes"]["members"] == 3
        assert row["outside"] == ["host 0: cpu 20 %: trained on 100 to 800 %"] * (0 in row["placement"])


def test_candidates_are_listed_and_with_a_target_chosen_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    problem = _problem(pins=[{"operator": 0, "host": 1}])
    plain = _run(tmp_path, capsys, ["candidates", "--count", "20"], problem)["result"]
    assert len(plain["placements"]) == 20
    assert {row[0] for row in plain["placements"]} == {1}
    chosen = _run(tmp_path, capsys, ["candidates", "--target", "Le", "--weights", weights], problem)["result"]
    choice = chosen["choice"]
    assert choice["target"] == "Le"
    assert set(choice["heuristics"]) == {"strongest", "spread"}
    if choice["index"] is None:
        assert chosen["chosen"] is None
    else:
        assert chosen["chosen"]["placement"] == chosen["placements"][choice["index"]]


def test_all_faults_of_a_problem_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = _problem(placements=[[0, 1, 0, 2, 3, 4], [0, 1]])
    error = _run(tmp_path, capsys, ["predict"], problem)["error"]
    assert {fault["path"] for fault in error["faults"]} == {"placements[0][5]", "placements[1]"}
    problem["query"]["ops"][2]["sel"] = 0
    problem["hosts"][0]["cpu"] = "fast"
    error = _run(tmp_path, capsys, ["predict"], problem)["error"]
    assert {fault["path"] for fault in error["faults"]} == {"query.ops[2].sel", "hosts[0].cpu"}


def test_pins_out_of_range_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = [{"operator": 9, "host": 0}, {"operator": 0, "host": 4}, {"operator": 0, "host": 1}]
    error = _run(tmp_path, capsys, ["candidates"], _problem(pins=pins))["error"]
    assert {fault["path"] for fault in error["faults"]} == {"pins[0].operator", "pins[1].host", "pins[2]"}


def test_pins_against_the_rules_have_no_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = [{"operator": 0, "host": 3}, {"operator": 5, "host": 0}]
    error = _run(tmp_path, capsys, ["candidates"], _problem(pins=pins))["error"]
    assert error["code"] == "infeasible"
    assert error["faults"][0]["path"] == "pins[5]"


def test_weights_that_are_missing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "--weights", str(tmp_path / "none.npz")]
    error = _run(tmp_path, capsys, arguments, _problem(placements=[[3] * 6]))["error"]
    assert error["code"] == "weights"
