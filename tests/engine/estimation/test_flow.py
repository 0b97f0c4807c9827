"""Mace-Flow: where it mends the theorem, hops, splits, links, and its properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from engine.estimation.mace import mace
from tests.engine.samples import chain, deployment, entry, operator

QUIET = settings(deadline=None, max_examples=40)
ARRIVALS = st.lists(st.floats(0, 500), min_size=6, max_size=6)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_backlogs_along_a_chain_of_nodes_add_up(nodes: int) -> None:
    counterexample = Deployment.parse(chain(nodes, nodes))
    assert mace(counterexample).worst == pytest.approx(10, rel=1e-4)
    assert flow(counterexample).wc == pytest.approx(10 * nodes, rel=1e-4)


def test_flow_equals_mace_on_one_node() -> None:
    operators = [operator("f", "A", entry("s", 0.5)), operator("g", "A", entry("f"))]
    sources = [{"id": "s", "arrivals": [100, 300, 10, 10]}]
    single = Deployment.parse(deployment(operators=operators, sources=sources))
    np.testing.assert_allclose(flow(single).latency_s, mace(single).total_s, atol=1e-12)


def test_hops_add_up_to_the_worst_latency() -> None:
    operators = [
        operator("f", "A", entry("s"), query="q", bytes_per_event=2),
        operator("g", "B", entry("f"), query="q"),
    ]
    links = [{"from": "A", "to": "B", "bandwidth_bytes_s": 300.0, "delay_s": 0.25}]
    result = flow(Deployment.parse(deployment(operators=operators, links=links)), trace=True)
    hops = result.hops["q"]
    assert [hop.server for hop in hops] == ["A", "A->B", "B"]
    assert sum(hop.wait_s for hop in hops) == pytest.approx(result.by_query["q"].max())
    assert result.by_query["q"].max() == pytest.approx(result.wc)


def test_pause_in_capacity_delays_the_slice() -> None:
    document = deployment(
        sources=[{"id": "s", "arrivals": [0, 10, 0]}],
        nodes=[{"id": "A", "capacity_series_cps": [10, 0, 10]}],
        operators=[operator("f", "A", entry("s"))],
    )
    # The slice ends at 2 s; its work runs from 2 s to 3 s.
    assert flow(Deployment.parse(document)).latency_s.tolist() == [0, 1, 0]


def test_series_of_equal_capacities_equals_a_constant() -> None:
    series = [{"id": name, "capacity_series_cps": [100.0] * 4} for name in "AB"]
    varying, constant = Deployment.parse(deployment(nodes=series)), Deployment.parse(deployment())
    np.testing.assert_allclose(flow(varying, slices=3).latency_s, flow(constant, slices=3).latency_s, atol=1e-9)


def test_lasting_overload_stays_close_to_mace() -> None:
    rng = np.random.default_rng(5)
    operators = [operator(f"f{i}", "AB"[i % 2], entry(f"f{i - 1}" if i % 5 else "s")) for i in range(40)]
    sources = [{"id": "s", "arrivals": rng.poisson(20, 500)}]
    result = Deployment.parse(deployment(sources=sources, operators=operators))
    assert flow(result).wc == pytest.approx(mace(result).worst, rel=0.05)


@QUIET
@given(ARRIVALS, ARRIVALS, st.integers(1, 4))
def test_latency_is_never_negative_and_deterministic(first: list[float], second: list[float], slices: int) -> None:
    sources = [{"id": "s", "arrivals": first}, {"id": "t", "arrivals": second}]
    operators = [
        operator("f", "A", entry("s", 0.5)),
        operator("g", "B", entry("f"), entry("t", 2.0, 0.3)),
        operator("h", "A", entry("g", 1.0, 0.1)),
    ]
    built = Deployment.parse(deployment(sources=sources, operators=operators))
    result = flow(built, slices=slices)
    assert np.all(result.latency_s >= 0)
    assert np.array_equal(result.latency_s, flow(Deployment.parse(built.to_document()), slices=slices).latency_s)


@QUIET
@given(ARRIVALS, ARRIVALS, st.permutations(range(4)))
def test_listing_order_of_independent_queries_is_irrelevant(
    first: list[float], second: list[float], order: list[int]
) -> None:
    """Operators that share no server and no stream may be listed in any order."""
    sources = [{"id": "s", "arrivals": first}, {"id": "t", "arrivals": second}]
    operators = [
        operator("f", "A", entry("s", 0.5), query="a"),
        operator("g", "A", entry("f"), query="a"),
        operator("h", "B", entry("t", 0.5), query="b"),
        operator("k", "B", entry("h"), query="b"),
    ]
    base = flow(Deployment.parse(deployment(sources=sources, operators=operators)))
    mixed = flow(Deployment.parse(deployment(sources=sources, operators=[operators[i] for i in order])))
    for query in "ab":
        np.testing.assert_allclose(mixed.by_query[query], base.by_query[query], rtol=1e-9, atol=1e-9)


def held_up(selectivity: float) -> Deployment:
    """In the second second s goes to f, behind h on A until 3 s, and to g on B, which also reads f."""
    operators = [
        operator("h", "A", entry("u"), query="r"),
        operator("f", "A", entry("s"), query="q"),
        operator("g", "B", entry("s", 1.0, 0.1), entry("f", selectivity, 2.0), query="q"),
    ]
    sources = [{"id": "u", "arrivals": [300, 0, 0, 0]}, {"id": "s", "arrivals": [0, 100, 0, 0]}]
    return Deployment.parse(deployment(operators=operators, sources=sources))


def test_by_input_work_begins_when_it_arrives() -> None:
    # f is done from 3 s to 4 s; g's work for it takes 2 s. Plain Flow begins with it at 1 s, when s arrives.
    plain, result = flow(held_up(1.0)), flow(held_up(1.0), by_input=True, trace=True)
    assert plain.by_query["q"].tolist() == pytest.approx([0, 2, 0, 0])
    assert result.by_query["q"].tolist() == pytest.approx([0, 3, 0, 0])
    assert [(hop.operator, hop.wait_s) for hop in result.hops["q"]] == [
        ("f", pytest.approx(2)),
        ("g", pytest.approx(1)),
    ]


def test_by_input_an_input_without_output_delays_nothing() -> None:
    assert flow(held_up(0.0)).by_query["q"].tolist() == pytest.approx([0, 2, 0, 0])
    assert flow(held_up(0.0), by_input=True).by_query["q"].tolist() == pytest.approx([0, 0, 0, 0])


def test_by_input_parts_of_a_split_operator_are_taken_in_order_of_arrival() -> None:
    split = [{"node": "A", "fraction": 0.5}, {"node": "C", "fraction": 0.5}]
    operators = [
        operator("h", "A", entry("u")),
        {"id": "f", "split": split, "inputs": [entry("s", 1.0, 1e-9)]},
        operator("g", "B", entry("f", 1.0, 2.0)),
    ]
    document = deployment(
        operators=operators,
        sources=[{"id": "u", "arrivals": [300, 0, 0, 0]}, {"id": "s", "arrivals": [0, 100, 0, 0]}],
        nodes=[{"id": name, "capacity_cps": 100.0} for name in "ABC"],
    )
    # Half of f's output comes from A at 3 s and then takes g a second.
    assert flow(Deployment.parse(document)).latency_s[1] == pytest.approx(1)
    assert flow(Deployment.parse(document), by_input=True).latency_s[1] == pytest.approx(2)


@pytest.mark.parametrize("combine", [{"kind": "sum"}, {"kind": "max"}, {"kind": "interference", "alpha": 0.3}])
def test_by_input_equals_plain_flow_where_inputs_arrive_together(combine: dict[str, object]) -> None:
    rng = np.random.default_rng(3)
    sources = [{"id": name, "arrivals": rng.poisson(60, 20).astype(float)} for name in "st"]
    operators = [operator("f", "A", entry("s"), entry("t", 0.5, 0.7)), operator("g", "A", entry("t", 1.0, 0.2))]
    built = Deployment.parse(deployment(sources=sources, operators=operators, combine=combine))
    assert flow(built).wc > 0
    np.testing.assert_allclose(flow(built, by_input=True).latency_s, flow(built).latency_s, atol=1e-9)


def test_flow_refuses_less_than_one_slice() -> None:
    with pytest.raises(ValueError, match="slices is 0"):
        flow(Deployment.parse(deployment()), slices=0)
