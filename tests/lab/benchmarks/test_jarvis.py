"""The Jarvis benchmark builds its instances and compares methods; its speed is not tested."""

import pytest

from engine.jarvis.partition import Frontier
from engine.jarvis.settings import AdaptationSettings
from lab.benchmarks import jarvis, jarvis_real
from lab.benchmarks.jarvis import Instance, highs, instances
from lab.benchmarks.jarvis_bytes import ProbeLoad, planetlab_ms, sent_bytes
from lab.benchmarks.jarvis_convergence import DEFAULT, METHODS
from lab.benchmarks.jarvis_real import LINES_S, LogAgent
from lab.benchmarks.jarvis_throughput import ADAPTING, BEST, queries, several_sources, sustained, throughput


def test_benchmark_instances_cover_all_kinds():
    drawn = instances(300)
    relays = [relay for entry in drawn for relay in entry.relay]
    assert {len(entry.relay) for entry in drawn} == set(range(1, 11))
    assert sum(entry.sizes is None for entry in drawn) == 150
    assert 0.0 in relays
    assert 1.0 in relays
    assert 2.5 < max(relays) <= 3.0
    assert 0.0 in [cost for entry in drawn for cost in entry.cost]


def test_reference_solver_is_the_papers_linear_program():
    """A pipeline whose filter alone is not worth its CPU time: the best plan mixes all and nothing."""
    entry = Instance((0.86, 0.5), (1e-6, 4e-6), (86.0, 86.0, 52.0), 0.1, 40_000.0)
    assert highs(entry) == pytest.approx(2_006_666.667, rel=1e-9)
    plan = Frontier.of(entry.relay, entry.cost, entry.sizes).at(entry.budget_s, entry.n_records)
    assert plan.objective == pytest.approx(highs(entry), rel=1e-9)


def test_throughput_reproduces_the_papers_ratios(capsys):
    assert throughput(budgets=()) and several_sources()
    printed = capsys.readouterr().out
    assert "S2SProbe 80 %: over best-op        1.25      1.10    1.10      1.25    1.25" in printed
    assert "33, 19" in printed


def test_benchmark_holds_predicted_bytes_against_those_sent(capsys):
    assert sent_bytes([ProbeLoad(2, 5)], planetlab_ms(None, hosts=100))
    printed = capsys.readouterr().out
    assert printed.count("load factor") == 7
    assert "meets 5 %" in printed


def test_no_strategy_sustains_more_than_the_best_plan():
    for query in queries().values():
        best = sustained(query, BEST, 0.2, 18.0)
        for strategy in ("all-sp", "filter-src", "best-op", *ADAPTING):
            assert sustained(query, strategy, 0.2, 18.0) <= 1.03 * best


def test_every_simulated_part_of_the_benchmark_runs(capsys):
    assert jarvis.main(["--quick", "--parts", "convergence,scale"]) in (0, 1)
    printed = capsys.readouterr().out
    assert all(method in printed for method in METHODS)
    assert f"{DEFAULT}: settles every time" in printed
    assert "of a core" in printed


def test_unknown_benchmark_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        jarvis.main(["--parts", "solver,speed"])
    assert "speed" in capsys.readouterr().err


def test_benchmark_observes_a_real_agent(tmp_path):
    agent = LogAgent(tmp_path, AdaptationSettings(method="all-sp"), 1.0)
    rows = agent.run(3)
    agent.close()
    assert sum(row["n"] for row in rows) >= LINES_S
    assert all(row["bs"] == row["bi"] and row["o"] == 0 for row in rows)
    assert sum(file.stat().st_size for file in (tmp_path / "frames").iterdir()) > 100_000


def test_change_is_settled_once_epochs_match_the_last_ones():
    def row(share, overflow=0):
        return {"p": [1.0, share], "o": overflow, "n": 100}

    settled = [row(0.9, 50), row(0.4), *[row(0.5)] * 6]
    assert jarvis_real._settling(settled) == 2
    assert jarvis_real._settling([*settled[:-4], row(0.5, 50), *settled[-3:]]) == 5
    assert jarvis_real._settling([row(0.5, 50)] * 8) is None
