"""Latencies on unequal hosts: what is sent arrives, what is predicted rests on what was measured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lab.testbed.command import main
from lab.testbed.mace import HOSTS, OPERATORS, compare
from lab.testbed.testbed import missing_needs

pytestmark = pytest.mark.process
needs_testbed = pytest.mark.skipif(bool(missing_needs()), reason=f"no testbed: {'; '.join(missing_needs())}")


@needs_testbed
def test_one_load_is_predicted_and_measured_with_every_placement() -> None:
    cells = list(compare(seconds=5.0, loads=[0.4], seed=1))
    assert [cell.placement for cell in cells] == ["in turn", "Mace-HC", "search"]
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


def test_operators_form_two_queries_that_read_what_is_there() -> None:
    known = {"s1", "s2"}
    for operator in OPERATORS:
        assert set(operator.reads) <= known
        known.add(operator.name)
    assert {operator.query for operator in OPERATORS} == {"q1", "q2"}
    assert np.isclose(sum(host.cores or 0.0 for host in HOSTS), 1.05)


@needs_testbed
def test_wrong_options_are_told_all_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mace", "--seconds", "1", "--loads", "0", "2"]) == 2
    told = capsys.readouterr().err
    assert "--loads has 0; allowed" in told and "--loads has 2; allowed" in told and "--seconds is 1; allowed" in told
