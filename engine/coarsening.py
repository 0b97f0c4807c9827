"""Parts of a deployment restated for subintervals that are several times as long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.elements import FloatArray, Input, InputModel, Node, Operator, frozen_array

__all__ = ["coarse_node", "coarse_operator", "grouped"]


def grouped(values: FloatArray, factor: int) -> FloatArray:
    padded = np.concatenate([values, np.zeros(-len(values) % factor)])
    return frozen_array(padded.reshape(-1, factor).sum(axis=1))


def coarse_node(node: Node, factor: int) -> Node:
    series = node.capacity_series_cps
    if series is None:
        return node
    # The last capacity holds for ever, so it also fills an incomplete last subinterval.
    padded = np.concatenate([series, np.full(-len(series) % factor, series[-1])])
    return replace(node, capacity_series_cps=frozen_array(padded.reshape(-1, factor).mean(axis=1)))


def coarse_operator(operator: Operator, factor: int) -> Operator:
    if all(entry.model is None for entry in operator.inputs):
        return operator
    return replace(operator, inputs=tuple(_coarse_input(entry, factor) for entry in operator.inputs))


def _coarse_input(entry: Input, factor: int) -> Input:
    if entry.model is None:
        return entry
    output, cycles = ((c0 * factor, c1, c2 / factor) for c0, c1, c2 in (entry.model.output, entry.model.cycles))
    return replace(entry, model=InputModel(output, cycles))
