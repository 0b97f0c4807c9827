"""The closed form: as good as a linear program's optimum, of the shape that the derivation promises, and light."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from engine.errors import DocumentError
from engine.jarvis.partition import Frontier, Partition, outcome, shares

RELAYS = st.one_of(st.floats(0.01, 1), st.floats(1, 3), st.sampled_from([0.0, 1.0]))
COSTS = st.one_of(st.floats(1e-3, 5), st.just(0.0))
SIZES = st.one_of(st.floats(1, 200), st.just(0.0))


@st.composite
def problems(draw: st.DrawFn) -> dict:
    operators = draw(st.integers(1, 8))
    relay = draw(st.lists(RELAYS, min_size=operators, max_size=operators))
    cost = draw(st.lists(COSTS, min_size=operators, max_size=operators))
    sizes = draw(st.none() | st.lists(SIZES, min_size=operators + 1, max_size=operators + 1))
    return {"relay": relay, "cost": cost, "sizes": sizes}


BUDGETS = st.floats(0, 2000)
RECORDS = st.floats(1, 1e5)


def least(relay: list, cost: list, sizes: list | None, budget_s: float, n_records: float) -> float:
    """The optimum by HiGHS, of the program of the paper's section V in effective load factors."""
    volumes = np.concatenate([[1.0], np.cumprod(relay)])
    weights = volumes * (np.ones(len(volumes)) if sizes is None else sizes)
    if sizes is None:
        weights[-1] = 0.0
    scale, cpu = weights.max() or 1.0, volumes[:-1] * cost
    unit = cpu.max() or 1.0
    order = np.diff(np.eye(len(relay)), axis=0)  # e_i+1 - e_i <= 0
    rows = np.vstack([cpu / unit, order])
    bounds = np.concatenate([[budget_s / n_records / unit], np.zeros(len(order))])
    result = linprog(np.diff(weights) / scale, A_ub=rows, b_ub=bounds, bounds=(0, 1), method="highs")
    assert result.status == 0, result.message
    return float(n_records * (weights[0] + scale * result.fun))


def random_problems(count: int) -> list:
    draw = np.random.default_rng(7)
    made = []
    for _ in range(count):
        operators = int(draw.integers(1, 13))
        relay = draw.choice([0.0, 1.0, -1.0, 3.0], operators, p=[0.05, 0.15, 0.75, 0.05])
        relay = np.where(relay < 0, draw.uniform(0.05, 1, operators), relay * draw.choice([1, 0.7], operators))
        cost = np.where(draw.random(operators) < 0.1, 0.0, draw.lognormal(0, 1, operators))
        sizes = draw.uniform(10, 120, operators + 1).tolist() if draw.random() < 0.5 else None
        full = float(np.sum(np.concatenate([[1.0], np.cumprod(relay)])[:-1] * cost))
        made.append((relay.tolist(), cost.tolist(), sizes, float(draw.uniform(0, 1.2) * full * 1000), 1000.0))
    return made


@pytest.mark.parametrize(("relay", "cost", "sizes", "budget_s", "n_records"), random_problems(400))
def test_partition_equals_the_linear_program(relay, cost, sizes, budget_s, n_records):
    plan = Frontier.of(relay, cost, sizes).at(budget_s, n_records)
    scale = n_records * max(np.cumprod([1.0, *relay]) * (sizes or 1.0))
    assert plan.objective == pytest.approx(least(relay, cost, sizes, budget_s, n_records), rel=1e-9, abs=1e-9 * scale)


@given(problems(), BUDGETS, RECORDS)
@example({"relay": [1.0, 1.0], "cost": [0.0, 0.0], "sizes": [0.0, 0.0, 0.0]}, 0.0, 1.0)
@example({"relay": [0.5], "cost": [1e-310], "sizes": None}, 0.0, 1.0)
def test_outcome_equals_the_papers_products(problem, budget_s, n_records):
    plan = Frontier.of(**problem).at(budget_s, n_records)
    result = outcome(**problem, load_factors=plan.load_factors, n_records=n_records)
    volume = max(np.cumprod([1.0, *problem["relay"]]))
    assert result.objective == pytest.approx(plan.objective, rel=1e-12, abs=1e-12 * n_records * volume * 200)
    assert result.cpu_s == pytest.approx(plan.cpu_s, rel=1e-9, abs=1e-12)
    assert result.cpu_s <= budget_s * (1 + 1e-12) + 1e-300
    _check_shape(plan, len(problem["relay"]))


def _check_shape(plan: Partition, operators: int) -> None:
    assert sum(0 < load_factor < 1 for load_factor in plan.load_factors) <= 1
    assert all(1 >= above >= below >= 0 for above, below in pairwise([1.0, *plan.effective]))
    assert np.cumprod(plan.load_factors) == pytest.approx(plan.effective, abs=1e-15)
    assert (plan.load_factors, plan.effective) == shares(plan.lo, plan.hi, plan.theta, operators)


@given(problems())
def test_envelope_is_convex_decreasing_and_below_every_cut(problem):
    frontier = Frontier.of(**problem)
    corners = [(frontier.cpu_s[k], frontier.sent[k]) for k in frontier.corners]
    slopes = [(b - a) / (after - before) for (before, a), (after, b) in pairwise(corners)]
    assert corners[0][0] == 0
    assert corners[-1][1] == min(frontier.sent)
    assert all(slope < 0 for slope in slopes)
    assert all(before < after for before, after in pairwise(slopes))
    for cpu_s, sent in zip(frontier.cpu_s, frontier.sent, strict=True):
        assert frontier.at(cpu_s, 1.0).objective <= sent * (1 + 1e-9) + 1e-9


@given(problems(), BUDGETS, BUDGETS, RECORDS)
def test_more_budget_never_sends_more_and_saves_the_shadow_price(problem, budget_s, more_s, n_records):
    frontier = Frontier.of(**problem)
    plan, richer = frontier.at(budget_s, n_records), frontier.at(budget_s + more_s, n_records)
    slack = 1e-9 * n_records * max(frontier.sent)
    assert richer.objective <= plan.objective + slack
    assert richer.shadow_price <= plan.shadow_price * (1 + 1e-9)  # never does a second more save as much again
    within = (richer.lo, richer.hi) == (plan.lo, plan.hi)
    saved = plan.shadow_price * more_s
    assert plan.objective - richer.objective <= saved * (1 + 1e-9) + slack
    if within and plan.lo < plan.hi:
        assert plan.objective - richer.objective == pytest.approx(saved, rel=1e-6, abs=slack)


@given(problems(), BUDGETS, RECORDS, st.randoms(use_true_random=False))
def test_unique_plan_beats_all_other_load_factors(problem, budget_s, n_records, draw):
    plan = Frontier.of(**problem).at(budget_s, n_records)
    scale = n_records * max(np.cumprod([1.0, *problem["relay"]]) * (problem["sizes"] or 1.0))
    load_factors = [draw.choice([0.0, 1.0, draw.random()]) for _ in problem["relay"]]
    other = outcome(**problem, load_factors=load_factors, n_records=n_records)
    if other.cpu_s <= budget_s:
        assert other.objective >= plan.objective - 1e-9 * scale
        far = max(abs(a - b) for a, b in zip(np.cumprod(load_factors), plan.effective, strict=True)) > 0.01
        if plan.unique and far and other.cpu_s > 0 and min(filter(None, problem["cost"]), default=1) > 1e-2:
            assert other.objective > plan.objective


@pytest.mark.parametrize(
    ("relay", "cost", "sizes", "budget_s", "unique"),
    [
        ([0.5, 0.5], [1.0, 1.0], [8.0, 8.0, 8.0], 0.7, False),  # three plans on one line
        ([0.5, 0.5], [1.0, 1.0], [8.0, 8.0, 8.0], 1.5, True),  # the last one on it has no equal
        ([0.5, 0.5], [1.0, 2.0], [8.0, 8.0, 8.0], 1.0, True),  # nor has a corner
        ([0.5, 1.0], [1.0, 0.0], [8.0, 8.0, 8.0], 0.5, False),  # the second costs nothing and saves nothing
        ([0.0, 0.5], [1.0, 1.0], [8.0, 8.0, 8.0], 1.0, False),  # the second sees nothing
        ([0.5, 1.0], [1.0, 1.0], [8.0, 8.0, 8.0], 1.0, True),  # the second saves nothing, and there is no budget for it
        ([0.5, 1.0], [1.0, 1.0], [8.0, 8.0, 8.0], 1.1, False),  # now there is
    ],
)
def test_partition_reports_whether_it_is_unique(relay, cost, sizes, budget_s, unique):
    frontier = Frontier.of(relay, cost, sizes)
    assert frontier.at(budget_s, 1.0).unique is unique


def test_equal_plans_are_broken_by_cost_then_number_of_operators():
    plan = Frontier.of([0.5, 1.0, 1.0], [1.0, 0.0, 1.0], [8.0] * 4).at(10.0, 1.0)
    assert (plan.lo, plan.hi, plan.cpu_s, plan.load_factors) == (1, 1, 1.0, (1.0, 0.0, 0.0))


def test_pipeline_without_operators_sends_everything():
    plan = Frontier.of([], [], [80.0]).at(1.0, 100.0)
    assert (plan.load_factors, plan.objective, plan.cpu_s) == ((), 8000.0, 0.0)


def test_every_fault_is_told_at_once():
    nan = float("nan")
    with pytest.raises(DocumentError) as refused:
        Frontier.of([0.5, -1.0], [nan], ["8", 8.0, 8.0])
    assert [fault.path for fault in refused.value.faults] == ["relay[1]", "cost[0]", "sizes[0]", "cost"]
    with pytest.raises(DocumentError) as refused:
        Frontier.of([0.5], [1.0]).at(float("inf"), 0.0)
    assert [fault.path for fault in refused.value.faults] == ["budget", "n_records"]


@pytest.mark.parametrize("relay", [[1e200, 1e200], [float("nan"), 0.5], [0.5, float("inf")]])
def test_frontier_refuses_overflowing_or_nonfinite_figures(relay):
    with pytest.raises(DocumentError, match="relay"):
        Frontier.of(relay, [1.0, 1.0])


def test_outcome_refuses_load_factors_of_wrong_range_or_length():
    with pytest.raises(DocumentError) as refused:
        outcome([0.5], [1.0], None, [1.5], 100)
    assert [fault.path for fault in refused.value.faults] == ["load_factors[0]"]
    with pytest.raises(DocumentError, match="load_factors has 2 items; allowed: 1"):
        outcome([0.5], [1.0], None, [1.0, 1.0], 100)


@pytest.mark.process
def test_agent_loads_neither_scipy_nor_numba():
    asked = (
        "import sys, agent.cli, engine.jarvis.partition, engine.jarvis.baselines,"
        " engine.jarvis.refined_config, engine.jarvis.fairness;"
        " print(sorted({'scipy', 'numba', 'pandas'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert process.stdout == "[]\n", process.stderr
