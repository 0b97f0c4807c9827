"""Queues of the planner: exact where theory is, and the wait behind periodic sources."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.planner.kernel import bridge_wait, queue_wait, slow_down

KLB, QNA = 0, 0


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 0.99])
def test_wait_of_poisson_arrivals_and_exponential_service_is_exact(rho: float) -> None:
    mean, variance = queue_wait(1.0, 1.0, rho, 1.0, -1.0, KLB, QNA)
    assert mean == pytest.approx(rho * rho / (1 - rho))
    assert variance == pytest.approx(rho**3 * (2 - rho) / (1 - rho) ** 2)


@pytest.mark.parametrize("rho", [0.2, 0.7, 0.95])
@pytest.mark.parametrize("cs2", [0.0, 0.3, 2.5])
def test_wait_of_poisson_arrivals_is_that_of_pollaczek_and_khinchine(rho: float, cs2: float) -> None:
    second, third = rho**2 * (1 + cs2), rho**3 * (1 + cs2) * (1 + 2 * cs2)
    mean, variance = queue_wait(1.0, 1.0, rho, cs2, -1.0, KLB, QNA)
    assert mean == pytest.approx(second / (2 * (1 - rho)))
    assert variance == pytest.approx(mean**2 + third / (3 * (1 - rho)))


def test_wait_of_steady_arrivals_and_varying_service_is_that_of_lindley() -> None:
    draw = np.random.default_rng(3)
    service = draw.gamma(2.0, 0.45, 200_000)
    wait, waits = 0.0, []
    for time in service.tolist():
        waits.append(wait)
        wait = max(wait + time - 1.0, 0.0)
    mean, variance = queue_wait(1.0, 0.0, 0.9, 0.5, -1.0, KLB, QNA)
    assert mean == pytest.approx(np.mean(waits), rel=0.1)
    assert math.sqrt(variance) == pytest.approx(np.std(waits), rel=0.1)


def test_wait_is_infinite_at_full_load_and_nothing_without_work_or_variation() -> None:
    assert queue_wait(1.0, 1.0, 1.0, 1.0, -1.0, KLB, QNA) == (math.inf, math.inf)
    assert queue_wait(1.0, 1.0, 0.0, 1.0, -1.0, KLB, QNA) == (0.0, 0.0)
    assert queue_wait(1.0, 0.0, 0.9, 0.0, -1.0, KLB, QNA) == (0.0, 0.0)


def test_wait_behind_periodic_sources_is_that_of_random_phases() -> None:
    sources, rho = 20, 0.9
    draw = np.random.default_rng(5)
    waits = []
    for _ in range(2000):
        ahead = np.sort(draw.random(sources))[::-1] * sources / rho  # services since each arrival, latest period
        waits.append(max(0.0, *(number + 1 - since for number, since in enumerate(ahead[::-1]))))
    mean, second = bridge_wait(float(sources), rho)
    assert mean == pytest.approx(np.mean(waits), rel=0.25)
    assert math.sqrt(second) == pytest.approx(math.sqrt(np.mean(np.square(waits))), rel=0.25)


def test_mean_wait_behind_periodic_sources_meets_its_expansion() -> None:
    sources = 2 * (5 / 0.5) ** 2  # where the expansion takes over
    (below, _), (above, _) = bridge_wait(sources - 1e-6, 0.5), bridge_wait(sources + 1e-6, 0.5)
    assert below == pytest.approx(above, rel=0.01)


@pytest.mark.parametrize("cores", [1, 2, 5, 9])
@pytest.mark.parametrize(("i", "u"), [(0, 0.5), (3, 0.0), (3, 1.0), (7, 0.3), (12, 0.9)])
@pytest.mark.parametrize(("j", "w"), [(0, 0.2), (2, 1.0), (8, 0.6)])
def test_slow_down_is_the_sum_over_all_numbers_of_busy_threads(cores: int, i: int, u: float, j: int, w: float) -> None:
    expected = sum(
        math.comb(i, a) * u**a * (1 - u) ** (i - a) * math.comb(j, b) * w**b * (1 - w) ** (j - b)
        * max(1, (1 + a + b) / cores)
        for a in range(i + 1)
        for b in range(j + 1)
    )  # fmt: skip
    assert slow_down(i, u, j, w, cores) == pytest.approx(expected, rel=1e-12)
