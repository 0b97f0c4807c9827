"""The graph network by PyTorch: the twin computes what NumPy does, and a short training learns."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.dataset import CorpusOrigin, TraceSet
from lab.training.network import CostNetwork, initial_parameters
from tests.lab.training.corpora import labelled_trace

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
    from lab.training.fit import FitSettings, fit_member

    training, validation = traces.split(0.4)
    settings = FitSettings(hidden=8, epochs=1)
    first, second, other = (fit_member(training, validation, settings, seed) for seed in (1, 1, 2))
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
