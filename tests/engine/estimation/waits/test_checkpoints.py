"""Waits of checkpoints in closed form: pauses of operators, and results that are committed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.document.export import operator_document
from engine.errors import DocumentError, OptionError
from engine.estimation.estimate import estimate
from engine.simulation import SimulationSettings, simulate
from tests.engine.estimation.waits.systems import TUMBLING, deployment, operator, terms_of, waits_of

PAUSED = {"interval_s": 10.0, "pause_s": [1.0, 1.0, 1.0]}
COMMITS = {"interval_s": 10.0, "commits": True, "duration_s": [0.5, 0.5, 0.5]}
MILLION = 1e6  # cycles/s of a server


def paused(use: float = 0.0, **checkpoint: Any) -> Any:
    one = operator("a", "s", cost=use * MILLION / 100.0, checkpoint=PAUSED | checkpoint)
    return waits_of(deployment([one], s=[100.0] * 200))


@pytest.mark.parametrize("use", [0.0, 0.5, 0.8])
def test_events_wait_for_the_rest_of_a_pause_and_for_those_before_them(use: float) -> None:
    """Of an interval T, p / (1 - u) is spent behind a pause p, and half of p is waited there: p^2 / (2 T (1 - u))."""
    waits = paused(use)
    assert waits.longest_s == pytest.approx(1.0, abs=0.01)
    assert waits.mean_s == pytest.approx(1.0 / (20.0 * (1.0 - use)), rel=0.03)
    assert terms_of(waits) == [("a", "pause")]


def test_pause_of_one_checkpoint_is_over_where_the_next_operator_pauses() -> None:
    two = [operator("a", "s", checkpoint=PAUSED), operator("b", "a", checkpoint=PAUSED | {"pause_s": [0.2, 0.4, 0.6]})]
    waits = waits_of(deployment(two, s=[100.0] * 200))
    assert waits.longest_s == pytest.approx(1.0, abs=0.01)


def test_pauses_differ_between_their_least_and_most() -> None:
    waits = paused(pause_s=[0.0, 0.5, 2.0])
    assert waits.longest_s == pytest.approx(2.0, abs=0.01)
    assert waits.margin("worst").above_s == 0.0
    assert waits.bound_s == np.inf  # longer ones than were measured may come


def test_results_are_seen_once_the_next_checkpoint_is_complete() -> None:
    waits = waits_of(deployment([operator("sink", "s", checkpoint=COMMITS)], s=[100.0] * 200))
    assert waits.longest_s == pytest.approx(10.5, abs=0.02)
    assert waits.mean_s == pytest.approx(5.5, abs=0.02)
    assert float(np.quantile(waits.waits_s, 0.9)) == pytest.approx(9.5, abs=0.02)
    assert terms_of(waits) == [("sink", "commit")]


def test_commit_behind_a_window_comes_anywhere_in_its_interval_by_the_run() -> None:
    chain = [operator("w", "s", window=TUMBLING), operator("sink", "w", checkpoint=COMMITS)]
    waits = waits_of(deployment(chain, s=[100.0] * 200))
    assert waits.longest_s == pytest.approx(20.5, abs=0.05)
    assert waits.mean_s == pytest.approx(5.0 + 5.5, abs=0.1)
    mean, worst = waits.margin("mean"), waits.margin("worst")
    assert (mean.below_s, mean.above_s) == (pytest.approx(5.0, abs=0.5), pytest.approx(5.0, abs=0.5))
    assert waits.longest_s + worst.shift_s == pytest.approx(15.5, abs=0.5)
    assert (worst.below_s, worst.above_s) == (pytest.approx(5.0, abs=0.5), pytest.approx(5.0, abs=0.5))


def test_estimate_and_the_reasons_for_it_hold_the_commit() -> None:
    document = operator_document(deployment([operator("sink", "s", checkpoint=COMMITS)], s=[1.0]).operators[0])
    assert document["checkpoint"] == COMMITS
    system = deployment([operator("sink", "s", checkpoint=COMMITS)], s=[100.0] * 200)
    result = estimate(system).queries["q"]
    assert result.noise is not None
    assert result.noise.statistics["worst"].estimate_s == pytest.approx(10.5, abs=0.1)
    assert [term.kind for term in result.waits.terms] == ["commit"]


@pytest.mark.parametrize(
    ("checkpoint", "fault"),
    [
        ({"interval_s": 0}, "interval_s"),
        ({"pause_s": [3, 2, 1]}, "pause_s is [3, 2, 1]; allowed: the least, the mean and the most, in this order"),
        ({"pause_s": [1, 2]}, "pause_s"),
        ({"commits": True}, "duration_s is missing; an operator that commits needs it"),
    ],
)
def test_checkpoint_that_cannot_be_is_refused(checkpoint: dict[str, Any], fault: str) -> None:
    with pytest.raises(DocumentError, match=fault.replace("[", r"\[").split(";")[0]):
        deployment([operator("a", "s", checkpoint={"interval_s": 10.0} | checkpoint)], s=[1.0])


def test_simulation_refuses_checkpoints() -> None:
    system: Deployment = deployment([operator("a", "s", checkpoint=PAUSED)], s=[100.0] * 20)
    with pytest.raises(OptionError, match="a take part in checkpoints"):
        simulate(system, SimulationSettings(seed=1))
