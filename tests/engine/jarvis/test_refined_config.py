"""The refined document: read whole or refused with every fault, and judged by the source it comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DocumentError
from engine.jarvis.partition import Frontier
from engine.jarvis.refined_config import RefinedAdaptation, judge_config
from tests.engine.jarvis.refined_documents import PLAN, document

NOW_US = 1_700_000_100_000_000


def faults(**changes: Any) -> list[str]:
    """Paths of what is wrong with the document."""
    with pytest.raises(DocumentError) as refused:
        RefinedAdaptation.parse(document(**changes))
    return [fault.path for fault in refused.value.faults]


def reasons(*, changes: dict | None = None, **here: Any) -> list[str]:
    """Reasons of a source with this pipeline to refuse a document."""
    known: dict[str, Any] = {
        "current": 117,
        "query": "this-host/s2s-probe",
        "plan": PLAN,
        "agent": "a-1",
        "operators": ["errors", "pairs"],
        "now_us": NOW_US,
    }
    return judge_config(RefinedAdaptation.parse(document(**changes or {})), **(known | here))


def test_valid_document_is_read_and_accepted():
    refined = RefinedAdaptation.parse(document())
    assert (refined.version, refined.settings.margin, refined.plan_prior.theta) == (118, 0.95, 0.8)
    assert refined.operators[1].groups == 500
    assert reasons(known_costs=[1.1e-6, None]) == []


@pytest.mark.parametrize("torn", [lambda whole: {**whole, "version": 119}, lambda whole: {**whole, "ttl_s": 10**9}])
def test_document_with_wrong_checksum_is_refused(torn):
    with pytest.raises(DocumentError, match="checksum"):
        RefinedAdaptation.parse(torn(document()))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"margin": 0.5}, "margin"),
        ({"margin": 0.99}, "margin"),
        ({"floor": 0.02}, "floor"),
        ({"levels": 100}, "levels"),
        ({"method": "stepwise-lp"}, "method"),
        ({"drained_thres": 0.2}, "drained_thres"),
        ({"idle_thres": 0.01}, "idle_thres"),
        ({"z_least": 0.1}, "z_least"),
        ({"z_most": 5}, "z_most"),
        ({"method": "fastest"}, "method"),
        ({"load_factors": [1.1]}, "load_factors[0]"),
    ],
)
def test_settings_that_are_unknown_or_outside_their_safe_range_are_refused(settings, field):
    assert faults(settings=settings) == [f"settings.{field}"]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"cost_s": -1e-6}, "operators[0].cost_s"),
        ({"cost_s": float("inf")}, "operators[0].cost_s"),
        ({"relay": float("nan")}, "operators[0].relay"),
        ({"groups": 0}, "operators[0].groups"),
    ],
)
def test_figures_out_of_range_are_refused(wrong, path):
    first, second = document()["operators"]
    assert faults(operators=[first | wrong, second]) == [path]


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        ({"lo": 1, "hi": 2, "theta": 0.8, "load_factors": [1.0]}, "plan_prior.load_factors"),
        ({"lo": 2, "hi": 1, "theta": 0.8, "load_factors": [1.0, 0.8]}, "plan_prior"),
        ({"lo": 1, "hi": 3, "theta": 0.8, "load_factors": [1.0, 0.8]}, "plan_prior"),
        ({"lo": 1, "hi": 2, "theta": 0.8, "load_factors": [0.8, 1.0]}, "plan_prior.load_factors"),
        ({"lo": 0, "hi": 0, "theta": 0.0, "load_factors": [1.0, 0.0]}, "plan_prior.load_factors"),
        ({"lo": 0, "hi": 2, "theta": 1.5, "load_factors": [1.0, 1.0]}, "plan_prior.theta"),
    ],
)
def test_contradictory_plan_is_refused(plan, path):
    assert faults(plan_prior=plan) == [path]


def test_operator_without_records_may_have_any_load_factor():
    plan = {"lo": 0, "hi": 0, "theta": 0.0, "load_factors": [0.0, 1.0]}
    assert RefinedAdaptation.parse(document(plan_prior=plan)).plan_prior.load_factors == (0.0, 1.0)


def test_wrong_lengths_and_ranges_are_reported_together():
    result = faults(record_bytes=[86], fitted={"records": [9, 1], "cores": [0.1, 0.8]})
    assert result == ["record_bytes", "fitted.records"]


@given(st.lists(st.floats(0, 3), min_size=2, max_size=2), st.floats(0, 1e-3))
def test_solver_plans_are_always_valid(relay, budget_s):
    plan = Frontier.of(relay, [1e-6, 4e-6], [86, 86, 52]).at(budget_s, 1000.0)
    prior = {"lo": plan.lo, "hi": plan.hi, "theta": plan.theta, "load_factors": list(plan.load_factors)}
    assert RefinedAdaptation.parse(document(plan_prior=prior)).plan_prior.hi == plan.hi


@pytest.mark.parametrize(
    ("here", "says"),
    [
        ({"current": 118}, "version 118 is not above 118"),
        ({"current": 120}, "version 118 is not above 120"),
        ({"query": "this-host/other"}, "it is for query this-host/s2s-probe; here runs this-host/other"),
        ({"plan": "cd" * 32}, "it is for plan abababababab; here runs cdcdcdcdcdcd"),
        ({"operators": ["errors"]}, "its operators are errors, pairs; here may run errors"),
        ({"now_us": NOW_US + 3_600_000_000}, "it was valid for 3600 s and is older"),
    ],
)
def test_outdated_or_misaddressed_document_is_refused(here, says):
    (reason,) = reasons(**here)
    assert reason.startswith(says)


def test_document_for_another_agent_is_refused():
    (reason,) = reasons(changes={"agent": "a-2"})
    assert reason == "it is for agent a-2; this one is a-1"


@pytest.mark.parametrize("seen_s", [0.9e-7, 1.1e-5])
def test_tenfold_cost_difference_needs_a_thousand_records(seen_s):
    first, second = document()["operators"]
    little = {"operators": [first | {"records": 999}, second]}
    (reason,) = reasons(changes=little, known_costs=[seen_s, None])
    assert "in errors by it" in reason
    assert "999 records stand behind it, 1000 are needed" in reason
    assert reasons(changes={"operators": [first | {"records": 1000}, second]}, known_costs=[seen_s, None]) == []
    assert reasons(changes=little, known_costs=[None, seen_s]) == []


def test_cost_difference_explained_by_groups_is_accepted():
    """3 microseconds a record and 10 a group: 13 where every record is a group of its own."""
    first, second = document()["operators"]
    little = {"operators": [first, second | {"records": 10}]}
    assert reasons(changes=little, known_costs=[None, 1.2e-4]) == []
    assert len(reasons(changes=little, known_costs=[None, 1.4e-4])) == 1


@pytest.mark.parametrize(("groups", "cost_us"), [(None, 13.0), (500, 3 + 10 * 0.4323), (1e9, 13.0), (1e-3, 3.0)])
def test_record_costs_less_when_it_is_seldom_a_new_group(groups, cost_us):
    _, second = document()["operators"]
    refined = RefinedAdaptation.parse(document(operators=[document()["operators"][0], second | {"groups": groups}]))
    assert refined.operators[1].cost_at(1000) * 1e6 == pytest.approx(cost_us, abs=1e-3)


def test_more_load_factors_than_operators_are_refused():
    settings = {"method": "fixed", "load_factors": [1.0, 0.5, 0.5]}
    (reason,) = reasons(changes={"settings": settings})
    assert reason == "it sets 3 load factors; here may run 2"
