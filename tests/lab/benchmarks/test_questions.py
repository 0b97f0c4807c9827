"""The benchmark of planning's questions: it runs by its name, asks what it is told to, and prints an answer."""

from __future__ import annotations

from typing import Any

import pytest

from lab.__main__ import main
from lab.benchmarks import questions


def test_benchmark_asks_a_question_and_prints_its_answer(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(questions, "QUERIES", 3)
    monkeypatch.setattr(questions, "NODES", 3)
    assert main(["questions", "--only", "survival", "--horizon-s", "25"]) == 0
    printed = capsys.readouterr().out
    assert "3 queries, d = 100" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("survival")]
    assert "survives" in line


def test_every_question_has_a_name_of_its_own() -> None:
    assert len(questions.QUESTIONS) == 7
    assert all(callable(ask) for ask in questions.QUESTIONS.values())
