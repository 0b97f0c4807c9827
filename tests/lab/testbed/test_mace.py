"""Latencies on unequal hosts: what is sent arrives, what is predicted rests on what was measured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lab.testbed.command import main
from lab.testbed.mace import HOSTS, PLACEMENTS, compare, queries_in_turn
from lab.testbed.testbed import missing_needs

pytestmark = pytest.mark.process
needs_testbed = pytest.mark.skipif(bool(missing_needs()), reason=f"no testbed: {'; '.join(missing_needs())}")


@needs_testbed
def test_one_load_is_predicted_and_measured_with_the_placements_asked_for() -> None:
    cells = list(compare(seconds=5.0, loads=[0.4], placements=["Corr", "search"], seed=1))
    assert [cell.placement for cell in cells] == ["Corr", "search"]
    for cell in cells:
        assert set(cell.measured) == set(cell.predicted)
        assert set(cell.measured) == set(itertools.product(("q1", "q2"), ("worst", "q0.99", "mean")))
        assert 0.1 < cell.busiest < 1.0
        for query in ("q1", "q2"):
            least = 0.01 / max(host.cores or 1.0 for host in HOSTS)
            mean, tail, worst = (cell.measured[query, name] for name in ("mean", "q0.99", "worst"))
            assert least < mean <= tail <= worst
            low, high = (cell.predicted[query, "mean"][i] for i in (1, 2))
            assert 0.0 < low < high


def test_deployment_has_the_hosts_and_counts_every_arrival() -> None:
    times_s = {"s1": np.array([0.1, 0.2, 1.9]), "s2": np.array([1.0])}
    deployment = queries_in_turn(times_s, 2.0)
    assert [node.id for node in deployment.nodes] == [host.name for host in HOSTS]
    assert deployment.arrivals.sum(axis=1).tolist() == [3.0, 1.0]
    assert deployment.queries == ("q1", "q2")


@needs_testbed
def test_wrong_options_are_told_all_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mace", "--seconds", "1", "--loads", "0", "2", "--placements", "best"]) == 2
    told = capsys.readouterr().err
    assert "--loads has 0; allowed" in told and "--loads has 2; allowed" in told and "--seconds is 1; allowed" in told
    assert f"--placements has 'best'; allowed: {', '.join(PLACEMENTS)}" in told
    assert main(["chunks", "--hosts", "3", "--seconds", "2"]) == 2
    told = capsys.readouterr().err
    assert "--hosts has 3; allowed: 1, 4, 7, 13" in told and "--seconds is 2; allowed" in told
