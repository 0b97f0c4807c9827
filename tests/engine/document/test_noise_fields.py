"""Fields on randomness: costs, arrivals and what counts are known of; refused where they cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment
from engine.errors import DocumentError


def document(
    source: dict[str, Any] | None = None, entry: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    read = {"from": "s", "selectivity": 1.0, "cycles_per_event": 5.0}
    return {
        "subinterval_s": 0.5,
        "sources": [{"id": "s", "arrivals": [10.0, 30.0, 0.0, 5.0], **(source or {})}],
        "nodes": [{"id": "n", "capacity_cps": 100.0}],
        "operators": [{"id": "f", "node": "n", "inputs": [{**read, **(entry or {})}]}],
        **fields,
    }


def faults(*arguments: Any, **fields: Any) -> list[str]:
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document(*arguments, **fields))
    return [str(fault) for fault in refused.value.faults]


def test_fields_on_randomness_survive_a_round_trip() -> None:
    source = {"arrivals_step_s": 1.0, "dispersion": 2.5, "dispersion_step_s": 0.25}
    entry = {"cost_cv2": 0.0, "cost_dispersion": 3.0, "cost_dispersion_events": 50.0}
    deployment = Deployment.parse(document(source, entry, statistics_of="these"))
    written = deployment.to_document()
    assert source.items() <= written["sources"][0].items()
    assert entry.items() <= written["operators"][0]["inputs"][0].items()
    assert written["statistics_of"] == "these"
    assert Deployment.parse(written).digest == deployment.digest
    assert deployment.digest != Deployment.parse(document(source, entry)).digest


def test_document_without_them_is_written_without_them() -> None:
    written = Deployment.parse(document()).to_document()
    assert "statistics_of" not in written
    assert set(written["sources"][0]) == {"id", "arrivals"}
    assert set(written["operators"][0]["inputs"][0]) == {"from", "selectivity", "cycles_per_event"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"cost_cv2": -1.0}, "cost_cv2 is -1"),
        ({"cost_cv2": float("nan")}, "cost_cv2 is"),
        ({"cost_cv2": 1e18}, "cost_cv2 is 1e+18"),
        ({"cost_dispersion": -2.0, "cost_dispersion_events": 4}, "cost_dispersion is -2"),
        ({"cost_dispersion": 2.0, "cost_dispersion_events": 0.5}, "cost_dispersion_events is 0.5"),
        ({"cost_dispersion": 2.0}, "cost_dispersion_events is missing"),
        ({"cost_dispersion_events": 20}, "cost_dispersion is missing"),
    ],
)
def test_cost_that_cannot_vary_so_is_refused(entry: dict[str, Any], words: str) -> None:
    (fault,) = faults(None, entry)
    assert fault.startswith("operators[0].inputs[0].cost_") and words in fault


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"arrivals_step_s": 0.25}, "allowed: a multiple of the subinterval (0.5 s) up to the horizon (2 s)"),
        ({"arrivals_step_s": 0.75}, "arrivals_step_s is 0.75"),
        ({"arrivals_step_s": 300.0}, "arrivals_step_s is 300"),
        ({"arrivals_step_s": 0.0}, "arrivals_step_s is 0"),
        ({"dispersion": -1.0, "dispersion_step_s": 1.0}, "dispersion is -1"),
        ({"dispersion": float("inf"), "dispersion_step_s": 1.0}, "dispersion is"),
        ({"dispersion": 3.0}, "dispersion_step_s is missing"),
        ({"dispersion_step_s": 1.5}, "dispersion is missing"),
        ({"dispersion": 2.0, "dispersion_step_s": 2.5}, "dispersion_step_s is 2.5; allowed: a number above 0, up to"),
        ({"dispersion": float("nan"), "dispersion_step_s": 1.0}, "dispersion is nan"),
    ],
)
def test_arrivals_that_cannot_be_known_so_are_refused(source: dict[str, Any], words: str) -> None:
    (fault,) = faults(source)
    assert fault.startswith("sources[0].") and words in fault


def test_faults_of_randomness_are_told_with_all_others() -> None:
    told = faults({"arrivals_step_s": 9.0}, {"cost_dispersion": 1.0}, statistics_of="others")
    assert len(told) == 3
