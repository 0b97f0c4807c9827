"""Section VII-A at the trigger interval, and the waits of epoch and trigger against a simulation of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.estimation.mace import mace
from engine.measurement.microbatch import StageTiming, batch_upper_s, batch_work_s, live_latency, live_waits
from tests.engine.samples import figure3


def test_trigger_of_one_subinterval_gives_the_papers_bound() -> None:
    result = mace(Deployment.parse(figure3()))
    w = result.deployment.subinterval_s
    every = dict.fromkeys(range(len(result.deployment.servers)), w)
    assert batch_upper_s(result, every) == pytest.approx(result.loose_upper_s)
    assert batch_upper_s(result, {}) == pytest.approx(result.upper_s)


def test_work_of_figure_3_is_the_load_of_the_interval() -> None:
    """N2 has L_2,1 = 3 and L_2,2 = 6 cycles at C = 1 cycle/s, w = 2 s."""
    result = mace(Deployment.parse(figure3()))
    assert batch_work_s(result, [1], 2.0)[:2] == pytest.approx([3.0, 6.0])
    assert batch_work_s(result, [1], 4.0)[:2] == pytest.approx([3.0, 9.0])
    assert batch_work_s(result, [1], 1.0)[:2] == pytest.approx([1.5, 3.0])
    assert batch_work_s(result, [1], 3.0)[1] == pytest.approx(6.0 + 0.5 * 3.0)
    assert batch_work_s(result, [], 2.0) == pytest.approx(np.zeros(result.deployment.subintervals))


def test_a_longer_trigger_never_lowers_the_bound() -> None:
    result = mace(Deployment.parse(figure3()))
    bounds = [batch_upper_s(result, {1: width}) for width in (2.0, 3.0, 4.0, 7.0)]
    assert all((later >= earlier - 1e-12).all() for earlier, later in pairwise(bounds))
    assert (bounds[0] >= result.total_s).all()


@pytest.mark.parametrize("statistic", ["mean", "q0.9", "worst"])
@pytest.mark.parametrize(("trigger_s", "batch_s"), [(1.0, 0.3), (2.0, 0.9), (0.5, 0.8)])
def test_waits_equal_those_of_simulated_epochs_and_batches(statistic: str, trigger_s: float, batch_s: float) -> None:
    """100,000 marks at random phases; a batch that takes longer than the trigger is followed by the next at once."""
    rng = np.random.default_rng(11)
    epoch_s, interval = 1.0, max(trigger_s, batch_s)
    sent = rng.uniform(0.0, 5000.0, 100_000)
    taken = np.ceil(sent / interval) * interval
    latency = epoch_s + taken - sent + batch_s
    simulated = {"mean": latency.mean(), "q0.9": np.quantile(latency, 0.9), "worst": latency.max()}[statistic]
    result = live_latency(0.0, np.zeros(8), StageTiming(epoch_s, trigger_s, (batch_s,) * 9), statistic=statistic)
    assert result.total_s == pytest.approx(simulated, rel=0.01)
    assert result.total_s == pytest.approx(result.processing_s + result.added_s)
    middle = live_latency(0.0, np.zeros(8), StageTiming(epoch_s, trigger_s, (batch_s,) * 9), statistic="mean")
    inside = np.abs(latency - middle.total_s) <= middle.margin_s
    assert inside.mean() >= 0.9


def test_extra_work_lengthens_a_batch() -> None:
    timing = StageTiming(1.0, 2.0, (0.6, 0.6, 0.6))
    work = np.array([0.1, 0.1, 0.1, 0.5])
    result = live_latency(0.2, work, timing, statistic="worst", mean_work_s=0.2)
    assert (result.overhead_s, result.work_s) == (pytest.approx(0.4), pytest.approx(0.5))
    assert result.total_s == pytest.approx(0.2 + 1.0 + 2.0 + 0.9)
    assert result.to_dict()["total_s"] == pytest.approx(result.total_s)


def test_batch_length_comes_from_the_model_where_none_was_measured() -> None:
    result = live_latency(0.0, np.array([0.25, 0.75]), StageTiming(1.0, 2.0), statistic="mean")
    assert (result.overhead_s, result.work_s, result.trigger_s) == (0.0, 0.5, 1.0)


@pytest.mark.parametrize("statistic", ["mean", "q0.5", "q0.99", "worst"])
def test_parts_add_up_to_the_waits(statistic: str) -> None:
    work, timing = np.array([0.1, 0.4, 0.2, 0.9]), StageTiming(1.0, 2.0, (0.6, 0.8, 0.7))
    waits, parts = live_waits(work, timing), live_latency(0.3, work, timing, statistic=statistic)
    assert parts.total_s == pytest.approx(0.3 + waits.own_s(statistic))
    assert [term.kind for term in waits.terms] == ["epoch", "trigger", "batch"]
    assert min(parts.epoch_s, parts.trigger_s, parts.overhead_s, parts.work_s) >= 0.0
