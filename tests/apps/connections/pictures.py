"""Pictures of a small Flink: two jobs that run and one that is over, on two TaskManagers."""

from __future__ import annotations

from typing import Any

from apps.connections.looks import look_of
from engine.connectors.picture import EngineJob, EnginePicture, Exchange, Place, Subtask, Vertex, VertexSample

__all__ = ["FINDINGS", "shop_look", "shop_picture"]

#: One of each level.
FINDINGS = [
    {"level": "found", "code": "jobs", "subject": "", "message": "2 jobs run."},
    {"level": "assumed", "code": "buffer", "subject": "shop", "message": "100 ms a hop is assumed."},
    {"level": "missing", "code": "busy", "subject": "shop/orders", "message": "How busy it is, is not told."},
    {"level": "warning", "code": "contended", "subject": "shop", "message": "The host was busy for 12 s."},
]


def shop_picture(at_s: float) -> EnginePicture:
    """The jobs `shop` (a source and an operator of two subtasks), `other` and `over`."""
    source = Vertex("v0", "orders", "source", 1, subtasks=(Subtask(0, "tm-1"),))
    enrich = Vertex("v1", "enrich", "map", 2, (Exchange("v0", "hash"),), (Subtask(0, "tm-1"), Subtask(1, "tm-2")))
    jobs = (
        EngineJob("j1", "shop", "running", at_s - 60, (source, enrich)),
        EngineJob("j2", "other", "running", at_s - 60, (source,)),
        EngineJob("j3", "over", "finished", at_s - 60, ()),
    )
    places = (Place("tm-1", "tm1", 2.0, 2, 5e8, 0.25), Place("tm-2", "tm2", 2.0, 2))
    return EnginePicture("flink", "2.3.0", at_s, places, jobs)


def shop_look(at_s: float) -> dict[str, Any]:
    """Its look; `enrich` was measured over seven polls, a fifth of that on a contended host."""
    sample = VertexSample("v1", 500.0, 0.006, 1.0, (), 60.0, 12.0)
    return look_of(shop_picture(at_s), {"j1": [sample]}, {"j1": 7}).to_dict()
