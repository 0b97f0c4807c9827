"""Looks: what of an engine's picture is kept for its page."""

from __future__ import annotations

import json

from apps.connections.looks import look_document
from engine.connectors.picture import EngineJob, EnginePicture, Exchange, Place, Subtask, Vertex, VertexSample


def picture() -> EnginePicture:
    source = Vertex("v0", "orders", "source", 1, subtasks=(Subtask(0, "tm-1"),))
    work = Vertex("v1", "enrich", "map", 2, (Exchange("v0", "hash"),), (Subtask(0, "tm-1"), Subtask(1, "tm-2")))
    job = EngineJob("j1", "shop", "running", 100.0, (source, work))
    places = (Place("tm-1", "tm1", 2.0, 2, 5e8, 0.25), Place("tm-2", "tm2", 2.0, 2))
    return EnginePicture("flink", "2.3.0", 160.0, places, (job,))


def test_look_names_places_and_inputs_instead_of_ids() -> None:
    look = look_document(picture())
    (job,) = look["jobs"]
    source, work = job["operators"]
    assert (look["version"], job["name"], job["polls"]) == ("2.3.0", "shop", 0)
    assert [place["name"] for place in look["places"]] == ["tm1", "tm2"]
    assert source["inputs"] == [] and "cost_s" not in source
    assert work["inputs"] == [{"from": "orders", "strategy": "hash"}]
    assert work["places"] == ["tm1", "tm2"]


def test_look_holds_the_statistics_of_sampled_operators_and_is_json() -> None:
    sample = VertexSample("v1", 500.0, 0.006, 1.0, (), 30.0, 5.0)
    look = look_document(picture(), {"j1": [sample]}, {"j1": 7})
    (job,) = look["jobs"]
    assert job["polls"] == 7
    assert [job["operators"][1][name] for name in ("events", "cost_s", "span_s", "contended_s")] == [500, 0.006, 30, 5]
    assert json.loads(json.dumps(look)) == look
