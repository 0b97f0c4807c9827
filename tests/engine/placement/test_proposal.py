"""Proposals: within every constraint, never worse than the start, the best there is on small deployments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.__main__ import main
from engine.document.deployment import Deployment
from engine.errors import InfeasibleError, OptionError
from engine.estimation.estimate import estimate
from engine.placement.answer import BestSoFar, PlacementAnswer
from engine.placement.proposal import Proposal, place
from tests.engine.placement.stories import (
    best_places,
    broken,
    drawn,
    endless,
    fleet,
    goal,
    least,
    node,
    operator,
    places_of,
)

# Rounds rather than seconds: the same answer on any machine.
STEADY: dict[str, Any] = {"budget_s": None, "rounds": 20}
QUICK = STEADY | {"flow": False}


def placed(deployment: Deployment, **options: Any) -> tuple[dict[str, Any], Proposal]:
    result = place(deployment, **(QUICK | options))
    report = json.loads(json.dumps(result.report.to_dict(), allow_nan=False))
    assert PlacementAnswer.parse(report) == result.report
    return report, result


def start_of(deployment: Deployment) -> dict[str, Any]:
    return {op.id: op.replicas for op in deployment.operators}


@pytest.mark.parametrize("objective", ["worst", "objectives"])
@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_search_finds_the_optimum_within_every_constraint(seed: int, links: bool, objective: str) -> None:
    deployment = drawn(seed, links=links, constraints=True)
    best = best_places(deployment, objective)
    if best is None:
        with pytest.raises(InfeasibleError) as refused:
            place(deployment, objective=objective, **QUICK)
        assert refused.value.faults
        return
    report, _ = placed(deployment, objective=objective)
    assert not broken(deployment, places_of(report))
    assert report["value_after"] == pytest.approx(goal(deployment, places_of(report), objective))
    start, over = start_of(deployment), endless(deployment, places_of(report))
    is_less_overloaded = 0 < over < endless(deployment, best)
    assert report["value_after"] == pytest.approx(goal(deployment, best, objective), abs=1e-9) or is_less_overloaded
    if not broken(deployment, start):
        assert report["value_before"] == pytest.approx(goal(deployment, start, objective))
        now = endless(deployment, start), report["value_before"]
        assert (over, report["value_after"]) <= now


@pytest.mark.parametrize("algorithm", ["search", "greedy"])
@pytest.mark.parametrize("seed", range(4))
def test_every_algorithm_is_no_worse_than_the_start_and_keeps_constraints(seed: int, algorithm: str) -> None:
    deployment = drawn(seed + 100, links=seed % 2 == 1, constraints=True)
    assert least(deployment) is not None, "something fits"
    report, _ = placed(deployment, algorithm=algorithm)
    assert not broken(deployment, places_of(report))
    start = start_of(deployment)
    if not broken(deployment, start):
        now = endless(deployment, start), goal(deployment, start) * (1 + 1e-12)
        assert (endless(deployment, places_of(report)), report["value_after"]) <= now


@pytest.mark.parametrize("seed", range(6))
def test_unplaced_operators_are_placed(seed: int) -> None:
    deployment = drawn(seed + 200, placed=False)
    report, result = placed(deployment)
    assert not broken(deployment, places_of(report))
    assert report["value_after"] == pytest.approx(least(deployment), abs=1e-9)
    new = {op.id for op in deployment.operators if not op.replicas}
    assert {move["operator"] for move in report["moves"] if move["kind"] == "place"} == new
    assert all(move["duration_s"] == 0.0 for move in report["moves"] if move["kind"] == "place")
    assert report["value_before"] is None or not new
    assert result.placed().layout is not None


def test_equal_seeds_give_equal_proposals() -> None:
    def answer(seed: int) -> dict[str, Any]:
        report = place(drawn(7, links=True), seed=seed, **STEADY).report.to_dict()
        return {name: value for name, value in report.items() if name not in ("elapsed_s", "trace")}

    assert answer(3) == answer(3)


def test_no_move_is_proposed_without_gain() -> None:
    deployment = fleet([operator("p/a", 5.0, node="n"), operator("q/b", 4.0, "t", node="n")], [node("n"), node("m")])
    report, _ = placed(deployment)
    assert report["moves"] == []
    assert report["value_before"] == report["value_after"] == 0.0
    assert report["gap"] == 0.0
    assert report["messages"][:2] == [
        "No better placement was found: everything stays where it is.",
        "Every placement was tried. No work waits at Mace's width, so no placement can be better by it.",
    ]


def test_proposal_without_moves_says_what_was_tried_and_what_would_help() -> None:
    """One operator of twice a node's capacity: nowhere is it better."""
    report, _ = placed(fleet([operator("p/a", 20.0, node="n")], [node("n"), node("m")]))
    assert report["moves"] == []
    assert report["messages"][0] == "No placement was found that catches up: n gets 2.00 times its capacity."
    assert report["messages"][2] == (
        "Every placement was tried. No placement can be better. Work waits longest at n, which is at 2.00 of its "
        "capacity at its peak: fewer events, a faster or one more node would help."
    )


def test_no_more_moves_than_needed_are_proposed() -> None:
    """Six operators on one node, of which one is too much: one move is enough, and one is made."""
    deployment = fleet([operator(f"p/{k}", 2.0, node="n") for k in range(6)], [node("n"), node("m")])
    report, _ = placed(deployment)
    assert report["value_before"] == pytest.approx(0.2)  # 120 of 100 cycles in every burst, the next after a pause
    assert report["value_after"] == 0.0
    assert len(report["moves"]) == 1


def startable(links: bool) -> list[Deployment]:
    """Drawn deployments whose start respects their constraints: there is something to stay at."""
    result = (drawn(seed, links=links, constraints=True) for seed in range(40))
    kept = [
        deployment
        for deployment in result
        if least(deployment) is not None and not broken(deployment, start_of(deployment))
    ]
    return kept[:4]


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_tolerance_spares_moves_within_its_cost(which: int, links: bool) -> None:
    deployment = startable(links)[which]
    exact, _ = placed(deployment)
    spared, _ = placed(deployment, tolerance=0.3)
    assert not broken(deployment, places_of(spared))
    assert len(spared["moves"]) <= len(exact["moves"])
    assert spared["value_after"] <= exact["value_after"] * 1.3 + 1e-9
    now = endless(deployment, start_of(deployment)), exact["value_before"] + 1e-9
    assert (endless(deployment, places_of(spared)), spared["value_after"]) <= now
    gained = spared["value_after"] - exact["value_after"] > 1e-6
    assert gained == any("30%" in words for words in spared["messages"])


def test_gain_within_the_tolerance_moves_nothing() -> None:
    deployment = next(drawn(seed) for seed in range(40) if not endless(drawn(seed), start_of(drawn(seed))))
    report, result = placed(deployment, tolerance=1e9)
    assert result.changed == frozenset() and report["moves"] == []
    assert report["value_after"] == report["value_before"]
    with pytest.raises(OptionError, match="tolerance is -1"):
        placed(deployment, tolerance=-1)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_proposal_uses_at_most_the_allowed_moves(most: int) -> None:
    crowd = [operator(f"p/{k}", 4.0, node="n") for k in range(8)]
    deployment = fleet(crowd, [node(name) for name in "nmkl"], constraints={"max_moves": most})
    report, _ = placed(deployment)
    assert len(report["moves"]) == most
    # In each burst 40 cycles an operator; the second burst meets what the first left after two seconds.
    left = 8 - most
    first = max(0.0, left * 40.0 - 100.0)
    assert report["value_after"] == pytest.approx(max(0.0, max(0.0, first - 100.0) + left * 40.0 - 100.0) / 100.0)


def test_closed_nodes_are_emptied_and_keep_only_what_is_fixed() -> None:
    crowd = [operator(f"p/{k}", 6.0, node="n" if k > 1 else "m") for k in range(5)]
    deployment = fleet(crowd, [node("n"), node("m", 1000.0), node("k")])
    report, _ = placed(deployment, closed=("m",), fixed=("p/1",))
    assert not broken(deployment, places_of(report), closed=("m",), fixed=("p/1",))
    assert [move["operator"] for move in report["moves"] if move["from"][0]["node"] == "m"] == ["p/0"]
    assert report["constraints"]["closed"] == ["m"]


def test_delay_of_a_query_says_how_long_it_is_over_its_objective() -> None:
    moved = operator("q/a", 1.0, node="n") | {"query": "q", "state_bytes": 3.75e8}
    objective = {"query": "q", "statistic": "worst", "bound_s": 1.5}
    deployment = fleet([moved], [node("n"), node("m")], objectives=[objective])
    proposal = place(deployment, closed=("n",), rounds=1, budget_s=None)
    assert [move.duration_s for move in proposal.report.moves] == [3.0]
    assert 0.0 < proposal.delays["q"].extra_s == proposal.report.moves[0].bump_s <= 3.0
    assert 0.0 < (proposal.delays["q"].late_s or 0.0) <= 3.0


def test_fixed_operators_stay() -> None:
    crowd = [operator(f"p/{k}", 6.0, node="n") for k in range(4)]
    deployment = fleet(crowd, [node("n"), node("m")])
    report, _ = placed(deployment, fixed=("p/0", "p/1", "p/2"))
    assert not broken(deployment, places_of(report), fixed=("p/0", "p/1", "p/2"))
    assert [move["operator"] for move in report["moves"]] == ["p/3"]


def test_tighter_objective_and_priority_weigh_more() -> None:
    """The query with the tighter objective gets the larger node; priority reverses it."""
    operators = [operator("p/x", 15.0), operator("q/y", 15.0)]
    objectives = [
        {"query": "p", "statistic": "worst", "bound_s": 1.0},
        {"query": "q", "statistic": "worst", "bound_s": 5.0},
    ]
    nodes = [node("big", 140.0), node("small", 100.0)]
    apart = {"apart": [["p/x", "q/y"]]}
    weighed = fleet(operators, nodes, objectives=objectives, constraints=apart)
    report, _ = placed(weighed, objective="objectives")
    assert report["placement"]["p/x"][0]["node"] == "big"
    preferred = fleet(operators, nodes, objectives=objectives, constraints=apart, priorities={"q": 4})
    report, _ = placed(preferred, objective="objectives")
    assert report["placement"]["q/y"][0]["node"] == "big"


def test_latencies_before_and_after_equal_the_estimates() -> None:
    crowd = [operator(f"{query}/0", 8.0, node="n", state_bytes=1e6) for query in "pq"]
    objectives = [{"query": "q", "statistic": "worst", "bound_s": 0.3}]
    deployment = fleet(crowd, [node("n"), node("m")], objectives=objectives)
    report = place(deployment, **STEADY).report.to_dict()
    q = next(row for row in report["queries"] if row["query"] == "q")
    # 160 of 100 cycles in the first burst: both are 0.6 s late by mean costs. Apart, both are done in time.
    before = estimate(deployment).queries["q"]
    after = estimate(deployment.with_placement(places_of(report))).queries["q"]
    assert (before.flow_s, after.flow_s) == (pytest.approx(0.6), 0.0)
    assert (q["before_s"], q["before_state"]) == (before.estimate_s, "breached")
    assert (q["after_s"], q["after_state"]) == (after.estimate_s, after.state)
    assert (q["low_s"], q["high_s"]) == (after.low_s, after.high_s)
    assert 0.0 < q["after_s"] < q["before_s"]
    assert (q["mace_before_s"], q["mace_after_s"]) == (pytest.approx(0.6), 0.0)
    assert report["flow_before_s"] == pytest.approx(0.6)
    assert report["flow_after_s"] == 0.0
    cores = {row["server"]: row for row in report["nodes"]}
    assert cores["n"]["before_peak"] == pytest.approx(1.6)
    assert cores["m"]["after_peak"] == pytest.approx(0.8)
    assert cores["n"]["excess_before"] == [pytest.approx(0.6), 0.0, pytest.approx(0.6)]


def test_progress_rises_and_an_exception_or_stop_ends_the_search() -> None:
    heard: list[tuple[float, str, BestSoFar]] = []
    place(drawn(5), progress=lambda *report: heard.append(report), **STEADY)
    shares = [share for share, _, _ in heard]
    assert shares[-1] == 1.0
    assert heard[-1][2].value_s is not None

    heard.clear()
    place(drawn(5, links=True), progress=lambda *report: heard.append(report), **(STEADY | {"algorithm": "greedy"}))
    assert any(state.cores_s is not None for _, _, state in heard)  # before links are counted
    values = [state.value_s for _, _, state in heard if state.value_s is not None]
    assert values == sorted(values, reverse=True)

    class Cancelled(Exception):
        pass

    def cancel(share: float, step: str, state: BestSoFar) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        place(drawn(5), progress=cancel, **STEADY)
    stopped = place(drawn(5, links=True), stop=lambda: True, budget_s=30.0).report.to_dict()
    assert not broken(drawn(5, links=True), places_of(stopped))


class TestRefusals:
    def faults(self, deployment: Deployment, **options: Any) -> dict[str, str]:
        with pytest.raises(InfeasibleError) as refused:
            place(deployment, **(QUICK | options))
        return {fault.path: fault.message for fault in refused.value.faults}

    def test_fleet_without_nodes_is_infeasible(self) -> None:
        assert self.faults(fleet([operator("p/a", 1.0)], [])) == {
            "nodes": "nodes has no items; allowed: at least one node"
        }

    def test_every_infeasible_constraint_is_reported_at_once(self) -> None:
        operators = [operator(f"p/{k}", 1.0, node="n") for k in range(6)]
        operators[4] |= {"stateless": False}
        limits = {
            "pin": {"p/0": "closed", "p/1": "m", "p/2": "m"},
            "forbid": {"p/3": ["n", "m"]},
            "apart": [["p/1", "p/2"]],
            "may_split": ["p/4"],
            "max_moves": 1,
        }
        deployment = fleet(operators, [node("n"), node("m"), node("closed")], constraints=limits)
        result = self.faults(deployment, closed=("closed",), fixed=("p/5",))
        assert result == {
            "operators[0].node": "operator 'p/0' fits no node: it is pinned to closed; closed takes nothing new",
            "operators[3].node": (
                "operator 'p/3' fits no node: n is forbidden to it; m is forbidden to it; closed takes nothing new"
            ),
            "constraints.apart[0]": "operators p/1, p/2 must be on different nodes, but have only m between them",
            "constraints.max_moves": (
                "max_moves is 1; the other constraints make at least 4 move: p/0, p/1, p/2 and p/3"
            ),
            "constraints.may_split[0]": "may_split names 'p/4', which has state that is not by key; "
            "allowed: stateless or keyed ones",
        }

    def test_anti_affinity_over_too_few_nodes_is_infeasible(self) -> None:
        operators = [operator(f"p/{k}", 1.0) for k in range(3)]
        deployment = fleet(operators, [node("n"), node("m")], constraints={"apart": [["p/0", "p/1", "p/2"]]})
        assert "have only m and n between them" in self.faults(deployment)["constraints.apart[0]"]

    def test_conflict_of_constraints_found_by_search_is_reported(self) -> None:
        """Each pair has room, all four together have not: a ring of three on two nodes."""
        operators = [operator(f"p/{k}", 1.0) for k in range(3)]
        pairs = [["p/0", "p/1"], ["p/1", "p/2"], ["p/0", "p/2"]]
        result = self.faults(fleet(operators, [node("n"), node("m")], constraints={"apart": pairs}))
        assert result == {
            "constraints": "no placement was found that respects all constraints together: "
            "apart p/0, p/1; apart p/1, p/2; apart p/0, p/2"
        }

    def test_the_search_names_operators_where_it_proves_a_conflict(self) -> None:
        """Four that must all be apart, said pair by pair, on three nodes; too many operators to try every placement."""
        operators = [operator(f"p/{k}", 1.0) for k in range(12)]
        pairs = [[f"p/{a}", f"p/{b}"] for a in range(4) for b in range(a)]
        result = self.faults(fleet(operators, [node("n"), node("m"), node("k")], constraints={"apart": pairs}))
        assert result == {"constraints": "operators p/0, p/1, p/2, p/3 cannot be kept apart as demanded"}

    def test_fixed_operator_on_a_forbidden_place_is_infeasible(self) -> None:
        operators = [operator("p/a", 1.0, node="n"), operator("p/b", 1.0)]
        deployment = fleet(operators, [node("n"), node("m")], constraints={"pin": {"p/a": "m"}})
        assert self.faults(deployment, fixed=("p/a", "p/b")) == {
            "operators[0].node": "operator 'p/a' must stay and must leave: it is pinned to m",
            "operators[1].node": "operator 'p/b' must stay where it is, but has no place yet",
        }

    def test_start_that_breaks_constraints_is_repaired(self) -> None:
        operators = [operator("p/a", 1.0, node="n"), operator("p/b", 1.0, node="n")]
        deployment = fleet(operators, [node("n"), node("m")], constraints={"apart": [["p/a", "p/b"]]})
        report, _ = placed(deployment)
        assert len(report["moves"]) == 1
        assert report["value_before"] is None
        assert report["mace_before_s"] == 0.0

    def test_wrong_options_are_refused_with_their_paths(self) -> None:
        with pytest.raises(OptionError) as refused:
            place(drawn(1), algorithm="best", objective="cost", budget_s=None, rank_within=-1.0)
        assert [fault.path for fault in refused.value.faults] == ["algorithm", "objective", "budget_s", "rank_within"]
        with pytest.raises(OptionError) as refused:
            place(drawn(1), closed=("a", "d"), fixed=("p/99",))
        assert [fault.path for fault in refused.value.faults] == ["closed[1]", "fixed[0]"]

    def test_deployment_without_operators_gives_an_empty_proposal(self) -> None:
        report, _ = placed(fleet([], [node("n")]))
        assert report["placement"] == {}
        assert report["messages"] == ["There is no operator to place."]


def test_place_command_prints_a_proposal_or_its_faults(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleet.json"
    crowd = [operator(f"p/{k}", 6.0, node="n") for k in range(3)]
    document = fleet(crowd, [node("n"), node("m")], constraints={"max_moves": 1}).to_document()
    file.write_text(json.dumps(document))
    assert main(["place", "--rounds", "3", "--mace-every", "1", "--objective", "worst", str(file)]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["budget_s"] is None
    assert len(result["moves"]) == 1
    document["constraints"] = {"forbid": {"p/0": ["n", "m"]}}
    file.write_text(json.dumps(document))
    assert main(["place", str(file)]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "infeasible"
    assert error["faults"][0]["path"] == "operators[0].node"
