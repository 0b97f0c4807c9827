"""Predictions: intervals, votes, the training domain, and the choice among candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.costream.choice import choose, rank_survivors
from engine.costream.features import TrainingDomain
from engine.costream.intervals import KINDS, LEVEL, calibrated_bounds, end_scale
from engine.costream.prediction import (
    CostInterval,
    Ensemble,
    PlacementPredictions,
    PredictionError,
    shipped_ensemble,
)
from engine.costream.residual import COSTS
from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph
from tests.engine.costream.anchors import anchor_ensemble
from tests.engine.costream.ensembles import make_card, make_ensemble, make_trace


def _predictions(
    latency_s: list[float],
    success: list[int],
    pressed: list[int],
    outside: list[str] | None = None,
    members: int = 3,
) -> PlacementPredictions:
    k = len(latency_s)
    mean = np.array(latency_s)
    return PlacementPredictions(
        placements=np.zeros((k, 1), dtype=np.int64),
        costs={metric: CostInterval(mean, mean, mean) for metric in COSTS},
        success_votes=np.array(success),
        backpressure_votes=np.array(pressed),
        members=members,
        use=np.zeros(k),
        query_reasons=(),
        host_reasons=((),),
        count_reasons=tuple(outside or [""] * k),
    )


def test_mean_lies_within_its_interval() -> None:
    trace, ensemble = make_trace(), make_ensemble()
    predictions = ensemble.predict(trace.graph, trace.hosts, [trace.placement, [3] * 6])
    for metric in COSTS:
        cost = predictions.costs[metric]
        assert (cost.low > 0).all()
        assert (cost.low < cost.mean).all()
        assert (cost.mean < cost.high).all()
    assert set(predictions.success_votes.tolist()) <= {0, 1, 2, 3}


def test_placements_get_the_same_numbers_alone_and_together() -> None:
    trace, ensemble = make_trace(), make_ensemble()
    placements = np.array([trace.placement, [3] * 6, [0] * 6, [2, 2, 2, 3, 3, 3]])
    together = ensemble.score(ensemble.facts(trace.graph, trace.hosts, placements))
    alone = [ensemble.score(ensemble.facts(trace.graph, trace.hosts, row[None])) for row in placements]
    np.testing.assert_allclose(together.costs, np.concatenate([scores.costs for scores in alone], axis=1), rtol=1e-9)
    assert together.kinds.tolist() == [int(scores.kinds[0]) for scores in alone]


def test_residual_is_shrunk_to_none_far_from_what_was_trained() -> None:
    trace, ensemble = make_trace(), make_ensemble()
    facts = ensemble.facts(trace.graph, trace.hosts, np.array([trace.placement]))
    distance = float(ensemble.score(facts).distance[0])
    for begin, share in ((distance, 1.0), (distance - 0.5, 0.5), (distance - 2.0, 0.0)):
        arrays = ensemble.arrays | {"shrinkage": np.array([begin, begin + 1.0])}
        scores = Ensemble(arrays, ensemble.card).score(facts)
        learned = ensemble.score(facts).costs - facts.costs
        np.testing.assert_allclose(scores.costs - facts.costs, share * learned, atol=1e-5)
        if not share:
            np.testing.assert_allclose(scores.votes[0], facts.votes)


def test_intervals_hold_what_they_were_calibrated_for_in_every_kind() -> None:
    rng = np.random.default_rng(4)
    kinds, spread = rng.integers(KINDS, size=40_000), np.full(40_000, 0.05)
    wide = np.where(kinds % 2 == 0, 1.0, 0.1)
    bounds = calibrated_bounds(kinds, wide * rng.normal(size=len(kinds)), spread)
    errors = wide * rng.normal(size=len(kinds))
    low, high = bounds[kinds].T
    held = (low - spread <= errors) & (errors <= high + spread)
    assert [held[wide == width].mean() for width in (1.0, 0.1)] == pytest.approx([LEVEL, LEVEL], abs=0.01)
    again = end_scale(bounds[kinds], 2.0 * errors, spread)
    low, high = again * bounds[kinds].T
    assert ((low - spread <= 2.0 * errors) & (2.0 * errors <= high + spread)).mean() == pytest.approx(LEVEL, abs=0.01)


def test_kind_with_few_runs_has_the_ends_of_those_like_it() -> None:
    kinds = np.concatenate([np.full(500, 0), np.full(5, 1)])
    errors = np.concatenate([np.linspace(-1.0, 1.0, 500), np.full(5, 30.0)])
    bounds = calibrated_bounds(kinds, errors, np.zeros(505))
    assert bounds[1].max() < 2.0
    assert bounds[0] == pytest.approx([-0.9, 0.9], abs=0.01)


def test_query_within_the_trained_ranges_has_no_reasons() -> None:
    trace, ensemble = make_trace(), make_ensemble()
    predictions = ensemble.predict(trace.graph, trace.hosts, [trace.placement])
    assert not predictions.outside.any()
    assert predictions.reasons(0) == ()


def test_host_outside_flags_the_placements_that_use_it() -> None:
    trace, ensemble = make_trace(), make_ensemble()
    hosts = [replace(trace.hosts[0], cpu_percent=20.0, name="edge-1"), *trace.hosts[1:]]
    used, not_used = [0, 1, 0, 2, 3, 3], [1, 1, 2, 2, 3, 3]
    predictions = ensemble.predict(trace.graph, hosts, [used, not_used])
    assert predictions.outside.tolist() == [True, False]
    assert predictions.reasons(0) == ("host edge-1: cpu 20 %: trained on 100 to 800 %",)


def test_rates_and_operators_outside_are_told_in_words() -> None:
    trace = make_trace()
    domain = make_card().domain
    operators = list(trace.graph.operators)
    operators[0] = replace(operators[0], rate_eps=50_000.0)
    operators[2] = replace(operators[2], stands_for="a regular expression", name="match")
    reasons = domain.query_reasons(QueryGraph(tuple(operators), trace.graph.edges))
    assert "filter match is a regular expression: predicted as the nearest operator that was trained" in reasons
    assert "source 0: rate beside one join 50,000 tuples/s: trained on 100 to 400 tuples/s" in reasons
    assert any(reason.startswith("aggregation 4: input") and "trained up to" in reason for reason in reasons)


def test_chain_of_filters_that_was_not_trained_is_outside() -> None:
    source = OperatorNode("source", 4, 4, rate_eps=1000, n_int=4)
    half = OperatorNode("filter", 4, 4, function="<", value_type="int", selectivity=0.5)
    sink = OperatorNode("sink", 4, 4)
    chain = QueryGraph((source, half, half, sink), ((0, 1), (1, 2), (2, 3)))
    assert "filters in a row 2: trained up to 1" in make_card().domain.query_reasons(chain)


def test_tuples_wider_than_trained_are_outside() -> None:
    wide = OperatorNode("source", 20, 20, rate_eps=1000, n_int=20)
    whole = OperatorNode("filter", 40, 4, function="<", value_type="int", selectivity=0.5)
    graph = QueryGraph((wide, whole, OperatorNode("sink", 4, 4)), ((0, 1), (1, 2)))
    reasons = shipped_ensemble().card.domain.query_reasons(graph)
    assert "source 0: fields 20: trained on 3 to 10" in reasons
    assert "filter 1: values in a tuple 40: trained on 3 to 30" in reasons


def test_feature_that_never_occurred_is_outside() -> None:
    domain = TrainingDomain({})
    assert domain.host_reasons(3, HostNode(100, 1000, 25, 0.001, 0))[0] == "host 3: cpu 100 %: never trained"


def test_more_hosts_than_trained_are_outside() -> None:
    trace, ensemble = make_trace(), make_ensemble()
    hosts = [*trace.hosts, trace.hosts[3]]
    predictions = ensemble.predict(trace.graph, hosts, [[0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 3, 3]])
    assert predictions.outside.tolist() == [True, False]
    assert predictions.reasons(0) == ("hosts used 5: trained on 1 to 4",)


def test_best_feasible_candidate_is_chosen() -> None:
    predictions = _predictions([1.0, 2.0, 3.0, 0.5], success=[3, 3, 3, 1], pressed=[2, 1, 0, 0])
    choice = choose(predictions, "Lp", {"strongest": 0, "spread": 2})
    assert (choice.index, choice.value, choice.survivors) == (1, 2.0, 2)
    assert choice.reason == "2 of 4 candidates pass the votes."
    assert not choice.heuristics["strongest"].feasible
    assert choice.heuristics["strongest"].gain == 0.5
    assert choice.heuristics["spread"].gain == 1.5
    assert choose(predictions, "T").index == 2


def test_tied_vote_counts_as_failure_and_as_back_pressure() -> None:
    tied = _predictions([1.0] * 3, success=[1, 2, 2], pressed=[0, 1, 0], members=2)
    assert tied.success.tolist() == [False, True, True]
    assert tied.backpressure.tolist() == [False, True, False]
    assert tied.feasible.tolist() == [False, False, True]


def test_undecided_member_votes_for_back_pressure() -> None:
    trace = make_trace()
    predictions = anchor_ensemble(pressed=0.0).predict(trace.graph, trace.hosts, [[3] * 6])
    assert predictions.backpressure_votes.tolist() == [3]
    assert predictions.backpressure.tolist() == [True]


def test_predictions_that_are_not_finite_are_refused() -> None:
    trace = make_trace()
    with pytest.raises(PredictionError, match="anchor-1 predicts numbers that are not finite for 2 of 2 placements"):
        anchor_ensemble(extreme=True).predict(trace.graph, trace.hosts, [trace.placement, [3] * 6])


def test_candidate_within_the_domain_goes_before_a_better_one_outside() -> None:
    predictions = _predictions([1.0, 2.0], success=[3, 3], pressed=[0, 0], outside=["hosts used 9: trained on 4", ""])
    choice = choose(predictions)
    assert choice.index == 1
    assert choice.reason == "2 of 2 candidates pass the votes; 1 of them within the training domain."
    both = _predictions([1.0, 2.0], success=[3, 3], pressed=[0, 0], outside=["x", "x"])
    assert choose(both).index == 0


def test_no_feasible_candidate_is_an_answer() -> None:
    choice = choose(_predictions([1.0, 2.0], success=[3, 0], pressed=[3, 0]), "Lp", {"strongest": 0})
    assert (choice.index, choice.value) == (None, None)
    assert choice.heuristics["strongest"].gain is None
    assert choice.reason == ("of 2 candidates the majority predicts back-pressure for 1 and failure for 1.")


def test_candidates_that_overload_a_node_rank_last_by_how_much() -> None:
    predictions = _predictions([1.0, 2.0, 3.0, 0.5], [3] * 4, [0, 0, 0, 3])
    assert rank_survivors(predictions, "Le").tolist() == [0, 1, 2]
    assert rank_survivors(predictions, "Le", np.array([5.0, 1.5, 0.9, 0.1])).tolist() == [2, 1, 0]
    choice = choose(predictions, "Le", strain=np.array([5.0, 1.5, 0.9, 0.1]))
    assert choice.index == 2 and "2 of them would overload a node" in str(choice.reason)
