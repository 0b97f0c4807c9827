"""Evaluation of weights: NumPy alone, the figures of a small corpus, and faults of options and files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.costream.weights import save_weights
from lab.training.boosted_trees import SKLEARN_MISSING
from lab.training.costream import main as train_main
from lab.training.dataset import CorpusOrigin, TraceSet
from lab.training.evaluation import ContenderAnswers, cost_errors, main
from tests.engine.costream.ensembles import make_arrays, make_card
from tests.lab.training.corpora import corpus_lines, labelled_trace, write_lines

ORIGIN = CorpusOrigin("drawn", "0" * 64, "simulated", "none", 0, "0" * 64)


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return TraceSet.of_traces(ORIGIN, [labelled_trace(seed) for seed in range(200)])


def answers_of(traces: TraceSet, factor: float) -> ContenderAnswers:
    """Off by `factor` every second trace, with 10 % on either side as its interval; right votes."""
    centre = np.nan_to_num(traces.targets) + np.log(factor) * (np.arange(len(traces)) % 2)[:, None]
    return ContenderAnswers(centre, traces.backpressure, traces.success, (centre - np.log(1.1), centre + np.log(1.1)))


def test_errors_are_those_of_the_answers(traces: TraceSet) -> None:
    errors = cost_errors(answers_of(traces, 2.0), traces)
    for cost in ("T", "Lp", "Le"):
        assert errors[cost]["q95"] == pytest.approx(2.0, rel=1e-4)
        assert errors[cost]["coverage"] == pytest.approx(0.5, abs=0.08)
        assert errors[cost]["interval_ratio"] == pytest.approx(1.21, rel=1e-3)
        assert errors[cost]["fluid"]["q50"] > 1.0
    assert errors["RO"]["balanced_accuracy"] == errors["S"]["balanced_accuracy"] == 1.0


def test_command_prints_errors_of_given_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_lines(tmp_path / "some.jsonl.gz", corpus_lines(60))
    weights = tmp_path / "random.npz"
    save_weights(weights, make_arrays(), make_card())
    assert main(["--corpus", str(corpus), "--weights", str(weights)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["weights"]["version"] == "anchor-1"
    assert report["corpus"]["traces"] == sum(part["traces"] for part in report["by_shape"].values()) == 60
    assert sum(part["traces"] for part in report["by_host"].values()) == 60


def test_command_names_faults_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--corpus", str(tmp_path / "none"), "--weights", str(tmp_path / "none.npz")]) == 2
    assert "none.npz cannot be read" in capsys.readouterr().err


def test_training_names_every_fault_of_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    arguments = [
        *("--corpus", str(tmp_path / "none")),
        *("--seed", "x"),
        *("--processes", "-1"),
        *("--out", str(file)),
    ]
    assert train_main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    for option in ("corpus", "seed", "processes", "out"):
        assert any(f"--{option} " in line for line in lines)


def test_training_without_scikit_learn_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lab.training.costream.find_spec", lambda name: None)
    assert train_main(["--corpus", str(write_lines(tmp_path / "c.jsonl.gz", []))]) == 1
    assert capsys.readouterr().err.strip() == f"sluice lab weights: {SKLEARN_MISSING}"
    assert (Path(__file__).parents[3] / "lab/requirements.txt").is_file()
