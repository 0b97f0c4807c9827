"""Operators fitted from sums: errors that are as large as they say, groups by level, plans at volumes not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from engine.jarvis.fits import (
    EpochSums,
    LoadLevel,
    OperatorFit,
    WindowSums,
    fit_operator,
    group_keys,
    plan_partition,
)
from engine.jarvis.group_law import distinct
from engine.measurement.sums import CostEquations

Epoch = tuple[float, float, float]  # records, groups, CPU seconds


def summed(epochs: Sequence[Epoch], relay: float = 0.5) -> EpochSums:
    """The sums of epochs, a level each."""
    rows = [(1.0, 1.0, g / n, (g / n) ** 2, t / n, g * t / n**2, (t / n) ** 2) for n, g, t in epochs]
    records, groups, _ = (math.fsum(values) for values in zip(*epochs, strict=True))
    return EpochSums(
        CostEquations(*map(math.fsum, zip(*rows, strict=True))),
        records_processed=records,
        records_out=relay * records,
        bytes_out=40 * relay * records,
        groups_out=groups,
        levels=tuple(LoadLevel(1.0, n, g) for n, g, _ in epochs),
    )


def epochs_of(count: int, a: float, b: float, keys: float, noise: float, seed: int = 0) -> list[Epoch]:
    rng = np.random.default_rng(seed)
    epochs = []
    for n in rng.uniform(50, 4000, count).tolist():
        g = distinct(n, keys)
        epochs.append((n, g, (a * n + b * g) * (1.0 + noise * float(rng.standard_normal()))))
    return epochs


@pytest.mark.parametrize("b", [0.0, 60e-6])
def test_standard_error_equals_the_spread_of_repeated_fits(b: float) -> None:
    keys = 300.0 if b else 0.0
    result = [fit_operator(summed(epochs_of(60, 20e-6, b, keys, 0.1, seed))) for seed in range(400)]
    costs = [fit.cost_s for fit in result if fit]
    errors = [fit.standard_error for fit in result if fit and fit.standard_error is not None]
    assert len(errors) == len(costs) == 400
    assert float(np.mean(costs)) == pytest.approx(20e-6, rel=0.02)
    # the noise is relative to the whole cost of an epoch, which the weights 1 / n^2 reckon with but for its groups
    assert float(np.mean(errors)) == pytest.approx(float(np.std(costs)) / 20e-6, rel=0.35 if b else 0.1)


def test_fit_needs_three_epochs() -> None:
    assert fit_operator(summed(epochs_of(2, 1e-6, 0.0, 0.0, 0.1))) is None
    three = fit_operator(summed(epochs_of(3, 1e-6, 0.0, 0.0, 0.1)))
    assert three is not None and three.standard_error is not None


@pytest.mark.parametrize("keys", [40.0, 900.0, 50_000.0])
def test_group_keys_are_found_from_levels_of_any_volume(keys: float) -> None:
    levels = [LoadLevel(e, e * n, e * distinct(n, keys)) for e, n in ((9.0, 60.0), (2.0, 900.0), (0.5, 12_000.0))]
    assert group_keys(levels) == pytest.approx(keys, rel=1e-3)
    mixed = LoadLevel(
        *(math.fsum(getattr(level, name) for level in levels) for name in ("epochs", "records", "groups"))
    )
    assert group_keys([mixed]) != pytest.approx(keys, rel=0.1), "a mean of groups is not the groups of a mean"


def test_group_keys_are_unknown_without_collisions() -> None:
    assert group_keys([LoadLevel(10.0, 1000.0, 985.0)]) is None
    assert group_keys([]) is None and group_keys([LoadLevel(5.0, 500.0, 0.0)]) is None


def test_relay_falls_with_the_records_of_a_window() -> None:
    keys, epochs = 200.0, 10.0
    seen = WindowSums(4.0, 4 * epochs, 4 * 500.0, 4 * distinct(500.0, keys), 1.0)
    fit = fit_operator(replace(summed(epochs_of(50, 1e-6, 0.0, 0.0, 0.0)), is_windowed=True, windows=seen))
    assert fit is not None
    assert fit.relay == pytest.approx(distinct(500.0, keys) / 500.0)
    for records in (5.0, 50.0, 2000.0):
        window = records * epochs
        assert fit.relay_at(records) == pytest.approx(distinct(window, keys) / window, rel=1e-6)


def test_windowed_aggregate_without_a_whole_window_has_no_relay_and_no_plan() -> None:
    fit = fit_operator(replace(summed(epochs_of(50, 1e-6, 0.0, 0.0, 0.0)), is_windowed=True))
    assert fit is not None and fit.relay is None
    assert plan_partition([fit], bytes_in=80.0, input_records=1000.0, budget_s=1.0) is None


def known(cost_s: float, relay: float, bytes_out: float) -> OperatorFit:
    return OperatorFit(cost_s, None, None, None, relay, bytes_out, 0.0, None)


def test_plan_keeps_its_budget_and_sends_less_with_a_larger_one() -> None:
    fits = [known(1e-6, 1.0, 86.0), known(4e-6, 0.4, 86.0), known(30e-6, 0.05, 40.0)]
    sent = []
    for budget_s in (0.0, 0.001, 0.005, 0.01, 0.02, 1.0):
        result = plan_partition(fits, bytes_in=86.0, input_records=1000.0, budget_s=budget_s)
        assert result is not None and result.cpu_s <= budget_s * (1 + 1e-9)
        sent.append(result.objective)
    assert sent == sorted(sent, reverse=True) and sent[0] == 86_000.0 and sent[-1] == pytest.approx(800.0)


def test_no_plan_without_input_or_with_an_unknown_operator() -> None:
    assert plan_partition([known(1e-6, 1.0, 8.0)], bytes_in=8.0, input_records=0.0, budget_s=1.0) is None
    assert plan_partition([known(1e-6, 1.0, 8.0), None], bytes_in=8.0, input_records=9.0, budget_s=1.0) is None
    assert plan_partition([], bytes_in=8.0, input_records=9.0, budget_s=1.0) is None
