"""Fields of backlogs in deployment documents."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.deployment import Deployment, json_schema
from engine.errors import DocumentError


def document(source: Any = None, entry: Any = None) -> dict[str, Any]:
    read = {"from": "s", "selectivity": 1.0, "cycles_per_event": 1.0}
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [5.0, 5.0]} | ({} if source is None else {"backlog": source})],
        "nodes": [{"id": "n", "capacity_cps": 100.0}],
        "operators": [
            {"id": "f", "query": "q", "node": "n", "inputs": [read | ({} if entry is None else {"backlog": entry})]}
        ],
    }


def test_backlog_returns_from_its_document_as_it_was() -> None:
    given = document({"behind_s": 60.0}, {"events": 12.0, "behind_s": 3.0, "age_s": 20.0, "origin": "measured"})
    again = Deployment.parse(given).to_document()
    assert again["sources"][0]["backlog"] == {"behind_s": 60.0}
    assert again["operators"][0]["inputs"][0]["backlog"] == given["operators"][0]["inputs"][0]["backlog"]


def test_all_faults_of_backlogs_are_told_at_once() -> None:
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document({"events": -1, "since": 3}, {"age_s": 5.0}))
    assert {fault.path for fault in refused.value.faults} == {
        "sources[0].backlog.events",
        "sources[0].backlog.since",
        "operators[0].inputs[0].backlog",
    }


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300, "20 min", True])
def test_odd_seconds_behind_are_refused_with_their_path(value: Any) -> None:
    with pytest.raises(DocumentError) as refused:
        Deployment.parse(document({"behind_s": value}))
    assert refused.value.faults[0].path == "sources[0].backlog.behind_s"


def test_digest_knows_the_backlog_but_not_its_age() -> None:
    fresh, older, more, stale, none = (
        Deployment.parse(document(backlog)).digest
        for backlog in (
            {"events": 9, "age_s": 1.0},
            {"events": 9, "age_s": 2.0},
            {"events": 10, "age_s": 1.0},
            {"events": 9, "age_s": 1e6},
            None,
        )
    )
    assert fresh == older
    assert fresh != more
    assert stale == none


def test_schema_has_backlogs_of_sources_and_inputs() -> None:
    schema = json_schema()["$defs"]
    (source, _), (entry, _) = (schema[name]["properties"]["backlog"]["anyOf"] for name in ("Source", "InputRecord"))
    assert source == entry == {"$ref": "#/$defs/Backlog"}
    assert set(schema["Backlog"]["properties"]) == {"events", "behind_s", "age_s", "origin"}
