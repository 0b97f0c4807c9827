"""Pools: the bench, the smallest pool, the cheapest mix, the front, survival and growth, against brute force."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arrays import event_mean
from engine.document.deployment import Deployment
from engine.errors import DocumentError, InfeasibleError
from engine.estimation.estimate import estimate
from engine.estimation.flow import flow
from engine.estimation.loads import sink_events
from engine.estimation.mace import mace
from engine.estimation.noise.realisation import realise
from engine.latency_state import ENDLESS_S
from engine.placement.greedy import place
from engine.provisioning.changes import apply_changes
from engine.provisioning.combinations import MixCombinations, read_types
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.nodes import lose_nodes, pool_of
from engine.provisioning.pool.curve import PoolCurve
from engine.provisioning.pool.proof import Prover
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import mace_by_query
from tests.engine.provisioning.stories import bursty, document, keeps, placements, ranked, steady, worst

SEEDS = range(6)


def parsed(seed: int, **more: Any) -> Deployment:
    return Deployment.parse(steady(bursty(seed, **more)))


def chained(seed: int, bytes_per_event: float = 0.0) -> Deployment:
    """Two queries of three operators in a chain, on three nodes with links."""
    rng = np.random.default_rng(seed)
    base = bursty(seed, operators=2, nodes=3, bound_s=4.0)
    operators = []
    for q, k in itertools.product(range(2), range(3)):
        above = f"s{q}" if k == 0 else f"f{q}{k - 1}"
        cost = float(rng.uniform(0.3, 1.2))
        inputs = [{"from": above, "selectivity": float(rng.uniform(0.5, 1)), "cycles_per_event": cost}]
        operators.append({"id": f"f{q}{k}", "query": f"q{q}", "node": f"n{(q + k) % 3}", "inputs": inputs})
        operators[-1]["bytes_per_event"] = bytes_per_event
    base["operators"] = operators
    if bytes_per_event:
        pairs = itertools.permutations(("n0", "n1", "n2"), 2)
        base["links"] = [{"from": a, "to": b, "bandwidth_bytes_s": 5.0} for a, b in pairs]
    return Deployment.parse(base)


class TestPoolCurve:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_curve_is_no_worse_than_any_placement(self, seed: int) -> None:
        deployment = parsed(seed, operators=4)
        for result in PoolCurve(deployment).sweep(1.0, [1, 2, 3], rounds=10):
            pool = pool_of(deployment, result.nodes).deployment
            left = lose_nodes(pool, {node.id for node in pool.nodes[result.nodes :]})
            assert result.worst_s == pytest.approx(worst(left), rel=1e-9, abs=1e-9)

    @pytest.mark.parametrize("bytes_per_event", [0.0, 3.0])
    @pytest.mark.parametrize("seed", SEEDS)
    def test_curve_values_equal_the_estimate(self, seed: int, bytes_per_event: float) -> None:
        """Links and upstream operators count as they do in a full estimate, with all nodes up and with each lost."""
        deployment = chained(seed, bytes_per_event)
        bench = PoolCurve(deployment)
        result = bench.sweep(1.0, [3])[0]
        problem = bench._problems[None][1]
        whole = problem.deployment.with_placement(problem.placement(result.assignment))
        assert result.worst_s == pytest.approx(ranked(whole), rel=1e-9, abs=1e-9)
        reports = estimate(whole, intervals=False).queries
        caught_up = {query: seconds for query, seconds in result.queries.items() if query not in result.endless}
        assert caught_up == pytest.approx({query: reports[query].mace_s for query in caught_up}, abs=1e-9)
        assert all(result.queries[query] > ENDLESS_S for query in result.endless)
        assert result.lost is not None
        assert result.lost.worst_s >= result.worst_s - 1e-9

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10_000), st.floats(0.3, 2.0))
    def test_larger_pools_are_never_worse(self, seed: int, factor: float) -> None:
        bench = PoolCurve(parsed(seed))
        for position in (factor, factor * 1.2, factor):
            sizes = bench.sweep(position, range(1, 7))
            assert all(b.rank <= a.rank for a, b in itertools.pairwise(sizes))
            losses = [size.lost.rank for size in sizes if size.lost]
            assert all(b <= a for a, b in itertools.pairwise(losses))

    def test_repeated_sizes_never_worsen_the_curve(self) -> None:
        deployment = parsed(3, operators=8)
        bench = PoolCurve(deployment)
        first = [size.worst_s for size in bench.sweep(1.0, range(1, 5), rounds=0)]
        bench.sweep(1.4, range(1, 5), rounds=5)
        again = [size.worst_s for size in bench.sweep(1.0, range(1, 5), rounds=0)]
        assert all(b <= a for a, b in zip(first, again, strict=True))

    def test_sizes_asked_one_at_a_time_equal_a_sweep(self) -> None:
        bench = PoolCurve(parsed(4, operators=8))
        result = [bench.sweep(1.0, [size], rounds=0)[0].worst_s for size in range(1, 6)]
        assert result == sorted(result, reverse=True)

    def test_loss_of_a_node_equals_filling_the_rest_again(self) -> None:
        deployment = parsed(2, operators=4, nodes=3)
        bench = PoolCurve(deployment)
        result = bench.sweep(1.0, [3], rounds=10)[0]
        problem = bench._problems[None][1]
        whole = problem.deployment.with_placement(problem.placement(result.assignment))
        after = []
        for node in whole.nodes:
            left = lose_nodes(whole, {node.id})
            after.append(mace(left.with_placement(place(left))).worst)
        assert result.lost is not None
        assert result.lost.worst_s == pytest.approx(max(after), rel=1e-9)

    def test_curve_handles_loads_by_source(self) -> None:
        result = PoolCurve(parsed(1)).sweep({"s0": 3.0}, [2])[0]
        more = apply_changes(parsed(1), [{"scale_source": "s0", "by": 3.0}])
        assert result.worst_s == PoolCurve(more).sweep(1.0, [2])[0].worst_s

    def test_curve_handles_other_statistics_than_the_worst_case(self) -> None:
        base = bursty(1)
        for objective in base["objectives"]:
            objective |= {"statistic": "mean", "bound_s": 0.01}
        deployment = Deployment.parse(base)
        bench = PoolCurve(deployment)
        result = bench.sweep(1.0, [2])[0]
        problem = bench._problems[None][1]
        whole = problem.deployment.with_placement(problem.placement(result.assignment))
        series, weights = mace_by_query(mace(whole)), sink_events(whole)
        expected = {query: event_mean(series[query], weights[query]) for query in series if series[query].max() > 0.01}
        assert expected
        assert {query: result.queries[query] for query in expected} == pytest.approx(expected, abs=1e-9)

    def test_curve_handles_varying_capacity(self) -> None:
        base = bursty(1)
        base["nodes"][0] = {"id": "n0", "capacity_series_cps": [10.0, 4.0] * 6}
        bench = PoolCurve(Deployment.parse(base))
        result = bench.sweep(1.0, [2], like="n1")[0]
        problem = bench._problems["n1"][1]
        whole = problem.deployment.with_placement(problem.placement(result.assignment))
        assert result.worst_s == pytest.approx(mace(whole).worst, abs=1e-9)

    def test_pool_size_that_breaks_a_constraint_is_reported_as_stuck(self) -> None:
        pinned = Deployment.parse(bursty(1) | {"constraints": {"apart": [["f0", "f1", "f2"]]}})
        two, three = PoolCurve(pinned).sweep(1.0, [2, 3])
        assert two.stuck is not None
        assert two.to_dict()["worst_s"] is None
        assert three.stuck is None
        assert three.lost is not None
        assert three.lost.stuck is not None
        assert PoolCurve(pinned).sweep(1.0, []) == []
        with pytest.raises(DocumentError, match="no node"):
            PoolCurve(pinned).sweep(1.0, [2], like="n9")
        nothing = apply_changes(parsed(1), [{"resize_pool": "p", "nodes": 0}])
        with pytest.raises(DocumentError, match="like is missing"):
            PoolCurve(nothing).sweep(1.0, [2])

    def test_curve_without_queries_prices_or_objectives(self) -> None:
        base = document([[4.0, 30.0]], 1) | {"objectives": []}
        base["nodes"][0]["price_per_hour"] = None
        del base["operators"][0]["query"]
        size = PoolCurve(Deployment.parse(base)).sweep(1.0, [1])[0]
        assert (size.worst_s, size.over_bound, size.cost_per_hour, size.queries) == (3 * ENDLESS_S + 2, 0.0, None, {})
        assert size.to_dict()["worst_s"] is None, "30 cycles come in the last second of two, of which 10 are processed"


def smallest(
    deployment: Deployment, most: int, kept: Callable[[Deployment], bool] = lambda left: bool(list(holding(left)))
) -> int | None:
    """By brute force: the first size, from the present one, with a placement that keeps every objective."""
    pool = pool_of(deployment, most).deployment
    for size in range(len(deployment.nodes), most + 1):
        if kept(lose_nodes(pool, {node.id for node in pool.nodes[size:]})):
            return size
    return None


def holding(deployment: Deployment) -> Iterator[Deployment]:
    """Placements with which the realised interval of every objective is within its bound."""
    bounds = {entry.query: entry.bound_s for entry in deployment.objectives}
    for placed in placements(deployment):
        if mace(placed).worst > max(bounds.values()):
            continue
        realised = realise(placed, flow(placed, by_input=True))
        if all(realised[query].statistics["worst"].high_s <= bound for query, bound in bounds.items()):
            yield placed


class TestSmallestPool:
    @pytest.mark.parametrize("bound_s", [0.35, 0.85])
    @pytest.mark.parametrize("seed", SEEDS)
    def test_smallest_pool_equals_brute_force(self, seed: int, bound_s: float) -> None:
        deployment = parsed(seed, operators=4, nodes=1, bound_s=bound_s)
        result = smallest_pool(deployment, PoolQuestion(rounds=20), most=4)
        assert result.nodes == smallest(deployment, 4)
        if result.nodes is not None:
            assert result.confirmed
            assert (result.proof is None) == (result.nodes == 1)

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_smallest_pool_survives_the_loss_of_any_node(self, seed: int) -> None:
        deployment = parsed(seed, operators=3, d=6, nodes=1, bound_s=0.85)
        result = smallest_pool(deployment, PoolQuestion(rounds=20, lose=1), most=4)
        exact = smallest(deployment, 4, lambda left: keeps(left, 0.85, lost=True))
        assert exact is not None
        assert result.nodes is not None
        # What is moved after a loss is placed one by one, which may take a node more than the best there is.
        assert exact <= result.nodes <= exact + 1

    def test_proof_names_the_objective_broken_with_one_node_less(self) -> None:
        result = smallest_pool(parsed(1, nodes=1, bound_s=0.85), most=8)
        assert result.proof is not None
        assert result.nodes is not None
        assert result.proof.nodes == result.nodes - 1
        miss = result.proof.counterexample
        assert miss is not None
        assert miss.value_s > miss.bound_s
        assert result.to_dict()["proof"]["counterexample"]["node"] is not None

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10_000), st.floats(1.01, 2.0))
    def test_more_load_never_needs_a_smaller_pool(self, seed: int, factor: float) -> None:
        """Among sizes that a bound does not rule out, a search may err; the bounds themselves never do."""
        deployment = parsed(seed, operators=4, nodes=1, bound_s=0.85)
        little = smallest_pool(deployment, PoolQuestion(rounds=20), most=5).nodes
        more = smallest_pool(deployment, PoolQuestion(rounds=20, factor=factor), most=5).nodes
        assert more is None or (little is not None and little <= more)

    def test_operator_too_large_for_any_node_refutes_every_pool(self) -> None:
        deployment = Deployment.parse(document([[5.0, 35.0, 0.0], [1.0, 1.0, 1.0]], 1))
        result = smallest_pool(deployment, most=6)
        assert result.nodes is None
        assert result.proof is not None
        assert result.proof.refutation is not None
        assert (result.proof.refutation.kind, result.proof.refutation.operator) == ("largest operator", "f0")
        assert "no number of such nodes helps" in result.message
        larger = smallest_pool(deployment, most=6, like={"capacity_cps": 40.0})
        assert larger.added == 1

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 10_000), st.integers(1, 3), st.integers(0, 1))
    def test_pool_refuted_by_a_bound_has_no_placement(self, seed: int, nodes: int, lost: int) -> None:
        deployment = parsed(seed, operators=3, d=6, nodes=nodes, bound_s=0.85)
        prover = Prover(deployment, PoolQuestion(mace_every=1, lose=lost, rounds=0, seed=0, split=False))
        if prover.refutation(nodes) is not None:
            assert not keeps(deployment, 0.85, lost=bool(lost))

    def test_pool_can_replace_the_present_nodes(self) -> None:
        deployment = parsed(1, nodes=2, bound_s=0.85)
        result = smallest_pool(
            deployment, PoolQuestion(keep_present=False), like={"capacity_cps": 20.0, "price_per_hour": 3.0}, most=6
        )
        assert result.present == 0
        assert result.best is not None
        assert result.best.cost_per_hour == 3.0 * (result.nodes or 0)

    def test_headroom_needs_a_larger_pool(self) -> None:
        deployment = parsed(5, nodes=1, bound_s=1.2)
        plain, spare = (
            smallest_pool(deployment, PoolQuestion(rounds=10, headroom_s=s), most=8).nodes for s in (0.0, 0.3)
        )
        assert plain is not None
        assert spare is not None
        assert plain < spare

    def test_question_without_objective_or_with_wrong_parameters_is_refused(self) -> None:
        base = bursty(1) | {"objectives": []}
        with pytest.raises(DocumentError, match="there is no objective"):
            smallest_pool(Deployment.parse(base))
        with pytest.raises(DocumentError, match="5 faults"):
            smallest_pool(parsed(1), PoolQuestion(headroom_s=9.0))
        with pytest.raises(DocumentError, match="headroom_share is 1"):
            smallest_pool(parsed(1), PoolQuestion(headroom_share=1.0))
        with pytest.raises(DocumentError, match="lose is 2"):
            smallest_pool(parsed(1), PoolQuestion(lose=2))

    def test_exception_from_progress_ends_the_search(self) -> None:
        shares: list[float] = []

        def stop(share: float, step: str) -> None:
            shares.append(share)
            if "Confirming" in step:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            smallest_pool(parsed(1), progress=stop)
        assert shares == sorted(shares)


TYPES = [
    {"name": "small", "capacity_cps": 6.0, "price_per_hour": 1.0, "max": 3},
    {"name": "large", "capacity_cps": 14.0, "price_per_hour": 1.9, "max": 2},
]


def mixed(deployment: Deployment, counts: tuple[int, ...]) -> Deployment:
    """The deployment on nodes of a mix only."""
    bare = apply_changes(deployment, [{"resize_pool": "p", "nodes": 0}])
    changes = [
        {"add_nodes": count, "capacity_cps": kind["capacity_cps"]}
        for count, kind in zip(counts, TYPES, strict=True)
        if count
    ]
    return apply_changes(bare, changes)


def cheapest(deployment: Deployment, bound_s: float) -> float | None:
    """By brute force: the least cost at which some placement keeps every objective."""
    costs = [
        counts[0] * 1.0 + counts[1] * 1.9
        for counts in itertools.product(range(4), range(3))
        if any(counts) and keeps(mixed(deployment, counts), bound_s)
    ]
    return min(costs, default=None)


class TestCheapestMix:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_cheapest_mix_equals_brute_force(self, seed: int) -> None:
        deployment = parsed(seed, operators=3, d=8, bound_s=0.8)
        result = cheapest_mix(deployment, TYPES, PoolQuestion(keep_present=False, rounds=20))
        assert result.cost_per_hour == pytest.approx(cheapest(deployment, 0.8))
        if result.cost_per_hour is not None:
            assert result.least_cost_per_hour is not None
            assert result.least_cost_per_hour <= result.cost_per_hour
            assert all(proof.refutation or proof.counterexample or proof.stuck for proof in result.proofs)

    def test_combinations_come_once_in_order_of_cost(self) -> None:
        mixes = MixCombinations(parsed(1), read_types(TYPES), PoolQuestion(rounds=0, split=False))
        listed = list(mixes.by_cost())
        assert sorted(counts for _, counts in listed) == sorted(itertools.product(range(4), range(3)))
        assert [cost for cost, _ in listed] == sorted(cost for cost, _ in listed)

    def test_sufficient_present_nodes_need_no_mix(self) -> None:
        result = cheapest_mix(parsed(1, nodes=6, bound_s=5.0), TYPES)
        assert (result.cost_per_hour, result.proven, sum((result.counts or {}).values())) == (0.0, True, 0)

    def test_exhausted_search_has_a_message(self) -> None:
        result = cheapest_mix(parsed(1, bound_s=0.001), TYPES, PoolQuestion(keep_present=False, rounds=0), most_tried=1)
        assert result.counts is None or result.complete
        assert result.message

    @pytest.mark.parametrize(
        ("types", "path"),
        [
            ([], "types"),
            ("x", "types"),
            ([{"name": "a", "capacity_cps": 1.0}], "types[0].price_per_hour"),
            ([{"name": "a", "capacity_cps": 1.0, "price_per_hour": None}], "types[0].price_per_hour"),
            ([{"name": "a", "capacity_cps": 1.0, "price_per_hour": 1.0}] * 2, "types[1].name"),
            ([{"name": f"t{i}", "capacity_cps": 1.0, "price_per_hour": 1.0} for i in range(7)], "types"),
            (
                [{"name": f"t{i}", "capacity_cps": 1.0, "price_per_hour": 1.0, "max": 1000} for i in range(2)],
                "types",
            ),
        ],
    )
    def test_invalid_node_types_are_refused_with_their_path(self, types: Any, path: str) -> None:
        with pytest.raises(DocumentError) as result:
            cheapest_mix(parsed(1), types)
        assert path in {fault.path for fault in result.value.faults}


class TestFront:
    def test_front_has_only_undominated_points(self) -> None:
        deployment = parsed(2, operators=3, d=8)
        result = pareto_front(deployment, TYPES, PoolQuestion(keep_present=False, rounds=20))
        exact = {
            counts: (counts[0] * 1.0 + counts[1] * 1.9, worst(mixed(deployment, counts)))
            for counts in itertools.product(range(4), range(3))
            if any(counts)
        }
        points = [
            (point.cost_per_hour, point.size.worst_s) for point in result.points if np.isfinite(point.size.worst_s)
        ]
        best = [(c, s) for c, s in exact.values() if not any(x <= c and y < s - 1e-5 for x, y in exact.values())]
        for cost, latency in points:
            assert not any(c <= cost and s < latency - 1e-5 for c, s in exact.values())
        assert {round(latency, 5) for _, latency in points} == {round(latency, 5) for _, latency in best}


class TestSurvival:
    def test_latency_after_each_loss_equals_its_estimate(self) -> None:
        deployment = chained(2)
        result = lose_each(deployment)
        for node, outcome in result.losses.items():
            left = lose_nodes(deployment, {node})
            again = estimate(left.with_placement(place(left)), intervals=False)
            assert outcome.flow_s == again.flow.wc

    def test_survival_names_the_loss_and_the_broken_objective(self) -> None:
        deployment = Deployment.parse(steady(document([[9.0, 9.0], [9.0, 9.0], [3.0, 3.0]], 3, bound_s=0.3)))
        result = lose_each(deployment)
        # f2 shares a node then, where 12 cycles come every second and 10 can be done.
        assert [result.breaks(node) for node in ("n0", "n1", "n2")] == [("q0", "q2"), ("q1", "q2"), ("q0", "q2")]
        assert not result.survives
        assert result.message == "the loss of n0, n1 and n2 breaks q0, q2 and q1"

    def test_loss_of_the_only_node_breaks_every_query(self) -> None:
        result = lose_each(parsed(1, nodes=1, bound_s=99.0))
        assert result.losses["n0"].refusal is not None
        assert len(result.breaks("n0")) == 5
        assert not result.survives

    def test_survival_of_an_empty_fleet_holds_and_unknown_nodes_are_refused(self) -> None:
        empty = Deployment.parse({"subinterval_s": 1.0, "subintervals": 2})
        assert lose_each(empty).survives
        with pytest.raises(DocumentError, match="which is no node"):
            lose_each(parsed(1), nodes=["n9"])


class TestGrowth:
    def test_operator_grows_until_its_objective(self) -> None:
        # 8 events at 10 cycles/s: the excess of 8 x is 8 x - 10, and 1 s is reached at 8 x = 20.
        deployment = Deployment.parse(steady(document([[8.0, 0.0, 0.0], [1.0, 0.0, 0.0]], 2)))
        by_mace = headroom_by_query(deployment, flow=False)
        assert by_mace.queries["q0"].factor == pytest.approx(2.5, rel=0.011)
        # The interval of a mean path reaches 3.5 % beyond it, so the path may take 0.965 s: 8 x - 10 = 9.65.
        result = headroom_by_query(deployment)
        assert result.queries["q0"].factor == pytest.approx(2.456, rel=0.03)
        assert result.together.factor == pytest.approx(2.456, rel=0.03)
        assert result.queries["q0"].confirmed
        assert result.queries["q0"].nearest.state == "holds"
        assert result.queries["q0"].miss is not None
        assert result.queries["q1"].unlimited

    @pytest.mark.parametrize("seed", SEEDS)
    def test_joint_growth_is_never_more_than_single_growth(self, seed: int) -> None:
        deployment = parsed(seed, operators=4, nodes=4, bound_s=3.0)
        result = headroom_by_query(deployment, flow=False)
        assert result.together.factor is not None
        for entry in result.queries.values():
            assert entry.factor is not None
            assert result.together.factor <= entry.factor * 1.011

    def test_growth_without_headroom_is_none(self) -> None:
        broken = headroom_by_query(parsed(1, nodes=1, bound_s=0.1))
        assert broken.together.factor is None
        assert broken.together.miss is not None
        with pytest.raises(DocumentError, match="there is no objective"):
            headroom_by_query(Deployment.parse(bursty(1) | {"objectives": []}))

    def test_growth_of_a_query_without_source_has_a_note(self) -> None:
        base = document([[1.0, 2.0], [1.0, 2.0]], 2)
        base["operators"][1]["inputs"][0]["from"] = "f0"
        result = headroom_by_query(Deployment.parse(base))
        assert "reads no source of its own" in result.queries["q1"].note


def test_empty_pool_grows_but_takes_no_placement() -> None:
    bare = apply_changes(parsed(1), [{"resize_pool": "p", "nodes": 0}])
    result = smallest_pool(bare, like={"capacity_cps": 20.0}, most=4)
    assert result.nodes is not None
    with pytest.raises(InfeasibleError):
        place(bare)


class TestAnswersAsJson:
    """A pool of which nothing is left takes no finite time; the answer still is JSON."""

    small = Deployment.parse(document([[2.0, 3.0, 2.0]], 2))
    types = ({"name": "t", "capacity_cps": 10.0, "cores": 1, "price_per_hour": 1.0, "max": 4},)

    def test_answer_of_the_smallest_pool_with_a_loss_serialises_to_json(self) -> None:
        answer = smallest_pool(self.small, PoolQuestion(lose=1, keep_present=False), like="n0", most=6).to_dict()
        assert answer["nodes"] == 2
        assert "there is no core to run on" in answer["proof"]["message"]
        assert answer["proof"]["refutation"]["least_s"] is None
        json.dumps(answer, allow_nan=False)

    def test_answer_of_the_cheapest_mix_with_a_loss_serialises_to_json(self) -> None:
        result = cheapest_mix(self.small, list(self.types), PoolQuestion(lose=1, keep_present=False))
        assert result.counts == {"t": 2}
        json.dumps(result.to_dict(), allow_nan=False)

    def test_answer_without_a_mix_serialises_to_json(self) -> None:
        few = [{**self.types[0], "max": 1}]
        json.dumps(cheapest_mix(self.small, few, PoolQuestion(lose=1, keep_present=False)).to_dict(), allow_nan=False)
