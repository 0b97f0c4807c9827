"""Torch twin of the network: the same parameters by the same names, the same arrays, and gradients.

`lab.training.network` says what the parameters mean. The twin takes the arrays of a `GraphBatch` as they are, so
that training and prediction differ in nothing but the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.arrays import IntArray
from lab.training.batch import Float32Array, GraphBatch
from lab.training.encoding import FEATURE_WIDTHS
from lab.training.network import EDGE_KINDS, METRICS, OUTPUTS

__all__ = ["TorchNetwork"]

_HEAD_OUTPUTS = [
    name
    for metric in METRICS
    for name in ([metric] if metric in ("RO", "S") else [metric, f"{metric}_low", f"{metric}_high"])
]
_ORDER = [_HEAD_OUTPUTS.index(name) for name in OUTPUTS]
_COSTS = [METRICS.index(name.split("_")[0]) if name not in ("RO", "S") else -1 for name in OUTPUTS]


class TorchNetwork(nn.Module):  # type: ignore[misc]
    """A member of the ensemble that can be trained.

    Parameters
    ----------
    parameters
        Arrays by name, as `lab.training.network.parameter_shapes` lists them.
    """

    def __init__(self, parameters: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({kind: _perceptron(parameters, f"encoder.{kind}") for kind in FEATURE_WIDTHS})
        self.update = nn.ModuleDict({edge: _perceptron(parameters, f"update.{edge}") for edge in EDGE_KINDS})
        self.head = nn.ModuleDict({metric: _perceptron(parameters, f"head.{metric}") for metric in METRICS})
        self.load_state_dict({name: torch.tensor(value, dtype=torch.float32) for name, value in parameters.items()})

    def parameters_by_name(self) -> dict[str, Float32Array]:
        """Copies of the parameters, as weights are stored."""
        return {name: value.detach().numpy().astype(np.float32, copy=True) for name, value in self.state_dict().items()}

    def forward(self, batch: GraphBatch) -> Tensor:
        """`lab.training.network.OUTPUTS` of each graph, float32 (g, 11): ln of tuples/s and s, and logits."""
        x = torch.cat([self.readout(batch), torch.from_numpy(batch.graph_flow)], dim=1)
        heads = [_run(self.head[metric], x, is_head=True) for metric in METRICS]
        anchor = torch.from_numpy(np.pad(batch.anchor, ((0, 0), (0, 1)))[:, _COSTS])
        outputs: Tensor = torch.cat(heads, dim=1)[:, _ORDER] + anchor
        return outputs

    def readout(self, batch: GraphBatch) -> Tensor:
        """Sum of the states of operators and hosts after the three stages, (g, H)."""
        encoded, encoded_hosts = self.encode_operators(batch), self.encode_hosts(batch)
        hosts = self.exchange("op_to_host", self.sums(encoded, batch.host_of, len(encoded_hosts)), encoded_hosts)
        placed = self.exchange("host_to_op", hosts[torch.from_numpy(batch.host_of)], encoded)
        states, graphs = self.pass_flow(batch, placed), len(batch.anchor)
        return self.sums(states, batch.operator_graph, graphs) + self.sums(hosts, batch.host_graph, graphs)

    def encode_operators(self, batch: GraphBatch) -> Tensor:
        """First states of operators, (N, H)."""
        rows = torch.from_numpy(np.concatenate(list(batch.rows.values())))
        return torch.cat([self.encode(kind, batch.inputs[kind]) for kind in batch.rows])[torch.argsort(rows)]

    def encode_hosts(self, batch: GraphBatch) -> Tensor:
        """First states of hosts, (M, H)."""
        return self.encode("host", batch.inputs["host"])

    def encode(self, kind: str, inputs: Float32Array) -> Tensor:
        """First states of one kind of nodes."""
        return _run(self.encoder[kind], torch.from_numpy(inputs))

    def pass_flow(self, batch: GraphBatch, placed: Tensor) -> Tensor:
        """States of operators after messages along the streams, level by level, (N, H)."""
        states = placed
        for stage in batch.stages:
            messages = self.sums(states[torch.from_numpy(stage.sources)], stage.readers, len(stage.targets))
            targets = torch.from_numpy(stage.targets)
            states = states.index_copy(0, targets, self.exchange("flow", messages, placed[targets]))
        return states

    def exchange(self, edge: str, messages: Tensor, own: Tensor) -> Tensor:
        """States updated by what came along a kind of edge."""
        return _run(self.update[edge], torch.cat([messages, own], dim=1))

    @staticmethod
    def sums(values: Tensor, index: IntArray, n: int) -> Tensor:
        """Sums of rows by index, (n, columns)."""
        return torch.zeros((n, values.shape[1]), dtype=values.dtype).index_add(0, torch.from_numpy(index), values)


def _perceptron(parameters: Mapping[str, npt.NDArray[Any]], name: str) -> nn.ModuleList:
    layers = nn.ModuleList()
    while f"{name}.{len(layers)}.weight" in parameters:
        rows, columns = parameters[f"{name}.{len(layers)}.weight"].shape
        layers.append(nn.Linear(columns, rows))
    return layers


def _run(layers: nn.Module, x: Tensor, *, is_head: bool = False) -> Tensor:
    last = len(layers) - 1  # type: ignore[arg-type]
    for i, layer in enumerate(layers):  # type: ignore[arg-type]
        x = layer(x)
        if i < last or not is_head:
            x = torch.relu(x)
    return x
