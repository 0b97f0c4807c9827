"""The command line: one line per file, exit codes, options, unreadable and unacceptable input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import COMMANDS, main
from tests.engine.samples import deployment, figure3


def write(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    status = main(arguments)
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_command_prints_one_line_per_file_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path, "good.json", figure3())
    bad = write(tmp_path, "bad.json", deployment(subinterval_s=-1, nodes=[]))
    status, lines = run(capsys, "estimate", good, bad, str(tmp_path / "none.json"), good)
    assert status == 1
    assert [line["file"] for line in lines] == [good, bad, str(tmp_path / "none.json"), good]
    assert lines[0]["result"] == lines[3]["result"]
    assert lines[0]["result"]["mace_wc"] == 5.0
    assert len(lines[1]["error"]["faults"]) == 3
    assert lines[2]["error"]["code"] == "unreadable"


def test_options_of_the_command_line_override_those_of_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = write(tmp_path, "case.json", {"name": "x", "input": figure3(), "options": {"mace_every": 5}})
    assert run(capsys, "estimate", case)[1][0]["result"]["subintervals"] == 1
    assert run(capsys, "estimate", "--mace-every", "1", case)[1][0]["result"]["subintervals"] == 5
    wrong = write(tmp_path, "wrong.json", {"input": figure3(), "options": {"flow_slice": 2}})
    status, lines = run(capsys, "estimate", wrong)
    assert status == 1
    assert lines[0]["error"]["faults"][0]["path"] == "options.flow_slice"


def test_every_fault_of_a_documents_options_is_told_and_null_is_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"budget_s": None, "rounds": 0, "objective": "best", "speed": 1}
    wrong = write(tmp_path, "wrong.json", {"input": figure3(), "options": given})
    faults = run(capsys, "place", wrong)[1][0]["error"]["faults"]
    assert {fault["path"] for fault in faults} == {f"options.{name}" for name in given}
    assert faults[0]["message"] == "budget_s is null; allowed: a finite number above 0"
    assert "speed is not a field of the command place" in faults[3]["message"]


def test_dash_reads_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.TextIOWrapper(io.BytesIO(json.dumps(figure3()).encode()))
    monkeypatch.setattr(sys, "stdin", data)
    status, lines = run(capsys, "estimate", "-")
    assert status == 0
    assert lines[0]["file"] == "-"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"subinterval_s": 1, "subinterval_s": 2}', "given twice"),
        ("[" * 100_000, "not acceptable JSON"),
        ('{"subinterval_s": NaN, "subintervals": 1}', "subinterval_s is nan"),
        ('{"subinterval_s": 1e999, "subintervals": 1}', "subinterval_s is inf"),
        ('"text"', "allowed: an object"),
        ('{"input": {}, "colour": 1}', "colour does not belong beside input"),
    ],
)
def test_unacceptable_content_is_refused_with_a_message(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = run(capsys, "estimate", write(tmp_path, "x.json", text))
    assert status == 1
    assert message in lines[0]["error"]["faults"][0]["message"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["guess", "x"], ["estimate"], ["estimate", "--speed", "1", "x"], ["estimate", "--flow-slices", "0", "x"]],
)
def test_wrong_usage_exits_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.process
def test_help_lists_the_commands() -> None:
    done = subprocess.run([sys.executable, "-m", "engine", "--help"], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)


def test_table_is_text_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path, "good.json", figure3())
    bad = write(tmp_path, "bad.json", deployment(subinterval_s=-1, nodes=[]))
    assert main(["estimate", "--format", "table", good, bad]) == 1
    first, _, second = capsys.readouterr().out.partition("\n\n" + bad)
    assert first.splitlines()[0] == good
    assert "mace_wc" in first and "5" in next(line for line in first.splitlines() if line.startswith("mace_wc")).split()
    assert "subinterval_s: subinterval_s is -1" in second
    with pytest.raises(SystemExit):
        main(["estimate", "--format", "yaml", good])


def test_gate_tells_the_verdict_by_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = json.loads((Path(__file__).parents[2] / "docs" / "examples" / "admit.json").read_text())
    rejected = write(tmp_path, "rejected.json", example)
    bound = {"objective": {"statistic": "worst", "bound_s": 100.0}}
    roomy = {
        **example,
        "nodes": [{**node, "capacity_cps": 1e9} for node in example["nodes"]],
        "candidate": {**example["candidate"], **bound},
    }
    admitted = write(tmp_path, "admitted.json", roomy)
    reviewing = ["--policy", '{"evidence": {"assumed": "review"}}']
    bad = write(tmp_path, "bad.json", "{")
    assert main(["admit", rejected]) == main(["admit", admitted]) == 0
    assert main(["admit", "--gate", admitted]) == 0
    assert main(["admit", "--gate", rejected, admitted]) == 3
    assert main(["admit", "--gate", *reviewing, admitted]) == 4
    assert main(["admit", "--gate", *reviewing, admitted, rejected]) == 3
    assert main(["admit", "--gate", bad, rejected]) == 1
    capsys.readouterr()
    main(["admit", "--format", "table", rejected])
    told = capsys.readouterr().out
    assert "REJECT  fraud" in told and "on n2, 4 s after the start" in told and "Alternatives" in told
    with pytest.raises(SystemExit):
        main(["estimate", "--gate", admitted])
