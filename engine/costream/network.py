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
from engine.costream.batch import FORMS, Float32Array, GraphBatch, PlacementBatch, graph_width, input_widths
from engine.costream.features import FEATURE_WIDTHS
from engine.query_graph.flow import FIXED_FLOW_WIDTH

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
_BLOCK = 128  # placements at a time: their states stay in the processor's cache


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
    """An MLP whose layers all have ReLU behind them, and whose first layer may be computed in parts."""

    def __init__(self, layers: Sequence[Dense]) -> None:
        self.first = layers[0]
        self._rest = layers[1:]

    def __call__(self, x: Float32Array) -> Float32Array:
        """States (..., H) of inputs (..., width)."""
        return self.behind_first(x @ self.first.weight + self.first.bias)

    def part(self, x: Float32Array, start: int) -> Float32Array:
        """Product of the first layer's rows from `start` on with as many columns of `x`, without the bias."""
        return x @ self.first.weight[start : start + x.shape[-1]]

    def behind_first(self, y: Float32Array) -> Float32Array:
        """States made of the first layer's outputs, which are overwritten."""
        np.maximum(y, 0, out=y)
        for layer in self._rest:
            y = y @ layer.weight
            y += layer.bias
            np.maximum(y, 0, out=y)
        return y


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
        self._with_flow = form == FORMS[0]
        self._encoders = {kind: Perceptron(_layers(parameters, f"encoder.{kind}")) for kind in FEATURE_WIDTHS}
        self._updates = {edge: Perceptron(_layers(parameters, f"update.{edge}")) for edge in EDGE_KINDS}
        self._heads = _joined([_layers(parameters, f"head.{metric}") for metric in METRICS])
        self._hidden = len(self._updates["flow"].first.bias)

    def evaluate(self, batch: GraphBatch) -> Float32Array:
        """`OUTPUTS` of each graph, float32 (g, 11): ln of tuples/s and s, and logits."""
        readout = self.pass_messages(batch).readout
        return self._outputs(np.concatenate([readout, batch.graph_flow], axis=1), batch.anchor)

    def pass_messages(self, batch: GraphBatch) -> MessageStates:
        """States of operators and hosts after each stage, and their sums per graph."""
        encoded = np.empty((len(batch.host_of), self._hidden), dtype=np.float32)
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

    def score(self, batch: PlacementBatch) -> Float32Array:
        """`OUTPUTS` of each placement, float32 (k, 11): the numbers of `evaluate`, many times faster.

        Products that no placement changes are computed once: those of table I's features and of the rates with the
        encoders' first layers, in the plain form all of the encoders.
        """
        k = len(batch.anchor)
        fixed, fixed_hosts = self._fixed_products(batch)
        readout = np.empty((k, self._hidden), dtype=np.float32)
        for start in range(0, k, _BLOCK):
            stop = min(start + _BLOCK, k)
            pairs = slice(int(batch.starts[start]), int(batch.starts[stop]))
            encoded = self._encode_operators(batch, slice(start, stop), fixed)
            encoded_hosts = self._encode_hosts(batch, pairs, fixed_hosts)
            hosts, states = self._exchange(batch, encoded, encoded_hosts, batch.pairs[:, start:stop] - pairs.start)
            firsts = batch.starts[start:stop] - pairs.start
            readout[start:stop] = states.sum(axis=0) + np.add.reduceat(hosts, firsts, axis=0)
        if not self._with_flow:
            return self._outputs(readout, np.zeros_like(batch.anchor))
        return self._outputs(np.concatenate([readout, batch.graph_flow], axis=1), batch.anchor)

    def _fixed_products(self, batch: PlacementBatch) -> tuple[Float32Array, Float32Array]:
        """First layers of the encoders, as far as no placement changes them: of operators (n, 1, H), hosts (h, H)."""
        products = np.empty((len(batch.features), 1, self._hidden), dtype=np.float32)
        for kind, rows in batch.slices:
            for i in range(rows.start, rows.stop):
                x = batch.features[i]
                if self._with_flow:
                    x = np.concatenate([x, batch.flow[i, 0, :FIXED_FLOW_WIDTH]])
                products[i, 0] = self._encoders[kind].part(x, 0) + self._encoders[kind].first.bias
        host = self._encoders["host"]
        return products, host.part(batch.hosts, 0) + host.first.bias

    def _encode_operators(self, batch: PlacementBatch, block: slice, fixed: Float32Array) -> Float32Array:
        """Encoded operators of b placements, (n, b, H); (n, 1, H) in the plain form."""
        encoded = []
        for kind, rows in batch.slices:
            encoder, state = self._encoders[kind], fixed[rows]
            if self._with_flow:
                varying = batch.flow[rows, block, FIXED_FLOW_WIDTH:]
                state = encoder.part(varying, FEATURE_WIDTHS[kind] + FIXED_FLOW_WIDTH) + state
            encoded.append(encoder.behind_first(state))
        return np.concatenate(encoded)

    def _encode_hosts(self, batch: PlacementBatch, pairs: slice, fixed: Float32Array) -> Float32Array:
        """Encoded hosts of u pairs, (u, H)."""
        encoder, hosts = self._encoders["host"], batch.pair_hosts[pairs]
        if not self._with_flow:
            return encoder.behind_first(fixed.copy())[hosts]
        return encoder.behind_first(encoder.part(batch.pair_flow[pairs], FEATURE_WIDTHS["host"]) + fixed[hosts])

    def _exchange(
        self, batch: PlacementBatch, encoded: Float32Array, encoded_hosts: Float32Array, pair_of: IntArray
    ) -> tuple[Float32Array, Float32Array]:
        """The three stages on b placements: states of hosts (u, H) and of operators (n, b, H)."""
        messages = np.zeros_like(encoded_hosts)
        for state, pairs in zip(encoded, pair_of, strict=True):
            messages[pairs] += state  # an operator is on one host of a placement: no pair occurs twice
        update = self._updates["op_to_host"]
        hosts = update.behind_first(update.part(messages, 0) + self._own(update, encoded_hosts))
        update = self._updates["host_to_op"]
        states = update.behind_first(update.part(hosts, 0)[pair_of] + self._own(update, encoded))
        update = self._updates["flow"]
        own = self._own(update, states)
        for i in batch.order:
            messages = states[batch.inputs[i][0]]
            for a in batch.inputs[i][1:]:
                messages = messages + states[a]
            states[i] = update.behind_first(update.part(messages, 0) + own[i])
        return hosts, states

    def _own(self, update: Perceptron, states: Float32Array) -> Float32Array:
        return update.part(states, self._hidden) + update.first.bias

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
