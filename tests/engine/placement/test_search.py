"""The placement search: optimal where all placements can be tried, obedient always, repeatable, stoppable."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InfeasibleError, OptionError
from engine.estimation.mace import mace
from engine.placement.local_search.search import ALGORITHMS, search
from engine.placement.problem import PlacementProblem, core_costs, faults_of, value_of
from tests.engine.placement.problems import best_by_brute_force, plain, random_problem
from tests.engine.placement.test_greedy import fleet, node, operator

SEEDS = range(120)


@pytest.fixture(scope="module")
def answers() -> dict[int, float | None]:
    """Value of the best placement by seed of the problem."""
    result = {seed: best_by_brute_force(random_problem(seed)) for seed in SEEDS}
    return {seed: None if best is None else best[0] for seed, best in result.items()}


def bursts(items: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((items, d)) * (rng.random((items, d)) < 0.3) * rng.lognormal(0.0, 1.0, (items, 1))


@pytest.fixture(scope="module")
def crowd() -> PlacementProblem:
    """60 items on 8 cores: large enough that walks differ by their seed."""
    return plain(bursts(60, 40), np.full(8, 1.2))


class TestAgainstAllPlacements:
    def test_random_problems_cover_all_kinds(self, answers: dict[int, float | None]) -> None:
        problems = [random_problem(seed) for seed in SEEDS]
        assert sum(value is None for value in answers.values()) >= 5
        for kind in ("apart", "weight", "base", "max_moves", "start"):
            with_it = [p for p in problems if getattr(p, kind) is not None and str(getattr(p, kind)) != "()"]
            assert len(with_it) >= 15, kind

    def test_search_finds_the_optimum_of_small_problems(self, answers: dict[int, float | None]) -> None:
        for seed, best in answers.items():
            if best is not None:
                result = search(random_problem(seed), rounds=400, seed=seed)
                assert result.value_s == pytest.approx(best, rel=1e-9, abs=1e-12), seed

    def test_infeasible_exactly_where_no_placement_fits(self, answers: dict[int, float | None]) -> None:
        for seed, best in answers.items():
            if best is None:
                with pytest.raises(InfeasibleError) as caught:
                    search(random_problem(seed), rounds=1)
                assert caught.value.faults

    def test_lower_bounds_hold(self, answers: dict[int, float | None]) -> None:
        kinds = set()
        for seed, best in answers.items():
            if best is not None:
                bound = search(random_problem(seed), algorithm="greedy").bound
                kinds.add(bound.kind)
                assert bound.value_s <= best * (1.0 + 1e-12), (seed, bound)
        assert {"fused", "largest operator", "base load"} <= kinds

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_every_algorithm_respects_all_constraints(self, algorithm: str, answers: dict[int, float | None]) -> None:
        for seed, best in answers.items():
            if best is None:
                continue
            problem = random_problem(seed)
            result = search(problem, algorithm=algorithm, rounds=6, seed=seed)
            for assignment in result.finalists:
                assert not faults_of(problem, assignment)
            assert result.value_s == value_of(problem, result.assignment) >= best * (1.0 - 1e-9)
            values = [value_of(problem, assignment) for assignment in result.finalists]
            assert values == pytest.approx(sorted(values), rel=1e-9, abs=1e-12)

    def test_result_is_never_worse_than_the_start(self) -> None:
        for seed in SEEDS:
            free = {"allowed": np.ones_like(random_problem(seed).allowed), "apart": (), "need": None, "room": None}
            problem = random_problem(seed, **free)
            if (problem.origin >= 0).all():
                for algorithm in ("search", "greedy"):
                    result = search(problem, algorithm=algorithm, rounds=2)
                    assert result.start_value_s is not None
                    assert result.value_s <= result.start_value_s


class TestValue:
    def test_value_of_a_placement_is_its_mace(self) -> None:
        """The pure problem and the model of deployments agree, with a capacity that varies."""
        varying = {"id": "n", "capacity_series_cps": [100.0, 20.0, 50.0]}
        deployment = fleet(
            [operator("a", 9.0, node="n"), operator("b", 30.0, "t", node="m"), operator("c", 4.0, node="n")],
            [varying, node("m", 80.0)],
        )
        result = mace(deployment)
        problem = plain(result.loads.operators().load, np.array([[100.0, 20.0, 50.0], [80.0] * 3]))
        assert core_costs(problem, np.array([0, 1, 0])) == pytest.approx(result.worst_s)

    def test_value_of_a_core_is_weighted_by_its_heaviest_item(self) -> None:
        problem = plain([[3.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [1.0, 1.0], weight=np.array([0.5, 4.0, 1.0]))
        assert core_costs(problem, np.array([0, 0, 1])).tolist() == [12.0, 0.0]
        # The large item with the one that matters less: 3 cycles over at weight 1. Alone: 2 over at a half.
        # The other two then share a core: 1 over at weight 4.
        assert search(problem, rounds=20).value_s == 3.0

    def test_a_core_without_items_costs_its_base_load_unless_there_are_weights(self) -> None:
        base = np.array([[5.0, 0.0], [0.0, 0.0]])
        assert value_of(plain([[1.0, 0.0]], [1.0, 1.0], base=base), np.array([1])) == 4.0
        weighted = plain([[1.0, 0.0]], [1.0, 1.0], base=base, weight=np.ones(1))
        assert value_of(weighted, np.array([1])) == 0.0
        assert value_of(weighted, np.array([0])) == 5.0

    def test_capacity_series_drain_with_what_follows(self) -> None:
        """Two equal items; the core that slows down right after the burst takes longer for the same excess."""
        budget = np.array([[1.0, 0.1, 0.1, 1.0], [1.0, 1.0, 1.0, 1.0]])
        problem = plain([[3.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]], budget)
        assert core_costs(problem, np.array([0, 1]))[0] == pytest.approx(3.8)
        result = search(problem, rounds=10)
        assert result.assignment.tolist() == [1, 0]
        assert result.value_s == 2.0

    def test_core_without_capacity_costs_infinity(self) -> None:
        problem = plain([[1.0, 1.0]], [0.0, 0.5])
        assert value_of(problem, np.array([0])) == np.inf
        assert search(problem).assignment.tolist() == [1]
        assert search(plain([[1.0]], [0.0])).value_s == np.inf

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"load": np.ones((2, 3)), "budget": np.ones((2, 2))}, "budget has shape"),
            ({"load": -np.ones((1, 1))}, "load has values"),
            ({"start": np.array([5])}, "start names cores"),
            ({"max_moves": -1}, "max_moves is -1"),
            ({"apart": ((0, 3),)}, "apart names an item"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, wrong: dict[str, object], message: str) -> None:
        arguments: dict[str, object] = {"load": np.ones((1, 1)), "budget": np.ones((1, 1))} | wrong
        items = len(arguments["load"])  # type: ignore[arg-type]
        cores = len(arguments["budget"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            PlacementProblem(core_node=np.arange(cores), allowed=np.ones((items, cores), dtype=bool), **arguments)  # type: ignore[arg-type]


class TestBounds:
    def test_item_larger_than_any_core_sets_the_bound(self) -> None:
        result = search(plain([[9.0, 0.0], [0.5, 0.5]], [2.0, 3.0]))
        assert result.stopped == "optimal"
        assert (result.bound.value_s, result.bound.kind) == (pytest.approx(2.0), "largest operator")

    def test_pigeonhole_bound_proves_the_optimum(self) -> None:
        result = search(plain([[1.0, 0.0]] * 3, [1.0, 1.0]))
        assert (result.bound.kind, result.stopped) == ("pigeonhole", "optimal")
        assert result.value_s == 1.0

    def test_problem_without_items_is_solved(self) -> None:
        result = search(plain(np.zeros((0, 3)), [1.0]))
        assert (result.value_s, result.stopped, len(result.assignment)) == (0.0, "optimal", 0)


class TestImpossible:
    def reasons(self, problem: PlacementProblem) -> list[str]:
        with pytest.raises(InfeasibleError) as caught:
            search(problem)
        return [str(fault) for fault in caught.value.faults]

    def test_problem_without_cores_is_infeasible(self) -> None:
        assert self.reasons(plain([[1.0]], [])) == ["cores: there are 0 cores; allowed: 1 or more"]

    def test_every_item_without_a_core_is_reported(self) -> None:
        allowed = np.array([[False, False], [True, False], [False, False]])
        assert [
            reason.split(":")[0] for reason in self.reasons(plain(np.ones((3, 2)), [1.0, 1.0], allowed=allowed))
        ] == [
            "items[0]",
            "items[2]",
        ]

    def test_anti_affinity_over_too_few_nodes_is_infeasible(self) -> None:
        """Two cores of one node are one place."""
        problem = plain(np.ones((3, 2)), [1.0] * 3, core_node=np.array([0, 0, 1]), apart=((0, 1, 2),))
        assert self.reasons(problem)[0].startswith("apart[0]: 3 items (0, 1, 2) must be on different nodes")

    def test_pins_and_groups_are_respected_together(self) -> None:
        allowed = np.array([[True, False, False], [True, True, False], [False, True, False]])
        problem = plain(np.ones((3, 2)), [1.0] * 3, allowed=allowed, apart=((0, 1), (1, 2)))
        assert "items 0, 1, 2 cannot be kept apart" in self.reasons(problem)[0]

    def test_forced_moves_count_towards_the_limit(self) -> None:
        allowed = np.array([[False, True], [False, True], [True, True]])
        problem = plain(np.ones((3, 2)), [1.0] * 2, allowed=allowed, start=np.array([0, 0, 0]), max_moves=1)
        assert "2 items must leave where they are (0, 1), but at most 1 may move" in self.reasons(problem)[0]

    def test_tight_anti_affinity_group_is_placed(self) -> None:
        """Greedy puts an item on the node another one needs; the search over the groups does not."""
        allowed = np.array([[True, True, True], [True, False, False], [True, True, False]])
        problem = plain(np.array([[9.0], [1.0], [1.0]]), [9.0, 1.0, 1.0], allowed=allowed, apart=((0, 1, 2),))
        assert search(problem).assignment.tolist() == [2, 0, 1]


class TestBudgets:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_rounds_and_seed_determine_the_result(self, crowd: PlacementProblem, algorithm: str) -> None:
        first = search(crowd, algorithm=algorithm, rounds=15, seed=3)
        again = search(crowd, algorithm=algorithm, rounds=15, seed=3)
        assert first.assignment.tolist() == again.assignment.tolist()
        assert [a.tolist() for a in first.finalists] == [a.tolist() for a in again.finalists]
        assert first.stopped == "rounds"

    def test_different_seeds_give_different_searches(self, crowd: PlacementProblem) -> None:
        walks = {search(crowd, rounds=40, seed=seed).assignment.tobytes() for seed in range(4)}
        assert len(walks) > 1

    def test_more_rounds_are_never_worse(self, crowd: PlacementProblem) -> None:
        values = [search(crowd, rounds=rounds).value_s for rounds in (1, 4, 16, 64)]
        assert values == sorted(values, reverse=True)

    def test_time_budget_cuts_the_same_search_short(self, crowd: PlacementProblem) -> None:
        cut = search(crowd, budget_s=0.05, rounds=4000)
        whole = search(crowd, rounds=cut.rounds + 1)
        assert whole.value_s <= cut.value_s <= search(crowd, rounds=max(0, cut.rounds - 1)).value_s

    def test_the_trace_falls_and_ends_at_the_value(self, crowd: PlacementProblem) -> None:
        result = search(crowd, rounds=50)
        values = [value for _, value, _ in result.trace]
        assert values == sorted(set(values), reverse=True)
        assert values[-1] == pytest.approx(result.value_s, rel=1e-9)

    def test_stop_ends_the_search_with_its_best_result(self, crowd: PlacementProblem) -> None:
        asked: list[float] = []

        def stop() -> bool:
            asked.append(1.0)
            return len(asked) > 2

        result = search(crowd, budget_s=60.0, stop=stop)
        assert (result.stopped, len(asked)) == ("stopped", 3)
        assert not faults_of(crowd, result.assignment)

    def test_progress_is_reported_and_an_exception_from_it_ends_the_search(self, crowd: PlacementProblem) -> None:
        reports: list[tuple[float, float, float, int]] = []
        result = search(crowd, rounds=300, progress=lambda *values: reports.append(values))
        assert reports[-1][1] == pytest.approx(result.value_s, rel=1e-9)
        assert reports[-1][2] == result.bound.value_s
        assert [entry[0] for entry in reports] == sorted(entry[0] for entry in reports)

        def cancelled(*_: float) -> None:
            raise RuntimeError("cancelled")

        with pytest.raises(RuntimeError, match="cancelled"):
            search(crowd, rounds=5, progress=cancelled)

    def test_workers_search_independently(self, crowd: PlacementProblem) -> None:
        """The first walk is that of a single worker, so more workers are never worse."""
        alone, both = (search(crowd, rounds=10, workers=workers) for workers in (1, 2))
        assert both.value_s <= alone.value_s
        assert both.rounds == 20
        assert both.assignment.tolist() == search(crowd, rounds=10, workers=2).assignment.tolist()

    def test_finalists_are_different(self, crowd: PlacementProblem) -> None:
        result = search(crowd, rounds=60, finalists=5)
        assert 2 <= len(result.finalists) <= 5
        assert len({assignment.tobytes() for assignment in result.finalists}) == len(result.finalists)
        assert result.finalists[0] is result.assignment

    def test_moves_are_counted(self, crowd: PlacementProblem) -> None:
        start = np.random.default_rng(1).integers(crowd.cores, size=crowd.items)
        values = []
        for most in (0, 1, 3, 60):
            limited = PlacementProblem(
                crowd.load, crowd.budget, crowd.core_node, crowd.allowed, start=start, max_moves=most
            )
            result = search(limited, rounds=40)
            assert (result.assignment != start).sum() <= most
            values.append(result.value_s)
        assert values[0] == result.start_value_s
        assert values == sorted(values, reverse=True)
        assert values[1] < values[0]

    def test_every_wrong_option_is_reported(self, crowd: PlacementProblem) -> None:
        with pytest.raises(OptionError) as caught:
            search(crowd, algorithm="magic", seed=-1, workers=0)
        assert all(
            name in caught.value.message
            for name in ("'magic'", "seed is -1", "workers is 0", "allowed: search, greedy")
        )
