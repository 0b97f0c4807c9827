"""Policies to compare with rank by one figure each."""

from __future__ import annotations

import pytest

from lab.klink.policies import COMPARED_POLICIES
from tests.engine.klink.test_policies import here, picked, query


def test_compared_policies_rank_by_one_figure_each() -> None:
    assert picked("least-slack", here("b"), query("a", slack_ms=-900.0)) == "a"
    assert picked("nearest-deadline", here("b"), query("a", deadline_ms=5.0)) == "a"
    assert picked("highest-rate", query("b"), query("a", ideal_ms=0.1)) == "a"
    assert picked("highest-rate", query("a"), query("b", selectivity=[0.9])) == "b"
    assert picked("response-ratio", query("b"), query("a", work_ms=1.0)) == "a"


@pytest.mark.parametrize("name", COMPARED_POLICIES)
def test_equals_are_decided_by_id(name: str) -> None:
    assert picked(name, query("b"), query("a")) == "a"
