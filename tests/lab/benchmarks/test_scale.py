"""The benchmark of growth: its clusters, its figures and budgets, and that a verdict's work does not grow."""

from __future__ import annotations

import io
import json
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from engine.admission.decision import decide
from engine.document.deployment import Deployment
from engine.estimation.flow import flow
from lab.benchmarks.scale.clusters import KINDS, candidate_document, cluster_document
from lab.benchmarks.scale.command import main
from lab.benchmarks.scale.console import CONSOLE_STEPS, console_environment, run_console_steps
from lab.benchmarks.scale.figures import ScaleFigure, Target, figures_json, growth_exponent, print_figures
from lab.benchmarks.scale.steps import ScaleStep, run_steps
from lab.benchmarks.scale.verdicts import verdict_work
from lab.benchmarks.scale.work import count_work

SLICES = 240


def cluster(kind: str, queries: int) -> Deployment:
    return Deployment.parse(cluster_document(kind, queries, slices=SLICES))


@pytest.mark.parametrize("kind", KINDS)
def test_cluster_of_every_kind_has_five_operators_a_query_and_is_not_late(kind: str) -> None:
    deployment = cluster(kind, 48)
    assert len(deployment.operators) == 5 * 48
    assert deployment.digest == cluster(kind, 48).digest
    assert flow(deployment, by_input=True).wc < 2.0
    assert decide(deployment, candidate_document(1, 48), mace_every=4).verdict == "admit"


def test_kinds_differ_in_what_their_queries_share() -> None:
    uniform, skewed, giant, together = (cluster(kind, 48) for kind in KINDS)
    sizes = [len(skewed.operators_of(query)) for query in skewed.queries]
    assert max(sizes) > 5 * min(sizes)
    assert {len(uniform.operators_of(query)) for query in uniform.queries} == {5}
    assert giant.queries == ("giant",)
    assert {replica.node for operator in together.operators for replica in operator.replicas} == {"n0"}


def test_work_of_a_verdict_does_not_grow_with_the_number_of_queries() -> None:
    """Only what a candidate's cores reach is estimated anew, whatever else the cluster has."""
    few, many = (verdict_work(cluster("uniform", n), "uniform", n, range(5)) for n in (100, 1000))
    for name in ("replicas", "stages", "reports"):
        before, after = (sum(getattr(count, name) for count in counts) for counts in (few, many))
        assert 0 < after <= 1.5 * before, name


def test_counted_work_is_that_of_the_block_alone() -> None:
    deployment = cluster("uniform", 16)
    with count_work() as counted:
        flow(deployment)
    flow(deployment)
    assert (counted.replicas, counted.stages, counted.reports) == (80, 0, 0)
    assert counted.calls > 0


def test_growth_is_the_exponent_over_all_sizes_that_have_a_figure() -> None:
    row = [ScaleFigure("a", "uniform", n, 3.0 * n**0.5) for n in (100, 1000)]
    unfinished = ScaleFigure("a", "uniform", 10_000, None, note="not within 5 s")
    assert growth_exponent([*row, unfinished]) == pytest.approx(0.5)
    assert growth_exponent([row[0], unfinished]) is None


def test_table_has_ratios_targets_and_what_did_not_finish() -> None:
    figures = [
        ScaleFigure("verdict", "uniform", 100, 0.25, cpu_s=0.2),
        ScaleFigure("verdict", "uniform", 1000, 0.5, note="3 admit"),
        ScaleFigure("whole", "uniform", 100, None, note="not within 5 s"),
    ]
    targets = [Target("verdict", 0.3, queries=100), Target("verdict", 1.5, queries=1000, over=100)]
    screen = io.StringIO()
    assert not print_figures(figures, targets, screen)
    printed = screen.getvalue()
    assert "0.25 s (0.2 CPU)" in printed and "0.5 s x2.00" in printed and "n^0.30" in printed
    assert "at most 0.3 at 100: met; at most 1.5 times that at 100 at 1,000: missed" in printed
    assert "not within 5 s" in printed and "3 admit" in printed
    row = json.loads(figures_json("a machine", figures, targets))["rows"][0]
    assert [target["verdict"] for target in row["targets"]] == ["met", "missed"]
    assert print_figures(figures[:1], targets[:1], screen)


def test_target_of_what_did_not_finish_is_missed() -> None:
    figure = ScaleFigure("whole", "uniform", 10_000, None, note="not within 5 s")
    assert not print_figures([figure], [Target("whole", 60.0)], io.StringIO())


def _work(said: Connection, steps: list[str]) -> None:
    said.send([])
    said.send([])
    for step in steps:
        if step == "hangs":
            time.sleep(600)
        if step == "dies":
            raise SystemExit(3)
        said.send([ScaleFigure(step, "uniform", 100, 1.0)])


@pytest.mark.process
def test_step_that_hangs_or_dies_is_said_and_the_rest_is_measured() -> None:
    names = {"first": "", "hangs": "", "behind": "hangs", "dies": "", "last": ""}
    steps = [ScaleStep(name, (name,), needs=needs) for name, needs in names.items()]
    found = list(run_steps(_work, steps, ScaleFigure("", "uniform", 100, None), budget_s=2.0))
    said = {figure.name: figure.value if figure.value is not None else figure.note for figure in found}
    late = "not within 2 s"
    assert said == {"first": 1.0, "hangs": late, "behind": late, "dies": "ended with 3", "last": 1.0}


def test_size_without_the_memory_for_it_is_said_not_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory: Any = type("Memory", (), {"available": 10**6})
    monkeypatch.setattr("lab.benchmarks.scale.command.psutil.virtual_memory", lambda: memory)
    assert main(["--sizes", "100", "--kinds", "uniform"]) == 1
    printed = capsys.readouterr()
    assert "uniform, 100 queries: not run: needs about" in printed.err
    assert "verdict, warm, p50" in printed.out


def test_options_outside_their_range_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--sizes", "3"])
    assert "sizes are at least 16" in capsys.readouterr().err


@pytest.mark.process
def test_console_imports_estimates_and_counts_the_statements_of_its_pages() -> None:
    like = ScaleFigure("", "uniform", 16, None, database="SQLite")
    steps = [step for step in CONSOLE_STEPS if step.name in ("import", "estimate", "pages")]
    with console_environment("SQLite") as env:
        assert env is not None
        work = partial(run_console_steps, env, like, 1.0, 1)
        found = {figure.name: figure for figure in run_steps(work, steps, like, budget_s=300.0)}
    assert all(figure.value is not None for figure in found.values()), found
    assert found.keys() == {name for step in steps for name in step.figures}
    assert all(not figure.note for name, figure in found.items() if name.endswith("p95"))
    assert (found["fleet, SQL statements"].value or 0) > 5
    assert not Path(env["SLUICE_VAR_DIR"]).exists()
