"""Benches are prepared once, in a thread of their own, and sweeps are read against objectives."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from django.utils import timezone

from apps.core.errors import Malformed, Unavailable
from apps.planning.benches import Benches
from apps.planning.sweeps import BenchObjective, BenchSweep, bench_question, bench_sweep
from apps.planning.what_if_options import Inputs, resized_pool, sweep_sizes
from apps.queries.backlogs import backlogs_measure
from apps.queries.models import OperatorInput, Query
from engine.document.deployment import Deployment
from engine.provisioning.answers.pools import NodeLoss, PoolSize
from tests.apps import small_cluster
from tests.servers import PATIENCE_S


def deployment(nodes: int = 12) -> Deployment:
    rows = [{"id": f"n{i}", "capacity_cps": 1.0, "pool": "large" if i < 4 else "small"} for i in range(nodes)]
    return Deployment.parse({"subinterval_s": 1.0, "subintervals": 4, "nodes": rows})


def test_a_bench_is_prepared_once_and_the_oldest_is_evicted() -> None:
    prepared: list[Deployment] = []
    go = threading.Event()

    def prepare(asked: Deployment, closed: Any) -> Any:
        go.wait(PATIENCE_S)
        prepared.append(asked)
        return object()

    benches = Benches(prepare, most=2)
    assert benches.ask("a", deployment()) is None
    with pytest.raises(Unavailable):
        benches.require("a", deployment())
    go.set()
    first = benches.require("a", deployment(), patience_s=PATIENCE_S)
    assert benches.ask("a", deployment()) is first
    for key in ("b", "c"):
        benches.require(key, deployment(), patience_s=PATIENCE_S)
    assert (len(prepared), len(benches)) == (3, 2)
    assert benches.require("a", deployment(), patience_s=PATIENCE_S) is not first


def test_a_failed_preparation_is_raised_and_retried() -> None:
    tries = []

    def prepare(asked: Deployment, closed: Any) -> Any:
        tries.append(asked)
        raise ValueError("not yet")

    benches = Benches(prepare)
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            benches.require("a", deployment(), patience_s=PATIENCE_S)
    assert len(tries) == 2


def test_sweep_sizes_surround_the_present_one_and_grow_with_load() -> None:
    now = list(sweep_sizes(deployment(), Inputs()))
    assert now[0] == 9
    assert 12 in now
    assert len(now) == 13
    assert max(sweep_sizes(deployment(), Inputs(factor=1.6))) >= 22
    assert min(sweep_sizes(deployment(), Inputs(factor=0.5))) <= 6
    assert 40 in sweep_sizes(deployment(), Inputs(nodes=40))
    assert len(sweep_sizes(deployment(400), Inputs(factor=2.0))) <= 24
    assert min(sweep_sizes(deployment(), Inputs(pool="large"))) == 9  # the eight small ones stay


def test_bench_inputs_become_changes_of_a_scenario() -> None:
    inputs = Inputs(factor=1.3, sources={"b": 2.0}, pool="large")
    assert inputs.changes(deployment(), 14) == [
        {"scale_source": "*", "by": 1.3},
        {"scale_source": "b", "by": 2.0},
        {"resize_pool": "large", "nodes": 6},
    ]
    assert Inputs().changes(deployment(), 12) == []
    assert resized_pool(deployment(), "") == "small"


def size(nodes: int, up: float, lost: float, bound: float = 10.0) -> PoolSize:
    def late(value: float) -> tuple[str, ...]:
        return ("q",) if value > bound else ()

    loss = NodeLoss(lost, lost / bound, up, "n1", late(lost))
    return PoolSize(nodes, nodes * 1.0, up, up / bound, {"q": up}, late(up), (), loss, None)


def test_the_smallest_size_survives_a_loss_when_lose_one_is_set() -> None:
    sizes = [size(11, 14.0, 30.0), size(12, 9.0, 12.0), size(13, 7.0, 9.0)]
    objectives = {"q": BenchObjective("worst", 10.0, 10.0)}
    strict, lenient = (BenchSweep(12, sizes, objectives, lose) for lose in (True, False))
    assert [siz.state for siz in strict.sizes] == ["breached", "at_risk", "holds"]
    assert strict.smallest is not None
    assert lenient.smallest is not None
    assert (strict.smallest.nodes, lenient.smallest.nodes) == (13, 12)
    assert strict.bound_s == 10.0
    before = strict.before(strict.smallest)
    assert before is not None
    assert (before.nodes, before.is_now) == (12, True)


def test_no_number_is_enough_while_nothing_is_known_of_a_query() -> None:
    sizes = [size(11, 14.0, 30.0), size(12, 7.0, 9.0)]
    sweep = BenchSweep(12, sizes, {"q": BenchObjective("worst", 10.0, 10.0)}, True, unknown=["q"])
    assert [siz.state for siz in sweep.sizes] == ["breached", "unknown"]
    assert sweep.smallest is None and sweep.sizes[1].unknown == ("q",)


@pytest.mark.django_db
def test_bench_knows_what_is_unknown_and_what_waits() -> None:
    cluster = small_cluster.small_cluster()
    query = small_cluster.start_query(cluster, "one", 0.6, "a")
    small_cluster.start_query(cluster, "two", 0.6, "b")
    assert bench_question(cluster, Inputs()).unknown == {} and bench_question(cluster, Inputs()).waiting == []
    OperatorInput.objects.filter(operator__version__query=query).update(evidence="unknown", cycles_per_event=None)
    backlogs_measure(query=Query.objects.get(name="two"), events={"clicks": 500.0}, read_at=timezone.now())
    question = bench_question(cluster, Inputs())
    assert list(question.unknown) == ["one"] and "one/" in question.unknown["one"]
    assert question.waiting == ["two"]


@pytest.mark.django_db
def test_the_bench_answers_a_small_cluster_at_once() -> None:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "one", 0.6, "a")
    small_cluster.start_query(cluster, "two", 0.6, "b")
    question, sweep = bench_sweep(cluster, Inputs(factor=1.5, sizes=(1, 2, 3)), patience_s=120)
    assert [siz.state for siz in sweep.sizes] == ["breached", "at_risk", "holds"]
    assert question.key != bench_question(cluster, Inputs(headroom_s=1.0)).key
    cluster.pools.update(price_per_hour="0.5")
    assert (
        question.key != bench_question(cluster, Inputs(factor=1.5)).key
    )  # a price changes no snapshot, but the answer
    with pytest.raises(Malformed) as refused:
        bench_question(cluster, Inputs(sources={"nope": 2.0}, pool="none", headroom_s=2.0))
    assert {fault.path for fault in refused.value.faults} == {
        "options.sources.nope",
        "options.pool",
        "options.headroom_s",
    }


@pytest.mark.django_db
def test_sweep_of_a_lasting_overload_is_breached_for_any_number_of_nodes() -> None:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "steady", 1.5, "a", bound_s=60.0)
    small_cluster.start_query(cluster, "calm", 0.2, "b", bound_s=60.0)
    _, sweep = bench_sweep(cluster, Inputs(sizes=(1, 2, 6)), patience_s=120)
    assert [siz.state for siz in sweep.sizes] == ["breached"] * 3
    assert sweep.smallest is None
    last = sweep.sizes[-1]
    assert (last.endless, last.late, last.queries["steady"], last.worst_s, last.share) == (
        ("steady",),
        ("steady",),
        None,
        None,
        None,
    )
    assert last.queries["calm"] == 0.0


@pytest.mark.process
def test_numba_is_loaded_by_the_first_bench_and_not_before() -> None:
    asked = "import sys, apps.planning.benches as b; print('numba' in sys.modules, len(b.BENCHES))"
    process = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "0"]
