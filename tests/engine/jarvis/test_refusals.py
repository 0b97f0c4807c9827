"""Problems that have no meaning are refused with the field that makes them so."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import DocumentError
from engine.jarvis.partition import command

PROBLEM: dict[str, Any] = {
    "relay": [0.5, 0.5],
    "cost": [1e-6, 4e-6],
    "budget": 0.1,
    "n_records": 40_000,
    "sizes": [80, 80, 60],
}


def faults_of(**changes: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as refused:
        command(PROBLEM | changes)
    return {fault.path: fault.message for fault in refused.value.faults}


def test_pipeline_without_operators_is_refused() -> None:
    assert faults_of(relay=[], cost=[], sizes=[80]) == {"relay": "relay has 0 items; allowed: at least 1"}


def test_record_of_no_bytes_is_refused() -> None:
    assert faults_of(sizes=[0, 80, 60]) == {"sizes[0]": "item 0 is 0; allowed: a finite number above 0"}


def test_operator_may_put_out_records_of_no_bytes() -> None:
    assert command(PROBLEM | {"sizes": [80, 0, 0]})["objective"] >= 0
