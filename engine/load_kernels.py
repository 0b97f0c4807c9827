"""Compiled loops that make the loads of operators and servers; `engine.loads` chooses among them."""

from __future__ import annotations

import numpy as np

from engine.compiled import compiled
from engine.elements import FloatArray, IntArray

__all__ = ["combined", "gains", "linear_series", "model_series", "server_gains", "times"]


@compiled
def gains(
    order: IntArray, in_start: IntArray, in_stream: IntArray, sigma: FloatArray, omega: FloatArray, sources: int
) -> tuple[FloatArray, FloatArray]:
    """Events put out and cycles spent by every operator per event of every source, each (m, sources)."""
    gain = np.zeros((len(order), sources))
    cost = np.zeros((len(order), sources))
    for j in order:
        for k in range(in_start[j], in_start[j + 1]):
            stream = in_stream[k]
            if stream < sources:
                gain[j, stream] += sigma[k]
                cost[j, stream] += omega[k]
            else:
                for s in range(sources):
                    gain[j, s] += sigma[k] * gain[stream - sources, s]
                    cost[j, s] += omega[k] * gain[stream - sources, s]
    return gain, cost


@compiled
def server_gains(
    gain: FloatArray,
    cost: FloatArray,
    rep_operator: IntArray,
    rep_server: IntArray,
    rep_fraction: FloatArray,
    hop_server: IntArray,
    hop_origin: IntArray,
    hop_bytes: FloatArray,
    servers: int,
) -> FloatArray:
    """Load of every server per event of every source, (servers, sources)."""
    sources = gain.shape[1]
    total = np.zeros((servers, sources))
    for r in range(len(rep_operator)):
        for s in range(sources):
            total[rep_server[r], s] += rep_fraction[r] * cost[rep_operator[r], s]
    for h in range(len(hop_server)):
        if hop_server[h] >= 0:
            producer = rep_operator[hop_origin[h]]
            for s in range(sources):
                total[hop_server[h], s] += hop_bytes[h] * gain[producer, s]
    return total


@compiled
def times(gains: FloatArray, arrivals: FloatArray, load: FloatArray) -> None:
    """Load (d, servers) from gains (sources, servers) and arrivals (sources, d).

    A library's matrix product starts threads for it, which costs more than the product when the machine is busy.
    """
    sources, servers = gains.shape
    even = sources - sources % 4
    for p in range(arrivals.shape[1]):
        row = load[p]
        row[:] = 0.0
        for s in range(0, even, 4):
            a, b, c, e = arrivals[s, p], arrivals[s + 1, p], arrivals[s + 2, p], arrivals[s + 3, p]
            for i in range(servers):
                row[i] += a * gains[s, i] + b * gains[s + 1, i] + (c * gains[s + 2, i] + e * gains[s + 3, i])
        for s in range(even, sources):
            a = arrivals[s, p]
            for i in range(servers):
                row[i] += a * gains[s, i]


@compiled
def linear_series(
    order: IntArray,
    in_start: IntArray,
    in_stream: IntArray,
    sigma: FloatArray,
    omega: FloatArray,
    arrivals: FloatArray,
    load: FloatArray,
    output: FloatArray,
) -> None:
    """Load and output of every operator, each (m, d); the first input writes, the others add."""
    sources, d = arrivals.shape
    for j in order:
        first = in_start[j]
        if first == in_start[j + 1]:
            load[j] = 0.0
            output[j] = 0.0
        for k in range(first, in_start[j + 1]):
            stream = in_stream[k]
            events = arrivals[stream] if stream < sources else output[stream - sources]
            if k == first:
                for p in range(d):
                    load[j, p] = omega[k] * events[p]
                    output[j, p] = sigma[k] * events[p]
            else:
                for p in range(d):
                    load[j, p] += omega[k] * events[p]
                    output[j, p] += sigma[k] * events[p]


@compiled
def model_series(
    order: IntArray,
    in_start: IntArray,
    in_stream: IntArray,
    output_of: FloatArray,
    cycles_of: FloatArray,
    arrivals: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """As `linear_series`, with polynomials; a subinterval without events makes none and costs nothing."""
    sources, d = arrivals.shape
    load = np.zeros((len(order), d))
    output = np.zeros((len(order), d))
    for j in order:
        for k in range(in_start[j], in_start[j + 1]):
            stream = in_stream[k]
            events = arrivals[stream] if stream < sources else output[stream - sources]
            a, b = output_of[k], cycles_of[k]
            for p in range(d):
                x = events[p]
                if x > 0.0:
                    output[j, p] += max(0.0, a[0] + x * (a[1] + x * a[2]))
                    load[j, p] += max(0.0, b[0] + x * (b[1] + x * b[2]))
    return load, output


@compiled
def combined(
    load: FloatArray,
    output: FloatArray,
    rep_operator: IntArray,
    rep_server: IntArray,
    rep_fraction: FloatArray,
    hop_server: IntArray,
    hop_origin: IntArray,
    hop_bytes: FloatArray,
    servers: int,
    kind: int,
    alpha: float,
) -> tuple[FloatArray, FloatArray]:
    """Loads of the servers (servers, d) by the chosen combination, and their ratio to the plain sum.

    `kind` is 0 for the sum, 1 for the largest, 2 for interference: sum * (1 + alpha * (k - 1)) with k replicas at work.
    Links always add up.
    """
    d = load.shape[1]
    total = np.zeros((servers, d))
    largest = np.zeros((servers, d))
    busy = np.zeros((servers, d))
    for r in range(len(rep_operator)):
        i = rep_server[r]
        for p in range(d):
            part = rep_fraction[r] * load[rep_operator[r], p]
            total[i, p] += part
            largest[i, p] = max(largest[i, p], part)
            busy[i, p] += 1.0 if part > 0.0 else 0.0
    factor = np.ones((servers, d))
    if kind > 0:
        for i in range(servers):
            for p in range(d):
                if total[i, p] > 0.0:
                    factor[i, p] = largest[i, p] / total[i, p] if kind == 1 else 1.0 + alpha * (busy[i, p] - 1.0)
                    total[i, p] = largest[i, p] if kind == 1 else total[i, p] * factor[i, p]
    for h in range(len(hop_server)):
        if hop_server[h] >= 0:
            for p in range(d):
                total[hop_server[h], p] += hop_bytes[h] * output[rep_operator[hop_origin[h]], p]
    return total, factor
