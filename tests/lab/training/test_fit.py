"""Training by PyTorch: the twin computes what NumPy does, and a short training learns; skipped without PyTorch."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from engine.costream.network import CostNetwork, initial_parameters
from engine.costream.prediction import Ensemble
from lab.training.costream import main, train_ensemble
from lab.training.dataset import CorpusOrigin, TraceSet
from lab.training.evaluation import main as evaluate_main
from tests.lab.training.corpora import corpus_lines, labelled_trace, write_lines

pytest.importorskip("torch", reason="PyTorch is not installed: training is not tested (lab/requirements.txt)")

ORIGIN = CorpusOrigin("drawn", "0" * 64, "simulated", "none", 0, "0" * 64)


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return TraceSet.of_traces(ORIGIN, [labelled_trace(seed) for seed in range(150)])


@pytest.mark.parametrize("form", ["recommended", "plain"])
def test_torch_twin_gives_the_outputs_of_numpy(traces: TraceSet, form: str) -> None:
    import torch

    from lab.training.torch_network import TorchNetwork

    parameters = initial_parameters(form, 32, 5)
    twin = TorchNetwork(parameters)
    (batch,) = traces.batches(len(traces), form)
    with torch.no_grad():
        outputs = twin(batch).numpy()
    expected = CostNetwork(parameters, form).evaluate(batch)
    np.testing.assert_allclose(outputs, expected, atol=2e-4 * np.abs(expected).max())
    assert twin.parameters_by_name().keys() == parameters.keys()


def test_same_seed_trains_the_same_weights(traces: TraceSet) -> None:
    from lab.training.fit import FitSettings

    training, validation = traces.split(0.4)
    settings = FitSettings(hidden=8, epochs=1)
    first, second, other = (
        train_ensemble(training, validation, settings, [seed], version="test").members[0] for seed in (1, 1, 2)
    )
    name = "update.flow.0.weight"
    assert (first.parameters[name] == second.parameters[name]).all()
    assert not (first.parameters[name] == other.parameters[name]).all()


def test_training_ends_early_and_keeps_the_best_epoch(traces: TraceSet) -> None:
    from lab.training.fit import FitSettings, fit_member

    training, validation = traces.split(0.4)
    settings = FitSettings(hidden=8, epochs=40, patience=2, learning_rate=0.05, weight_decay=0.0)
    member = fit_member(training, validation, settings, 1)
    losses = [record.validation_loss for record in member.curve]
    assert len(losses) < 40
    assert member.best_epoch == int(np.argmin(losses)) + 1 == len(losses) - settings.patience


def test_command_trains_on_600_traces_and_its_weights_beat_the_anchor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_lines(tmp_path / "600.jsonl.gz", corpus_lines(600))
    out = tmp_path / "weights"
    arguments = ["--corpus", str(corpus), "--epochs", "4", "--seeds", "1,2", "--processes", "1", "--out", str(out)]
    assert main(arguments) == 0
    printed, progress = capsys.readouterr()
    assert progress.count("seed 1, epoch") == 4
    assert json.loads(printed)["card"] == Ensemble.load(out / "costream.npz").card.line
    rows = list(csv.DictReader((out / "costream.curves.csv").read_text().splitlines()))
    assert [(row["seed"], row["epoch"]) for row in rows] == [(s, e) for s in "12" for e in "1234"]
    fresh = write_lines(tmp_path / "fresh.jsonl.gz", corpus_lines(200, first=5000))
    assert evaluate_main(["--corpus", str(fresh), "--weights", str(out / "costream.npz")]) == 0
    report = json.loads(capsys.readouterr().out)
    for cost in ("T", "Lp", "Le"):
        assert report[cost]["q95"] < 0.7 * report[cost]["anchor"]["q95"]
        assert 0.6 < report[cost]["coverage"] < 0.95
    assert report["S"]["balanced_accuracy"] > 0.65
