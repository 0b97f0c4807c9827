"""Fine-tuning: networks learn what another engine does, groups stay together, the guard accepts nothing by chance."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from engine.costream.adaptation import (
    FineTuningSettings,
    Observation,
    fine_tune,
    judge,
    observation_errors,
    split_observations,
    tuned_card,
)
from engine.costream.batch import collate, encode
from engine.costream.network import METRICS
from engine.costream.prediction import Ensemble, ensemble_bounds
from tests.engine.costream.ensembles import make_ensemble, make_trace


def observations(ensemble: Ensemble, count: int = 60, *, factor: float = 3.0) -> list[Observation]:
    """Runs of one query on random placements, slower than predicted; back-pressure where many share a host."""
    source, trace = random.Random(3), make_trace()
    traces = [replace(trace, placement=tuple(source.randrange(4) for _ in trace.placement)) for _ in range(count)]
    batch = collate([encode(t.graph, t.hosts, t.placement) for t in traces])
    latency = np.exp(ensemble_bounds(ensemble.evaluate(batch))["Le"][0])
    return [
        Observation(
            t, (None, None, factor * float(latency[i])), max(map(t.placement.count, range(4))) > 3, True, str(i % 12)
        )
        for i, t in enumerate(traces)
    ]


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return make_ensemble(hidden=8)


def test_fine_tuned_networks_predict_what_was_observed(ensemble: Ensemble) -> None:
    seen = observations(ensemble)
    trained, held = split_observations(seen)
    settings = FineTuningSettings(epochs=60, learning_rate=3e-3)
    members = fine_tune(ensemble, [seen[i] for i in trained], settings=settings)
    tuned = Ensemble(members, ensemble.card)
    judgement = judge(ensemble, tuned, [seen[i] for i in held])
    assert judgement.accepted, judgement.reason
    assert judgement.after["Le"]["q50"] < 0.75 * judgement.before["Le"]["q50"]
    again = fine_tune(ensemble, [seen[i] for i in trained], settings=settings)
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(members, again, strict=True) for name in a)
    untouched = {name for name in members[0] if np.array_equal(members[0][name], ensemble.members[0][name])}
    assert untouched == {name for name in members[0] if name.startswith(("head.T.", "head.Lp."))}  # not observed


def test_guard_refuses_what_is_no_better_and_too_few_executions(ensemble: Ensemble) -> None:
    seen = observations(ensemble, 20, factor=1.0)
    same = judge(ensemble, ensemble, seen)
    assert not same.accepted and "98% of it or less is needed" in same.reason
    assert "10 are needed" in judge(ensemble, ensemble, seen[:5]).reason


def test_guard_refuses_a_model_that_no_longer_knows_overload(ensemble: Ensemble) -> None:
    seen = observations(ensemble)
    settings = FineTuningSettings(epochs=60, learning_rate=3e-3)
    tuned = Ensemble(fine_tune(ensemble, seen, settings=settings), ensemble.card)
    votes = ensemble.evaluate(collate([encode(o.trace.graph, o.trace.hosts, o.trace.placement) for o in seen]))
    pressed = (votes[:, :, METRICS.index("RO")] > 0).sum(axis=0) > 1
    simulated = [replace(o, backpressure=bool(p)) for o, p in zip(seen, pressed, strict=True)]  # as it was before
    assert judge(ensemble, tuned, seen).accepted
    judgement = judge(ensemble, tuned, seen, simulated)
    assert not judgement.accepted and "votes on back-pressure are" in judgement.reason


def test_intervals_get_narrower_only_by_many_executions_of_several_queries(ensemble: Ensemble) -> None:
    wide = Ensemble(ensemble.members, replace(ensemble.card, interval_scale={"T": 9.0, "Lp": 9.0, "Le": 9.0}))
    right = observations(wide, 40, factor=1.0)
    alone = [replace(o, group="one") for o in right]
    slower = observations(wide, 40, factor=1e6)

    def scale(held: list[Observation], simulated: list[Observation]) -> float:
        return tuned_card(wide.card, "lab-1", 25, wide, held, simulated).interval_scale["Le"]

    assert scale(right, []) < 9.0 and scale(right, slower) < 9.0
    assert scale(right[:29], []) == scale(alone, []) == 9.0
    assert scale(slower[:10], []) > 9.0 and scale(right[:10], slower) > 9.0


def test_a_group_is_never_in_training_and_held_out_at_once(ensemble: Ensemble) -> None:
    seen = observations(ensemble, 40)
    trained, held = split_observations(seen)
    assert sorted((*trained, *held)) == list(range(40)) and 10 <= len(held) <= 20
    assert not {seen[i].group for i in trained} & {seen[i].group for i in held}
    alone = [replace(observation, group="one") for observation in seen]
    assert split_observations(alone) == (list(range(40)), [])


def test_card_says_how_many_executions_it_was_tuned_on(ensemble: Ensemble) -> None:
    seen = observations(ensemble, 40)
    card = tuned_card(ensemble.card, "lab-1", 25, ensemble, seen)
    assert (card.version, card.observed) == ("lab-1", 25)
    assert card.errors["observed"] == observation_errors(ensemble, seen)
    assert card.interval_scale["Le"] > ensemble.card.interval_scale["Le"] and card.interval_scale["T"] == 1.0
