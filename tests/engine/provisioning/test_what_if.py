"""Changes of a what-if: read strictly, applied in order; and scenarios side by side."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.__main__ import main
from engine.document.deployment import Deployment, Replica
from engine.errors import DocumentError, InfeasibleError
from engine.estimation.estimate import estimate
from engine.provisioning.changes import apply_changes, apply_each, read_changes
from engine.provisioning.scenario import place_unplaced
from engine.provisioning.what_if import ScenarioOutcome, what_if
from tests.engine.provisioning.stories import bursty, document

LOADS = [[4.0, 8.0, 2.0], [6.0, 3.0, 9.0]]


def small(**more: Any) -> Deployment:
    return Deployment.parse(document(LOADS, 2) | more)


def shared() -> Deployment:
    """Two queries that read one source."""
    base = document(LOADS, 2)
    base["operators"][1]["inputs"][0]["from"] = "s0"
    return Deployment.parse(base)


def faults_of(changes: Any, deployment: Deployment | None = None) -> dict[str, str]:
    with pytest.raises(DocumentError) as result:
        apply_changes(deployment or small(), changes)
    return {fault.path: fault.message for fault in result.value.faults}


class TestLoads:
    def test_one_source_is_scaled(self) -> None:
        done = apply_changes(small(), [{"scale_source": "s0", "by": 1.5}])
        assert done.arrivals.tolist() == [[6.0, 12.0, 3.0], LOADS[1]]

    def test_every_source_is_scaled(self) -> None:
        done = apply_changes(small(), [{"scale_source": "*", "by": 2}, {"scale_source": "s1", "by": 0.5}])
        assert done.arrivals.tolist() == [[8.0, 16.0, 4.0], LOADS[1]]

    def test_scaled_query_leaves_its_neighbour_alone(self) -> None:
        done = apply_changes(shared(), [{"scale_query": "q0", "by": 3}])
        assert {s.id: s.arrivals.tolist() for s in done.sources} == {
            "s0": LOADS[0],
            "s1": LOADS[1],
            "s0@q0": [12.0, 24.0, 6.0],
        }
        assert [op.inputs[0].source for op in done.operators] == ["s0@q0", "s0"]

    def test_factors_do_not_depend_on_their_order(self) -> None:
        changes = [{"scale_query": "q0", "by": 3}, {"scale_source": "s0", "by": 2}, {"scale_query": "q0", "by": 0.5}]
        first, last = (apply_changes(shared(), listed) for listed in (changes, changes[::-1]))
        assert first.arrivals.tolist() == last.arrivals.tolist()
        assert dict(zip([s.id for s in first.sources], first.arrivals.tolist(), strict=True))["s0@q0"] == [12, 24, 6]

    def test_source_whose_copy_alone_is_read_is_removed(self) -> None:
        done = apply_changes(small(), [{"scale_query": "q1", "by": 2}])
        assert [s.id for s in done.sources] == ["s0", "s1@q1"]

    def test_arrivals_are_replaced_by_value_or_factor(self) -> None:
        changes = [
            {"arrivals": "s0", "values": [1, 2, 3]},
            {"arrivals": "s1", "factors": [0, 1, 2]},
            {"scale_source": "*", "by": 2},
        ]
        assert apply_changes(small(), changes).arrivals.tolist() == [[2, 4, 6], [0, 6, 36]]


class TestNodes:
    def test_new_nodes_copy_the_node_they_are_like(self) -> None:
        linked = small(links=[{"from": "n0", "to": "n1", "bandwidth_bytes_s": 100.0, "delay_s": 0.5}])
        done = apply_changes(linked, [{"add_nodes": 2, "like": "n0", "price_per_hour": 3, "cores": 2}])
        new = done.nodes[2]
        assert [node.id for node in done.nodes] == ["n0", "n1", "new-1", "new-2"]
        assert (new.capacity_cps, new.cores, new.pool, new.price_per_hour) == (10.0, 2, "p", 3.0)
        assert {(link.source, link.target) for link in done.links} >= {
            ("new-1", "n1"),
            ("n0", "new-1"),
            ("new-1", "n0"),
        }

    def test_operators_of_a_lost_node_are_unplaced(self) -> None:
        done = apply_changes(small(), [{"lose_node": "n0"}])
        assert [op.replicas for op in done.operators] == [(), (Replica("n1"),)]

    def test_remaining_replicas_take_the_share_of_a_lost_one(self) -> None:
        base = document(LOADS, 2)
        base["operators"][0] |= {"split": [{"node": "n0", "fraction": 0.25}, {"node": "n1", "fraction": 0.75}]}
        del base["operators"][0]["node"]
        done = apply_changes(Deployment.parse(base), [{"lose_node": "n0"}])
        assert done.operators[0].replicas == (Replica("n1", 0, 1.0),)

    def test_pool_shrinks_from_its_end_and_grows_like_its_last_node(self) -> None:
        less = apply_changes(small(), [{"resize_pool": "p", "nodes": 1}])
        more = apply_changes(small(), [{"capacity": "n1", "by": 2}, {"resize_pool": "p", "nodes": 4}])
        assert [node.id for node in less.nodes] == ["n0"]
        assert [node.capacity_cps for node in more.nodes] == [10.0, 20.0, 20.0, 20.0]

    def test_capacity_series_are_scaled_and_replaced(self) -> None:
        base = document(LOADS, 2)
        base["nodes"][0] = {"id": "n0", "capacity_series_cps": [5.0, 10.0, 20.0]}
        deployment = Deployment.parse(base)
        half = apply_changes(deployment, [{"capacity": "n0", "by": 0.5}])
        fixed = apply_changes(deployment, [{"capacity": "n0", "capacity_cps": 7}])
        assert half.capacities[:, 0].tolist() == [2.5, 5.0, 10.0]
        assert fixed.capacities[:, 0].tolist() == [7.0]

    def test_placement_without_any_node_left_is_infeasible(self) -> None:
        done = apply_changes(small(), [{"lose_node": "n0"}, {"lose_node": "n1"}])
        with pytest.raises(InfeasibleError) as result:
            place_unplaced(done, "fill")
        assert len(result.value.faults) == 2
        assert "there is no node" in result.value.faults[0].message


class TestQueries:
    new = {
        "query": "q9",
        "operators": [{"id": "f9", "inputs": [{"from": "s0", "selectivity": 1, "cycles_per_event": 1}]}],
        "objective": {"statistic": "mean", "bound_s": 3},
    }

    def test_objectives_change_and_keep_their_statistic(self) -> None:
        done = apply_changes(
            small(), [{"objective": "q0", "bound_s": 5}, {"objective": "q1", "statistic": "mean", "bound_s": 6}]
        )
        assert [(o.query, o.statistic, o.bound_s) for o in done.objectives] == [("q0", "worst", 5), ("q1", "mean", 6)]

    def test_queries_are_added_and_removed(self) -> None:
        done = apply_changes(small(), [{"add_query": self.new}, {"remove_query": "q0"}])
        assert done.queries == ("q1", "q9")
        assert [o.query for o in done.objectives] == ["q1", "q9"]
        assert Deployment.parse(place_unplaced(done, "fill").to_document()).queries == ("q1", "q9")

    def test_later_changes_see_earlier_ones(self) -> None:
        done = apply_changes(small(), [{"add_query": self.new}, {"scale_query": "q9", "by": 2}])
        assert [s.id for s in done.sources] == ["s0", "s1", "s0@q9"]

    def test_query_read_by_others_cannot_be_removed(self) -> None:
        base = document(LOADS, 2)
        base["operators"][1]["inputs"][0]["from"] = "f0"
        result = faults_of([{"remove_query": "q0"}, {"scale_query": "q1", "by": 2}], Deployment.parse(base))
        assert "is read by f1" in result["changes[0].remove_query"]
        assert "reads no source of its own" in result["changes[1].scale_query"]

    def test_pinned_query_can_be_removed_after_its_node_is_lost(self) -> None:
        base = document(LOADS, 2) | {"constraints": {"pin": {"f0": "n0", "f1": "n0"}}}
        base["operators"][1]["node"] = "n0"
        pinned = Deployment.parse(base)
        done = apply_changes(pinned, [{"lose_node": "n0"}, {"remove_query": "q0"}])
        with pytest.raises(InfeasibleError, match="1 operator"):
            place_unplaced(done, "fill")


FAULTS: list[tuple[Any, dict[str, str]]] = [
    ("x", {"changes": "changes is 'x'; allowed: a list"}),
    ([1], {"changes[0]": "allowed: an object"}),
    ([{}], {"changes[0]": "names no change"}),
    ([{"scale_sorce": "s0"}], {"changes[0]": "did you mean 'scale_source'"}),
    ([{"scale_source": "s9", "by": 1}], {"changes[0].scale_source": "which is no source"}),
    ([{"scale_source": "s0"}], {"changes[0].by": "by is missing"}),
    ([{"scale_source": "s0", "by": -1}], {"changes[0].by": "by is -1"}),
    ([{"scale_source": "s0", "by": 1, "x": 1}], {"changes[0].x": "x is not a field"}),
    ([{"scale_query": "q", "by": 1}], {"changes[0].scale_query": "which is no query"}),
    ([{"arrivals": "s0"}], {"changes[0]": "neither is given"}),
    ([{"arrivals": "s0", "values": [1, 2]}], {"changes[0].values": "values has 2 numbers; allowed: 3"}),
    ([{"arrivals": "s9", "values": [1, 2, 3]}], {"changes[0].arrivals": "which is no source"}),
    ([{"add_nodes": 0, "like": "n0"}], {"changes[0].add_nodes": "add_nodes is 0"}),
    ([{"add_nodes": 1}], {"changes[0].like": "like is missing"}),
    ([{"add_nodes": 1, "like": "n7"}], {"changes[0].like": "which is no node"}),
    ([{"lose_node": "n7"}], {"changes[0].lose_node": "which is no node"}),
    ([{"lose_node": "n0"}, {"lose_node": "n0"}], {"changes[1].lose_node": "which is no node"}),
    ([{"capacity": "n0"}], {"changes[0]": "neither is given"}),
    ([{"capacity": "n0", "by": 1, "capacity_cps": 2}], {"changes[0]": "by and capacity_cps is given"}),
    ([{"capacity": "n7", "by": 2}], {"changes[0].capacity": "which is no node"}),
    ([{"resize_pool": "x", "nodes": 1}], {"changes[0].resize_pool": "which is no pool"}),
    ([{"objective": "q0", "bound_s": 0}], {"changes[0].bound_s": "bound_s is 0"}),
    ([{"objective": "z", "bound_s": 1}], {"changes[0].objective": "which is no query"}),
    ([{"remove_query": "z"}], {"changes[0].remove_query": "which is no query"}),
    ([{"add_query": {"query": "q0", "operators": []}}], {"changes[0].add_query.operators": "has 0 items"}),
]


@pytest.mark.parametrize(
    ("changes", "expected"), FAULTS, ids=[next(iter(e)) + f"-{i}" for i, (_, e) in enumerate(FAULTS)]
)
def test_fault_names_its_path_and_what_is_allowed(changes: Any, expected: dict[str, str]) -> None:
    result = faults_of(changes)
    for path, words in expected.items():
        assert words in result[path]


def test_loads_beyond_floating_point_are_refused() -> None:
    changes = [
        {"scale_source": "*", "by": 1e5},
        {"scale_source": "s0", "by": 100},
        {"scale_query": "q1", "by": 1e308},
        {"arrivals": "s1", "factors": [1, 1e308, 1]},
        {"capacity": "n0", "by": 1e308},
        {"capacity": "n1", "capacity_cps": 1e-308},
        {"add_nodes": 1, "capacity_cps": 1e308, "price_per_hour": 1e308},
    ]
    with pytest.raises(DocumentError) as refused:
        apply_changes(small(), changes)
    assert sorted(fault.path for fault in refused.value.faults) == [
        "changes[1].by",
        "changes[2].by",
        "changes[3].factors[1]",
        "changes[4].by",
        "changes[5].capacity_cps",
        "changes[6].capacity_cps",
        "changes[6].price_per_hour",
    ]


def test_every_fault_of_the_changes_is_reported_at_once() -> None:
    every = [change for changes, _ in FAULTS[3:] for change in changes if change != {"lose_node": "n0"}]
    assert len(faults_of(every)) >= 20


def test_changes_round_trip() -> None:
    read = read_changes([{"scale_source": "s0", "by": 2}, {"add_nodes": 1.0, "like": "n0"}], small())
    given = [{"scale_source": "s0", "by": 2.0}, {"add_nodes": 1, "like": "n0"}]
    assert [change.to_dict() for change in read] == given
    words = [str(applied.words) for applied in apply_each(small(), read).changes]
    assert words == ["source s0 at 2 times its load", "1 node added like n0"]


class TestWhatIf:
    def test_scenario_is_estimated_like_a_running_deployment(self) -> None:
        deployment = Deployment.parse(bursty(1))
        result = what_if(deployment, [{"name": "now"}, {"name": "more", "changes": [{"scale_source": "*", "by": 1.3}]}])
        more = deployment.with_arrivals({s.id: s.arrivals * 1.3 for s in deployment.sources})
        for outcome, expected in zip(result, (estimate(deployment), estimate(more)), strict=True):
            assert outcome.flow_s == expected.flow.wc
            assert outcome.queries is not None
            assert {q: r.estimate_s for q, r in outcome.queries.items()} == {
                q: r.estimate_s for q, r in expected.queries.items()
            }

    def test_mace_alone_gives_the_same_report_without_flow(self) -> None:
        deployment = Deployment.parse(bursty(1))
        outcome = what_if(deployment, [{"name": "now"}], flow=False)[0].answer.to_dict()
        # Every query is one operator on one node, where Flow and Mace agree.
        full = what_if(deployment, [{"name": "now"}])[0].answer.to_dict()
        assert (outcome["by"], full["by"], outcome["flow_s"]) == ("mace", "flow", None)
        for query, report in outcome["queries"].items():
            assert report["mace_s"] == full["queries"][query]["mace_s"]

    def test_each_way_to_place_gives_its_placement(self) -> None:
        deployment = Deployment.parse(bursty(2, operators=4, nodes=2))
        changes = [{"lose_node": "n1"}, {"add_nodes": 2, "like": "n0"}]
        keep, fill, search, few = what_if(
            deployment,
            [{"name": how, "changes": changes, "place": how} for how in ("keep", "fill", "search")]
            + [{"name": "few", "changes": changes, "place": "search", "max_moves": 0}],
        )
        assert keep.refusal is not None
        assert {fault.path for fault in keep.refusal.faults} == {"operators[1].node", "operators[3].node"}
        assert {move.operator for move in fill.moves} == {"f1", "f3"}
        assert {move.operator for move in few.moves} == {"f1", "f3"}
        assert search.mace is not None and fill.mace is not None
        assert search.mace.worst <= fill.mace.worst
        assert keep.answer.to_dict()["infeasible"]["code"] == "infeasible"

    def test_cost_is_null_where_a_price_is_missing(self) -> None:
        result = what_if(small(), [{"name": "a"}, {"name": "b", "changes": [{"add_nodes": 1, "capacity_cps": 5}]}])
        assert [outcome.answer.to_dict()["cost_per_hour"] for outcome in result] == [4.0, None]
        assert result[1].answer.to_dict()["unpriced_nodes"] == ["new-1"]

    def test_scenario_without_queries_and_nodes(self) -> None:
        changes = [{"remove_query": "q0"}, {"remove_query": "q1"}]
        result = what_if(
            small(),
            [{"name": "a", "changes": changes}, {"name": "b", "changes": [*changes, {"resize_pool": "p", "nodes": 0}]}],
        )
        assert [outcome.answer.to_dict()["queries"] for outcome in result] == [{}, {}]
        assert [outcome.answer.to_dict()["node_count"] for outcome in result] == [2, 0]

    def test_faults_of_all_scenarios_are_reported_at_once(self) -> None:
        scenarios = [
            {"name": "a", "changes": [{"lose_node": "x"}]},
            {"name": "a", "place": "anywhere"},
            {"changes": [], "max_moves": -1},
        ]
        with pytest.raises(DocumentError) as result:
            what_if(small(), scenarios)
        assert {fault.path for fault in result.value.faults} == {
            "scenarios[0].changes[0].lose_node",
            "scenarios[1].name",
            "scenarios[1].place",
            "scenarios[2].name",
            "scenarios[2].max_moves",
        }

    def test_exception_from_progress_ends_the_what_if(self) -> None:
        def stop(share: float, step: str) -> None:
            if "b" in step:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            what_if(small(), [{"name": "a"}, {"name": "b"}], progress=stop)


def sampled(seed: int) -> Deployment:
    """Statistics that rest on eight small batches."""
    rng = np.random.default_rng(seed)
    base = bursty(seed)
    for operator in base["operators"]:
        operator["inputs"][0]["batches"] = [
            {"events": 20, "outputs": 20, "cycles": 20 * float(rng.uniform(0.6, 1.4))} for _ in range(8)
        ]
    return Deployment.parse(base)


def shares(outcome: ScenarioOutcome) -> dict[str, float]:
    """Probability of each objective, as the answer tells it."""
    queries = outcome.answer.to_dict()["queries"]
    return {query: facts["probability"]["share"] for query, facts in queries.items() if facts["probability"]}


class TestCommonRandomNumbers:
    def test_probability_agrees_with_the_state_of_the_objective(self) -> None:
        bounds = [{"name": str(b), "changes": [{"objective": "q0", "bound_s": b}]} for b in (0.3, 0.6, 0.9, 1.5, 3.0)]
        seen = set()
        light = apply_changes(sampled(4), [{"scale_source": "*", "by": 0.8}])
        for outcome in what_if(light, bounds):
            facts = outcome.answer.to_dict()["queries"]["q0"]
            share = facts["probability"]["share"]
            seen.add(facts["state"])
            expected = "holds" if share >= 0.95 else "at_risk" if share >= 0.5 else "breached"
            assert facts["state"] == expected, (facts["bound_s"], share)
        assert len(seen) >= 2

    def test_unchanged_scenarios_have_the_same_probability(self) -> None:
        deployment = sampled(4)
        objective = {"objective": "q0", "bound_s": 0.9}
        result = what_if(deployment, [{"name": "a"}, {"name": "b", "changes": [objective]}, {"name": "c"}])
        first, tighter, last = (shares(outcome) for outcome in result)
        assert first == last
        assert all(first[query] == tighter[query] for query in first if query != "q0")
        assert tighter["q0"] <= first["q0"]

    def test_less_load_never_lowers_a_probability(self) -> None:
        """With random numbers of their own, two scenarios this near would be out of order now and then."""
        steps = [{"name": str(by), "changes": [{"scale_source": "*", "by": by}]} for by in (1.0, 0.99, 0.98, 0.97)]
        found = [list(shares(outcome).values()) for outcome in what_if(sampled(5), steps)]
        assert all(a <= b + 1e-3 for less, more in itertools.pairwise(found) for a, b in zip(less, more, strict=True))
        assert any(0.0 < share < 1.0 for share in found[0])

    def test_the_same_seed_gives_the_same_answer(self) -> None:
        asked = [{"name": "now"}, {"name": "b", "changes": [{"add_nodes": 1, "like": "n0"}], "place": "search"}]
        first, second = ([outcome.answer for outcome in what_if(sampled(5), asked, seed=3)] for _ in range(2))
        assert first == second


class TestCommand:
    def run(self, folder: Path, capsys: pytest.CaptureFixture[str], content: Any, *options: str) -> dict[str, Any]:
        path = folder / "document.json"
        path.write_text(json.dumps(content))
        main(["what-if", *options, str(path)])
        line: dict[str, Any] = json.loads(capsys.readouterr().out)
        return line

    def test_differences_are_relative_to_the_current_deployment(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        content = bursty(1) | {"changes": [{"lose_node": "n0"}]}
        result = self.run(tmp_path, capsys, content)["result"]["scenarios"]
        assert [scenario["name"] for scenario in result] == ["now", "changed"]
        kept = self.run(tmp_path, capsys, content, "--place", "keep")["result"]["scenarios"]
        assert kept[1]["infeasible"]["code"] == "infeasible"

    def test_scenarios_and_changes_exclude_each_other(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        content = bursty(1) | {"changes": [], "scenarios": [{"name": "a"}]}
        assert self.run(tmp_path, capsys, content)["error"]["faults"][0]["path"] == "scenarios"

    @pytest.mark.parametrize("question", ["smallest_pool", "survival", "growth"])
    def test_command_answers_each_question(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], question: str
    ) -> None:
        result = self.run(tmp_path, capsys, bursty(1), "--find", question)["result"]
        assert result["find"] == question
        assert result["answer"]

    def test_parameters_are_read_strictly(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = json.dumps({"lose": 2, "like": "n9", "factor": {"s9": -1}, "mos": 3})
        result = self.run(tmp_path, capsys, bursty(1), "--find", "smallest_pool", "--parameters", given)
        paths = {fault["path"] for fault in result["error"]["faults"]}
        assert paths == {"parameters.lose", "parameters.like", "parameters.factor.s9", "parameters.mos"}
        assert "did you mean" in self.run(tmp_path, capsys, bursty(1), "--find", "survivl")["error"]["message"]
        assert self.run(tmp_path, capsys, bursty(1), "--parameters", "{}")["error"]["code"] == "wrong-option"
