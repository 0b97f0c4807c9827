"""Fixed cases of Costream, where they are at hand: encodings, flow, message passing, candidates, votes, errors."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.costream.accuracy import balanced_accuracy, q_errors, q_quantiles
from engine.costream.candidates import (
    enumerate_placements,
    find_candidates,
)
from engine.costream.choice import choose
from engine.costream.prediction import CostInterval, PlacementPredictions
from engine.costream.residual import COSTS
from engine.errors import DocumentError
from engine.query_graph.flow import flow_features, nominal_flow
from engine.query_graph.graph import OPERATOR_KINDS, HostNode, OperatorNode, QueryGraph
from lab.training.batch import FlowStage, GraphBatch
from lab.training.encoding import host_features, operator_features
from lab.training.network import METRICS, CostNetwork
from tests.engine.costream.readers import graph_of, hosts_of, operator_of
from tests.engine.costream.rules import is_acyclic, is_ascending, never_returns

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "costream"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no conformance cases (SLUICE_CASES)")


def _load(name: str) -> Any:
    return json.loads((CASES / f"{name}.json").read_text())


def test_rows_of_table_one_have_the_expected_numbers() -> None:
    cases = _load("encoding")
    for case in cases["ops"]:
        np.testing.assert_allclose(operator_features(operator_of(case["op"])), case["x"], rtol=1e-9, atol=1e-9)
    for case in cases["hosts"]:
        np.testing.assert_allclose(host_features(hosts_of([case["host"]]))[0], case["x"], rtol=1e-9, atol=1e-9)


def test_operators_and_hosts_out_of_range_are_refused() -> None:
    for case in _load("encoding")["invalid"]:
        with pytest.raises(DocumentError) as refused:
            operator_of(case["op"]) if "op" in case else hosts_of([case["host"]])
        assert len(refused.value.faults) == 1


def test_flow_and_its_features_have_the_expected_numbers() -> None:
    for case in _load("flow")["cases"]:
        graph, hosts = graph_of(case["query"]), hosts_of(case["hosts"])
        flow = nominal_flow(graph)
        fields = {"inr": "in_eps", "out": "out_eps", "scan": "scan_eps", "state": "state_tuples", "fill": "fill_s"}
        for name, field in fields.items():
            np.testing.assert_allclose(getattr(flow, field), case["flow"][name], rtol=1e-9, err_msg=name)
        features = flow_features(graph, hosts, np.array([case["placement"]]))
        np.testing.assert_allclose(features.operators[0], case["op_features"], atol=1e-8)
        used = np.array(case["host_features"])[features.pair_hosts]  # hosts without operators are in no graph
        np.testing.assert_allclose(features.hosts, used, atol=1e-8)


def test_messages_pass_in_three_stages() -> None:
    cases = _load("message_passing")
    network = CostNetwork(_parameters(cases["weights"]))
    for case in cases["cases"]:
        batch, expected = _batch(case), case["expected"]
        states = network.pass_messages(batch)
        used = sorted(set(case["placement"]))
        np.testing.assert_allclose(states.encoded_operators, expected["enc_ops"])
        np.testing.assert_allclose(states.encoded_hosts, [expected["enc_hosts"][host] for host in used])
        np.testing.assert_allclose(states.hosts, [expected["hosts_after_1"][str(host)] for host in used])
        np.testing.assert_allclose(states.placed_operators, expected["ops_after_2"])
        np.testing.assert_allclose(states.operators, expected["ops_after_3"])
        np.testing.assert_allclose(states.readout[0], expected["readout"])
        assert network.evaluate(batch)[0, METRICS.index("T")] == pytest.approx(expected["prediction"])


def _parameters(weights: dict[str, Any]) -> dict[str, np.ndarray]:
    """Parameters of a network of these weights, one layer each; heads that are not given are zero."""
    names = {
        "update.op_to_host": "u1",
        "update.host_to_op": "u2",
        "update.flow": "u3",
        "encoder.join": "enc_filter",
        "encoder.agg": "enc_filter",
    }
    names |= {f"encoder.{kind}": f"enc_{kind}" for kind in ("source", "filter", "sink", "host")}
    parameters = {}
    for name, given in names.items():
        parameters[f"{name}.0.weight"] = np.array(weights[given]["W"], dtype=float)
        parameters[f"{name}.0.bias"] = np.array(weights[given]["b"], dtype=float)
    for metric in METRICS:
        outputs = 1 if metric in ("RO", "S") else 3
        parameters[f"head.{metric}.0.weight"] = np.zeros((outputs, 2))
        parameters[f"head.{metric}.0.bias"] = np.zeros(outputs)
    parameters["head.T.0.weight"][0] = weights["out"]["W"][0]
    parameters["head.T.0.bias"][0] = weights["out"]["b"][0]
    return parameters


def _batch(case: dict[str, Any]) -> GraphBatch:
    """The only graph of a batch, with the features of the case in place of those of an operator."""
    nodes, n = case["nodes"], len(case["nodes"])
    used, host_of = np.unique(case["placement"], return_inverse=True)
    rows = {kind: np.flatnonzero(np.array(nodes) == kind) for kind in OPERATOR_KINDS}
    inputs = {
        kind: np.array([case["op_features"][i] for i in at], dtype=np.float32).reshape(len(at), 1 + (kind != "sink"))
        for kind, at in rows.items()
    }
    edges = tuple((a, b) for a, b in case["edges"])
    levels = np.array(_bare_graph(n, edges).levels)
    stages = []
    for level in range(1, levels.max() + 1):
        targets = np.flatnonzero(levels == level)
        pairs = np.array([(a, list(targets).index(b)) for a, b in edges if levels[b] == level])
        stages.append(FlowStage(targets, pairs[:, 0], pairs[:, 1]))
    return GraphBatch(
        rows=rows,
        inputs=inputs | {"host": np.array(case["host_features"], dtype=np.float32)[used]},
        host_of=host_of,
        operator_graph=np.zeros(n, dtype=np.int64),
        host_graph=np.zeros(len(used), dtype=np.int64),
        stages=tuple(stages),
        graph_flow=np.zeros((1, 0), dtype=np.float32),
        anchor=np.zeros((1, 3), dtype=np.float32),
    )


def _bare_graph(n: int, edges: Any) -> QueryGraph:
    """A graph of nothing but streams, where no operator's features matter."""
    return QueryGraph((OperatorNode("filter", 1, 1),) * n, tuple((a, b) for a, b in edges))


def test_candidates_are_as_many_as_the_rules_allow() -> None:
    for case in _load("enumeration")["cases"]:
        graph, bins = _bare_graph(case["n_ops"], case["edges"]), case["bins"]
        hosts = [HostNode(100, 1000, 100, 0.01, strength) for strength in bins]
        every = np.array(list(itertools.product(range(len(bins)), repeat=case["n_ops"])))
        ascending, acyclic = is_ascending(graph, bins, every), is_acyclic(graph, every)
        allowed = enumerate_placements(graph, hosts)
        pinned = find_candidates(graph, hosts, 1000, {0: 0})
        assert allowed is not None
        assert pinned.exhaustive
        counts = {
            "all": len(every),
            "rule2_only": ascending.sum(),
            "rule3_graph_only": acyclic.sum(),
            "path": (ascending & never_returns(graph, every)).sum(),
            "graph": len(allowed),
            "graph_pinned_0_to_0": len(pinned.placements),
        }
        assert counts == {name: case[name] for name in counts}, case["name"]
        assert sorted(allowed.tolist()) == every[ascending & acyclic].tolist()
        if case.get("placements_graph"):
            assert sorted(allowed.tolist()) == sorted(case["placements_graph"])


def test_majority_decides_who_survives_and_the_mean_who_is_chosen() -> None:
    for case in _load("vote")["cases"]:
        success, pressed, costs = (np.array(case[name]) for name in ("success", "backpressure", "cost"))
        k = costs.shape[1]
        mean = costs.mean(axis=0)
        predictions = PlacementPredictions(
            placements=np.zeros((k, 1), dtype=np.int64),
            costs={metric: CostInterval(mean, mean, mean) for metric in COSTS},
            success_votes=success.sum(axis=0),
            backpressure_votes=pressed.sum(axis=0),
            members=len(costs),
            use=np.zeros(k),
            query_reasons=(),
            host_reasons=((),),
            count_reasons=("",) * k,
        )
        choice = choose(predictions, case["target"])
        assert np.flatnonzero(predictions.feasible).tolist() == case["survivors"]
        assert mean.tolist() == case["mean"]
        assert choice.index == case["pick"]


def test_errors_of_predictions_have_the_expected_numbers() -> None:
    cases = _load("qerror")
    for case in cases["single"]:
        assert q_errors([case["true"]], [case["pred"]])[0] == pytest.approx(case["q"], rel=1e-9)
    for case in cases["batches"]:
        quantiles = q_quantiles(q_errors(case["true"], case["pred"]))
        assert quantiles == pytest.approx({"q50": case["q50"], "q95": case["q95"]}, rel=1e-9)
    for case in cases["balanced"]:
        assert balanced_accuracy(case["true"], case["pred"]) == pytest.approx(case["balanced"], rel=1e-9)
        assert np.mean(np.equal(case["true"], case["pred"])) == case["accuracy"]
    for case in cases["invalid"]:
        with pytest.raises(ValueError, match="above 0"):
            q_errors([float(case["true"])], [float(case["pred"])])
