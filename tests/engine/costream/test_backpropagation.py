"""Gradients of the loss: those of finite differences, for every layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.costream.backpropagation import RunTargets, loss_gradients
from engine.costream.batch import collate, encode
from engine.costream.network import CostNetwork, initial_parameters
from tests.engine.costream.ensembles import make_trace


@pytest.mark.parametrize("form", ["recommended", "plain"])
def test_gradients_are_those_of_finite_differences(form: str) -> None:
    rng = np.random.default_rng(2)
    traces = [replace(make_trace(), placement=place) for place in ((0, 1, 0, 2, 3, 3), (3,) * 6, (0, 0, 1, 2, 2, 3))]
    batch = collate([encode(trace.graph, trace.hosts, trace.placement) for trace in traces], form)
    parameters = {
        name: value + rng.normal(0, 0.2, value.shape) for name, value in initial_parameters(form, 6, 1).items()
    }
    outputs = CostNetwork(parameters, form).evaluate(batch)
    targets = RunTargets(
        costs=outputs[:, :3] + rng.normal(0, 1, (3, 3)),
        costs_known=np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]]),
        votes=np.array([[0, 1], [1, 1], [0, 0]]),
        votes_known=np.array([[1, 1], [1, 0], [1, 1]]),
        weights=np.array([1.0, 0.5, 2.0]),
    )
    _, gradients = loss_gradients(parameters, batch, targets)
    assert gradients.keys() == parameters.keys()
    for name, value in parameters.items():
        place = tuple(rng.integers(size) for size in value.shape)
        losses = []
        for step in (1e-6, -1e-6):
            moved = value.copy()
            moved[place] += step
            losses.append(loss_gradients({**parameters, name: moved}, batch, targets)[0])
        difference = (losses[0] - losses[1]) / 2e-6
        assert gradients[name][place] == pytest.approx(difference, rel=1e-4, abs=1e-6), name
