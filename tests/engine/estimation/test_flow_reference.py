"""Flow against a plain implementation of its definition: lists of free intervals, no numba, no clever search."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from tests.engine.samples import entry


def plain_flow(deployment: Deployment, slices: int, by_input: bool) -> list[float]:
    """Latency of every subinterval; constant capacities only."""
    width = deployment.subinterval_s / slices
    free: dict[str, list[tuple[float, float]]] = {}
    capacity = {node.id: node.capacity_cps or 0.0 for node in deployment.nodes}
    links = {(link.source, link.target): link for link in deployment.links}
    placed: dict[tuple[str, int], tuple[float, float]] = {}  # start and finish of the latest slice that put out events
    done: dict[tuple[object, ...], float] = {}
    passed: dict[tuple[object, ...], float] = {}
    read = {item.source for operator in deployment.operators for item in operator.inputs}

    def take(server: str, at: float, seconds: float) -> tuple[float, float]:
        spans = free.setdefault(server, [(0.0, math.inf)])
        kept, start, end = [], None, at
        for low, high in spans:
            begin = max(low, at)
            if (start is not None and seconds <= 0) or high <= at:
                kept.append((low, high))
                continue
            start = begin if start is None else start
            used = min(seconds, high - begin)
            seconds -= used
            end = begin + used
            kept += [span for span in ((low, begin), (end, high)) if span[1] - span[0] > 1e-12]
        free[server] = kept
        assert start is not None
        return start, end

    result = []
    for p in range(deployment.subintervals):
        events = {source.id: float(source.arrivals[p]) / slices for source in deployment.sources}
        worst = 0.0
        for part in range(slices):
            t0 = p * deployment.subinterval_s + part * width
            for j in deployment.order:
                operator = deployment.operators[j]
                events[operator.id] = sum(item.selectivity * events[item.source] for item in operator.inputs)
                for b, replica in enumerate(operator.replicas):
                    arrived = []  # piece of work, first and last arrival, cycles, events put out
                    for k, item in enumerate(operator.inputs):
                        x = events[item.source]
                        if x <= 0:
                            continue
                        amount = x * item.cycles_per_event * replica.fraction, x * item.selectivity
                        if item.source not in deployment.operator_index:
                            arrived.append(((k, 0), t0, t0 + width, *amount))
                            continue
                        producer = deployment.operators[deployment.operator_index[item.source]]
                        for a, origin in enumerate(producer.replicas):
                            begin, end = placed[producer.id, a]
                            link = links.get((origin.node, replica.node))
                            if link and link.bandwidth_bytes_s:
                                size = producer.bytes_per_event * x * origin.fraction * replica.fraction
                                name = f"{link.source}->{link.target}"
                                begin, through = take(name, begin, size / link.bandwidth_bytes_s)
                                key = (operator.id, b, k, a)
                                end = passed[key] = max(through, end, passed.get(key, 0.0))
                            delay = link.delay_s if link else 0.0
                            parts = (origin.fraction * value for value in amount)
                            arrived.append(((k, a), begin + delay, end + delay, *parts))
                    if not by_input:
                        arrived = joined(arrived)
                    outputs = []
                    for piece, first, last, work, output in arrived:
                        server, key = f"{replica.node}#{replica.core}", (operator.id, b, piece)
                        start, end = take(server, first, work / capacity[replica.node])
                        done[key] = max(end, last, done.get(key, 0.0))
                        if output > 0:
                            outputs.append((start, done[key]))
                    if outputs:
                        start, finish = min(z for z, _ in outputs), max(z for _, z in outputs)
                        placed[operator.id, b] = (start, finish)
                        if operator.id not in read:
                            worst = max(worst, finish - t0 - width)
        result.append(worst)
    return result


def joined(pieces: list[tuple[object, float, float, float, float]]) -> list[tuple[object, float, float, float, float]]:
    """All pieces as one, which arrives with the first and is complete with the last."""
    if not pieces:
        return []
    _, first, last, work, output = zip(*pieces, strict=True)
    return [((), min(first), max(last), sum(work), sum(output))]


def random_document(rng: np.random.Generator) -> dict[str, object]:
    """Up to a dozen operators with several inputs, splits, cores, links with and without limits."""
    nodes = [
        {"id": f"n{i}", "capacity_cps": float(rng.uniform(50, 150)), "cores": int(rng.integers(1, 3))} for i in range(3)
    ]
    sources = [
        {"id": f"s{i}", "arrivals": (rng.poisson(30, 12) * rng.integers(0, 3, 12)).astype(float)} for i in range(2)
    ]
    operators: list[dict[str, object]] = []
    for i in range(int(rng.integers(3, 12))):
        above = [f"s{k}" for k in range(2)] + [f"o{k}" for k in range(i)]
        inputs = [
            entry(str(rng.choice(above)), max(0.0, float(rng.uniform(-0.2, 1.2))), float(rng.choice([0.0, 0.5, 1.0])))
            for _ in range(int(rng.integers(1, 4)))
        ]
        parts: dict[str, object] = {"node": f"n{rng.integers(3)}"}
        if rng.random() < 0.3:
            parts = {"split": [{"node": "n0", "fraction": 0.25}, {"node": "n2", "fraction": 0.75}]}
        operators.append({"id": f"o{i}", "query": "q", "bytes_per_event": 5, "inputs": inputs, **parts})
    links = [
        {"from": "n0", "to": "n1", "bandwidth_bytes_s": 120.0, "delay_s": 0.1},
        {"from": "n1", "to": "n2", "delay_s": 0.3},
        {"from": "n2", "to": "n0", "bandwidth_bytes_s": 400.0},
    ]
    return {"subinterval_s": 1.0, "sources": sources, "nodes": nodes, "operators": operators, "links": links}


@pytest.mark.parametrize("by_input", [False, True], ids=["plain", "by input"])
@pytest.mark.parametrize("seed", range(25))
def test_flow_equals_its_plain_definition(seed: int, by_input: bool) -> None:
    rng = np.random.default_rng(seed)
    deployment = Deployment.parse(random_document(rng))
    slices = int(rng.integers(1, 4))
    result = flow(deployment, slices=slices, by_input=by_input)
    np.testing.assert_allclose(result.latency_s, plain_flow(deployment, slices, by_input), atol=1e-9)


@pytest.mark.parametrize("by_input", [False, True], ids=["plain", "by input"])
@pytest.mark.parametrize("seed", range(10))
def test_hops_add_up_to_the_worst_latency(seed: int, by_input: bool) -> None:
    deployment = Deployment.parse(random_document(np.random.default_rng(seed)))
    result = flow(deployment, by_input=by_input, trace=True)
    assert result.by_query["q"].max() == pytest.approx(result.wc)
    assert sum(hop.wait_s for hop in result.hops["q"]) == pytest.approx(result.wc)
    assert all(hop.wait_s >= 0 for hop in result.hops["q"])
