"""Flat baselines: gradient boosting on one vector per trace, without a graph (needs scikit-learn).

=========  ======================================================  ==================================================
name       vector                                                  target
=========  ======================================================  ==================================================
published  as in the paper's public code: operators by kind,       raw values, squared error
           hosts, mean selectivities; event rate for success only
fair       the same, rates, widths, windows and means of hardware  ln
flow       anchor and flow features: sums and maxima over          residual to the anchor in ln
           operators and hosts
=========  ======================================================  ==================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.costream.batch import EncodedTrace
from engine.costream.network import OUTPUTS
from engine.costream.prediction import COSTS
from engine.query_graph.graph import OPERATOR_KINDS, CostTrace, OperatorNode
from lab.training.dataset import TraceSet

__all__ = ["FLAT_KINDS", "FlatModel"]

FLAT_KINDS = ("published", "fair", "flow")

_ROUNDS, _RATE = 250, 0.08
_SURE = 1.0  # logit of a vote
_LEAST = 1e-6  # of a predicted cost: raw values may come out negative


class FlatModel:
    """A boosted model per cost and vote; `outputs` are those of a network of the plain form.

    Parameters
    ----------
    kind
        One of `FLAT_KINDS`.
    traces
        To train on.
    """

    def __init__(self, kind: str, traces: TraceSet) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        self.kind = kind
        x, known = self._vectors(traces), traces.success
        self._costs, self._votes = [], []
        for i in range(len(COSTS)):
            model = HistGradientBoostingRegressor(max_iter=_ROUNDS, learning_rate=_RATE, random_state=0)
            self._costs.append(model.fit(x[known], self._target(traces, i)[known]))
        for name, truth in (("RO", traces.backpressure), ("S", traces.success)):
            vectors = self._vote_vectors(name, traces, x)
            if truth.all() or not truth.any():
                self._votes.append((name, bool(truth[0])))
                continue
            classifier = HistGradientBoostingClassifier(max_iter=_ROUNDS, learning_rate=_RATE, random_state=0)
            self._votes.append((name, classifier.fit(vectors, truth)))

    def outputs(self, traces: TraceSet) -> npt.NDArray[np.float32]:
        """`engine.costream.network.OUTPUTS`, (1, n, 11); the quantiles are the prediction itself."""
        x = self._vectors(traces)
        outputs = np.zeros((1, len(traces), len(OUTPUTS)), dtype=np.float32)
        for i, (cost, model) in enumerate(zip(COSTS, self._costs, strict=True)):
            predicted = model.predict(x)
            if self.kind == "published":
                predicted = np.log(np.maximum(predicted, _LEAST))
            elif self.kind == "flow":
                predicted = predicted + traces.anchor[:, i]
            for name in (cost, f"{cost}_low", f"{cost}_high"):
                outputs[0, :, OUTPUTS.index(name)] = predicted
        for name, vote in self._votes:
            said = vote if isinstance(vote, bool) else vote.predict(self._vote_vectors(name, traces, x))
            outputs[0, :, OUTPUTS.index(name)] = np.where(said, _SURE, -_SURE)
        return outputs

    def _target(self, traces: TraceSet, i: int) -> npt.NDArray[Any]:
        if self.kind == "published":
            return np.exp(traces.targets[:, i])
        return traces.targets[:, i] - (traces.anchor[:, i] if self.kind == "flow" else 0.0)

    def _vectors(self, traces: TraceSet) -> npt.NDArray[Any]:
        if self.kind == "flow":
            return np.array([_flow_vector(encoded) for encoded in traces.encoded])
        vector: Callable[[CostTrace], list[float]] = _published if self.kind == "published" else _fair
        return np.array([vector(trace) for trace in traces.traces])

    def _vote_vectors(self, name: str, traces: TraceSet, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.kind == "published" and name == "S":
            return np.column_stack([x, [_rate(trace) for trace in traces.traces]])
        return x


def _rate(trace: CostTrace) -> float:
    return sum(op.rate_eps for op in trace.graph.operators)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _published(trace: CostTrace) -> list[float]:
    operators = trace.graph.operators
    counts = [float(sum(op.kind == kind for op in operators)) for kind in OPERATOR_KINDS]
    selectivities = [_mean([op.selectivity for op in operators if op.kind == kind]) for kind in OPERATOR_KINDS]
    return [*counts, float(len(set(trace.placement))), *selectivities]


def _fair(trace: CostTrace) -> list[float]:
    operators = trace.graph.operators
    rates = [op.rate_eps for op in operators if op.kind == "source"]
    hosts = [trace.hosts[j] for j in trace.placement]
    hardware = [
        (math.log(host.cpu_percent), math.log(host.ram_mb), math.log(host.bandwidth_mbit_s), math.log(host.latency_s))
        for host in hosts
    ]
    logarithms = [
        _mean([math.log(op.selectivity) for op in operators if op.kind == kind]) for kind in ("filter", "join", "agg")
    ]
    return [
        *_published(trace),
        math.log(sum(rates)),
        math.log(max(rates)),
        *logarithms,
        _mean([op.values_in for op in operators]),
        _mean([op.values_out for op in operators]),
        *[f([row[i] for row in hardware]) for i in range(4) for f in (_mean, min)],
        *_windows([op for op in operators if op.window_policy == "count"]),
        *_windows([op for op in operators if op.window_policy == "time"]),
    ]


def _windows(operators: Sequence[OperatorNode]) -> list[float]:
    return [
        float(len(operators)),
        _mean([math.log(op.window_size) for op in operators]),
        _mean([math.log(op.window_slide) for op in operators]),
    ]


def _flow_vector(encoded: EncodedTrace) -> npt.NDArray[Any]:
    counts = np.bincount(encoded.kinds, minlength=len(OPERATOR_KINDS))
    parts = [counts, encoded.anchor, encoded.graph_flow]
    for rows in (encoded.flow, encoded.host_flow, encoded.hosts):
        parts += [rows.max(axis=0), rows.sum(axis=0), rows.min(axis=0)]
    return np.concatenate(parts)
