"""Training of the residual: the engine goes down what scikit-learn fitted; skipped without scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.costream.prediction import Ensemble
from engine.costream.residual import BoostedTrees
from lab.training.boosted_trees import BoostingSettings, fit_members
from lab.training.costream import main
from lab.training.dataset import CorpusOrigin, TraceSet
from tests.lab.training.corpora import corpus_lines, labelled_trace, write_lines

pytest.importorskip("sklearn", reason="scikit-learn is not installed: training is not tested (lab/requirements.txt)")


def test_engine_goes_down_the_trees_that_were_fitted() -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    from lab.training.boosted_trees import _tree_arrays

    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 4)).astype(np.float32)
    model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=20, max_depth=3, early_stopping=False)
    model.fit(x, x[:, 0] * (x[:, 1] > 0))
    trees = BoostedTrees.of_arrays({f"0.{k}": v for k, v in _tree_arrays("T", model, 20, 3).items()}, "0.T")
    np.testing.assert_allclose(trees.evaluate(x.astype(np.float64)), model.predict(x), atol=1e-5)


def test_members_see_other_traces_and_the_same_seed_fits_the_same() -> None:
    origin = CorpusOrigin("drawn", "0" * 64, "simulated", "none", 0, "0" * 64)
    traces = TraceSet.of_traces(origin, [labelled_trace(seed) for seed in range(120)])
    settings = BoostingSettings(members=2, cost_trees=3, vote_trees=2, depth=2)
    first, again = (fit_members(traces, settings) for _ in range(2))
    assert all(np.array_equal(array, again[name]) for name, array in first.items())
    assert not np.array_equal(first["0.Lp.value"], first["1.Lp.value"])


def test_command_trains_and_its_weights_are_no_worse_than_the_fluid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_lines(tmp_path / "400.jsonl.gz", corpus_lines(400))
    out = tmp_path / "weights"
    assert main(["--corpus", str(corpus), "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["card"] == Ensemble.load(out / "costream.npz").card.line
    for cost in ("T", "Lp", "Le"):
        errors = printed["errors"]["validation"][cost]
        assert errors["q95"] <= errors["fluid"]["q95"]
        assert errors["coverage"] > 0.8
