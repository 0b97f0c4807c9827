"""Promises: what changed around a query, and the parts of an error, in surroundings small enough to reckon with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.admission.promises import explain_error, query_surroundings, surroundings_changes
from engine.document.deployment import Deployment
from tests.engine.admission.stories import ARRIVALS, operator


def surroundings(*operators: Any, arrivals: Any = ARRIVALS, capacity: float = 100.0) -> Deployment:
    """Of `p` on n1; what is on n2 is none of its business."""
    document: dict[str, Any] = {
        "subinterval_s": 1.0,
        "sources": [{"id": "a", "arrivals": arrivals, "dispersion": 0.0, "dispersion_step_s": 1.0}],
        "nodes": [{"id": "n1", "capacity_cps": capacity}, {"id": "n2", "capacity_cps": 100.0}],
        "operators": list(operators) or [operator("p/op", 5.0, node="n1", query="p")],
        "objectives": [{"query": "p", "statistic": "worst", "bound_s": 2.2}],
    }
    whole = Deployment.parse(document)
    found = query_surroundings(whole, "p")
    assert found is not None
    return found


KEPT = surroundings()
EVERYTHING = {"sources_measured": {"a"}, "operators_measured": {"p/op", "far/op", "q/op"}}


def parts(present: Deployment, measured_s: float = 2.0, promised_s: float = 1.05, **measured: Any) -> Any:
    return explain_error(
        KEPT, present, "p", promised_s=promised_s, measured_s=measured_s, mace_every=1, **(EVERYTHING | measured)
    )


def test_surroundings_leave_out_what_shares_no_server() -> None:
    neighbour, far = operator("q/op", 1.0, node="n1", query="q"), operator("far/op", 1.0, node="n2", query="far")
    assert surroundings(operator("p/op", 5.0, node="n1", query="p"), neighbour, far).queries == ("p", "q")


@pytest.mark.parametrize(
    ("present", "name"),
    [
        (surroundings(arrivals=[1.4 * rate for rate in ARRIVALS]), "load_s"),
        (surroundings(operator("p/op", 7.0, node="n1", query="p")), "costs_s"),
        (surroundings(capacity=70.0), "changes_s"),
    ],
)
def test_an_error_is_of_what_made_it(present: Deployment, name: str) -> None:
    error = parts(present)
    made = {part: getattr(error, part) for part in ("load_s", "costs_s", "changes_s")}
    assert made.pop(name) > 0.3
    assert all(abs(value) < 0.1 for value in made.values())
    assert error.is_of_model
    assert error.load_s + error.costs_s + error.changes_s + error.rest_s == pytest.approx(2.0 - 1.05)


def test_what_was_not_measured_is_not_told_from_the_model() -> None:
    error = parts(surroundings(arrivals=[1.4 * rate for rate in ARRIVALS]), operators_measured=set())
    assert error.costs_s is None
    assert not error.is_of_model
    unmeasured = parts(KEPT, sources_measured=set())
    assert unmeasured.load_s is None
    assert (unmeasured.sources, unmeasured.sources_measured) == (1, 0)


def test_another_grid_or_a_query_that_is_gone_does_not_compare() -> None:
    assert parts(replace(KEPT, subinterval_s=2.0)) is None
    assert parts(surroundings().without_query("p")) is None


def test_changes_are_told_with_their_size() -> None:
    present = surroundings(
        operator("p/op", 6.0, node="n1", query="p"),
        operator("q/op", 1.0, node="n1", query="q"),
        arrivals=[2.0 * rate for rate in ARRIVALS],
        capacity=50.0,
    )
    told = [str(change.text).replace("\u00a0", " ") for change in surroundings_changes(KEPT, present, "p")]
    assert told == [
        "q runs beside it",
        "n1: a core does 50% less",
        "a brings 27.5/s on average, not 13.8/s",
        "p/op costs 20% more",
    ]
    assert next(iter(surroundings_changes(present, KEPT, "p"))).kind == "query_removed"
    assert surroundings_changes(KEPT, KEPT, "p") == ()
