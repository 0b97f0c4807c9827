"""Mace: the paper's example, capacity that varies, combinations, links, models, and its properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.errors import UnplacedError
from engine.estimation.mace import mace
from tests.engine.samples import deployment, entry, figure3, operator

QUIET = settings(deadline=None, max_examples=40)
ARRIVALS = st.lists(st.floats(0, 500), min_size=6, max_size=6)


def test_mace_of_the_papers_figure_3() -> None:
    result = mace(Deployment.parse(figure3()))
    assert result.load[1, :2].tolist() == [3, 6]
    assert result.ce[1, :2].tolist() == [1, 5]
    assert result.ce[[0, 2], 1].tolist() == [2, 3]
    assert result.total_s.tolist() == [1, 5, 3, 2, 4]
    assert result.worst == 5
    assert result.bottleneck == (1, 1)


def test_excess_drains_with_the_capacities_that_follow() -> None:
    document = deployment(
        sources=[{"id": "s", "arrivals": [10, 10, 0, 0]}],
        nodes=[{"id": "A", "capacity_series_cps": [5, 5, 2, 20]}],
        operators=[operator("f", "A", entry("s"))],
    )
    result = mace(Deployment.parse(document))
    # 5 left after p=1: one second at 5/s; 10 left after p=2: one second at 2/s, then 8 at 20/s.
    np.testing.assert_allclose(result.total_s, [1.0, 1.4, 0.4, 0.0], atol=1e-12)


def test_pause_in_capacity_delays_the_drain() -> None:
    document = deployment(
        sources=[{"id": "s", "arrivals": [10, 0, 0]}],
        nodes=[{"id": "A", "capacity_series_cps": [5, 0, 10]}],
        operators=[operator("f", "A", entry("s"))],
    )
    assert mace(Deployment.parse(document)).mace_s[0].tolist() == [1.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("combine", "expected"),
    [({"kind": "sum"}, 150.0), ({"kind": "max"}, 100.0), ({"kind": "interference", "alpha": 0.1}, 165.0)],
)
def test_loads_of_a_server_combine_as_configured(combine: dict[str, object], expected: float) -> None:
    operators = [operator("f", "A", entry("s", 0.5)), operator("g", "A", entry("f"))]
    result = mace(Deployment.parse(deployment(operators=operators, combine=combine)))
    assert result.load[0, 0] == pytest.approx(expected)


def test_model_replaces_selectivity_and_cost() -> None:
    model = {"output": [0, 0, 0.01], "cycles": [5, 1, 0.5]}
    operators = [operator("f", "A", {"from": "s", "model": model}), operator("g", "B", entry("f"))]
    result = mace(Deployment.parse(deployment(operators=operators)), materialise=True)
    assert result.series is not None
    assert result.series.output[0].tolist() == [100, 900, 0, 0]
    assert result.series.load[0].tolist() == [5 + 100 + 5000, 5 + 300 + 45000, 0, 0]


def test_linear_model_equals_a_linear_operator() -> None:
    model = {"output": [0, 0.5, 0], "cycles": [0, 1, 0]}
    plain = Deployment.parse(deployment())
    operators = [operator("f", "A", {"from": "s", "model": model}), operator("g", "B", entry("f"))]
    modelled = Deployment.parse(deployment(operators=operators))
    np.testing.assert_allclose(mace(modelled).load, mace(plain).load)
    assert mace(modelled).epsilon_s == pytest.approx(mace(plain).epsilon_s)


def test_linear_and_general_loads_agree() -> None:
    rng = np.random.default_rng(3)
    names = [f"s{i}" for i in range(7)]
    operators = [operator("f0", "A", *(entry(name, 0.5, 2.0) for name in names))]
    operators += [operator(f"f{i}", "AB"[i % 2], entry(f"f{i - 1}", 0.9, 3.0), entry(names[i])) for i in range(1, 7)]
    sources = [{"id": name, "arrivals": rng.random(40)} for name in names]
    linear = Deployment.parse(deployment(sources=sources, operators=operators))
    # Interference without a surcharge is the sum, computed operator by operator.
    combine = {"kind": "interference", "alpha": 0.0}
    general = Deployment.parse(deployment(sources=sources, operators=operators, combine=combine))
    a, b = mace(linear, materialise=True), mace(general, materialise=True)
    np.testing.assert_allclose(a.load, b.load, rtol=1e-12)
    assert a.series is not None
    assert b.series is not None
    np.testing.assert_allclose(a.series.load, b.series.load, rtol=1e-12)
    some = np.array([3, 0])
    np.testing.assert_allclose(a.loads.operator(some).output, b.series.output[some], rtol=1e-12)


def test_unplaced_operators_are_refused_by_name() -> None:
    operators = [{"id": "f", "inputs": [entry("s")]}]
    with pytest.raises(UnplacedError) as caught:
        mace(Deployment.parse(deployment(operators=operators), placed=False))
    assert caught.value.faults[0].path == "operators[0].node"


@QUIET
@given(ARRIVALS, ARRIVALS)
def test_more_load_never_lowers_mace(arrivals: list[float], more: list[float]) -> None:
    less = Deployment.parse(deployment(sources=[{"id": "s", "arrivals": arrivals}]))
    raised = less.with_arrivals({"s": np.add(arrivals, more)})
    assert np.all(mace(raised).mace_s >= mace(less).mace_s - 1e-9)


@QUIET
@given(ARRIVALS, st.lists(st.floats(1, 200), min_size=6, max_size=6), st.floats(1, 5))
def test_more_capacity_never_raises_mace(arrivals: list[float], series: list[float], factor: float) -> None:
    def with_capacity(values: list[float]) -> Deployment:
        nodes = [{"id": "A", "capacity_series_cps": values}, {"id": "B", "capacity_cps": 90.0}]
        return Deployment.parse(deployment(sources=[{"id": "s", "arrivals": arrivals}], nodes=nodes))

    less, more = mace(with_capacity(series)), mace(with_capacity([value * factor for value in series]))
    assert np.all(more.mace_s <= less.mace_s + 1e-6)


@QUIET
@given(ARRIVALS, st.floats(1e-3, 1e3))
def test_scaling_loads_and_capacities_alike_keeps_mace(arrivals: list[float], scale: float) -> None:
    def scaled(by: float) -> Deployment:
        nodes = [{"id": name, "capacity_cps": 100.0 * by} for name in "AB"]
        operators = [operator("f", "A", entry("s", 0.5, by)), operator("g", "B", entry("f", 1.0, by))]
        return Deployment.parse(
            deployment(sources=[{"id": "s", "arrivals": arrivals}], nodes=nodes, operators=operators)
        )

    np.testing.assert_allclose(mace(scaled(scale)).mace_s, mace(scaled(1.0)).mace_s, rtol=1e-9, atol=1e-9)
