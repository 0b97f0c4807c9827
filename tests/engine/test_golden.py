"""Every command answers as it was recorded, to the byte: examples, small documents, what is wrong with damaged ones."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import COMMANDS, main
from tests.engine.questions import EXAMPLES, QUESTIONS, Question, damages
from tests.golden import GoldenRecord

ANSWERS = GoldenRecord(Path(__file__).with_name("golden"))
CASES = Path(os.environ.get("SLUICE_CASES") or Path(__file__).resolve().parents[3] / "shared" / "cases")
#: Options without which the answer would hang on the speed of the machine.
BOUNDED = {"place": ("--rounds", "2")}
COMMAND_OF_FOLDER = {"jarvis": "partition", "mace": "estimate", "uncertainty": "estimate", "admission": "admit"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(capsys: pytest.CaptureFixture[str], command: str, documents: Sequence[Any], *options: str) -> list[str]:
    """The lines that the command prints for documents, without their names; its stopwatches stand still."""
    files = [f"{number}.json" for number in range(len(documents))]
    for file, document in zip(files, documents, strict=True):
        Path(file).write_text(json.dumps(document))
    with pytest.MonkeyPatch.context() as stopped:
        for watch in ("perf_counter", "monotonic"):
            stopped.setattr(f"time.{watch}", lambda: 0.0)
        try:
            main([command, *options, *files])
        except SystemExit:
            return [capsys.readouterr().err.splitlines()[-1]]
    return [line.replace(f'{{"file":"{file}",', "{", 1)
            for file, line in zip(files, capsys.readouterr().out.splitlines(), strict=True)]  # fmt: skip


def ask_about_damages(capsys: pytest.CaptureFixture[str], command: str, question: Question) -> list[str]:
    names, documents = zip(*damages(question.document), strict=True)
    answers = ask(capsys, command, documents, *question.options)
    return [f'{{"damage":{json.dumps(name)},{answer[1:]}' for name, answer in zip(names, answers, strict=True)]


def test_every_command_is_asked_and_no_other_recorded() -> None:
    assert QUESTIONS.keys() == COMMANDS.keys()
    assert {part for part in ANSWERS.parts() if not part.startswith("cases-")} == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_command_answers_as_recorded(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """RECORD_GOLDEN=1 writes the record anew; it changes on purpose."""
    answers = {}
    for question in QUESTIONS[command]:
        answers[question.name] = ask(capsys, command, [question.document], *question.options)
        if question.is_damaged:
            answers[f"{question.name}, damaged"] = ask_about_damages(capsys, command, question)
    answers["examples"] = ask(capsys, command, list(EXAMPLES.values()), *BOUNDED.get(command, ()))
    ANSWERS.check(command, answers)


@pytest.mark.skipif(not CASES.is_dir(), reason="no conformance cases (SLUICE_CASES)")
@pytest.mark.parametrize("folder", ["admission", "jarvis", "klink", "mace", "planner", "uncertainty"])
def test_conformance_cases_are_answered_as_recorded(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {}
    for file in sorted((CASES / folder).glob("*.json")):
        case = json.loads(file.read_text())
        if folder == "uncertainty" and "input" not in case:
            continue  # a call of a function, which has no command
        command = case.get("command", COMMAND_OF_FOLDER.get(folder))
        wrapped = {key: case[key] for key in ("input", "options") if key in case} or case
        # the name says which document it was: cases are not of this repository
        content = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
        answers[f"{file.stem} {content}"] = ask(capsys, command, [wrapped])
    ANSWERS.check(f"cases-{folder}", answers, in_common=True)
