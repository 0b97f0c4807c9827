"""Policies beside stimulus time: an estimate says the factor it lacks, and no verdict passes within it silently."""

from __future__ import annotations

from typing import Any

import pytest

from engine.admission.decision import decide
from engine.document.deployment import Deployment
from engine.document.policies import PolicyGap, policy_gap
from engine.estimation.estimate import estimate
from tests.engine.admission.stories import candidate, codes, operator, running


def estimated(bound_s: float, **node: Any) -> Any:
    """Two queries on one node; the worst case of p is 1.05 s and more by stimulus time."""
    base = running(bound_s).to_document()
    base["nodes"][0] |= node
    base["operators"].append(operator("o/op", 0.5, node="n1", query="o"))
    return estimate(Deployment.parse(base)).queries["p"]


def test_estimate_of_another_policy_says_the_factor_it_lacks() -> None:
    plain, fifo = estimated(9.0), estimated(9.0, scheduling="fcfs")
    assert plain.gap is None and "scheduling" not in plain.answer().to_dict()
    told = fifo.answer().scheduling
    assert told.factor == 1.63 and "simulations" in told.factor_source
    assert told.high_s <= fifo.high_s * 1.63 + 1e-9 and told.high_s > fifo.high_s
    assert "n1 runs first-in first-out" in str(told.lacking)


def test_objective_within_the_lacking_factor_is_at_risk() -> None:
    plain = estimated(9.0)
    bound_s = plain.high_s * 1.1
    assert estimated(bound_s).state == "holds"
    assert estimated(bound_s, scheduling="fcfs").state == "at_risk"
    assert estimated(9.0, scheduling="round-robin").state == "holds"


def test_operator_alone_on_its_server_lacks_nothing() -> None:
    base = running(9.0).to_document() | {"scheduling": "fcfs"}
    assert estimate(Deployment.parse(base)).queries["p"].gap is None


def test_factor_nobody_measured_is_unknown_and_leaves_the_proven_bound() -> None:
    gap = policy_gap({"n": "klink"}, ["n"], "worst", False, None)
    assert gap is not None and gap.factor is None and gap.high_s(1.0, 0.0) is None
    assert "not known" in str(gap.words(None))
    assert PolicyGap({"n": "klink"}, None, 4.0).high_s(1.0, 0.0) == 4.0
    assert PolicyGap({"n": "fcfs"}, 1.63, 9.0).high_s(2.0, 1.0) == pytest.approx(2.63)  # waits are no queue


def test_factor_of_a_worst_case_is_none_of_a_mean() -> None:
    fifo, robin = (policy_gap({"n": policy}, ["n"], "mean", False, None) for policy in ("fcfs", "round-robin"))
    assert fifo is not None and fifo.factor is None
    assert robin is not None and robin.factor == 1.0


def test_admit_within_the_lacking_factor_is_for_a_person() -> None:
    by_stimulus_time = decide(running(2.2), candidate(2.0))
    assert by_stimulus_time.verdict == "admit"
    fifo = decide(running(2.2, scheduling="fcfs"), candidate(2.0))
    assert fifo.verdict == "review"
    assert {"policy_at_risk", "neighbour_policy_at_risk"} <= set(codes(fifo, "watch"))
    assert "first-in first-out" in fifo.headline and "stimulus time" in fifo.headline
    assert decide(running(9.0, scheduling="fcfs"), candidate(9.0)).verdict == "admit"
