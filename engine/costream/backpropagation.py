"""Gradients of a network's loss by all of its parameters, in NumPy: fine-tuning needs no other library.

The forward pass is that of `CostNetwork.evaluate`, with everything kept that the way back needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import IntArray
from engine.costream.batch import Float32Array, GraphBatch
from engine.costream.network import METRICS

__all__ = ["RunTargets", "loss_gradients"]

_COSTS = 3  # of the metrics; the other two are votes
_LEVELS = (0.1, 0.9)  # quantiles behind a cost's centre
_KNEE = 0.5  # of the smooth absolute error, in ln

Parameters = Mapping[str, npt.NDArray[Any]]
Gradients = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class RunTargets:
    """Observed costs of g runs, float32; `known` says which of them were observed.

    Attributes
    ----------
    costs, costs_known
        ln of throughput and of both latencies, (g, 3).
    votes, votes_known
        Back-pressure and success, 0 or 1, (g, 2).
    weights
        Weight of each run in the loss, (g,).
    """

    costs: Float32Array
    costs_known: Float32Array
    votes: Float32Array
    votes_known: Float32Array
    weights: Float32Array

    def rows(self, index: IntArray) -> RunTargets:
        """Targets of some of the runs."""
        return RunTargets(
            self.costs[index],
            self.costs_known[index],
            self.votes[index],
            self.votes_known[index],
            self.weights[index],
        )


class _Perceptron:
    """Two layers with ReLU behind both, and what is kept of their inputs; a head has none behind its last."""

    def __init__(self, parameters: Parameters, name: str, *, head: bool = False) -> None:
        self.name, self.head = name, head
        self.weights = [parameters[f"{name}.{i}.weight"] for i in (0, 1)]
        self.biases = [parameters[f"{name}.{i}.bias"] for i in (0, 1)]

    def forward(
        self, x: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]]:
        hidden = np.maximum(x @ self.weights[0].T + self.biases[0], 0)
        out = hidden @ self.weights[1].T + self.biases[1]
        if not self.head:
            out = np.maximum(out, 0)
        return out, (x, hidden, out)

    def backward(
        self,
        slope: npt.NDArray[Any],
        kept: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]],
        gradients: Gradients,
    ) -> npt.NDArray[Any]:
        """Slope by the input; the parameters' own are added to `gradients`."""
        x, hidden, out = kept
        if not self.head:
            slope = slope * (out > 0)
        inner = (slope @ self.weights[1]) * (hidden > 0)
        for part, value in (
            ("1.weight", slope.T @ hidden),
            ("1.bias", slope.sum(axis=0)),
            ("0.weight", inner.T @ x),
            ("0.bias", inner.sum(axis=0)),
        ):
            key = f"{self.name}.{part}"
            gradients[key] = gradients[key] + value if key in gradients else value
        back: npt.NDArray[Any] = inner @ self.weights[0]
        return back


def loss_gradients(parameters: Parameters, batch: GraphBatch, targets: RunTargets) -> tuple[float, Gradients]:
    """Loss of a batch, and its gradient by every parameter.

    The loss of a run is the smooth absolute error of each known cost's ln, the pinball losses of its two quantiles, and
    the cross-entropy of both votes, times the run's weight; of the batch the mean over its runs.
    """
    hidden = len(parameters["update.flow.1.bias"])
    encoders = {kind: _Perceptron(parameters, f"encoder.{kind}") for kind in (*batch.rows, "host")}
    edges = {edge: _Perceptron(parameters, f"update.{edge}") for edge in ("op_to_host", "host_to_op", "flow")}
    kept = {}
    encoded = np.empty((len(batch.host_of), hidden), dtype=parameters["update.flow.1.bias"].dtype)
    for kind, rows in batch.rows.items():
        encoded[rows], kept[kind] = encoders[kind].forward(batch.inputs[kind])
    encoded_hosts, kept["host"] = encoders["host"].forward(batch.inputs["host"])
    messages = _sums(encoded, batch.host_of, len(encoded_hosts))
    hosts, to_host = edges["op_to_host"].forward(np.concatenate([messages, encoded_hosts], axis=1))
    placed, to_op = edges["host_to_op"].forward(np.concatenate([hosts[batch.host_of], encoded], axis=1))
    states, flows = placed.copy(), []
    for stage in batch.stages:
        messages = _sums(states[stage.sources], stage.readers, len(stage.targets))
        states[stage.targets], flow = edges["flow"].forward(np.concatenate([messages, placed[stage.targets]], axis=1))
        flows.append(flow)
    graphs = len(batch.anchor)
    readout = _sums(states, batch.operator_graph, graphs) + _sums(hosts, batch.host_graph, graphs)
    loss, gradients, slope = _heads(parameters, batch, targets, readout)

    by_state, by_host = slope[batch.operator_graph], slope[batch.host_graph]
    by_placed = np.zeros_like(by_state)
    moved = np.zeros(len(by_state), dtype=bool)
    for stage, flow in zip(reversed(batch.stages), reversed(flows), strict=True):
        back = edges["flow"].backward(by_state[stage.targets], flow, gradients)
        by_placed[stage.targets] += back[:, hidden:]
        by_state += _sums(back[stage.readers, :hidden], stage.sources, len(by_state))
        moved[stage.targets] = True
    by_placed[~moved] += by_state[~moved]
    back = edges["host_to_op"].backward(by_placed, to_op, gradients)
    by_host = by_host + _sums(back[:, :hidden], batch.host_of, len(by_host))
    by_encoded = back[:, hidden:]
    back = edges["op_to_host"].backward(by_host, to_host, gradients)
    by_encoded = by_encoded + back[:, :hidden][batch.host_of]
    encoders["host"].backward(back[:, hidden:], kept["host"], gradients)
    for kind, rows in batch.rows.items():
        encoders[kind].backward(by_encoded[rows], kept[kind], gradients)
    return loss, gradients


def _heads(
    parameters: Parameters, batch: GraphBatch, targets: RunTargets, readout: npt.NDArray[Any]
) -> tuple[float, Gradients, npt.NDArray[Any]]:
    """Loss, gradients of the heads, and the slope by the readout."""
    x = np.concatenate([readout, batch.graph_flow], axis=1)
    weights = targets.weights / len(readout)
    gradients: Gradients = {}
    slope, loss = np.zeros_like(readout), 0.0
    for m, metric in enumerate(METRICS):
        head = _Perceptron(parameters, f"head.{metric}", head=True)
        out, kept = head.forward(x)
        if m < _COSTS:
            true = targets.costs[:, m] - batch.anchor[:, m]
            losses, slopes = _cost_loss(out, true)
            scale = weights * targets.costs_known[:, m]
        else:
            losses, slopes = _vote_loss(out, targets.votes[:, m - _COSTS])
            scale = weights * targets.votes_known[:, m - _COSTS]
        loss += float((losses * scale).sum())
        slope += head.backward(slopes * scale[:, None], kept, gradients)[:, : readout.shape[1]]
    return loss, gradients, slope


def _cost_loss(out: npt.NDArray[Any], true: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Losses (g,) of centre and quantiles (g, 3), and their slopes."""
    deviation = out - true[:, None]
    slopes = np.empty_like(out)
    size = np.abs(deviation[:, 0])
    losses: npt.NDArray[Any] = np.where(size < _KNEE, size**2 / (2 * _KNEE), size - _KNEE / 2)
    slopes[:, 0] = np.clip(deviation[:, 0] / _KNEE, -1.0, 1.0)
    for column, level in enumerate(_LEVELS, start=1):
        below = deviation[:, column] < 0
        slopes[:, column] = np.where(below, -level, 1.0 - level)
        losses += deviation[:, column] * slopes[:, column]
    return losses, slopes


def _vote_loss(out: npt.NDArray[Any], true: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Cross-entropies (g,) of logits (g, 1), and their slopes."""
    logit = out[:, 0]
    losses = np.logaddexp(0, logit) - true * logit
    slopes = 1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0))) - true
    return losses, slopes[:, None]


def _sums(values: npt.NDArray[Any], index: IntArray, n: int) -> npt.NDArray[Any]:
    """Sums of rows by index, (n, columns)."""
    sums = np.zeros((n, values.shape[1]), dtype=values.dtype)
    np.add.at(sums, index, values)
    return sums
