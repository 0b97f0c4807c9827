"""Stock messages name the value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.errors import Fault
from apps.core.rest.problems import MISSING, reword_message, value_at


@pytest.mark.parametrize(
    ("message", "value", "told"),
    [
        ("Ensure this value is greater than or equal to 1.", 0, "cores is 0; allowed: at least 1"),
        ("Ensure this value is less than or equal to 9.5.", 10, "cores is 10; allowed: at most 9.5"),
        ("A valid number is required.", "x", "cores is 'x'; allowed: a number"),
        ("Ensure this value is greater than or equal to 1.", MISSING, "allowed: at least 1"),
        ("This field is required.", MISSING, "cores is missing"),
        ("Use letters.", "9", "Use letters."),
    ],
)
def test_stock_messages(message: str, value: Any, told: str) -> None:
    assert reword_message(Fault("nodes[2].cores", message), value) == Fault("nodes[2].cores", told)


def test_long_values_are_cut() -> None:
    assert len(reword_message(Fault("a", "A valid integer is required."), "x" * 5000).message) < 120


def test_values_are_found_by_their_path() -> None:
    data = {"nodes": [{"cores": 1}, {"cores": 0}], "objective": {"bound_s": -1}}
    assert value_at(data, "nodes[1].cores") == 0
    assert value_at(data, "objective.bound_s") == -1
    assert value_at(data, "nodes[7].cores") is MISSING
    assert value_at(data, "objective.colour") is MISSING


@pytest.mark.django_db
def test_the_api_tells_value_and_range(api: Any) -> None:
    answer = api.post("/api/v1/clusters", {"slug": "lab", "name": "Lab", "subinterval_s": -1}, format="json")
    assert answer.status_code == 400
    (fault,) = answer.json()["faults"]
    assert fault["path"] == "subinterval_s"
    assert fault["message"] in {f"subinterval_s is {value}; allowed: at least 0.001" for value in ("-1", "-1.0")}
