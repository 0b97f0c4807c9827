"""Variants of the network for ablations, trained by PyTorch as the network itself is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.costream.batch import GraphBatch
from lab.training.dataset import TraceSet
from lab.training.fit import FitSettings
from lab.training.torch_network import TorchNetwork

__all__ = ["VARIANTS", "twin_outputs"]

_BATCH = 512
_MS = 1e3
_LN_10 = float(np.log(10.0))


class OperatorsAlone(TorchNetwork):
    """Neither hosts nor placement: encoded operators, the flow of messages among them, their sum."""

    def readout(self, batch: GraphBatch) -> Tensor:
        """Sum of the operators' states, (g, H)."""
        states = self.pass_flow(batch, self.encode_operators(batch))
        return self.sums(states, batch.operator_graph, len(batch.anchor))


class HostsWithoutFeatures(TorchNetwork):
    """Placement and co-location, but nothing of what a host is."""

    def encode_hosts(self, batch: GraphBatch) -> Tensor:
        """One state for all hosts, (M, H)."""
        return self.encode("host", np.zeros_like(batch.inputs["host"]))


class SynchronousMessages(TorchNetwork):
    """Traditional message passing: in each of three rounds every node hears all of its neighbours at once."""

    def readout(self, batch: GraphBatch) -> Tensor:
        """Sum of all states after three rounds, (g, H)."""
        operators, hosts = self.encode_operators(batch), self.encode_hosts(batch)
        senders = np.concatenate([stage.sources for stage in batch.stages])
        readers = np.concatenate([stage.targets[stage.readers] for stage in batch.stages])
        host_of = torch.from_numpy(batch.host_of)
        for edge in ("op_to_host", "host_to_op", "flow"):
            to_operators = hosts[host_of] + self.sums(operators[torch.from_numpy(senders)], readers, len(operators))
            to_hosts = self.sums(operators, batch.host_of, len(hosts))
            operators, hosts = (
                self.exchange(edge, to_operators, operators),
                self.exchange(edge, to_hosts, hosts),
            )
        graphs = len(batch.anchor)
        return self.sums(operators, batch.operator_graph, graphs) + self.sums(hosts, batch.host_graph, graphs)


def squared_log_loss(predicted: Tensor, true: Tensor, beta: float) -> Tensor:
    """The paper's loss: squared error of log10(1 + y), of tuples/s and ms; both arguments are ln of tuples/s and s."""
    scale = torch.tensor([1.0, _MS, _MS])
    ceiling = 40.0  # of ln: exp stays finite
    logs = [torch.log1p(scale * torch.exp(values.clamp(max=ceiling))) / _LN_10 for values in (predicted, true)]
    return (logs[0] - logs[1]) ** 2


# What differs from the plain form.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "operators alone": {"network": OperatorsAlone},
    "hosts without features": {"network": HostsWithoutFeatures},
    "synchronous messages": {"network": SynchronousMessages},
    "squared log(1 + y)": {"cost_loss": squared_log_loss},
}


def variant_settings(name: str, settings: FitSettings) -> FitSettings:
    """Settings of a variant."""
    return replace(settings, **VARIANTS[name])


def twin_outputs(
    settings: FitSettings, parameters: Mapping[str, npt.NDArray[Any]], traces: TraceSet
) -> npt.NDArray[np.float32]:
    """`engine.costream.network.OUTPUTS` of a variant, (1, n, 11)."""
    network = settings.network(parameters)
    with torch.no_grad():
        parts = [network(batch).numpy() for batch in traces.batches(_BATCH, settings.form)]
    return np.concatenate(parts)[None]
