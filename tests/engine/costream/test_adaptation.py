"""Fit to executions: costs of another engine are found, groups stay together, the guard accepts nothing by chance."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from engine.costream.adaptation import (
    Observation,
    fit_executions,
    judge,
    observation_errors,
    of_one_processor,
    recalibrated,
    split_observations,
)
from engine.costream.intervals import LEVEL
from engine.costream.prediction import Ensemble
from engine.query_graph.fluid import fluid_of
from tests.engine.costream.anchors import anchor_ensemble
from tests.engine.costream.ensembles import make_trace


def observations(count: int = 60, *, slower: float = 1.0, longer: float = 1.0) -> list[Observation]:
    """Runs of one query on random placements, of an engine whose operators cost `slower` times as much; latencies are
    `longer` than the fluid has them then."""
    source, trace = random.Random(3), make_trace()
    trace = replace(trace, hosts=tuple(replace(host, cpu_percent=host.cpu_percent / 8) for host in trace.hosts))
    factors = dict.fromkeys(("source", "filter", "join", "agg", "sink"), slower)
    runs = []
    for i in range(count):
        placement = tuple(source.randrange(4) for _ in trace.placement)
        fluid = fluid_of(trace.graph, trace.hosts, np.array([placement]), factors)
        latency_s = longer * float(np.exp(fluid.costs[0, 2]))
        pressed = bool(fluid.backpressure[0] > 0)
        runs.append(
            Observation(replace(trace, placement=placement), (None, None, latency_s), pressed, True, str(i % 12))
        )
    return runs


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    """The fluid alone, votes included."""
    ensemble = anchor_ensemble()
    return Ensemble(ensemble.arrays | {"shrinkage": np.array([-2.0, -1.0], np.float32)}, ensemble.card)


def test_costs_of_another_engine_are_found(ensemble: Ensemble) -> None:
    seen = observations(slower=4.0)
    trained, held = split_observations(seen)
    tuned = fit_executions(ensemble, [seen[i] for i in trained])
    judgement = judge(ensemble, tuned, [seen[i] for i in held])
    assert judgement.accepted, judgement.reason
    assert judgement.after["score"] < 0.5 * judgement.before["score"]
    assert tuned.factors["source"] > 2.0
    again = fit_executions(ensemble, [seen[i] for i in trained])
    assert all(np.array_equal(array, again.arrays[name]) for name, array in tuned.arrays.items())


def test_two_hosts_alike_are_two(ensemble: Ensemble) -> None:
    trace = make_trace()
    alike = replace(trace, hosts=(trace.hosts[0],) * len(trace.hosts))
    fluid = fluid_of(alike.graph, alike.hosts, np.array([alike.placement]))
    costs = (float(np.exp(fluid.costs[0, 0])), float(np.exp(fluid.costs[0, 1])), float(np.exp(fluid.costs[0, 2])))
    errors = observation_errors(ensemble, [Observation(alike, costs, None, None)])
    assert len(set(alike.placement)) > 1
    assert errors["Le"]["q50"] == pytest.approx(1.0, rel=1e-6) == errors["Lp"]["q50"]


def test_what_was_seen_on_one_stream_processor_says_nothing_of_another(ensemble: Ensemble) -> None:
    """Else costs fitted on the cost table would lower those that another engine's record has already lowered."""
    seen = observations(slower=0.05, longer=0.5)
    tuned, trace = fit_executions(ensemble, seen), make_trace()
    elsewhere = replace(trace.graph, processor="flink")
    before, after = (e.predict(elsewhere, trace.hosts, [trace.placement]) for e in (ensemble, tuned))
    assert all(np.array_equal(before.costs[m].mean, after.costs[m].mean) for m in before.costs)

    other = [replace(seen[0], trace=replace(trace, graph=elsewhere))]
    assert of_one_processor([*other, *seen]) == seen
    with pytest.raises(ValueError, match="2 stream processors"):
        fit_executions(ensemble, [*other, *seen])
    again = fit_executions(tuned, other)
    assert again.card.processor == "flink"
    assert again.factors["filter"] > 0.2, "begins at the costs of that processor, not at those of the other"


def test_what_costs_do_not_explain_is_an_offset_of_what_was_observed(ensemble: Ensemble) -> None:
    seen = observations(longer=1.2)
    tuned = fit_executions(ensemble, seen)
    assert observation_errors(tuned, seen)["Le"]["q50"] < 1.1 < observation_errors(ensemble, seen)["Le"]["q50"]
    assert not tuned.arrays["offsets"][:, :2].any()  # neither throughput nor processing latency was observed


def test_guard_refuses_what_is_no_better_and_too_few_executions(ensemble: Ensemble) -> None:
    seen = observations(20, longer=1.1)
    same = judge(ensemble, ensemble, seen)
    assert not same.accepted and "98% of it or less is needed" in same.reason
    assert "10 are needed" in judge(ensemble, ensemble, seen[:5]).reason


def test_guard_refuses_a_model_that_no_longer_knows_overload(ensemble: Ensemble) -> None:
    idle, simulated = observations(slower=0.01), observations()
    tuned = Ensemble(ensemble.arrays | {"factors": np.full(5, 0.01, np.float32)}, ensemble.card)
    assert judge(ensemble, tuned, idle).accepted
    assert any(o.backpressure for o in simulated)
    judgement = judge(ensemble, tuned, idle, simulated)
    assert not judgement.accepted and "votes on back-pressure are" in judgement.reason


def test_intervals_get_narrower_only_by_many_executions_of_several_queries(ensemble: Ensemble) -> None:
    right = observations(40)
    alone = [replace(o, group="one") for o in right]
    slower = observations(40, longer=1e6)

    def end(held: list[Observation], simulated: list[Observation]) -> float:
        return float(recalibrated(ensemble, "lab-1", 25, held, simulated).arrays["bounds"][2, 0, 1])

    assert end(right, []) < 0.2 and end(right, slower) < 0.2
    assert end(right[:29], []) == end(alone, []) == pytest.approx(0.2)
    assert end(slower[:10], []) > 0.2 and end(right[:10], slower) > 0.2


def test_recalibrated_intervals_hold_executions_that_are_off(ensemble: Ensemble) -> None:
    off = [
        replace(o, costs=(None, None, (o.costs[2] or 0.0) * np.exp(0.02 * i))) for i, o in enumerate(observations(40))
    ]
    tuned = recalibrated(ensemble, "lab-1", 25, off)
    held = 0
    for o in off:
        cost = tuned.predict(o.trace.graph, o.trace.hosts, [o.trace.placement]).costs["Le"]
        held += bool(cost.low[0] <= (o.costs[2] or 0.0) <= cost.high[0])
    assert held / len(off) == pytest.approx(LEVEL, abs=0.05)


def test_a_group_is_never_in_training_and_held_out_at_once() -> None:
    seen = observations(40)
    trained, held = split_observations(seen)
    assert sorted((*trained, *held)) == list(range(40)) and 10 <= len(held) <= 20
    assert not {seen[i].group for i in trained} & {seen[i].group for i in held}
    alone = [replace(observation, group="one") for observation in seen]
    assert split_observations(alone) == (list(range(40)), [])


def test_card_says_how_many_executions_it_was_fitted_to(ensemble: Ensemble) -> None:
    seen = observations(40)
    card = recalibrated(ensemble, "lab-1", 25, seen).card
    assert (card.version, card.observed, card.calibrated_here) == ("lab-1", 25, 40)
    assert card.errors["observed"] == observation_errors(ensemble, seen)
