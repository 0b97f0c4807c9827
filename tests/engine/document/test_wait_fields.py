"""Fields on windows, triggers and buffers: kept as given, and refused where they cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment, json_schema
from engine.document.elements import Window
from engine.errors import DocumentError

TUMBLING = {"policy": "time", "type": "tumbling", "size": 10.0}


def document(**operator: Any) -> dict[str, Any]:
    inputs = [{"from": "s", "selectivity": 0.1, "cycles_per_event": 5.0}]
    return {
        "subinterval_s": 0.5,
        "sources": [{"id": "s", "arrivals": [10.0, 30.0]}],
        "nodes": [{"id": "n", "capacity_cps": 100.0}],
        "operators": [{"id": "f", "node": "n", "inputs": inputs, **operator}],
    }


def faults(**operator: Any) -> list[str]:
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document(**operator))
    return [str(fault) for fault in refused.value.faults]


def test_waits_survive_a_round_trip_and_change_the_digest() -> None:
    operator = {
        "window": {
            **TUMBLING,
            "watermark_delay_s": 2.0,
            "allowed_lateness_s": 1.0,
            "emit": "on_close",
            "measured_from": "window_end",
        },
        "trigger": {"interval_s": 5.0, "overhead_s": 0.4},
        "buffer_timeout_s": 0.1,
    }
    deployment = Deployment.parse(document(**operator))
    assert operator.items() <= deployment.to_document()["operators"][0].items()
    assert Deployment.parse(deployment.to_document()).digest == deployment.digest
    assert deployment.digest != Deployment.parse(document(window=TUMBLING)).digest


def test_document_without_waits_is_written_without_them() -> None:
    (written,) = Deployment.parse(document(window=TUMBLING)).to_document()["operators"]
    assert written["window"] == TUMBLING
    assert not {"trigger", "buffer_timeout_s"} & set(written)


def test_null_means_not_stated() -> None:
    window = {**TUMBLING, "watermark_delay_s": None, "emit": None, "measured_from": None}
    (operator,) = Deployment.parse(document(window=window, trigger=None, buffer_timeout_s=None)).operators
    assert operator.window == Window("time", "tumbling", 10.0)
    assert operator.trigger is None and operator.buffer_timeout_s is None


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"watermark_delay_s": -1.0}, "window.watermark_delay_s: watermark_delay_s is -1"),
        ({"watermark_delay_s": float("nan")}, "window.watermark_delay_s: watermark_delay_s is"),
        ({"watermark_delay_s": 1e12}, "allowed: a finite number from 0 to 100000000"),
        ({"allowed_lateness_s": 1.0}, "watermark_delay_s is missing; allowed_lateness_s needs it"),
        ({"emit": "always"}, "allowed: on_close, on_update"),
        ({"measured_from": "window"}, "allowed: event, window_end"),
        ({"emit": "on_update", "measured_from": "window_end"}, "allowed: event"),
        ({"policy": "count", "watermark_delay_s": 1.0}, "watermark_delay_s is given for a window by count"),
        ({"watermark_s": 1.0}, "watermark_s is not a field of a window"),
    ],
)
def test_window_that_cannot_be_meant_is_refused(window: dict[str, Any], words: str) -> None:
    (fault,) = faults(window={**TUMBLING, **window})
    assert fault.startswith("operators[0].window") and words in fault


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({}, "interval_s is missing"),
        ({"interval_s": 0.0}, "interval_s is 0"),
        ({"interval_s": 1e-9}, "interval_s is 1e-09"),
        ({"interval_s": 5.0, "overhead_s": -0.1}, "overhead_s is -0.1"),
        ({"interval_s": 5.0, "once": True}, "once is not a field of a trigger"),
        (5.0, "a trigger is 5"),
    ],
)
def test_trigger_that_cannot_be_meant_is_refused(trigger: Any, words: str) -> None:
    (fault,) = faults(trigger=trigger)
    assert fault.startswith("operators[0].trigger") and words in fault


def test_faults_of_waits_are_told_all_at_once() -> None:
    told = faults(
        window={**TUMBLING, "type": "sliding", "allowed_lateness_s": -1.0, "emit": "late"},
        trigger={"overhead_s": "none"},
        buffer_timeout_s=-0.1,
    )
    assert len(told) == 7, told


def test_schema_knows_the_fields() -> None:
    schema = json_schema()["$defs"]
    window = schema["Window"]["properties"]
    assert {"watermark_delay_s", "allowed_lateness_s", "emit", "measured_from"} <= set(window)
    assert schema["MicroBatchTrigger"]["required"] == ["interval_s"]
    assert "buffer_timeout_s" in schema["OperatorRecord"]["properties"]


@pytest.mark.parametrize(
    ("window", "period"),
    [
        (Window("time", "tumbling", 10.0), 10.0),
        (Window("time", "tumbling", 10.0, 10.0), 10.0),
        (Window("time", "sliding", 60.0, 5.0), 5.0),
        (Window("time", "sliding", 10.0, 60.0), 10.0),
        (Window("count", "sliding", 100.0, 20.0), 20.0),
    ],
)
def test_period_is_the_longest_wait_for_a_first_result(window: Window, period: float) -> None:
    assert window.period == period
