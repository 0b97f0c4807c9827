"""The command `simulate`, and how fast its loop is."""

import json
import time

import pytest

from engine.command_options import SimulateOptions
from engine.errors import DocumentError, OptionError
from engine.simulation import POLICIES, SimulationSettings, simulate
from engine.simulation.run import command
from tests.engine.simulation.stories import deployment, operator

FIXED = SimulateOptions(arrivals="even", outputs="fixed")


def document():
    operators = [operator("f", ("s", 1, 1), query="q"), operator("g", ("f", 1, 0.5), query="q"), operator("h", "t")]
    return deployment(operators, {"s": [2, 0, 0], "t": [0, 1, 0]}).to_document()


def test_command_reports_a_deterministic_run_in_full():
    result = command(document(), FIXED)
    assert result["queries"] == {
        "q": {
            "events": 2.0,
            "worst_s": 2.5,
            "mean_s": 2.0,
            "q99_s": 2.5,
            "worst_by_run_s": [2.5],
            "series": {
                "maximum_s": [2.5, None, None],
                "mean_s": [2.0, None, None],
                "q99_s": [2.5, None, None],
                "events": [2.0, 0.0, 0.0],
            },
        }
    }
    assert result["overall"]["worst_s"] == 3.0 and result["overall"]["events"] == 3
    assert result["utilisation"] == {"n": [1.0, 1.0, 1.0]}
    assert (result["policy"], result["runs"], result["source_events"], result["services"]) == ("stimulus-time", 1, 3, 5)
    assert result["options"]["cost_cv"] == 0.0 and json.dumps(result, allow_nan=False)


def test_repeats_use_consecutive_seeds():
    single = [command(document(), SimulateOptions(seed=seed, cost_cv=1.0)) for seed in (7, 8)]
    both = command(document(), SimulateOptions(seed=7, repeats=2, cost_cv=1.0))
    worst = [run["queries"]["q"]["worst_s"] for run in single]
    assert both["queries"]["q"]["worst_by_run_s"] == worst and both["queries"]["q"]["worst_s"] == max(worst)
    assert both["queries"]["q"]["events"] == 2.0 and both["runs"] == 2


def test_query_without_events_has_no_latency():
    silent = deployment([operator("f", "s", query="q")], {"s": [0, 0]}).to_document()
    summary = command(silent, SimulateOptions())["queries"]["q"]
    assert (summary["events"], summary["worst_s"], summary["series"]["maximum_s"]) == (0.0, None, [None, None])


def test_every_fault_of_the_options_is_reported_at_once():
    with pytest.raises(OptionError) as refusal:
        command(document(), SimulateOptions(policy="lifo", seed=2**31, repeats=2000, cost_cv=11.0))
    assert [fault.path for fault in refusal.value.faults] == ["policy", "seed", "repeats", "cost_cv"]
    assert "'lifo' is refused; allowed: stimulus-time, fifo, round-robin, longest-queue" in str(refusal.value)


def test_faulty_document_is_refused():
    with pytest.raises(DocumentError, match="subinterval_s"):
        command({**document(), "subinterval_s": 0}, SimulateOptions())


def _interpreted_s(rounds: int) -> float:
    """CPU seconds of so many rounds of an interpreted loop: what this machine takes for a step of Python."""
    begin, total = time.process_time(), 0
    for number in range(rounds):
        total = (total * 31 + number) & 0xFFFF
    return time.process_time() - begin


def test_simulated_service_costs_less_than_a_few_python_steps():
    """Guards the compiled loop, about four steps a service: with reference counts it is twelve times slower."""
    chain = [operator("o0", ("s", 1, 1))] + [operator(f"o{i}", (f"o{i - 1}", 1, 1)) for i in range(1, 14)]
    system = deployment(chain, {"s": [750.0] * 100}, nodes=[{"id": "n", "capacity_cps": 14_000.0}])
    simulate(system.with_arrivals({"s": [1.0] * 100}), SimulationSettings())
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        run = simulate(system, SimulationSettings(POLICIES["stimulus-time"], cost_cv=0.5))
        seconds.append(time.process_time() - begin)
    assert run.services == 1_050_000
    assert min(seconds) < 16 * min(_interpreted_s(run.services) for _ in range(3))
