"""Staged message passing (algorithm 1) in NumPy: encoders, three stages of updates, a readout by sum, heads.

An MLP is a list of dense layers, each with ReLU behind it but for the last layer of a head. Every update gets
``[sum of messages, own state]``:

1. ``op_to_host``: each used host the sum of its operators' encoded states, and its own;
2. ``host_to_op``: each operator its host's new state, and its own encoded one;
3. ``flow``: level by level, each operator but the sources the sum of the new states of those it reads, and its own of
   stage 2.

The readout is the sum of all operators' states of stage 3 (sources: of stage 2) and all used hosts' of stage 1. The
heads of the recommended form get the flow features of the whole graph behind it.

Parameters (H the hidden width, read from the shapes; a layer is ``y = x W^T + b`` as in PyTorch):

=================================  =========================================  =================================
name                               weight of layer 0, layer 1                 what
=================================  =========================================  =================================
``encoder.KIND.L.weight|bias``     (H, `input_widths(form)[KIND]`), (H, H)    KIND: source, filter, join, agg,
                                                                              sink, host
``update.EDGE.L.weight|bias``      (H, 2H), (H, H)                            EDGE: op_to_host, host_to_op, flow
``head.METRIC.L.weight|bias``      (H, H + `graph_width(form)`), (3, H) or    METRIC: T, Lp, Le with centre,
                                   (1, H)                                     10 % and 90 % quantile; RO, S with
                                                                              one logit
=================================  =========================================  =================================

Regression outputs are residuals of the anchor: ln of tuples/s and of seconds once it is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import IntArray
from lab.training.batch import FORMS, Float32Array, GraphBatch, graph_width, input_widths
from lab.training.encoding import FEATURE_WIDTHS

__all__ = [
    "EDGE_KINDS",
    "METRICS",
    "OUTPUTS",
    "CostNetwork",
    "MessageStates",
    "initial_parameters",
    "parameter_shapes",
]

EDGE_KINDS = ("op_to_host", "host_to_op", "flow")

METRICS = ("T", "Lp", "Le", "RO", "S")

# Columns of the network's output, float32 of shape (graphs, 11).
OUTPUTS = ("T", "Lp", "Le", "RO", "S", "T_low", "T_high", "Lp_low", "Lp_high", "Le_low", "Le_high")

_HEAD_COLUMNS = [0, 3, 6, 9, 10, 1, 2, 4, 5, 7, 8]  # of the heads' outputs in a row, in the order of `OUTPUTS`
_ANCHORED = [0, 1, 2, 5, 6, 7, 8, 9, 10]  # outputs of regression, each with its metric's column of the anchor
_ANCHOR_OF = [0, 1, 2, 0, 0, 1, 1, 2, 2]
_HEAD_START = 0.1


def parameter_shapes(form: str, hidden: int = 64) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a network's parameters, in the order of the table above.

    Examples
    --------
    >>> shapes = parameter_shapes("plain", hidden=8)
    >>> shapes["encoder.source.0.weight"], shapes["update.flow.0.weight"], shapes["head.T.1.weight"]
    ((8, 5), (8, 16), (3, 8))
    """
    layers: dict[str, tuple[int, int]] = {}
    for kind, width in input_widths(form).items():
        layers |= {f"encoder.{kind}.0": (hidden, width), f"encoder.{kind}.1": (hidden, hidden)}
    for edge in EDGE_KINDS:
        layers |= {f"update.{edge}.0": (hidden, 2 * hidden), f"update.{edge}.1": (hidden, hidden)}
    for metric in METRICS:
        outputs = 1 if metric in ("RO", "S") else 3
        layers |= {f"head.{metric}.0": (hidden, hidden + graph_width(form)), f"head.{metric}.1": (outputs, hidden)}
    return {
        name: shape
        for layer, (rows, columns) in layers.items()
        for name, shape in ((f"{layer}.weight", (rows, columns)), (f"{layer}.bias", (rows,)))
    }


def initial_parameters(form: str, hidden: int = 64, seed: int = 0) -> dict[str, Float32Array]:
    """Random parameters to train from: He's normal weights, zero biases; heads end in a tenth of it.

    So the recommended form begins near its anchor.
    """
    rng = np.random.default_rng(seed)
    parameters = {}
    for name, shape in parameter_shapes(form, hidden).items():
        values = np.zeros(shape)
        if name.endswith("weight"):
            values = rng.normal(0.0, np.sqrt(2.0 / shape[1]), shape)
        if name.startswith("head") and name.endswith("1.weight"):
            values *= _HEAD_START
        parameters[name] = values.astype(np.float32)
    return parameters


@dataclass(frozen=True)
class MessageStates:
    """States of a batch after each stage, float32 of H columns: N rows of operators, M of hosts, g of readouts."""

    encoded_operators: Float32Array
    encoded_hosts: Float32Array
    hosts: Float32Array
    placed_operators: Float32Array
    operators: Float32Array
    readout: Float32Array


@dataclass(frozen=True)
class Dense:
    """A layer ``y = x @ weight + bias``; weight float32 (in, out), bias (out,)."""

    weight: Float32Array
    bias: Float32Array


class Perceptron:
    """An MLP whose layers all have ReLU behind them."""

    def __init__(self, layers: Sequence[Dense]) -> None:
        self._layers, self.width = layers, len(layers[-1].bias)

    def __call__(self, x: Float32Array) -> Float32Array:
        """States (..., H) of inputs (..., width)."""
        for layer in self._layers:
            x = np.maximum(x @ layer.weight + layer.bias, 0)
        return x


class CostNetwork:
    """A member of the ensemble: parameters ready for inference.

    Parameters
    ----------
    parameters
        Arrays of any float type by name, as `parameter_shapes` lists them; an MLP may have any number of layers.
    form
        One of `FORMS`.
    """

    def __init__(self, parameters: Mapping[str, npt.NDArray[Any]], form: str = FORMS[0]) -> None:
        self._encoders = {kind: Perceptron(_layers(parameters, f"encoder.{kind}")) for kind in FEATURE_WIDTHS}
        self._updates = {edge: Perceptron(_layers(parameters, f"update.{edge}")) for edge in EDGE_KINDS}
        self._heads = _joined([_layers(parameters, f"head.{metric}") for metric in METRICS])

    def evaluate(self, batch: GraphBatch) -> Float32Array:
        """`OUTPUTS` of each graph, float32 (g, 11): ln of tuples/s and s, and logits."""
        readout = self.pass_messages(batch).readout
        return self._outputs(np.concatenate([readout, batch.graph_flow], axis=1), batch.anchor)

    def pass_messages(self, batch: GraphBatch) -> MessageStates:
        """States of operators and hosts after each stage, and their sums per graph."""
        encoded = np.empty((len(batch.host_of), self._encoders["host"].width), dtype=np.float32)
        for kind, rows in batch.rows.items():
            encoded[rows] = self._encoders[kind](batch.inputs[kind])
        encoded_hosts = self._encoders["host"](batch.inputs["host"])
        messages = _sums(encoded, batch.host_of, len(encoded_hosts))
        hosts = self._update("op_to_host", messages, encoded_hosts)
        placed = self._update("host_to_op", hosts[batch.host_of], encoded)
        states = placed.copy()
        for stage in batch.stages:
            messages = _sums(states[stage.sources], stage.readers, len(stage.targets))
            states[stage.targets] = self._update("flow", messages, placed[stage.targets])
        graphs = len(batch.anchor)
        readout = _sums(states, batch.operator_graph, graphs) + _sums(hosts, batch.host_graph, graphs)
        return MessageStates(encoded, encoded_hosts, hosts, placed, states, readout)

    def _update(self, edge: str, messages: Float32Array, own: Float32Array) -> Float32Array:
        return self._updates[edge](np.concatenate([messages, own], axis=-1))

    def _outputs(self, readout: Float32Array, anchor: Float32Array) -> Float32Array:
        x = readout
        for layer in self._heads[:-1]:
            x = np.maximum(x @ layer.weight + layer.bias, 0)
        outputs: Float32Array = x @ self._heads[-1].weight + self._heads[-1].bias
        outputs[:, _ANCHORED] += anchor[:, _ANCHOR_OF]
        return outputs


def _layers(parameters: Mapping[str, npt.NDArray[Any]], name: str) -> list[Dense]:
    """Layers of an MLP, transposed for products from the right."""
    count = sum(f"{name}.{i}.weight" in parameters for i in range(len(parameters)))
    return [
        Dense(
            np.ascontiguousarray(parameters[f"{name}.{i}.weight"].T, dtype=np.float32),
            parameters[f"{name}.{i}.bias"].astype(np.float32),
        )
        for i in range(count)
    ]


def _joined(heads: Sequence[Sequence[Dense]]) -> list[Dense]:
    """All heads as one MLP: the first layers beside each other, the others as diagonal blocks; columns as `OUTPUTS`."""
    joined = []
    for depth, layers in enumerate(zip(*heads, strict=True)):
        shape = (sum(len(layer.weight) for layer in layers), sum(len(layer.bias) for layer in layers))
        weight = np.zeros(shape, dtype=np.float32)
        row = column = 0
        for layer in layers:
            rows, columns = layer.weight.shape
            weight[row : row + rows, column : column + columns] = layer.weight
            row, column = row + rows, column + columns
        if depth == 0:
            weight = np.concatenate([layer.weight for layer in layers], axis=1)
        joined.append(Dense(weight, np.concatenate([layer.bias for layer in layers])))
    last = joined[-1]
    joined[-1] = Dense(np.ascontiguousarray(last.weight[:, _HEAD_COLUMNS]), last.bias[_HEAD_COLUMNS])
    return joined


def _sums(values: Float32Array, index: IntArray, n: int) -> Float32Array:
    """Sums of rows by index, (n, columns)."""
    sums = np.zeros((n, values.shape[1]), dtype=np.float32)
    np.add.at(sums, index, values)
    return sums
