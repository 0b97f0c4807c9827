"""Compiled policies of the simulation pick the same queries as the agents' policies, on random states."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.klink.policies import Klink, MemoryMode, QueryView, make_policy, starving_query
from engine.klink.settings import POLICIES
from engine.klink.simulation.loop import update_memory_mode
from engine.klink.simulation.policies import pick
from engine.klink.simulation.run import Arrivals, SimulatedOperator, SimulatedQuery, SimulationSetting
from engine.klink.simulation.world import stages_of, world_of
from engine.klink.slack import stream_slack_ms
from engine.klink.watermarks import SweepForecast
from lab.klink.policies import COMPARED_POLICIES

pytestmark = pytest.mark.slow  # the first to call a policy compiles all of them

BINS, WINDOWS, NOW_MS = 200, 10, 1_993.0
STATES = 60


def eight_queries(name, random, **setting):
    """Eight queries of one to three operators and streams; the seventh and eighth have no windows."""
    queries, coming = [], []
    for index in range(8):
        operators = tuple(
            SimulatedOperator(float(random.uniform(0.01, 1.0)), float(random.uniform(0.1, 1.5)))
            for _ in range(random.integers(1, 4))
        )
        windows, streams = (WINDOWS if index < 6 else 0), int(random.integers(1, 4))
        empty = np.zeros((windows, streams))
        first_ms = float(random.uniform(0.0, 900.0))
        waits_ms = float(random.choice([500.0, 1_900.0, math.inf]))
        queries.append(
            SimulatedQuery(
                f"q{index}", operators, 300.0 if windows else None, first_ms, event_bytes=10.0, waits_ms=waits_ms
            )
        )
        coming.append(Arrivals(np.zeros(BINS), np.full(BINS, math.inf), empty + math.inf, empty, empty))
    return queries, world_of(
        stages_of(queries), queries, coming, SimulationSetting(name, cores=1, **setting), story=False
    )


def shuffle(world, random):
    """Another state: what waits, which watermarks are here, what their delays have been like."""
    world.marks[:] = math.inf
    for s, row in enumerate(world.stages):
        many = random.integers(0, 4)
        world.arriving[s] = 0.0
        world.arriving[s, random.integers(0, BINS, many)] = random.uniform(1, 500, many)
        world.stimulus[s] = random.uniform(0, 1_000, BINS)
        row["waiting"], row["gone"], row["oldest"] = world.arriving[s].sum(), random.uniform(0, 100), -1
        row["came"] = row["gone"] + row["waiting"]
        row["ran"] = random.uniform(0, NOW_MS)
        if not row["windows"]:
            continue
        row["swept"] = w = int(random.integers(0, 3))
        world.position[s, w] = row["gone"] + random.uniform(0, 1) * row["waiting"]
        for j in range(row["streams"]):
            world.ingested[s, j] = count = w + int(random.integers(0, 3))
            due = row["first"] + np.arange(count) * row["period"]
            world.marks[s, :count, j] = np.minimum(NOW_MS - 1, due + random.uniform(0, 500, count))
            mean, variance = random.uniform(0, 900), random.choice([0.0, random.uniform(10, 90_000)])
            world.sums[s, j] = count * mean, count * mean**2, count * (mean**2 + variance)
    world.nodes[0]["idled"] = random.choice([-1e9, NOW_MS])


def views_of(queries, world):
    """The same state as agents tell it, of those that could run."""
    views = []
    for s, (query, row) in enumerate(zip(queries, world.stages, strict=True)):
        w, streams = int(row["swept"]), range(int(row["streams"]))
        windowed = w < row["windows"]
        here = windowed and all(world.ingested[s, j] > w for j in streams)
        if row["waiting"] <= 0 and not here:
            continue
        bins = np.flatnonzero(world.arriving[s])
        pending_ms = float(max(world.marks[s, w, j] for j in streams)) if here else None
        work_ms = float(row["waiting"] * row["cost"])
        before = float(min(world.position[s, w] - row["gone"], row["waiting"]) * row["cost"]) if here else 0.0
        due_ms = float(row["first"] + w * row["period"])
        slacks = [
            stream_slack_ms(
                NOW_MS, before if here else work_ms, forecast(world, s, j, due_ms),
                float(world.marks[s, w, j]) if world.ingested[s, j] > w else None,
            )
            for j in streams
        ] if windowed else [None]  # fmt: skip
        arrived_ms = float(bins[0] * 10.0) if len(bins) else pending_ms
        views.append(
            QueryView(
                query.id, [row["waiting"], *[0.0] * (len(query.operators) - 1)],
                [operator.cost_ms for operator in query.operators],
                [operator.selectivity for operator in query.operators],
                work_ms, arrived_ms=arrived_ms, expires_ms=arrived_ms + query.waits_ms,
                stimulus_ms=float(world.stimulus[s, bins].min()) if len(bins) else due_ms,
                deadline_ms=due_ms if windowed else None, pending_ms=pending_ms, pending_work_ms=before,
                slack_ms=min(slacks) if windowed else None, ideal_ms=query.cost_ms, ran_ms=float(row["ran"]),
            )
        )  # fmt: skip
    return views


def forecast(world, s, j, due_ms):
    known = world.ingested[s, j]
    if known < 3:
        return SweepForecast(due_ms, 0.0, due_ms, due_ms, int(known))
    mean = world.sums[s, j, 0] / known
    deviation = math.sqrt(max(0.0, world.sums[s, j, 2] / known - mean**2))
    return SweepForecast(due_ms + mean, deviation, 0.0, 0.0, int(known))


def both(queries, world, choose):
    """Name picked by the compiled policy and by that of agents."""
    views = views_of(queries, world)
    expected = choose(views, NOW_MS - world.nodes[0]["idled"] >= world.saturated)
    result = pick(world, 0, NOW_MS, BINS - 1)
    return None if result < 0 else queries[result].id, None if expected is None else views[expected].id


@pytest.mark.parametrize("name", [*POLICIES, *COMPARED_POLICIES])
def test_compiled_policy_picks_like_the_agents(name):
    random, chosen = np.random.default_rng(7), set()
    for _ in range(3):
        queries, world = eight_queries(name, random)
        agents = make_policy(name)
        for _ in range(STATES):
            shuffle(world, random)
            result, expected = both(queries, world, lambda views, full, own=agents: own.pick(views, NOW_MS, full))
            assert result == expected
            chosen.add(result)
        assert name != "klink" or (world.stages["counted"] >= 8).sum() > 1, "so that the work of usual windows counts"
    assert len(chosen) > 4


def test_compiled_memory_mode_picks_like_the_agents():
    random, chosen = np.random.default_rng(8), set()
    for _ in range(3):
        queries, world = eight_queries("klink", random)
        agents = Klink()
        for _ in range(STATES):
            shuffle(world, random)
            world.nodes[0]["relieving"] = 1.0
            result, expected = both(
                queries, world, lambda views, full, own=agents: own.order(views, NOW_MS, full, 120.0)[0]
            )
            assert result == expected
            chosen.add(result)
    assert len(chosen) > 4


def test_compiled_starvation_equals_the_agents():
    random, starved = np.random.default_rng(9), 0
    for _ in range(STATES):
        queries, world = eight_queries("fcfs", random, starvation_ms=1_200.0)
        shuffle(world, random)
        agents = make_policy("fcfs")

        def choose(views, _, agents=agents):
            index = starving_query(views, NOW_MS, 1.2)
            return agents.pick(views, NOW_MS) if index is None else index

        starved += starving_query(views_of(queries, world), NOW_MS, 1.2) is not None
        result, expected = both(queries, world, choose)
        assert result == expected
    assert 5 < starved < STATES


def test_compiled_memory_mode_begins_and_ends_like_the_agents():
    random = np.random.default_rng(10)
    _, world = eight_queries("klink", random, memory_bytes=1_000.0, release_share=0.4, release_s=0.5)
    agents, seen = MemoryMode(1_000.0, 0.4, 0.5), set()
    world.stages["waiting"] = 0.0
    for step in range(400):
        held = float(random.choice([300.0, 590.0, 700.0, 1_000.0, 1_500.0]))
        world.stages[0]["waiting"] = held / 10.0
        update_memory_mode(world, 0, step * 90.0)
        seen.add((held, agents.update(held, step * 90.0)))
        assert bool(world.nodes[0]["relieving"]) == agents.active
    assert {(700.0, True), (700.0, False)} <= seen
