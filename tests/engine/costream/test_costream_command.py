"""`predict` and `candidates` of the command line."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.costream.weights import save_weights
from tests.engine.costream.ensembles import make_arrays, make_card, trace_document


@pytest.fixture
def weights(tmp_path: Path) -> str:
    path = tmp_path / "net.npz"
    save_weights(path, make_arrays(), make_card())
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
    assert result["card"].startswith("The fluid with a residual that was trained on 5 simulated traces")
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


def test_placements_and_pins_are_checked_beside_a_faulty_query_and_faulty_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = _problem(placements=[[0, 1, 0, 2, 3, 4], [0, 1]])
    problem["query"]["ops"][2]["sel"] = -1
    problem["hosts"][0]["cpu"] = "fast"
    error = _run(tmp_path, capsys, ["predict", "--weights", str(tmp_path / "none.npz")], problem)["error"]
    faults = {"query.ops[2].sel", "hosts[0].cpu", "placements[0][5]", "placements[1]", "options.weights"}
    assert {fault["path"] for fault in error["faults"]} == faults
    del problem["placements"]
    problem["pins"] = [{"operator": -1, "host": 9}, {"operator": 0}]
    error = _run(tmp_path, capsys, ["candidates"], problem)["error"]
    faults = {"query.ops[2].sel", "hosts[0].cpu", "pins[0].operator", "pins[0].host", "pins[1].host"}
    assert {fault["path"] for fault in error["faults"]} == faults


def test_numbers_that_are_not_finite_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = _problem(placements=[[math.nan, 0, 0, 0, 0, 0]])
    problem["query"]["ops"][2]["sel"], problem["hosts"][0]["cpu"] = math.nan, math.inf
    error = _run(tmp_path, capsys, ["predict"], problem)["error"]
    paths = ["query.ops[2].sel", "hosts[0].cpu", "placements[0][0]"]
    assert [fault["path"] for fault in error["faults"]] == paths


@pytest.mark.parametrize(
    ("command", "change", "path", "words"),
    [
        ("predict", {"placements": None}, "placements", "placements is null; allowed: a list"),
        ("predict", {"placements": []}, "placements", "placements has 0 items; allowed: 1 to 20,000"),
        ("predict", {"placements": [[0]] * 20_001}, "placements", "has 20,001 items; allowed: 1 to 20,000"),
        ("predict", {"placements": ["x"]}, "placements[0]", "placements[0] is 'x'; allowed: a list"),
        ("predict", {"placements": [[0] * 5]}, "placements[0]", "has 5 items; allowed: exactly 6"),
        ("predict", {"placements": [[0, 0, 0, 0, 0, 4]]}, "placements[0][5]", "item 5 is 4; allowed: a whole number"),
        ("predict", {"placements": [[0.5] + [0] * 5]}, "placements[0][0]", "item 0 is 0.5; allowed: a whole number"),
        ("predict", {"placements": [[math.nan] + [0] * 5]}, "placements[0][0]", "item 0 is nan; allowed"),
        ("predict", {"pins": []}, "pins", "pins is not a field of a prediction problem"),
        ("candidates", {"query": [1]}, "query", "a query is a list of 1; allowed: an object"),
        ("candidates", {"query": {"ops": [1], "succ": [-1]}}, "query.ops", "ops has 1 item; allowed: 2 to 64"),
        ("candidates", {"hosts": []}, "hosts", "hosts has 0 items; allowed: 1 to 10,000"),
        ("candidates", {"hosts": {}}, "hosts", "hosts is an object; allowed: a list"),
        ("candidates", {"hosts": [1]}, "hosts[0]", "a host is 1; allowed: an object"),
        ("candidates", {"pins": "all"}, "pins", "pins is 'all'; allowed: a list"),
        ("candidates", {"pins": [1]}, "pins[0]", "a pin is 1; allowed: an object"),
        ("candidates", {"pins": [{"operator": "f", "host": 0}]}, "pins[0].operator", "operator is 'f'; allowed"),
        ("candidates", {"pins": [{"operator": 0, "host": 4}]}, "pins[0].host", "host is 4; allowed: an index below 4"),
    ],
)
def test_bad_input_is_told_with_its_field_value_and_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, change: dict[str, Any], path: str, words: str
) -> None:
    problem = _problem(**({"placements": [[3] * 6]} if command == "predict" else {})) | change
    error = _run(tmp_path, capsys, [command], problem)["error"]
    assert error["code"] == "malformed"
    told = [fault["message"] for fault in error["faults"] if fault["path"] == path]
    assert len(told) == 1 and words in told[0]


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        *(("count", value, "a whole number from 1 to 20000") for value in ("0", "-1", "1.5", "many", "20001", "true")),
        *(("target", value, "T, Lp, Le") for value in ("le", "RO", "1")),
        ("seed", "-1", "a whole number of at least 0"),
    ],
)
def test_option_with_a_wrong_value_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, allowed: str
) -> None:
    with pytest.raises(SystemExit) as status:
        _run(tmp_path, capsys, ["candidates", f"--{option}", value], _problem())
    assert status.value.code == 2
    assert f"allowed: {allowed}" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "null"])
@pytest.mark.parametrize("command", ["predict", "candidates"])
def test_file_that_holds_no_problem_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: str
) -> None:
    file = tmp_path / "problem.json"
    file.write_text(content)
    assert main([command, str(file)]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "malformed"
    assert main([command, str(tmp_path / "none.json")]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "unreadable"


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


@pytest.mark.parametrize(
    ("archive", "card"),
    [(b"", None), (b"no archive", None), (None, b"\xff\xfe"), (None, b"[" * 100_000), (None, b"[]"), (None, b"")],
    ids=["empty archive", "other archive", "card of other bytes", "deep card", "list as card", "empty card"],
)
def test_weights_that_were_damaged_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str, archive: bytes | None, card: bytes | None
) -> None:
    path = Path(weights)
    if archive is not None:
        digest = hashlib.sha256(archive).hexdigest()
        path.write_bytes(archive)
        path.with_suffix(".json").write_text(json.dumps(make_card().to_dict() | {"sha256": digest}))
    if card is not None:
        path.with_suffix(".json").write_bytes(card)
    error = _run(tmp_path, capsys, ["predict", "--weights", weights], _problem(placements=[[3] * 6]))["error"]
    assert error["code"] in ("weights", "malformed")


def test_weights_without_a_target_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str) -> None:
    error = _run(tmp_path, capsys, ["candidates", "--weights", weights], _problem())["error"]
    assert error["code"] == "wrong-option"
    assert "allowed: beside a target" in error["faults"][0]["message"]
